/* Lists and structs between Arrow's layout, an array for each part, and that of a batch, a run of bytes for each value.
 *
 * The bytes of a value: of fixed width, itself; of text, a uint32 of its length, then its bytes; of a list, a uint32 of
 * its length, a byte for each item (0 = null), then the items; of a struct, a byte for each field, then the fields. A
 * null in a list or struct leaves the width of its type, which is 0 where that is not fixed. docs/formats/batch.md.
 * No Python in here.
 */
#ifndef SHMJET_ARROW_NESTED_H
#define SHMJET_ARROW_NESTED_H

#include <stdint.h>
#include <string.h>

/* A part of a type, with its values in Arrow's layout. Under a null struct its parts have slots, too. */
typedef struct part {
    char kind;              /* f fixed width, t text or bytes, l list, s struct */
    int64_t width;          /* of f */
    int64_t count;          /* of children */
    struct part **children; /* of l (one) and s */
    /* When encoding these are read, when decoding written. NULL: no nulls; when decoding, only count. */
    uint8_t *data;    /* of f and t */
    int64_t *offsets; /* of t and l, one more than slots */
    uint8_t *valid;   /* a byte a slot */
    int64_t slots;    /* when decoding: how many have been met */
    int64_t bytes;    /* when decoding: of text */
} part_t;

static inline int64_t part_gap(const part_t *part) { return part->kind == 'f' ? part->width : 0; }

static inline int part_is_null(const part_t *part, int64_t slot) { return part->valid && !part->valid[slot]; }

/* -- encoding ------------------------------------------------------------------------------------------------------ */

/* Returns the bytes of a value that is not null, or -1 when a length has more than 32 bits. */
static int64_t nested_size(const part_t *part, int64_t slot) {
    if (part->kind == 'f') return part->width;
    int64_t size = part->count;
    if (part->kind == 's') {
        for (int64_t i = 0; i < part->count; i++) {
            const part_t *child = part->children[i];
            int64_t inner = part_is_null(child, slot) ? part_gap(child) : nested_size(child, slot);
            if (inner < 0) return -1;
            size += inner;
        }
        return size;
    }
    int64_t first = part->offsets[slot], length = part->offsets[slot + 1] - first;
    if (length > UINT32_MAX) return -1;
    if (part->kind == 't') return 4 + length;
    const part_t *item = part->children[0];
    size = 4 + length;
    if (item->kind == 'f') return size + length * item->width;
    for (int64_t i = first; i < first + length; i++) {
        if (part_is_null(item, i)) continue;
        int64_t inner = nested_size(item, i);
        if (inner < 0) return -1;
        size += inner;
    }
    return size;
}

/* Writes a value that is not null, and returns where it ends. */
static uint8_t *nested_write(const part_t *part, int64_t slot, uint8_t *to) {
    if (part->kind == 'f') {
        memcpy(to, part->data + part->width * slot, (size_t)part->width);
        return to + part->width;
    }
    if (part->kind == 's') {
        for (int64_t i = 0; i < part->count; i++) *to++ = !part_is_null(part->children[i], slot);
        for (int64_t i = 0; i < part->count; i++) {
            const part_t *child = part->children[i];
            if (part_is_null(child, slot)) {
                memset(to, 0, (size_t)part_gap(child));
                to += part_gap(child);
            } else
                to = nested_write(child, slot, to);
        }
        return to;
    }
    int64_t first = part->offsets[slot], length = part->offsets[slot + 1] - first;
    uint32_t counted = (uint32_t)length;
    memcpy(to, &counted, sizeof counted);
    to += sizeof counted;
    if (part->kind == 't') {
        memcpy(to, part->data + first, (size_t)length);
        return to + length;
    }
    const part_t *item = part->children[0];
    for (int64_t i = first; i < first + length; i++) *to++ = !part_is_null(item, i);
    for (int64_t i = first; i < first + length; i++) {
        if (part_is_null(item, i)) {
            memset(to, 0, (size_t)part_gap(item));
            to += part_gap(item);
        } else
            to = nested_write(item, i, to);
    }
    return to;
}

/* -- decoding ------------------------------------------------------------------------------------------------------ */

static void nested_null(part_t *part) {
    int64_t slot = part->slots++;
    if (part->valid) part->valid[slot] = 0;
    if (part->kind == 'f' && part->data) memset(part->data + part->width * slot, 0, (size_t)part->width);
    if (part->kind == 't' && part->offsets) part->offsets[slot + 1] = part->bytes;
    if (part->kind == 'l' && part->offsets) part->offsets[slot + 1] = part->children[0]->slots;
    if (part->kind == 's')
        for (int64_t i = 0; i < part->count; i++) nested_null(part->children[i]);
}

static inline const uint8_t *nested_count(const uint8_t *at, const uint8_t *end, uint32_t *count) {
    if (end - at < 4) return NULL;
    memcpy(count, at, sizeof *count);
    return at + 4;
}

/* Reads a value that is not null into the parts, and returns where it ends; NULL when the bytes are none of the type.
 * Without memory in the parts it only counts. */
static const uint8_t *nested_read(part_t *part, const uint8_t *at, const uint8_t *end) {
    int64_t slot = part->slots++;
    uint32_t count;
    if (part->valid) part->valid[slot] = 1;
    if (part->kind == 'f') {
        if (end - at < part->width) return NULL;
        if (part->data) memcpy(part->data + part->width * slot, at, (size_t)part->width);
        return at + part->width;
    }
    if (part->kind == 't') {
        if (!(at = nested_count(at, end, &count)) || end - at < count) return NULL;
        if (part->data) memcpy(part->data + part->bytes, at, count);
        part->bytes += count;
        if (part->offsets) part->offsets[slot + 1] = part->bytes;
        return at + count;
    }
    int64_t heads = part->count;
    if (part->kind == 'l') {
        if (!(at = nested_count(at, end, &count))) return NULL;
        heads = count;
    }
    if (end - at < heads) return NULL;
    const uint8_t *there = at;
    at += heads;
    for (int64_t i = 0; i < heads; i++) {
        part_t *child = part->children[part->kind == 'l' ? 0 : i];
        if (there[i]) {
            if (!(at = nested_read(child, at, end))) return NULL;
        } else {
            if (end - at < part_gap(child)) return NULL;
            at += part_gap(child);
            nested_null(child);
        }
    }
    if (part->kind == 'l' && part->offsets) part->offsets[slot + 1] = part->children[0]->slots;
    return at;
}

#endif
