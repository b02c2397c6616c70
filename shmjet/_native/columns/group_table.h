/* The hash table of groups: which row of the table belongs to a key. No Python in here.
 *
 * Rows lie one after the other in the order of their first appearance and never move; row 0 stands for "none". The
 * index into them is extendible hashing (Fagin, Nievergelt, Pippenger, Strong, 1979): a directory, entered by the
 * first bits of a hash, names segments of 2^SEGMENT_BITS slots, each an open-addressing table of its own (linear
 * probing). A full segment is split in two by one more bit of the hash, and all the others stay as they are. So the
 * table grows in steps of some microseconds, at 10^3 keys as at 10^8, and never rehashes as a whole. A slot keeps 32
 * bits of the hash with the row's number: these tell most unequal keys apart and are all that a split needs.
 *
 * A block of rows goes through in stages: hash; prefetch the slots; read them and prefetch the rows that they name;
 * compare the keys. So the memory of BLOCK rows is on its way at once (as in Chen et al., "Improving hash join
 * performance through prefetching", ICDE 2004). What is then unclear, new keys and collisions of the 32 bits, goes one
 * by one; a new key goes on from the free slot at which its search has ended, unless a segment has been split since.
 */
#ifndef SHMJET_GROUP_TABLE_H
#define SHMJET_GROUP_TABLE_H

#include <stdlib.h>

#include "columns/group_capture.h"
#include "columns/group_keys.h"
#include "columns/group_memory.h"
#include "columns/simd.h"

#define SEGMENT_BITS 11
#define SEGMENT_SLOTS (UINT32_C(1) << SEGMENT_BITS)
#define SEGMENT_MASK (SEGMENT_SLOTS - 1)
#define SEGMENT_BYTES (8 * (size_t)SEGMENT_SLOTS)
#define MAX_DEPTH (32 - SEGMENT_BITS)
#define ROOMY_DEPTH 6 /* up to here segments are split when half full, which spares probes while memory is cheap */
#define ROOMY_FILL (SEGMENT_SLOTS / 2)
#define MOST_FILL (SEGMENT_SLOTS / 8 * 5) /* at three quarters a search for a new key would take twice as many probes */
#define CACHED_BYTES ((size_t)256 << 10) /* tables of up to this size are not prefetched */
#define STATE_PARTS 5 /* of a state, at most */
#define NEAR_KEYS (1 << 16)
#define NEAR_PATIENCE 16 /* blocks that lie elsewhere before the near keys are others */

enum { GROUP_OK, GROUP_ERRNO = -1, GROUP_FULL = -2, GROUP_LONG_TEXT = -3 };

/* The groups of integer keys that lie close together, as days, codes and counters do: by key - base, without a hash.
 * It belongs to the process and is only a memory of what the table said. */
typedef struct {
    uint64_t base;
    uint32_t refused;               /* blocks since the last fit */
    uint32_t groups[NEAR_KEYS];     /* 0: not asked yet */
} group_near_t;

/* Room for one block, so that nothing is allocated on the way. */
typedef struct {
    uint64_t hashes[BLOCK], words[STATE_PARTS + 1][BLOCK];
    uint64_t nulls[GROUP_MAX_KEYS / 64][BLOCK]; /* of each row, 64 keys in a word */
    uint32_t slots[BLOCK], groups[BLOCK], chosen_groups[BLOCK];
    uint8_t *rows[BLOCK], *chosen_rows[BLOCK];
    uint16_t unclear[BLOCK], chosen[BLOCK];
    int is_single; /* all rows belong to one group */
    key_block_t keys[];
} group_block_t;

/* The rows that were loaded and are not in the index yet, by the segment that each goes to: group_load.h. */
typedef struct {
    uint64_t segments; /* that wait to be made and filled; 0: none does, and nothing is held */
    uint32_t depth;    /* of the directory when the rows began to wait: there is one for each prefix of so many bits */
    uint32_t scans;    /* segments that were filled before the rows were listed */
    uint64_t count;    /* rows that were loaded */
    uint64_t left;     /* rows that are not in a segment yet */
    int made;          /* whether a segment has been made */
    uint32_t *rows;    /* from 0 on, prefix by prefix; those of one segment until they are listed */
    uint32_t *ends;    /* where the rows of each prefix end; NULL: they are not listed yet */
    uint8_t *waits;    /* a byte for each prefix: whether its entries of the directory lead nowhere yet */
} group_waiting_t;

typedef struct {
    group_memory_t memory;
    group_block_t *block;
    group_near_t *near;
    group_capture_t *capture; /* of it, while blocks are being copied; else NULL */
    uint8_t *updated;         /* a byte for each row: whether it was written to since group_note(); NULL: not noted */
    uint64_t updated_room;
    uint64_t updated_rows, updated_most; /* how many of them; how many there may be */
    uint32_t *tags; /* of the rows that are not in the index yet, all of which were loaded: group_load.h */
    uint64_t loaded, tags_room; /* `loaded`: how many there are of which nothing was looked for yet */
    group_waiting_t waiting;
    uint8_t *template; /* `stride` bytes: the row of a new group, then `mark_bytes` bytes: its marks */
} group_table_t;

static inline int group_fill_for(group_table_t *table, int count);

static inline uint8_t *group_row(const group_table_t *table, uint64_t group) {
    return table->memory.base[REGION_ROWS] + group * table->memory.header->stride;
}

static inline uint8_t *group_marks(const group_table_t *table, uint64_t group) {
    return table->memory.base[REGION_MARKS] + group * table->memory.header->mark_bytes;
}

/* -- the index ----------------------------------------------------------------------------------------------------- */

/* A slot is the hash's 32 bits, then the row's number; 0 is free. A directory entry is a segment's number, then in 5
 * bits how many bits of the hash its keys share. */
static inline uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 32); }

static inline uint8_t *directory_entry(const group_table_t *table, uint32_t prefix) {
    return table->memory.base[REGION_DIRECTORY] + GROUP_DIRECTORY_OFFSET + 4 * (size_t)prefix;
}

static inline uint32_t prefix_of(uint32_t tag, uint32_t depth) { return (uint32_t)((uint64_t)tag >> (32 - depth)); }

static inline uint32_t home_slot(const group_table_t *table, uint32_t tag, uint32_t depth) {
    uint32_t entry = load_u32(directory_entry(table, prefix_of(tag, depth)));
    return (entry >> 5) << SEGMENT_BITS | (tag & SEGMENT_MASK);
}

static inline uint32_t next_slot(uint32_t slot) { return (slot & ~SEGMENT_MASK) | ((slot + 1) & SEGMENT_MASK); }

static inline void store_u32(void *p, uint32_t value) { memcpy(p, &value, sizeof value); }

static inline uint8_t *segment_fill(const group_table_t *table, uint32_t segment) {
    return table->memory.base[REGION_FILLS] + 4 * (size_t)segment;
}

static inline int group_new_segment(group_table_t *table, uint32_t *segment) {
    group_memory_t *memory = &table->memory;
    uint64_t number = memory->header->segments;
    if (number >> MAX_DEPTH) return GROUP_FULL;
    if (group_reserve(memory, REGION_SLOTS, (number + 1) * SEGMENT_BYTES) < 0 ||
        group_reserve(memory, REGION_FILLS, (number + 1) * 4) < 0)
        return GROUP_ERRNO;
    memory->header->segments = number + 1;
    *segment = (uint32_t)number;
    return GROUP_OK;
}

static inline int group_double_directory(group_table_t *table) {
    group_memory_t *memory = &table->memory;
    uint32_t depth = memory->header->depth;
    if (depth == MAX_DEPTH) return GROUP_FULL;
    if (group_reserve(memory, REGION_DIRECTORY, GROUP_DIRECTORY_OFFSET + ((size_t)8 << depth)) < 0) return GROUP_ERRNO;
    for (uint32_t i = UINT32_C(1) << depth; i-- > 0;) {
        uint32_t entry = load_u32(directory_entry(table, i));
        store_u32(directory_entry(table, 2 * i), entry);
        store_u32(directory_entry(table, 2 * i + 1), entry);
    }
    memory->header->depth = depth + 1;
    return GROUP_OK;
}

/* Splits the segment that `tag` leads to. */
static inline int group_split(group_table_t *table, uint32_t tag) {
    group_header_t *header = table->memory.header;
    uint32_t entry = load_u32(directory_entry(table, prefix_of(tag, header->depth)));
    uint32_t old = entry >> 5, shared = entry & 31, new, kept = 0, moved = 0;
    int status = shared == header->depth ? group_double_directory(table) : GROUP_OK;
    if (status != GROUP_OK || (status = group_new_segment(table, &new)) != GROUP_OK) return status;
    header = table->memory.header;
    uint8_t *slots = table->memory.base[REGION_SLOTS], *from = slots + old * SEGMENT_BYTES;
    uint8_t *target[2] = {from, slots + new * SEGMENT_BYTES};
    uint64_t before[SEGMENT_SLOTS];
    memcpy(before, from, SEGMENT_BYTES);
    memset(from, 0, SEGMENT_BYTES);
    for (uint32_t i = 0; i < SEGMENT_SLOTS; i++) {
        if (!before[i]) continue;
        uint32_t hash = (uint32_t)(before[i] >> 32), goes = hash >> (31 - shared) & 1, at = hash & SEGMENT_MASK;
        while (load_u64(target[goes] + 8 * (size_t)at)) at = (at + 1) & SEGMENT_MASK;
        store_u64(target[goes] + 8 * (size_t)at, before[i]);
        moved += goes;
        kept += !goes;
    }
    store_u32(segment_fill(table, old), kept);
    store_u32(segment_fill(table, new), moved);
    uint32_t span = UINT32_C(1) << (header->depth - shared), start = prefix_of(tag, header->depth) & ~(span - 1);
    for (uint32_t i = 0; i < span; i++)
        store_u32(directory_entry(table, start + i), (i < span / 2 ? old : new) << 5 | (shared + 1));
    return GROUP_OK;
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

/* Takes `length` bytes of the heap. May move it. Returns 0 or -1 with errno. */
static inline int group_heap_take(group_table_t *table, uint64_t length, uint64_t *offset) {
    uint64_t used = table->memory.header->heap;
    if (group_reserve(&table->memory, REGION_HEAP, used + length) < 0) return -1;
    table->memory.header->heap = used + length;
    *offset = used;
    return 0;
}

static inline int key_equals(const group_table_t *table, const key_block_t *key, const uint8_t *place, int i) {
    if (load_u64(place) != load_u64(key->words + 8 * i)) return 0;
    if (!key->is_text) return 1;
    bytes_t text = key->text[i];
    if (text.length <= TEXT_INLINE) return load_u64(place + 8) == key->tail[i];
    return !memcmp(table->memory.base[REGION_HEAP] + load_u64(place + 8), text.data, text.length);
}

/* Writes which keys of row i of the block are null; returns whether any is. */
static inline int group_put_nulls(const group_table_t *table, int i, uint8_t *marks) {
    const uint32_t bytes = table->memory.header->null_bytes;
    uint64_t word = 0, any = 0;
    for (uint32_t at = 0; at < bytes; at++, word >>= 8) {
        if (at % 8 == 0) any |= word = table->block->nulls[at / 8][i];
        marks[at] = (uint8_t)word;
    }
    return any != 0;
}

static inline int nulls_equal(const group_table_t *table, uint64_t group, int i) {
    const uint8_t *marks = group_marks(table, group);
    for (uint32_t at = 0; at < table->memory.header->null_bytes; at++)
        if (marks[at] != (uint8_t)(table->block->nulls[at / 8][i] >> 8 * (at % 8))) return 0;
    return 1;
}

static inline int row_equals(const group_table_t *table, uint64_t group, int i, int compare_nulls) {
    const group_header_t *header = table->memory.header;
    const uint8_t *row = group_row(table, group);
    if (compare_nulls && !nulls_equal(table, group, i)) return 0;
    for (uint32_t k = 0; k < header->keys; k++)
        if (!key_equals(table, &table->block->keys[k], row + header->key_fields[k].offset, i)) return 0;
    return 1;
}

/* Appends the row of a new group; the caller has reserved rows and marks. */
static inline int group_append(group_table_t *table, int i) {
    group_header_t *header = table->memory.header;
    uint64_t group = header->groups + 1;
    uint8_t *row = group_row(table, group), *marks = group_marks(table, group);
    for (uint32_t at = 0; at < header->stride; at += 8) store_u64(row + at, load_u64(table->template + at));
    for (uint32_t at = 0; at < header->mark_bytes; at++) marks[at] = table->template[header->stride + at];
    if (group_put_nulls(table, i, marks)) header->has_null_keys = 1;
    for (uint32_t k = 0; k < header->keys; k++) {
        const key_block_t *key = &table->block->keys[k];
        uint8_t *place = row + header->key_fields[k].offset;
        store_u64(place, load_u64(key->words + 8 * i));
        if (!key->is_text) continue;
        uint64_t tail = key->tail[i];
        if (key->text[i].length > TEXT_INLINE) {
            if (group_heap_take(table, key->text[i].length, &tail) < 0) return GROUP_ERRNO;
            memcpy(table->memory.base[REGION_HEAP] + tail, key->text[i].data, key->text[i].length);
        }
        store_u64(place + 8, tail);
    }
    header->groups = group;
    return GROUP_OK;
}

/* The group of row i of the block, made when it is new. `is_probed`: no slot before block->slots[i] has its key. */
static inline int group_find_or_append(group_table_t *table, int i, int compare_nulls, int is_probed) {
    uint32_t tag = tag_of(table->block->hashes[i]);
    for (;; is_probed = 0) {
        const group_header_t *header = table->memory.header;
        uint8_t *slots = table->memory.base[REGION_SLOTS];
        uint32_t at = is_probed ? table->block->slots[i] : home_slot(table, tag, header->depth);
        uint64_t slot;
        for (; (slot = load_u64(slots + 8 * (size_t)at)); at = next_slot(at))
            if (slot >> 32 == tag && row_equals(table, (uint32_t)slot, i, compare_nulls)) {
                table->block->groups[i] = (uint32_t)slot;
                return GROUP_OK;
            }
        uint32_t segment = at >> SEGMENT_BITS, fill = load_u32(segment_fill(table, segment));
        if (fill >= (header->depth <= ROOMY_DEPTH ? ROOMY_FILL : MOST_FILL)) {
            int status = group_split(table, tag);
            if (status == GROUP_OK) continue;
            if (status != GROUP_FULL || fill >= SEGMENT_SLOTS - 1) return status;
        }
        if (header->groups == UINT32_MAX) return GROUP_FULL;
        if (group_append(table, i) != GROUP_OK) return GROUP_ERRNO;
        header = table->memory.header;
        store_u32(segment_fill(table, segment), fill + 1);
        store_u64(slots + 8 * (size_t)at, (uint64_t)tag << 32 | header->groups);
        table->block->groups[i] = (uint32_t)header->groups;
        return GROUP_OK;
    }
}

/* -- a block ------------------------------------------------------------------------------------------------------- */

/* The group that each row of a block probably has; 0 where there is none, and then block->slots has the free slot at
 * which the search has ended. */
static inline __attribute__((always_inline)) void group_probe(group_table_t *table, int count, int with_prefetch) {
    group_block_t *block = table->block;
    const uint8_t *slots = table->memory.base[REGION_SLOTS], *rows = table->memory.base[REGION_ROWS];
    uint32_t depth = table->memory.header->depth, stride = table->memory.header->stride;
    for (int i = 0; i < count; i++) {
        block->slots[i] = home_slot(table, tag_of(block->hashes[i]), depth);
        if (with_prefetch) __builtin_prefetch(slots + 8 * (size_t)block->slots[i]);
    }
    for (int i = 0; i < count; i++) {
        uint32_t tag = tag_of(block->hashes[i]), at = block->slots[i];
        uint64_t slot = load_u64(slots + 8 * (size_t)at), second = load_u64(slots + 8 * (size_t)next_slot(at));
        /* The first two slots without a branch: it would be guessed wrong at every third row. */
        uint64_t found = slot >> 32 == tag ? slot : second;
        if (__builtin_expect(found >> 32 != tag, 0)) {
            for (at = next_slot(at); found && found >> 32 != tag; found = load_u64(slots + 8 * (size_t)at))
                at = next_slot(at);
            if (!slot) found = 0, at = block->slots[i];
            block->slots[i] = at;
        }
        block->groups[i] = (uint32_t)found;
        if (with_prefetch) __builtin_prefetch(rows + (uint32_t)found * (size_t)stride, 1);
    }
}

/* Compares the keys of a block with those of the rows found, and lists in `unclear` the rows to look at one by one. */
static inline int group_verify(group_table_t *table, int count, int compare_nulls) {
    group_block_t *block = table->block;
    const group_header_t *header = table->memory.header;
    uint8_t *rows = table->memory.base[REGION_ROWS];
    size_t stride = header->stride;
    int unclear = 0;
    if (header->keys == 1 && !compare_nulls && !block->keys[0].is_text) {
        const uint8_t *words = block->keys[0].words;
        for (int i = 0; i < count; i++) {
            uint8_t *row = rows + block->groups[i] * stride;
            block->rows[i] = row;
            block->unclear[unclear] = (uint16_t)i;
            unclear += (load_u64(row) != load_u64(words + 8 * i)) | !block->groups[i];
        }
        return unclear;
    }
    for (int i = 0; i < count; i++) {
        block->rows[i] = rows + block->groups[i] * stride;
        block->unclear[unclear] = (uint16_t)i;
        unclear += !block->groups[i] || !row_equals(table, block->groups[i], i, compare_nulls);
    }
    return unclear;
}

SIMD_CLONES static uint64_t near_reach(uint64_t base, const uint8_t *words, int count) {
    uint64_t reach = 0;
    for (int i = 0; i < count; i++) reach |= load_u64(words + 8 * (size_t)i) - base;
    return reach;
}

/* Whether all keys of a block are near ones. Now and then, when they are not, makes others the near ones. */
static inline int near_fits(group_near_t *near, const uint8_t *words, int count) {
    if (near_reach(near->base, words, count) < NEAR_KEYS) return near->refused = 0, 1;
    if (++near->refused % NEAR_PATIENCE != 1) return 0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int i = 0; i < count; i++) {
        int64_t key = load_i64(words + 8 * i);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    if ((uint64_t)most - (uint64_t)least >= NEAR_KEYS / 2) return 0;
    near->base = (uint64_t)least - NEAR_KEYS / 4; /* what comes next may be a little less */
    near->refused = 0;
    memset(near->groups, 0, sizeof near->groups);
    return 1;
}

/* Writes the groups that the near keys say; returns how many of them say nothing. */
SIMD_CLONES static int near_groups(const uint32_t *near, uint64_t base, const uint8_t *words, int count,
                                   uint32_t *restrict groups) {
    int unknown = 0;
    for (int i = 0; i < count; i++) {
        uint32_t group = near[load_u64(words + 8 * (size_t)i) - base];
        groups[i] = group;
        unknown += !group;
    }
    return unknown;
}

SIMD_CLONES static void rows_of_groups(uint8_t *rows, uint32_t stride, const uint32_t *groups, int count,
                                       uint8_t **restrict to) {
    for (int i = 0; i < count; i++) to[i] = rows + groups[i] * (uint64_t)stride;
}

/* What the near keys say of a block, and in `unclear` the rows of which they say nothing. */
static inline int group_recall(group_table_t *table, const uint8_t *words, int count) {
    group_block_t *block = table->block;
    int unclear = 0, unknown = near_groups(table->near->groups, table->near->base, words, count, block->groups);
    rows_of_groups(table->memory.base[REGION_ROWS], table->memory.header->stride, block->groups, count, block->rows);
    for (int i = 0; unclear < unknown; i++) {
        block->unclear[unclear] = (uint16_t)i;
        unclear += !block->groups[i];
    }
    return unclear;
}

static inline void group_hash(group_table_t *table, const column_t *const *keys, int count) {
    group_block_t *block = table->block;
    const group_header_t *header = table->memory.header;
    if (!header->keys) memset(block->hashes, 0, (size_t)count * sizeof *block->hashes);
    for (uint32_t k = 0; k < header->keys; k++)
        key_hash(&block->keys[k], (int)k, header->seed, count, keys[k]->valid ? block->nulls[k / 64] : NULL,
                 block->hashes);
}

/* Finds or makes the groups of `count` rows from row `start` on: block->groups and block->rows. */
static inline int group_locate(group_table_t *table, const column_t *const *keys, int64_t start, int count) {
    group_block_t *block = table->block;
    group_memory_t *memory = &table->memory;
    const group_header_t *header = memory->header;
    uint64_t rows = header->groups + 1 + (uint64_t)count;
    if (group_reserve(memory, REGION_ROWS, rows * header->stride) < 0 ||
        group_reserve(memory, REGION_MARKS, rows * header->mark_bytes) < 0)
        return GROUP_ERRNO;
    if (!header->keys && header->groups) {
        for (int i = 0; i < count; i++) block->groups[i] = 1, block->rows[i] = group_row(table, 1);
        return GROUP_OK;
    }
    int compare_nulls = header->has_null_keys;
    for (uint32_t k = 0; k < header->keys; k += 64) memset(block->nulls[k / 64], 0, (size_t)count * 8);
    for (uint32_t k = 0; k < header->keys; k++) {
        compare_nulls |= keys[k]->valid != NULL;
        if (key_load(&block->keys[k], keys[k], (char)header->key_fields[k].class, (int)k, start, count,
                     block->nulls[k / 64]) < 0)
            return GROUP_LONG_TEXT;
    }
    const uint8_t *words = header->keys ? block->keys[0].words : NULL, *before = memory->base[REGION_ROWS];
    int is_near = header->keys == 1 && header->key_fields[0].class == 'i' && !keys[0]->valid &&
                  near_fits(table->near, words, count);
    int unclear = is_near ? group_recall(table, words, count) : count;
    if (is_near && !unclear) return GROUP_OK;
    group_hash(table, keys, count);
    if (table->waiting.segments) {
        int status = group_fill_for(table, count);
        if (status != GROUP_OK) return status;
        header = memory->header;
    }
    const uint64_t segments = header->segments;
    if (!is_near) {
        if (header->groups * header->stride > CACHED_BYTES)
            group_probe(table, count, 1);
        else
            group_probe(table, count, 0);
        unclear = group_verify(table, count, compare_nulls);
    }
    for (int u = 0; u < unclear; u++) {
        int i = block->unclear[u], is_probed = !is_near && !block->groups[i] && memory->header->segments == segments;
        int status = group_find_or_append(table, i, compare_nulls, is_probed);
        if (status != GROUP_OK) return status;
        block->rows[i] = group_row(table, block->groups[i]);
        if (is_near) table->near->groups[load_u64(words + 8 * i) - table->near->base] = block->groups[i];
    }
    if (memory->base[REGION_ROWS] != before)
        for (int i = 0; i < count; i++) block->rows[i] = group_row(table, block->groups[i]);
    return GROUP_OK;
}

#endif
