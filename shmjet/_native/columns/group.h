/* Group-by: rows with equal keys, and the state of aggregates for each group. No Python in here.
 *
 * group_memory.h has the memory that is handed between processes, group_capture.h what it held before, group_keys.h the
 * reading and hashing of columns, group_table.h the index, group_aggregates.h the states; here they are put together. A
 * row is its keys (a word for a number, two for text), then the states. A table is used so:
 *
 *     group_open() or group_attach(); group_add(), group_merge(); group_read_*(); group_close()
 *
 * After an error a table may only be closed.
 */
#ifndef SHMJET_GROUP_H
#define SHMJET_GROUP_H

#include "columns/group_aggregates.h"
#include "columns/group_load.h"

static inline void group_close(group_table_t *table) {
    free(table->block);
    free(table->template);
    free(table->near);
    free(table->updated);
    group_forget_loaded(table);
    table->updated = NULL;
    table->block = NULL;
    table->near = NULL;
    table->template = NULL;
    group_unmap(&table->memory);
}

/* What belongs to the process: the room for a block and the row that new groups start with. */
static inline int group_equip(group_table_t *table) {
    const group_header_t *header = table->memory.header;
    table->block = malloc(sizeof *table->block + header->keys * sizeof(key_block_t));
    table->template = calloc(1, (size_t)header->stride + header->mark_bytes + 1);
    table->near = calloc(1, sizeof *table->near);
    if (!table->block || !table->template || !table->near) return errno = ENOMEM, GROUP_ERRNO;
    for (uint32_t a = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        if (is_text_class((char)field->class)) continue;
        for (int part = 0; part < field->parts; part++) {
            if (field->function == MIN) store_u64(table->template + field->offset + 8 * part, INT64_MAX);
            if (field->function == MAX) store_u64(table->template + field->offset + 8 * part, (uint64_t)INT64_MIN);
        }
    }
    return GROUP_OK;
}

static inline uint32_t up_to_multiple(uint32_t value, uint32_t step) { return (value + step - 1) / step * step; }

/* Lays out the rows; returns -1 (EINVAL) for what does not go together. */
static inline int group_lay_out(group_header_t *header, const char *keys, uint32_t key_count, const uint8_t *functions,
                                const char *classes, uint32_t aggregates) {
    uint32_t offset = 0, seen = 0;
    errno = EINVAL;
    if (key_count > GROUP_MAX_KEYS || aggregates > GROUP_MAX_AGGREGATES) return -1;
    for (uint32_t k = 0; k < key_count; k++) {
        if (keys[k] != 'i' && keys[k] != 'f' && keys[k] != 't') return -1;
        header->key_fields[k] = (group_field_t){.class = (uint8_t)keys[k], .parts = 1, .offset = (uint16_t)offset};
        offset += keys[k] == 't' ? 16 : 8;
    }
    for (uint32_t a = 0; a < aggregates; a++) {
        int parts, words = aggregate_shape(functions[a], classes[a], &parts);
        if (!words) return -1;
        header->aggregate_fields[a] =
            (group_field_t){(uint8_t)classes[a], functions[a], (uint8_t)parts, 0, (uint16_t)offset, 0};
        if (has_seen_bit(functions[a])) header->aggregate_fields[a].seen = (uint16_t)seen++;
        offset += 8 * (uint32_t)words;
    }
    if (offset > UINT16_MAX - 15) return -1; /* as many as there may be fit */
    header->keys = key_count;
    header->aggregates = aggregates;
    /* Small rows do not cross cache lines. */
    header->stride = offset <= 8 ? 8 : offset <= 16 ? 16 : offset <= 32 ? 32 : up_to_multiple(offset, 16);
    header->null_bytes = (key_count + 7) / 8;
    header->mark_bytes = header->null_bytes + (seen + 7) / 8;
    return 0;
}

/* Makes an empty table. Returns GROUP_OK, or GROUP_ERRNO with nothing held. */
static inline int group_open(group_table_t *table, const char *keys, uint32_t key_count, const uint8_t *functions,
                             const char *classes, uint32_t aggregates) {
    memset(table, 0, sizeof *table);
    if (group_create(&table->memory) < 0) return GROUP_ERRNO;
    uint32_t segment;
    if (group_lay_out(table->memory.header, keys, key_count, functions, classes, aggregates) < 0 ||
        group_new_segment(table, &segment) != GROUP_OK || group_equip(table) != GROUP_OK) {
        int error = errno;
        group_close(table);
        errno = error;
        return GROUP_ERRNO;
    }
    return GROUP_OK; /* the one entry of the directory is 0: segment 0, no bits shared */
}

/* Whether what the header says holds together. The contents of the regions are believed, as those of a pickle are. */
static inline int group_check(const group_header_t *header) {
    const uint64_t *allocated = header->allocated;
    if (header->keys > GROUP_MAX_KEYS || header->aggregates > GROUP_MAX_AGGREGATES || header->depth > MAX_DEPTH ||
        header->groups > UINT32_MAX || header->segments > UINT64_C(1) << MAX_DEPTH || !header->segments ||
        header->heap > allocated[REGION_HEAP] || header->stride % 8 || header->stride > UINT16_MAX ||
        header->null_bytes != (header->keys + 7) / 8 || header->mark_bytes < header->null_bytes ||
        header->mark_bytes > header->null_bytes + GROUP_MAX_AGGREGATES / 8)
        return 0;
    uint64_t rows = header->groups ? header->groups + 1 : 0;
    if (rows * header->stride > allocated[REGION_ROWS] || rows * header->mark_bytes > allocated[REGION_MARKS] ||
        header->segments * SEGMENT_BYTES > allocated[REGION_SLOTS] || header->segments * 4 > allocated[REGION_FILLS] ||
        GROUP_DIRECTORY_OFFSET + (UINT64_C(4) << header->depth) > allocated[REGION_DIRECTORY])
        return 0;
    for (uint32_t k = 0; k < header->keys; k++)
        if (header->key_fields[k].offset + 8u * (1 + (header->key_fields[k].class == 't')) > header->stride) return 0;
    for (uint32_t a = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        int parts, words = aggregate_shape(field->function, (char)field->class, &parts);
        if (!words || parts != field->parts || field->offset + 8u * (uint32_t)words > header->stride ||
            (has_seen_bit(field->function) && header->null_bytes + field->seen / 8u >= header->mark_bytes))
            return 0;
    }
    return 1;
}

/* Maps the table in `fd`, which is duplicated. Returns GROUP_OK, or GROUP_ERRNO (EINVAL: there is no table). */
static inline int group_attach(group_table_t *table, int fd) {
    memset(table, 0, sizeof *table);
    if (group_attach_memory(&table->memory, fd) < 0) return GROUP_ERRNO;
    errno = EINVAL;
    if (group_check(table->memory.header) && group_equip(table) == GROUP_OK) return GROUP_OK;
    int error = errno;
    group_close(table);
    errno = error;
    return GROUP_ERRNO;
}

/* Bytes of a region that hold something. */
static inline uint64_t group_used(const group_table_t *table, int region) {
    const group_header_t *header = table->memory.header;
    uint64_t rows = header->groups ? header->groups + 1 : 0;
    switch (region) {
    case REGION_DIRECTORY: return GROUP_DIRECTORY_OFFSET + (UINT64_C(4) << header->depth);
    case REGION_SLOTS: return header->segments * SEGMENT_BYTES;
    case REGION_FILLS: return header->segments * 4;
    case REGION_ROWS: return rows * header->stride;
    case REGION_MARKS: return rows * header->mark_bytes;
    default: return header->heap;
    }
}

/* Forgets all groups, and keeps the memory and the directory for others, probably as many. Returns whether it could:
 * not while others look at them. */
static inline int group_empty(group_table_t *table) {
    group_header_t *header = table->memory.header;
    if (table->capture || table->updated || table->loaded || table->waiting.segments) return 0;
    memset(table->memory.base[REGION_SLOTS], 0, group_used(table, REGION_SLOTS));
    memset(table->memory.base[REGION_FILLS], 0, group_used(table, REGION_FILLS));
    memset(table->near->groups, 0, sizeof table->near->groups);
    memset(header->may_be_unseen, 0, sizeof header->may_be_unseen);
    header->groups = header->heap = header->has_null_keys = 0;
    return 1;
}

/* Begins to note which rows are written to, until more than `most` of them are. Returns -1 with errno when there is no
 * room. */
static inline int group_note(group_table_t *table, uint64_t most) {
    uint64_t room = table->memory.header->groups + 1;
    free(table->updated);
    table->updated = calloc(room, 1);
    table->updated_room = table->updated ? room : 0;
    table->updated_rows = 0;
    table->updated_most = most;
    return table->updated ? 0 : -1;
}

static inline void group_note_no_more(group_table_t *table) {
    free(table->updated);
    table->updated = NULL;
}

/* Notes the rows of a block. Where there is no room for that, or there are too many, nothing is noted any more. */
static inline void group_note_rows(group_table_t *table, int count) {
    uint64_t rows = table->memory.header->groups + 1;
    if (rows > table->updated_room) {
        uint64_t room = rows + rows / 2 + BLOCK;
        uint8_t *grown = realloc(table->updated, room);
        if (!grown) {
            group_note_no_more(table);
            return;
        }
        memset(grown + table->updated_room, 0, room - table->updated_room);
        table->updated = grown;
        table->updated_room = room;
    }
    const uint32_t *groups = table->block->groups;
    uint8_t *updated = table->updated;
    uint64_t fresh = 0;
    for (int i = 0; i < count; i++) {
        fresh += !updated[groups[i]];
        updated[groups[i]] = 1;
    }
    table->updated_rows += fresh;
    if (table->updated_rows > table->updated_most) group_note_no_more(table);
}

/* Adds rows, or with `is_merge` the states of groups. `columns` has those of each aggregate one after the other: one
 * each (NULL for a count of rows), when merging as many as its state has parts; types have been checked. Mixed columns
 * can only be merged. `numbers`, unless it is NULL, gets the number of each row's group, from 0 on. `is_load` promises
 * that no key is there twice. Returns GROUP_OK or an error. */
static inline int group_update(group_table_t *table, const column_t *const *keys, const column_t *const *columns,
                               int is_merge, int64_t rows, uint32_t *numbers, int is_load) {
    is_load = is_load && group_is_loading(table);
    if (!is_load && table->loaded) {
        int status = group_end_loading(table);
        if (status != GROUP_OK) return status;
    }
    group_header_t *header = table->memory.header;
    uint8_t *marks = table->template + header->stride;
    memset(marks, 0, header->mark_bytes);
    for (uint32_t a = 0, c = 0; a < header->aggregates; c += is_merge ? header->aggregate_fields[a].parts : 1, a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        if (!has_seen_bit(field->function)) continue;
        if (columns[c]->valid) header->may_be_unseen[a] = 1;
        /* A group that this call makes sees a value at once. First and text look at the bit before they set it. */
        if (!columns[c]->valid && field->function != FIRST && !is_text_class((char)field->class))
            marks[header->null_bytes + field->seen / 8] |= (uint8_t)(1 << field->seen % 8);
    }
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int count = rows - start < BLOCK ? (int)(rows - start) : BLOCK;
        int status =
            is_load ? group_append_block(table, keys, start, count) : group_locate(table, keys, start, count);
        if (status != GROUP_OK) return status;
        header = table->memory.header;
        if (table->capture) group_preserve(&table->memory, table->capture, table->block->groups, count);
        if (table->updated) group_note_rows(table, count);
        table->block->is_single = count >= SINGLE_LEAST && single_group(table->block->groups, count);
        for (int i = 0; numbers && i < count; i++) numbers[start + i] = table->block->groups[i] - 1;
        for (uint32_t a = 0, c = 0; a < header->aggregates;
             c += is_merge ? header->aggregate_fields[a].parts : 1, a++) {
            status = aggregate_block(table, &header->aggregate_fields[a], header->may_be_unseen[a], columns + c,
                                     is_merge, start, count);
            if (status != GROUP_OK) return status;
        }
    }
    return GROUP_OK;
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

/* Something of each group that can be read: a key, or a part of an aggregate's state. */
typedef struct {
    const group_field_t *field;
    uint32_t key, part; /* `key` is UINT32_MAX for a part */
    int is_text;
} group_reading_t;

/* The field of a number: first the keys, then all parts. Returns 0 when there is none. */
static inline int group_reading(const group_table_t *table, uint64_t number, group_reading_t *reading) {
    const group_header_t *header = table->memory.header;
    if (number < header->keys) {
        const group_field_t *field = &header->key_fields[number];
        *reading = (group_reading_t){field, (uint32_t)number, 0, field->class == 't'};
        return 1;
    }
    number -= header->keys;
    for (uint32_t a = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        if (number < field->parts) {
            int is_text = is_text_class((char)field->class) && has_seen_bit(field->function);
            *reading = (group_reading_t){field, UINT32_MAX, (uint32_t)number, is_text};
            return 1;
        }
        number -= field->parts;
    }
    return 0;
}

#define READ_AHEAD 16

/* Which groups are read: `count` from `position` on, or those whose positions `chosen` has. */
typedef struct {
    const uint32_t *chosen;
    uint64_t position, count;
} group_range_t;


/* The number of group i of a range, from 1 on. */
static inline uint64_t group_in(const group_range_t *range, uint64_t i) {
    return (range->chosen ? range->chosen[i] : range->position + i) + 1;
}

/* As group_in(), and asks for the rows that come soon: chosen ones lie anywhere. */
static inline uint64_t group_ahead(const group_table_t *table, const group_range_t *range, uint64_t i) {
    if (range->chosen && i + READ_AHEAD < range->count)
        __builtin_prefetch(group_row(table, (uint64_t)range->chosen[i + READ_AHEAD] + 1));
    return group_in(range, i);
}

/* Writes for each group a byte that is 0 where the field is null. Returns whether any is. */
static inline int group_read_valid(const group_table_t *table, const group_reading_t *reading,
                                   const group_range_t *range, uint8_t *valid) {
    const group_header_t *header = table->memory.header;
    uint32_t bit = 8 * header->null_bytes + reading->field->seen;
    int flip = reading->key != UINT32_MAX, any = 0;
    if (flip ? !header->has_null_keys
             : !has_seen_bit(reading->field->function) ||
                   !header->may_be_unseen[reading->field - header->aggregate_fields])
        return memset(valid, 1, range->count), 0;
    if (flip) bit = reading->key;
    for (uint64_t i = 0; i < range->count; i++) {
        valid[i] = (group_marks(table, group_in(range, i))[bit / 8] >> bit % 8 & 1) ^ flip;
        any |= !valid[i];
    }
    return any;
}

/* Writes the words of groups, 0 where null; `reading` is not text. */
static inline void group_read_words(const group_table_t *table, const group_reading_t *reading,
                                    const group_range_t *range, const uint8_t *valid, uint8_t *out) {
    const group_field_t *field = reading->field;
    uint32_t offset = field->offset + 8 * reading->part;
    int is_ordered = (field->function == MIN || field->function == MAX) && reading->part == 0;
    for (uint64_t i = 0; i < range->count; i++) {
        uint64_t word = load_u64(group_row(table, group_ahead(table, range, i)) + offset);
        if (is_ordered) word = unordered((char)field->class, word);
        store_u64(out + 8 * i, valid[i] ? word : 0);
    }
}

/* Writes count + 1 offsets from 0 on. */
static inline void group_read_offsets(const group_table_t *table, const group_reading_t *reading,
                                      const group_range_t *range, uint8_t *offsets) {
    uint64_t end = 0;
    store_u64(offsets, 0);
    for (uint64_t i = 0; i < range->count; i++) {
        end += load_u32(group_row(table, group_ahead(table, range, i)) + reading->field->offset);
        store_u64(offsets + 8 * (i + 1), end);
    }
}

static inline bytes_t key_text(const group_table_t *table, const uint8_t *place) {
    uint32_t length = load_u32(place);
    return (bytes_t){length <= TEXT_INLINE ? place + 4 : table->memory.base[REGION_HEAP] + load_u64(place + 8), length};
}

/* Writes the texts one after the other, or each into `itemsize` bytes. Returns -1 when `room` bytes do not hold
 * them. */
static inline int group_read_data(const group_table_t *table, const group_reading_t *reading,
                                  const group_range_t *range, uint32_t itemsize, uint8_t *data, uint64_t room) {
    for (uint64_t i = 0; i < range->count; i++) {
        const uint8_t *place = group_row(table, group_in(range, i)) + reading->field->offset;
        bytes_t text = reading->key == UINT32_MAX ? state_text(table, place) : key_text(table, place);
        uint64_t width = itemsize ? itemsize : text.length;
        if (text.length > width || width > room) return -1;
        memcpy(data, text.data, text.length);
        memset(data + text.length, 0, width - text.length);
        data += width;
        room -= width;
    }
    return 0;
}

#endif
