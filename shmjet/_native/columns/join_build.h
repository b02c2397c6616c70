/* Adding rows to the table of join.h. No Python in here. */
#ifndef SHMJET_JOIN_BUILD_H
#define SHMJET_JOIN_BUILD_H

#include "columns/join.h"

/* Adds the i-th row of a block; `left`: rows of this call, with it. */
static inline int join_add_row(join_table_t *table, const join_block_t *block, int64_t i, const key_column_t *keys,
                               int64_t row, int64_t left) {
    const uint64_t number = (uint64_t)table->rows;
    join_slot_t *slot = join_find(table, block, i, keys, row);
    if (slot && !table->links && join_reserve_links(table, left)) return JOIN_NO_MEMORY;
    if (table->links) table->links[number] = (uint32_t)number;
    if (slot) {
        uint64_t state = join_state(table, slot);
        join_link(table, state >> JOIN_ROW);
        join_set_state(table, slot, number << JOIN_ROW | (state & 0xff) | JOIN_SEVERAL);
    } else if (block->classes[i] != KEY_NONE) {
        uint64_t state = number << JOIN_ROW | (uint64_t)block->classes[i] << JOIN_CLASS | JOIN_USED;
        join_slot_t fresh = {block->keys[i], state};
        if (table->mode != JOIN_ONE) {
            int64_t place =
                table->mode == JOIN_TUPLE ? join_store_tuple(table, block, i) : join_store_any(table, keys, row);
            if (place < 0) return JOIN_NO_MEMORY;
            fresh.state = (uint64_t)place << JOIN_ROW | JOIN_USED;
            join_set_state(table, &fresh, state);
        }
        uint64_t at = block->hashes[i] >> (64 - table->bits), mask = (UINT64_C(1) << table->bits) - 1;
        while (table->slots[at].state) at = (at + 1) & mask;
        table->slots[at] = fresh;
        table->used++;
    }
    table->rows++;
    return JOIN_OK;
}

/* Adds the i-th row of a block to a direct table; `left`: rows of this call, with it. */
static inline int join_add_directly(join_table_t *table, const join_numbers_t *block, int64_t i, int64_t left) {
    const join_direct_t *direct = &table->direct;
    const uint64_t number = (uint64_t)table->rows, place = join_direct_place(direct, block->payloads[i]);
    if (block->classes[i] != KEY_NONE) {
        if (block->classes[i] != direct->class || place >= direct->span) return JOIN_UNSURVEYED;
        const uint32_t before = direct->slots[place];
        if (before && !table->links && join_reserve_links(table, left)) return JOIN_NO_MEMORY;
        if (table->links) table->links[number] = (uint32_t)number;
        if (before) join_link(table, join_direct_row(before));
        else table->used++;
        direct->slots[place] = join_direct_slot(number, before != 0);
    } else if (table->links) {
        table->links[number] = (uint32_t)number;
    }
    table->rows++;
    return JOIN_OK;
}

/* Adds the rows of a block for as long as each has a key of its own, and there are no links; returns how many. */
static inline int64_t join_add_single(join_table_t *table, const join_walk_t *walk) {
    const join_numbers_t *block = walk->now;
    const join_direct_t direct = table->direct;
    int64_t i = 0;
    if (table->links) return 0;
    for (; i < block->count; i++) {
        const uint64_t place = join_direct_place(&direct, block->payloads[i]);
        if (block->classes[i] != direct.class || place >= direct.span || direct.slots[place]) break;
        direct.slots[place] = join_direct_slot((uint64_t)(table->rows + i), 0);
        join_walk_ask(walk, i);
    }
    table->rows += i;
    table->used += i;
    return i;
}

/* As join_add, for a direct table. */
static inline int join_add_all_directly(join_table_t *table, const key_column_t *keys, int64_t rows) {
    join_walk_t walk;
    int64_t count, added = 0;
    join_walk_begin(&walk, table, keys, 0, rows);
    while ((count = join_walk_step(&walk))) {
        for (int64_t i = join_add_single(table, &walk); i < count; i++) {
            int status = join_add_directly(table, walk.now, i, rows - added - i);
            if (status) return status;
            join_walk_ask(&walk, i);
        }
        added += count;
    }
    return JOIN_OK;
}

/* What keys of these columns are. */
static inline join_mode_t join_mode_of(const key_column_t *keys, int64_t key_count) {
    int64_t numbers = 0;
    while (numbers < key_count && key_is_word(&keys[numbers])) numbers++;
    return numbers < key_count || numbers > JOIN_NUMBERS ? JOIN_ANY : numbers == 1 ? JOIN_ONE : JOIN_TUPLE;
}

/* Notes the keys of rows before any is added. */
static inline void join_survey(join_table_t *table, const key_column_t *keys, int64_t key_count, int64_t rows) {
    uint64_t payloads[JOIN_BLOCK];
    uint8_t classes[JOIN_BLOCK];
    const join_mode_t mode = join_mode_of(keys, key_count);
    const int64_t numbers = mode == JOIN_ANY ? 0 : key_count;
    table->survey.rows += rows;
    if (mode != JOIN_ONE) table->survey.is_mixed = 1;
    if (mode != JOIN_TUPLE) table->parts[0].is_mixed = 1;
    for (int64_t k = 0; k < numbers; k++) {
        join_survey_t *survey = mode == JOIN_ONE ? &table->survey : &table->parts[k];
        for (int64_t start = 0; !survey->is_mixed && start < rows; start += JOIN_BLOCK) {
            int64_t count = rows - start < JOIN_BLOCK ? rows - start : JOIN_BLOCK;
            join_read_numbers(&keys[k], start, count, payloads, classes);
            join_survey_numbers(survey, payloads, classes, count);
        }
    }
}

/* Decides what keys are, before the first rows. Returns JOIN_OK or JOIN_NO_MEMORY. */
static inline int join_decide(join_table_t *table, const key_column_t *keys, int64_t key_count) {
    table->columns = key_count;
    table->mode = join_mode_of(keys, key_count);
    if (table->mode == JOIN_TUPLE && join_pack(&table->packing, table->parts, key_count, &table->survey))
        table->mode = JOIN_ONE;
    return join_direct_fits(&table->survey) && join_direct_open(&table->direct, &table->survey) ? JOIN_NO_MEMORY
                                                                                               : JOIN_OK;
}

/* Adds rows; they get the next numbers, even if they equal nothing. The first call decides what keys are. Returns
 * JOIN_OK, or what is wrong; some of the rows may have been added then. */
static inline int join_add(join_table_t *table, const key_column_t *keys, int64_t key_count, int64_t rows) {
    join_block_t block;
    if (!table->columns && join_decide(table, keys, key_count)) return JOIN_NO_MEMORY;
    const int is_bound = table->direct.slots || table->packing.columns;
    if (table->rows + rows > (int64_t)JOIN_MOST_ROWS) return JOIN_FULL;
    if (is_bound && table->rows + rows > table->survey.rows) return JOIN_UNSURVEYED;
    int status = table->links ? join_reserve_links(table, rows) : JOIN_OK;
    if (table->direct.slots) return status ? status : join_add_all_directly(table, keys, rows);
    for (int64_t start = 0; !status && start < rows; start += JOIN_BLOCK) {
        int64_t count = rows - start < JOIN_BLOCK ? rows - start : JOIN_BLOCK, left = rows - start;
        if ((status = join_step(table))) break;
        join_read(table, keys, start, count, &block);
        for (int64_t i = 0; table->packing.columns && i < count; i++)
            if (block.classes[i] == KEY_FLOAT) return JOIN_UNSURVEYED;
        for (int64_t i = 0; !status && i < count; i++)
            status = join_add_row(table, &block, i, keys, start + i, left - i);
    }
    return status;
}

#endif
