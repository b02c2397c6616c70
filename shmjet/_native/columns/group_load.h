/* Groups that are all new, as a restore brings them: rows are appended, and no key is looked for. No Python in here.
 *
 * When something is looked for next, the rows wait for the segment of the index that their hashes lead to. A segment is
 * made and filled when a hash leads to it first: all at once, while it lies in the cache, and none before it is needed.
 * The rows of the first few are found by a pass over the tags of all, a tenth of what it takes to list them by segment:
 * so long waits what comes first after a restore. Then they are listed. Looking for each row of a table by itself takes
 * two to three times as long: each waits for memory.
 */
#ifndef SHMJET_GROUP_LOAD_H
#define SHMJET_GROUP_LOAD_H

#include "columns/group_table.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define HUGE_FROM (HUGE_PAGE / 2)
#define GROUP_SCANS 4 /* segments whose rows are found by a pass over all */

/* Whether all groups that the table has were loaded, and may be followed by more such. */
static inline int group_is_loading(const group_table_t *table) {
    const group_header_t *header = table->memory.header;
    return header->keys && header->groups == table->loaded;
}

/* Returns the bytes that are mapped for so many: whole huge pages where there are enough for one. */
static inline size_t group_whole(size_t bytes) {
    return bytes < HUGE_FROM ? bytes : (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Extends `before`, which has `had` bytes (NULL and 0: nothing), to `bytes` bytes, a result of group_whole(). Returns
 * where it is now, or NULL with errno. On the heap each step would be a copy, on pages that the kernel has to clear. */
static inline void *group_grown(void *before, size_t had, size_t bytes) {
    void *memory = before ? mremap(before, had, bytes, MREMAP_MAYMOVE)
                          : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_FROM) (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

/* Forgets what is only needed until all loaded rows are in the index. */
static inline void group_forget_loaded(group_table_t *table) {
    if (table->tags) munmap(table->tags, table->tags_room * sizeof *table->tags);
    if (table->waiting.rows)
        munmap(table->waiting.rows, group_whole(table->waiting.count * sizeof *table->waiting.rows));
    free(table->waiting.ends);
    free(table->waiting.waits);
    table->tags = NULL;
    table->loaded = table->tags_room = 0;
    memset(&table->waiting, 0, sizeof table->waiting);
}

/* Whether the keys of a batch are numbers, none of which is null. */
static inline int group_are_plain(const group_table_t *table, const column_t *const *keys) {
    const group_header_t *header = table->memory.header;
    for (uint32_t k = 0; k < header->keys; k++)
        if (header->key_fields[k].class == 't' || keys[k]->valid) return 0;
    return 1;
}

/* As group_append() of the first `count` rows of the block, whose keys are plain. */
static inline void group_append_plain(group_table_t *table, uint32_t count) {
    group_header_t *header = table->memory.header;
    const uint32_t stride = header->stride, mark_bytes = header->mark_bytes;
    uint8_t *rows = group_row(table, header->groups + 1), *marks = group_marks(table, header->groups + 1);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = 0; at < stride; at += 8)
            store_u64(rows + (size_t)i * stride + at, load_u64(table->template + at));
    memset(marks, 0, (size_t)count * mark_bytes);
    for (uint32_t at = header->null_bytes; at < mark_bytes; at++)
        for (uint32_t i = 0; i < count; i++) marks[(size_t)i * mark_bytes + at] = table->template[stride + at];
    for (uint32_t k = 0; k < header->keys; k++) {
        const uint8_t *words = table->block->keys[k].words;
        uint8_t *place = rows + header->key_fields[k].offset;
        for (uint32_t i = 0; i < count; i++) store_u64(place + (size_t)i * stride, load_u64(words + 8 * i));
    }
    header->groups += count;
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
        size_t room = group_whole((rows + rows / 2 + 1024) * sizeof *table->tags);
        uint32_t *grown = group_grown(table->tags, table->tags_room * sizeof *grown, room);
        if (!grown) return GROUP_ERRNO;
        table->tags = grown;
        table->tags_room = room / sizeof *grown;
    }
    for (uint32_t k = 0; k < header->keys; k += 64) memset(block->nulls[k / 64], 0, (size_t)count * 8);
    for (uint32_t k = 0; k < header->keys; k++)
        if (key_load(&block->keys[k], keys[k], (char)header->key_fields[k].class, (int)k, start, count,
                     block->nulls[k / 64]) < 0)
            return GROUP_LONG_TEXT;
    group_hash(table, keys, count);
    for (int i = 0; i < count; i++) table->tags[table->loaded + (uint64_t)i] = tag_of(block->hashes[i]);
    table->loaded += (uint64_t)count;
    if (group_are_plain(table, keys))
        group_append_plain(table, (uint32_t)count);
    else
        for (int i = 0; i < count; i++)
            if (group_append(table, i) != GROUP_OK) return GROUP_ERRNO;
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

/* Gives an empty index the directory for so many groups, whose segments would be half full; there are none yet. */
static inline int group_expect(group_table_t *table, uint64_t groups) {
    group_memory_t *memory = &table->memory;
    uint32_t depth = 0;
    while (depth < MAX_DEPTH && groups >> depth > SEGMENT_SLOTS / 2) depth++;
    uint64_t entries = UINT64_C(1) << depth;
    if (group_reserve(memory, REGION_DIRECTORY, GROUP_DIRECTORY_OFFSET + 4 * entries) < 0) return GROUP_ERRNO;
    memory->header->depth = depth;
    return GROUP_OK;
}

/* Has the directory lead to a segment of its own from a prefix that waits. Returns GROUP_OK or an error. */
static inline int group_make_segment(group_table_t *table, uint32_t prefix, uint32_t *segment) {
    group_waiting_t *waiting = &table->waiting;
    *segment = 0; /* a new table has this one */
    int status = waiting->made ? group_new_segment(table, segment) : GROUP_OK;
    if (status != GROUP_OK) return status;
    waiting->made = 1;
    waiting->waits[prefix] = 0;
    uint32_t more = table->memory.header->depth - waiting->depth, first = prefix << more;
    for (uint32_t i = 0; i < UINT32_C(1) << more; i++)
        store_u32(directory_entry(table, first + i), *segment << 5 | waiting->depth);
    return GROUP_OK;
}

/* Writes the numbers of the rows whose tags begin with a prefix; returns how many these are. */
SIMD_CLONES static uint32_t group_scan(const uint32_t *tags, uint64_t rows, uint32_t prefix, uint32_t depth,
                                       uint32_t *restrict found) {
    enum { STEP = 64 };
    const uint32_t first = (uint32_t)((uint64_t)prefix << (32 - depth)), span = UINT32_MAX >> depth;
    uint32_t count = 0;
    uint64_t start = 0;
    for (; start + STEP <= rows; start += STEP) {
        uint32_t any = 0;
        for (uint32_t i = 0; i < STEP; i++) any |= tags[start + i] - first <= span;
        for (uint32_t i = 0; any && i < STEP; i++) {
            found[count] = (uint32_t)start + i;
            count += tags[start + i] - first <= span;
        }
    }
    for (; start < rows; start++)
        if (tags[start] - first <= span) found[count++] = (uint32_t)start;
    return count;
}

/* Makes and fills the segment of a prefix that waits. Returns GROUP_OK or an error. */
static inline int group_fill(group_table_t *table, uint32_t prefix) {
    group_waiting_t *waiting = &table->waiting;
    const uint32_t *rows = waiting->rows;
    uint32_t count, segment;
    if (waiting->ends) {
        rows += prefix ? waiting->ends[prefix - 1] : 0;
        count = (uint32_t)(waiting->rows + waiting->ends[prefix] - rows);
    } else {
        count = group_scan(table->tags, waiting->count, prefix, waiting->depth, waiting->rows);
        waiting->scans++;
    }
    uint32_t most = table->memory.header->depth <= ROOMY_DEPTH ? ROOMY_FILL : MOST_FILL;
    int status = group_make_segment(table, prefix, &segment);
    if (status != GROUP_OK) return status;
    if (count > most) {
        for (uint32_t i = 0; i < count; i++) {
            status = group_enter(table, (uint64_t)table->tags[rows[i]] << 32 | (rows[i] + 1));
            if (status != GROUP_OK) return status;
        }
    } else {
        uint8_t *slots = table->memory.base[REGION_SLOTS] + segment * SEGMENT_BYTES;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t tag = table->tags[rows[i]], at = tag & SEGMENT_MASK;
            while (load_u64(slots + 8 * (size_t)at)) at = (at + 1) & SEGMENT_MASK;
            store_u64(slots + 8 * (size_t)at, (uint64_t)tag << 32 | (rows[i] + 1));
        }
        store_u32(segment_fill(table, segment), count);
    }
    waiting->segments--;
    waiting->left -= count;
    for (uint32_t other = 0; !waiting->left && waiting->segments; other++) { /* those for which no row was loaded */
        if (!waiting->waits[other]) continue;
        if ((status = group_make_segment(table, other, &segment)) != GROUP_OK) return status;
        waiting->segments--;
    }
    if (!waiting->segments) group_forget_loaded(table);
    return GROUP_OK;
}

/* Lists the rows that wait by the prefixes of their segments. Returns GROUP_OK or an error. */
static inline int group_list(group_table_t *table) {
    group_waiting_t *waiting = &table->waiting;
    const uint32_t depth = waiting->depth;
    size_t segments = (size_t)1 << depth;
    uint32_t *ends = calloc(segments + 1, sizeof *ends);
    if (!ends) return errno = ENOMEM, GROUP_ERRNO;
    for (uint64_t i = 0; i < waiting->count; i++) ends[prefix_of(table->tags[i], depth) + 1]++;
    for (size_t s = 0; s < segments; s++) ends[s + 1] += ends[s];
    /* So far where each segment begins; this makes it where it ends. */
    for (uint64_t i = 0; i < waiting->count; i++)
        waiting->rows[ends[prefix_of(table->tags[i], depth)]++] = (uint32_t)i;
    waiting->ends = ends;
    return GROUP_OK;
}

/* Whether the rows of the segments that the hashes of a block lead to are found by passes over all of them. */
static inline int group_may_scan(const group_table_t *table, int count) {
    const group_waiting_t *waiting = &table->waiting;
    uint32_t needed[GROUP_SCANS], known = 0;
    for (int i = 0; i < count; i++) {
        uint32_t prefix = prefix_of(tag_of(table->block->hashes[i]), waiting->depth), at = 0;
        if (!waiting->waits[prefix]) continue;
        while (at < known && needed[at] != prefix) at++;
        if (at < known) continue;
        if (known + waiting->scans == GROUP_SCANS) return 0;
        needed[known++] = prefix;
    }
    return 1;
}

/* Fills the segments that the hashes of a block lead to. Returns GROUP_OK or an error. */
static inline int group_fill_for(group_table_t *table, int count) {
    if (!table->waiting.ends && !group_may_scan(table, count)) {
        int status = group_list(table);
        if (status != GROUP_OK) return status;
    }
    for (int i = 0; i < count && table->waiting.segments; i++) {
        uint32_t prefix = prefix_of(tag_of(table->block->hashes[i]), table->waiting.depth);
        int status = table->waiting.waits[prefix] ? group_fill(table, prefix) : GROUP_OK;
        if (status != GROUP_OK) return status;
    }
    return GROUP_OK;
}

/* Has the rows that were loaded wait for their segments. Returns GROUP_OK or an error, and then the table is of no more
 * use. */
static inline int group_end_loading(group_table_t *table) {
    uint64_t rows = table->loaded;
    if (!rows) return GROUP_OK;
    int status = group_expect(table, rows);
    if (status != GROUP_OK) return status;
    group_waiting_t *waiting = &table->waiting;
    waiting->depth = table->memory.header->depth;
    size_t segments = (size_t)1 << waiting->depth;
    waiting->count = rows;
    waiting->rows = group_grown(NULL, 0, group_whole(rows * sizeof *waiting->rows));
    waiting->waits = malloc(segments);
    if (!waiting->rows || !waiting->waits) {
        group_forget_loaded(table);
        return errno = ENOMEM, GROUP_ERRNO;
    }
    memset(waiting->waits, 1, segments);
    waiting->segments = segments;
    waiting->left = rows;
    table->loaded = 0;
    return GROUP_OK;
}

/* Makes all of the index of the rows that were loaded. Errors as of group_end_loading(). */
static inline int group_settle(group_table_t *table) {
    int status = group_end_loading(table);
    if (status == GROUP_OK && table->waiting.segments && !table->waiting.ends) status = group_list(table);
    for (uint32_t prefix = 0; status == GROUP_OK && table->waiting.segments; prefix++)
        if (table->waiting.waits[prefix]) status = group_fill(table, prefix);
    return status;
}

#endif
