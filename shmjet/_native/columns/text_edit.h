/* Parts of values of text, and values with something else in place of a part. No Python in here.
 *
 * What has a result that is a part of the value writes where it begins and ends; text_copy_ranges() makes a column of
 * that.
 */
#ifndef SHMJET_TEXT_EDIT_H
#define SHMJET_TEXT_EDIT_H

#include "columns/simd.h"
#include "columns/text_match.h"

static inline int text_is_head(uint8_t byte) { return (byte & 0xc0) != 0x80; }

SIMD_CLONES static int64_t text_heads(const uint8_t *from, size_t size) {
    int64_t heads = 0;
    for (size_t i = 0; i < size; i++) heads += (int8_t)from[i] >= -64;
    return heads;
}

SIMD_CLONES static int text_is_ascii(const uint8_t *from, size_t size) {
    uint8_t met = 0;
    for (size_t i = 0; i < size; i++) met |= from[i];
    return met < 0x80;
}

/* count[row] = the code points of the value. */
static inline void text_chars_column(const column_t *column, int64_t *count) {
    if (!column->rows) return;
    int64_t first = column_offset(column, 0), last = column_offset(column, column->rows);
    int ascii = text_is_ascii(column->data + first, (size_t)(last - first));
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), size = column_offset(column, row + 1) - from;
        if (ascii) {
            count[row] = size;
        } else if (size > 32) {
            count[row] = text_heads(column->data + from, (size_t)size);
        } else {
            int64_t heads = 0;
            for (int64_t i = 0; i < size; i++) heads += text_is_head(column->data[from + i]);
            count[row] = heads;
        }
    }
}

/* The place `chars` code points after `from`, `stop` at most. */
static inline const uint8_t *text_ahead(const uint8_t *from, const uint8_t *stop, int64_t chars) {
    while (from < stop && chars > 0) {
        from++;
        while (from < stop && !text_is_head(*from)) from++;
        chars--;
    }
    return from;
}

/* The place `chars` code points before `stop`; *missing is how many of them the value has not. */
static inline const uint8_t *text_back(const uint8_t *from, const uint8_t *stop, int64_t chars, int64_t *missing) {
    while (stop > from && chars > 0) {
        stop--;
        while (stop > from && !text_is_head(*stop)) stop--;
        chars--;
    }
    *missing = chars;
    return stop;
}

/* Where code points `start` to `start + length` of each value are; from the end if `start` is negative; length -1: to
 * the end. */
static inline void text_slice_column(const column_t *column, int64_t start, int64_t length, int64_t *begins,
                                     int64_t *ends) {
    if (!column->rows) return;
    int64_t first = column_offset(column, 0), last = column_offset(column, column->rows);
    int ascii = text_is_ascii(column->data + first, (size_t)(last - first));
    for (int64_t row = 0; row < column->rows; row++) {
        const uint8_t *from = column->data + column_offset(column, row);
        const uint8_t *stop = column->data + column_offset(column, row + 1), *begin, *end;
        int64_t size = stop - from, missing = 0, left = length;
        if (ascii) {
            begin = start >= 0 ? from + (start < size ? start : size) : start >= -size ? stop + start : from;
            missing = start < -size ? -size - start : 0;
        } else {
            begin = start >= 0 ? text_ahead(from, stop, start) : text_back(from, stop, -start, &missing);
        }
        if (left >= 0) left = left > missing ? left - missing : 0;
        if (left < 0) end = stop;
        else if (ascii) end = left < stop - begin ? begin + left : stop;
        else end = text_ahead(begin, stop, left);
        begins[row] = begin - column->data;
        ends[row] = end - column->data;
    }
}

/* Where each value begins and ends without the bytes of `set` (256 marks) around it. If `wide`, a value whose first or
 * last byte then is not ASCII is marked in `other`: it may have white space that is not ASCII. Returns their number. */
static inline int64_t text_strip_column(const column_t *column, const uint8_t *set, int wide, int64_t *begins,
                                        int64_t *ends, uint8_t *other) {
    int64_t found = 0;
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), end = column_offset(column, row + 1);
        while (from < end && set[column->data[from]]) from++;
        while (from < end && set[column->data[end - 1]]) end--;
        begins[row] = from;
        ends[row] = end;
        other[row] = wide && from < end && (column->data[from] | column->data[end - 1]) >= 0x80;
        found += other[row];
    }
    return found;
}

/* Copies data[begins[row] .. ends[row]) one after the other; offsets gets rows + 1 places, from 0. */
static inline void text_copy_ranges(const uint8_t *data, const int64_t *begins, const int64_t *ends, int64_t rows,
                                    int64_t *offsets, uint8_t *to) {
    int64_t done = 0;
    offsets[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t size = ends[row] - begins[row];
        memcpy(to + done, data + begins[row], (size_t)size);
        done += size;
        offsets[row + 1] = done;
    }
}

/* Puts `value` in place of every occurrence of `part`, which is not empty, from left to right. Writes only if `to` is
 * not NULL. Returns the bytes of the result. */
static inline int64_t text_replace_column(const column_t *column, const uint8_t *part, size_t size,
                                          const uint8_t *value, size_t with, int64_t *offsets, uint8_t *to) {
    int64_t done = 0;
    const uint8_t *all = column->rows ? column->data + column_offset(column, column->rows) : NULL;
    const uint8_t *next = column->rows ? text_find(column->data + column_offset(column, 0), all, part, size) : NULL;
    for (int64_t row = 0; row < column->rows; row++) {
        const uint8_t *at = column->data + column_offset(column, row);
        const uint8_t *stop = column->data + column_offset(column, row + 1);
        if (next && next < at) next = text_find(at, all, part, size);
        while (next && next < stop) {
            if (next + size > stop) { /* it crosses the end, and a shorter way may not */
                next = text_find(next + 1, all, part, size);
                continue;
            }
            if (to) {
                memcpy(to + done, at, (size_t)(next - at));
                memcpy(to + done + (next - at), value, with);
            }
            done += (next - at) + (int64_t)with;
            at = next + size;
            next = text_find(at, all, part, size);
        }
        if (to) {
            memcpy(to + done, at, (size_t)(stop - at));
            offsets[row + 1] = done + (stop - at);
        }
        done += stop - at;
    }
    if (to) offsets[0] = 0;
    return done;
}

static inline void text_put_count(uint8_t *to, int64_t count) {
    uint32_t small = (uint32_t)count;
    memcpy(to, &small, 4);
}

/* The pieces of each value between separators as a list of text: the count, a 1 for each, and each with its length in
 * front (docs/formats/batch.md). Writes only if `to` is not NULL. Returns the bytes, or -1 if a count does not fit. */
static inline int64_t text_split_lists_column(const column_t *column, const uint8_t *by, size_t size, int64_t *offsets,
                                              uint8_t *to) {
    int64_t done = 0;
    for (int64_t row = 0; row < column->rows; row++) {
        const uint8_t *from = column->data + column_offset(column, row), *at = from, *next;
        const uint8_t *stop = column->data + column_offset(column, row + 1);
        int64_t pieces = 1, place;
        while ((next = text_find(at, stop, by, size))) {
            pieces++;
            at = next + size;
        }
        if (stop - from > UINT32_MAX) return -1;
        int64_t bytes = 4 + 5 * pieces + (stop - from) - (pieces - 1) * (int64_t)size;
        if (to) {
            text_put_count(to + done, pieces);
            memset(to + done + 4, 1, (size_t)pieces);
            place = done + 4 + pieces;
            for (at = from;; at = next + size) {
                next = text_find(at, stop, by, size);
                int64_t length = (next ? next : stop) - at;
                text_put_count(to + place, length);
                memcpy(to + place + 4, at, (size_t)length);
                place += 4 + length;
                if (!next) break;
            }
            offsets[row + 1] = done + bytes;
        }
        done += bytes;
    }
    if (to) offsets[0] = 0;
    return done;
}

/* Copies with ASCII letters in upper case. */
SIMD_CLONES static void text_upper_ascii(uint8_t *to, const uint8_t *from, size_t size) {
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = from[i];
        to[i] = (uint8_t)(byte ^ ((uint8_t)(byte - 'a') < 26) << 5);
    }
}

/* As text_lower_column(): the data in upper case, and marks at the values that are not all ASCII. */
static inline int64_t text_upper_column(const column_t *column, uint8_t *to, uint8_t *other) {
    int64_t first = column_offset(column, 0), last = column_offset(column, column->rows), found = 0;
    memset(other, 0, (size_t)column->rows);
    text_upper_ascii(to, column->data + first, (size_t)(last - first));
    if (text_is_ascii(column->data + first, (size_t)(last - first))) return 0;
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), end = column_offset(column, row + 1);
        other[row] = !text_is_ascii(column->data + from, (size_t)(end - from));
        found += other[row];
    }
    return found;
}

#endif
