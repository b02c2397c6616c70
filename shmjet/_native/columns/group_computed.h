/* Values that a program computes, added to the only group of a table without keys while they are in a core's first
 * cache. No Python in here.
 *
 * What a program gives must not count when a result leaves its type in a later block, so the row of the group is kept
 * until the program has ended.
 */
#ifndef SHMJET_GROUP_COMPUTED_H
#define SHMJET_GROUP_COMPUTED_H

#include "columns/group.h"
#include "columns/program_call.h"

#define NO_REGISTER 255

/* The registers of an aggregate's values and of what tells nulls, or NO_REGISTER. */
typedef struct {
    uint8_t kind, value, known;
} computed_value_t;

typedef struct {
    group_table_t *table;
    const computed_value_t *values; /* of each aggregate */
} computed_taker_t;

static inline const uint8_t *register_data(const operand_t *operand, int64_t start) {
    return operand->data + operand->step * start;
}

/* Adds a block of values to an aggregate's state, in pieces of BLOCK rows. */
static inline int take_column(group_table_t *table, uint32_t aggregate, const column_t *column) {
    const group_header_t *header = table->memory.header;
    for (int64_t start = 0; start < column->rows; start += BLOCK) {
        int count = column->rows - start < BLOCK ? (int)(column->rows - start) : BLOCK;
        table->block->is_single = count >= SINGLE_LEAST;
        int status = aggregate_block(table, &header->aggregate_fields[aggregate], header->may_be_unseen[aggregate],
                                     &column, 0, start, count);
        if (status != GROUP_OK) return status;
    }
    return GROUP_OK;
}

/* Adds a block of a program to the group: a program_taker_t. */
static int take_computed(void *taker, const operand_t *registers, int64_t start, int64_t rows) {
    const computed_taker_t *given = taker;
    group_table_t *table = given->table;
    const group_header_t *header = table->memory.header;
    for (uint32_t a = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        const computed_value_t *value = &given->values[a];
        uint8_t *state = group_row(table, 1) + field->offset;
        if (value->known == NO_REGISTER && field->function == COUNT) {
            store_u64(state, load_u64(state) + (uint64_t)rows);
            continue;
        }
        column_t column = {.kind = (char)value->kind, .itemsize = 8, .rows = rows,
                           .data = register_data(&registers[value->value], start)};
        if (value->known != NO_REGISTER) column.valid = register_data(&registers[value->known], start);
        int is_sum = field->function == SUM || field->function == MEAN;
        if (is_sum && !column.valid && !header->may_be_unseen[a] && rows >= SINGLE_LEAST &&
            aggregate_single(field, state, column.data, (int)rows, 0))
            continue;
        int status = take_column(table, a, &column);
        if (status != GROUP_OK) return status;
    }
    return 0;
}

/* Runs a program, and adds what it gives to the only group. Returns GROUP_OK, PROGRAM_LEFT with the group as it was, or
 * an error. */
static inline int group_add_computed(group_table_t *table, const program_t *program, const computed_value_t *values) {
    if (table->loaded) {
        int status = group_end_loading(table);
        if (status != GROUP_OK) return status;
    }
    group_header_t *header = table->memory.header;
    group_block_t *block = table->block;
    for (int i = 0; i < BLOCK; i++) block->groups[i] = 1, block->rows[i] = group_row(table, 1);
    if (table->capture) group_preserve(&table->memory, table->capture, block->groups, 1);
    if (table->updated) group_note_rows(table, 1);
    size_t marks = header->mark_bytes, stride = header->stride;
    uint8_t *before = malloc(stride + marks + 1);
    if (!before) return errno = ENOMEM, GROUP_ERRNO;
    memcpy(before, group_row(table, 1), stride);
    memcpy(before + stride, group_marks(table, 1), marks);
    for (uint32_t a = 0; a < header->aggregates; a++)
        if (has_seen_bit(header->aggregate_fields[a].function) && values[a].known != NO_REGISTER)
            header->may_be_unseen[a] = 1;
    computed_taker_t taker = {table, values};
    int status = program_blocks(program, take_computed, &taker);
    if (status == PROGRAM_LEFT) {
        memcpy(group_row(table, 1), before, stride);
        memcpy(group_marks(table, 1), before + stride, marks);
    }
    free(before);
    return status;
}

#endif
