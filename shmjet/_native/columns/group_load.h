/* Groups that are all new, as a restore brings them: rows are appended, and no key is looked for. No Python in here.
 *
 * The index is made when something is looked for next: the rows are sorted by the segment that their hashes lead to, so
 * that one segment after the other is filled while it lies in the cache. Looking for each row of a large table by
 * itself takes two to three times as long: each waits for memory.
 */
#ifndef SHMJET_GROUP_LOAD_H
#define SHMJET_GROUP_LOAD_H

#include "columns/group_table.h"

/* Whether all groups that the table has were loaded, and may be followed by more such. */
static inline int group_is_loading(const group_table_t *table) {
    const group_header_t *header = table->memory.header;
    return header->keys && header->groups == table->loaded;
}

static inline void group_forget_loaded(group_table_t *table) {
    free(table->tags);
    table->tags = NULL;
    table->loaded = table->tags_room = 0;
}

/* Appends `count` new groups from row `start` on; fills block->groups and block->rows. */
static inline int group_append_block(group_table_t *table, const column_t *const *keys, int64_t start, int count) {
    group_block_t *block = table->block;
    group_memory_t *memory = &table->memory;
    const group_header_t *header = memory->header;
    uint64_t rows = header->groups + 1 + (uint64_t)count, first = header->groups;
    if (rows > UINT32_MAX) return GROUP_FULL;
    if (group_reserve(memory, REGION_ROWS, rows * header->stride) < 0 ||
        group_reserve(memory, REGION_MARKS, rows * header->mark_bytes) < 0)
        return GROUP_ERRNO;
    if (rows > table->tags_room) {
        uint64_t room = rows + rows / 2 + 1024;
        uint32_t *grown = realloc(table->tags, room * sizeof *grown);
        if (!grown) return errno = ENOMEM, GROUP_ERRNO;
        table->tags = grown;
        table->tags_room = room;
    }
    for (uint32_t k = 0; k < header->keys; k += 64) memset(block->nulls[k / 64], 0, (size_t)count * 8);
    for (uint32_t k = 0; k < header->keys; k++)
        if (key_load(&block->keys[k], keys[k], (char)header->key_fields[k].class, (int)k, start, count,
                     block->nulls[k / 64]) < 0)
            return GROUP_LONG_TEXT;
    group_hash(table, keys, count);
    for (int i = 0; i < count; i++) {
        if (group_append(table, i) != GROUP_OK) return GROUP_ERRNO;
        table->tags[table->loaded++] = tag_of(block->hashes[i]);
    }
    for (int i = 0; i < count; i++) {
        block->groups[i] = (uint32_t)(first + 1) + (uint32_t)i;
        block->rows[i] = group_row(table, block->groups[i]);
    }
    return GROUP_OK;
}

/* Puts a slot into the index whose key is not there. */
static inline int group_enter(group_table_t *table, uint64_t slot) {
    uint32_t tag = (uint32_t)(slot >> 32);
    for (;;) {
        uint32_t depth = table->memory.header->depth, at = home_slot(table, tag, depth), segment = at >> SEGMENT_BITS;
        uint32_t fill = load_u32(segment_fill(table, segment));
        if (fill >= (depth <= ROOMY_DEPTH ? ROOMY_FILL : MOST_FILL)) {
            int status = group_split(table, tag);
            if (status == GROUP_OK) continue;
            if (status != GROUP_FULL || fill >= SEGMENT_SLOTS - 1) return status;
        }
        uint8_t *slots = table->memory.base[REGION_SLOTS];
        while (load_u64(slots + 8 * (size_t)at)) at = next_slot(at);
        store_u64(slots + 8 * (size_t)at, slot);
        store_u32(segment_fill(table, segment), fill + 1);
        return GROUP_OK;
    }
}

/* Gives an empty index the segments for so many groups, half full. */
static inline int group_expect(group_table_t *table, uint64_t groups) {
    group_memory_t *memory = &table->memory;
    uint32_t depth = 0;
    while (depth < MAX_DEPTH && groups >> depth > SEGMENT_SLOTS / 2) depth++;
    uint64_t segments = UINT64_C(1) << depth;
    if (memory->header->depth || !depth) return GROUP_OK;
    if (group_reserve(memory, REGION_DIRECTORY, GROUP_DIRECTORY_OFFSET + 4 * segments) < 0 ||
        group_reserve(memory, REGION_SLOTS, segments * SEGMENT_BYTES) < 0 ||
        group_reserve(memory, REGION_FILLS, segments * 4) < 0)
        return GROUP_ERRNO;
    for (uint32_t i = 0; i < segments; i++) store_u32(directory_entry(table, i), i << 5 | depth);
    memory->header->segments = segments;
    memory->header->depth = depth;
    return GROUP_OK;
}

/* Makes the index of the rows that were loaded. Returns GROUP_OK or an error, and then the table is of no more use. */
static inline int group_settle(group_table_t *table) {
    uint64_t rows = table->loaded;
    if (!rows) return GROUP_OK;
    int status = group_expect(table, rows);
    if (status != GROUP_OK) return status;
    uint32_t depth = table->memory.header->depth;
    size_t segments = (size_t)1 << depth;
    uint32_t *places = calloc(segments + 1, sizeof *places);
    uint64_t *order = malloc(rows * sizeof *order); /* as slots are */
    if (!places || !order) {
        errno = ENOMEM;
        status = GROUP_ERRNO;
        goto done;
    }
    for (uint64_t i = 0; i < rows; i++) places[prefix_of(table->tags[i], depth) + 1]++;
    for (size_t s = 0; s < segments; s++) places[s + 1] += places[s];
    for (uint64_t i = 0; i < rows; i++) {
        uint32_t tag = table->tags[i];
        order[places[prefix_of(tag, depth)]++] = (uint64_t)tag << 32 | (i + 1);
    }
    for (uint64_t i = 0; i < rows && status == GROUP_OK; i++) status = group_enter(table, order[i]);
done:
    free(places);
    free(order);
    group_forget_loaded(table);
    return status;
}

#endif
