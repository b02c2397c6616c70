/* Looking rows up in the table of join.h. No Python in here.
 *
 * What a probe finds is bounded by the room for it: where it is full the probe says how to go on, also in the middle of
 * the rows of one key, so that a key that half of all rows have makes no step longer.
 */
#ifndef SHMJET_JOIN_PROBE_H
#define SHMJET_JOIN_PROBE_H

#include "columns/join.h"

/* Where a probe goes on: at row `row`, and there with the build row `link` if that is not -1. */
typedef struct {
    int64_t row, link;
} join_place_t;

typedef struct {
    uint8_t *probe, *build; /* int64 of any alignment */
    int64_t count, room;
    int is_run; /* each row of the probe so far has made exactly one pair */
} join_pairs_t;

static inline void join_emit(join_pairs_t *pairs, int64_t probe, int64_t build) {
    memcpy(pairs->probe + 8 * pairs->count, &probe, 8);
    memcpy(pairs->build + 8 * pairs->count, &build, 8);
    pairs->count++;
}

/* Emits the matches of one row that has some. Returns 1 when it has emitted all of them. */
static inline int join_emit_matches(const join_table_t *table, uint64_t state, join_pairs_t *pairs,
                                    join_place_t *place) {
    const int64_t last = (int64_t)(state >> JOIN_ROW);
    if (state & JOIN_SEVERAL) pairs->is_run = 0;
    if (!(state & JOIN_SEVERAL)) {
        join_emit(pairs, place->row, last);
        return 1;
    }
    int64_t build = place->link >= 0 ? place->link : (int64_t)table->links[last];
    while (pairs->count < pairs->room) {
        join_emit(pairs, place->row, build);
        if (build == last) {
            place->link = -1;
            return 1;
        }
        build = table->links[build];
    }
    place->link = build;
    return 0;
}

/* Writes the state of the key of each row of a block: 0, or its last row, and whether it has several. */
static inline void join_states(join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                               uint64_t *states) {
    if (table->direct.slots) {
        join_numbers_t numbers;
        join_read_keys(table, keys, start, count, numbers.payloads, numbers.classes);
        for (int64_t i = 0; i < count; i++) join_direct_ask(&table->direct, numbers.payloads[i]);
        for (int64_t i = 0; i < count; i++) {
            const uint32_t slot = join_direct_find(&table->direct, numbers.payloads[i], numbers.classes[i]);
            states[i] = slot ? join_direct_row(slot) << JOIN_ROW | (slot & 1 ? JOIN_SEVERAL : 0) | JOIN_USED : 0;
        }
    } else {
        join_block_t block;
        join_settle(table);
        join_read(table, keys, start, count, &block);
        for (int64_t i = 0; i < count; i++) {
            join_slot_t *slot = join_find(table, &block, i, keys, start + i);
            states[i] = slot ? join_state(table, slot) : 0;
        }
    }
    for (int64_t i = 0; table->links && i < count; i++)
        if (states[i] & JOIN_SEVERAL) __builtin_prefetch(&table->links[states[i] >> JOIN_ROW]);
}

/* As join_probe, for a direct table in which each key has one row. */
static inline void join_probe_single(const join_table_t *table, const key_column_t *keys, int64_t rows, int outer,
                                     join_pairs_t *pairs, join_place_t *place) {
    const join_direct_t direct = table->direct;
    const int64_t room = pairs->room - pairs->count, left = rows - place->row;
    join_walk_t walk;
    join_walk_begin(&walk, table, keys, place->row, left < room ? rows : place->row + room);
    for (int64_t count; (count = join_walk_step(&walk)); place->row += count) {
        const int64_t before = pairs->count;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t slot = join_direct_find(&direct, walk.now->payloads[i], walk.now->classes[i]);
            const int64_t probe = place->row + i, build = (int64_t)(slot >> 1) - 1; /* -1 where there is none */
            memcpy(pairs->probe + 8 * pairs->count, &probe, 8);
            memcpy(pairs->build + 8 * pairs->count, &build, 8);
            pairs->count += outer || slot;
            join_walk_ask(&walk, i);
        }
        if (pairs->count - before < count) pairs->is_run = 0;
    }
}

/* Writes pairs of a probe row and a build row with equal keys, in the order of probe rows and for each in the order of
 * adding. With `outer` a row without a match is paired with -1. Goes on from `place` and leaves there where to go
 * on. */
static inline void join_probe(join_table_t *table, const key_column_t *keys, int64_t rows, int outer,
                              join_pairs_t *pairs, join_place_t *place) {
    while (place->row < rows && pairs->count < pairs->room) {
        if (table->direct.slots && !table->links) {
            join_probe_single(table, keys, rows, outer, pairs, place);
            continue;
        }
        uint64_t states[JOIN_BLOCK];
        const int64_t start = place->row, count = rows - start < JOIN_BLOCK ? rows - start : JOIN_BLOCK;
        join_states(table, keys, start, count, states);
        for (int64_t i = 0; i < count; i++, place->row++) {
            if (pairs->count == pairs->room) return;
            if (states[i]) {
                if (!join_emit_matches(table, states[i], pairs, place)) return;
            } else if (outer) {
                join_emit(pairs, place->row, -1);
            } else {
                pairs->is_run = 0;
            }
        }
    }
}

/* Writes for each row whether its key is in the table. */
static inline void join_contains(join_table_t *table, const key_column_t *keys, int64_t rows, uint8_t *out) {
    if (table->direct.slots) {
        join_walk_t walk;
        join_walk_begin(&walk, table, keys, 0, rows);
        for (int64_t count; (count = join_walk_step(&walk)); out += count)
            for (int64_t i = 0; i < count; i++) {
                out[i] = join_direct_find(&table->direct, walk.now->payloads[i], walk.now->classes[i]) != 0;
                join_walk_ask(&walk, i);
            }
        return;
    }
    for (int64_t start = 0; start < rows; start += JOIN_BLOCK) {
        uint64_t states[JOIN_BLOCK];
        int64_t count = rows - start < JOIN_BLOCK ? rows - start : JOIN_BLOCK;
        join_states(table, keys, start, count, states);
        for (int64_t i = 0; i < count; i++) out[start + i] = states[i] != 0;
    }
}

#endif
