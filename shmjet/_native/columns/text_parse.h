/* From text to numbers, truth values and dates, for casts in expressions. No Python in here.
 *
 * Only the plain forms are read here, with the functions for CSV: what is out of range, has more digits than a double,
 * or cannot be read at all is marked, and the caller reads it slowly or says what is wrong with it.
 */
#ifndef SHMJET_TEXT_PARSE_H
#define SHMJET_TEXT_PARSE_H

#include "columns/column.h"
#include "columns/csv_date.h"

static inline int text_parse_never(const uint8_t *text, size_t length, double *value) {
    (void)text, (void)length, (void)value;
    return -1;
}

static inline int text_parse_integer(const uint8_t *p, const uint8_t *end, const uint8_t *floor, int is_signed,
                                     uint32_t size, uint8_t *out) {
    int negative;
    uint64_t magnitude;
    if (csv_integer(p, end, floor, &negative, &magnitude) != CSV_VALUE_GOOD) return 0;
    uint64_t most = is_signed ? ((uint64_t)1 << (8 * size - 1)) - !negative : UINT64_MAX >> (64 - 8 * size);
    if (negative && !is_signed) most = 0;
    if (magnitude > most) return 0;
    if (negative) magnitude = 0 - magnitude;
    memcpy(out, &magnitude, size); /* little endian, as all of this is */
    return 1;
}

static inline int text_parse_float(const uint8_t *p, const uint8_t *end, const uint8_t *floor, uint32_t size,
                                   uint8_t *out) {
    double value;
    if (csv_float(p, end, floor, text_parse_never, &value) != CSV_VALUE_GOOD) return 0;
    float narrow = (float)value;
    if (value - value != 0 || (size == 4 && narrow - narrow != 0)) return 0; /* no finite number */
    if (size == 8) memcpy(out, &value, 8);
    else memcpy(out, &narrow, 4);
    return 1;
}

/* YYYY-MM-DD, and unless only a `day` is wanted perhaps T or a space, hh:mm, and perhaps seconds and their parts. */
static inline int text_parse_date(const uint8_t *p, const uint8_t *end, int day, char unit, uint8_t *out) {
    int64_t size = end - p, value;
    if (size != 10 && (day || (size != 16 && size != 19 && size <= 20))) return 0;
    if ((unsigned)(p[0] - '0') > 9 || (unsigned)(end[-1] - '0') > 9) return 0;
    if (p[4] != '-' || p[7] != '-' || (size > 10 && p[13] != ':')) return 0;
    if (csv_date(p, end, unit, &value) != CSV_VALUE_GOOD) return 0;
    memcpy(out, &value, 8);
    return 1;
}

/* Writes the values to `out`, which is zeros, and 1 to `other` for a value that is left to the caller; nulls are not
 * read. `kind` is that of a column; `unit` is that of csv_date(). Returns how many are left. */
static inline int64_t text_parse_column(const column_t *column, char kind, uint32_t size, char unit, uint8_t *out,
                                        uint8_t *other) {
    const uint8_t *floor = column->data;
    int day = unit == 'Y' || unit == 'M' || unit == 'W' || unit == 'D';
    int64_t left = 0;
    for (int64_t row = 0; row < column->rows; row++, out += size) {
        const uint8_t *p = column->data + column_offset(column, row);
        const uint8_t *end = column->data + column_offset(column, row + 1);
        int good = 1;
        other[row] = 0;
        if (column_is_null(column, row)) continue;
        switch (kind) {
        case 'i':
        case 'u': good = text_parse_integer(p, end, floor, kind == 'i', size, out); break;
        case 'f': good = text_parse_float(p, end, floor, size, out); break;
        case 'b': *out = (uint8_t)csv_word_is(p, end, "true"); good = *out || csv_word_is(p, end, "false"); break;
        default: good = p < end && text_parse_date(p, end, day, unit, out);
        }
        other[row] = !good;
        left += !good;
    }
    return left;
}

/* Lists of words, of which there are so many for each row, as text_split_lists_column() writes them. Returns the bytes,
 * or -1 if a count does not fit. */
static inline int64_t text_lists_column(const column_t *words, const int64_t *counts, int64_t rows, int64_t *offsets,
                                        uint8_t *to) {
    int64_t done = 0, word = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (to) offsets[row] = done;
        if (counts[row] < 0 || counts[row] > UINT32_MAX || counts[row] > words->rows - word) return -1;
        if (to) {
            uint32_t count = (uint32_t)counts[row];
            memcpy(to + done, &count, 4);
            memset(to + done + 4, 1, count);
        }
        done += 4 + counts[row];
        for (int64_t last = word + counts[row]; word < last; word++) {
            int64_t from = column_offset(words, word), length = column_offset(words, word + 1) - from;
            if (length > UINT32_MAX) return -1;
            if (to) {
                uint32_t size = (uint32_t)length;
                memcpy(to + done, &size, 4);
                memcpy(to + done + 4, words->data + from, size);
            }
            done += 4 + length;
        }
    }
    if (to) offsets[rows] = done;
    return done;
}

#endif
