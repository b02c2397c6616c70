/* What a column contributes to the canonical bytes of a key (docs/formats/keys.md). No Python in here.
 *
 * A key is described by nodes in pre-order: a leaf is a column, a KEY_TUPLE stands for a structured column and is
 * followed by the nodes of its fields. Dates and durations carry what their unit means (key_time_t), since a column_t
 * knows only their 8 bytes. A row is read in one of two ways: key_part() gives the tagged form of any row, key_block()
 * the 8-byte payloads of a whole block of rows, if all of them have one.
 */
#ifndef SHMJET_KEY_COLUMN_H
#define SHMJET_KEY_COLUMN_H

#include "columns/column.h"
#include "columns/decimal_key.h"
#include "columns/simd.h"

typedef enum {
    KEY_NUMBER,
    KEY_FLOAT,
    KEY_TEXT,
    KEY_PADDED,
    KEY_UCS4,
    KEY_RAW,
    KEY_TIME,
    KEY_DECIMAL,
    KEY_TUPLE
} key_form_t;

/* How the integer in a date's or duration's 8 bytes becomes the value that numpy's tolist() gives: w = value * times
 * (it wraps, as in numpy). If least <= w <= most it is a `tag` of w * scale + add; where scale is 0, it is the ordinal
 * of the day on which the month begins that comes w * add months after January 1970; a negative scale divides, and what
 * leaves a rest is a plain integer. Otherwise the value is a plain
 * integer. INT64_MIN, numpy's NaT, is null. */
typedef struct {
    uint8_t tag; /* d T Z p; N for a column in which all is null */
    int64_t times, least, most, scale, add;
} key_time_t;

typedef struct {
    column_t column;
    key_form_t form;
    key_time_t time;
    uint32_t scale; /* of decimals */
    int children; /* of a tuple: how many of the next nodes are its direct children, ... */
    int span;     /* ... and how many nodes there are from this one to the end of its last child */
} key_node_t;

/* The tagged form of one value: `head`, then `bytes`, which for KEY_UCS4 are code points still to be encoded. */
typedef struct {
    uint8_t head[16];
    uint32_t head_length;
    const uint8_t *bytes;
    size_t length; /* of bytes; for KEY_UCS4 as UTF-8 */
    size_t points; /* of KEY_UCS4 */
    uint8_t room[DECIMAL_KEY_BYTES]; /* what `bytes` points to, of decimals */
} key_part_t;

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* The payload of a float's key: of the int that it equals, if there is one of 64 bits, else its own bits, and one NaN.
 * `whole` tells which. */
static inline uint64_t float_payload(double value, uint32_t *whole) {
    *whole = value >= -0x1p63 && value < 0x1p63 && (double)(int64_t)value == value;
    if (*whole) return (uint64_t)(int64_t)value;
    return value == value ? (uint64_t)load_i64(&value) : UINT64_C(0x7ff8000000000000);
}

static inline int64_t load_number(const column_t *column, int64_t row) {
    const uint8_t *p = column->data + row * column->itemsize;
    uint16_t half;
    uint32_t word;
    switch (column->itemsize) {
    case 1: return column->kind == 'b' ? *p != 0 : column->kind == 'i' ? (int8_t)*p : *p;
    case 2: memcpy(&half, p, 2); return column->kind == 'i' ? (int16_t)half : half;
    case 4: memcpy(&word, p, 4); return column->kind == 'i' ? (int32_t)word : (int64_t)word;
    default: return load_i64(p);
    }
}

static inline uint32_t put_payload(uint8_t *out, uint8_t tag, uint64_t payload) {
    out[0] = tag;
    memcpy(out + 1, &payload, 8);
    return 9;
}

/* The tagged form of any integer below 2^71: 9 or 10 bytes. */
static inline uint32_t put_integer(uint8_t *out, __int128 value) {
    if (value == (int64_t)value) return put_payload(out, 'i', (uint64_t)value);
    double near = (double)value;
    if ((__int128)near == value) return put_payload(out, 'f', (uint64_t)load_i64(&near));
    out[0] = 'I';
    memcpy(out + 1, &value, 9);
    return 10;
}

/* --- dates and durations ------------------------------------------------------------------------------------------ */

/* The proleptic ordinal of the first day of a month; after Howard Hinnant's days_from_civil(). */
static inline int64_t ordinal_of_month(int64_t months) {
    int64_t year = 1970 + (months >= 0 ? months : months - 11) / 12, month = months - (year - 1970) * 12;
    int64_t shifted = month < 2 ? year - 1 : year, since_march = (month + 10) % 12; /* years that begin in March */
    int64_t era = shifted / 400, of_era = shifted - era * 400;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * since_march + 2) / 5 - 305;
}

/* Whether the value is a date or duration, and then the integer in its payload. */
static inline int time_payload(const key_time_t *time, int64_t value, __int128 *payload) {
    int64_t w = (int64_t)((uint64_t)value * (uint64_t)time->times);
    if (w < time->least || w > time->most) return 0;
    if (time->scale < 0) {
        if (w % time->scale) return 0;
        *payload = w / -time->scale + time->add;
        return 1;
    }
    *payload = time->scale ? (__int128)w * time->scale + time->add : ordinal_of_month(w * time->add);
    return 1;
}

/* --- any row ------------------------------------------------------------------------------------------------------ */

/* Appends a code point in UTF-8, a lone surrogate as three bytes. */
static inline uint32_t put_utf8(uint8_t *out, uint32_t point) {
    if (point < 0x80) return out[0] = (uint8_t)point, 1;
    if (point < 0x800) return out[0] = (uint8_t)(0xc0 | point >> 6), out[1] = (uint8_t)(0x80 | (point & 63)), 2;
    if (point < 0x10000) {
        out[0] = (uint8_t)(0xe0 | point >> 12);
        out[1] = (uint8_t)(0x80 | (point >> 6 & 63));
        out[2] = (uint8_t)(0x80 | (point & 63));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | (point >> 18 & 7));
    out[1] = (uint8_t)(0x80 | (point >> 12 & 63));
    out[2] = (uint8_t)(0x80 | (point >> 6 & 63));
    out[3] = (uint8_t)(0x80 | (point & 63));
    return 4;
}

static inline uint32_t load_point(const uint8_t *points, size_t index) {
    uint32_t point;
    memcpy(&point, points + 4 * index, sizeof point);
    return point;
}

static inline void key_part_ucs4(key_part_t *part, const uint8_t *points, size_t count) {
    while (count > 0 && load_point(points, count - 1) == 0) count--;
    part->bytes = points;
    part->points = count;
    for (size_t i = 0; i < count; i++) {
        uint32_t point = load_point(points, i);
        part->length += 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000);
    }
}

/* The tagged form of a leaf's row. */
static inline void key_part(const key_node_t *node, int64_t row, key_part_t *part) {
    const column_t *column = &node->column;
    const uint8_t *value = column->data + row * column->itemsize;
    part->head_length = 1;
    part->length = part->points = 0;
    part->bytes = NULL;
    part->head[0] = 'N';
    if (column_is_null(column, row)) return;
    switch (node->form) {
    case KEY_NUMBER: {
        int64_t number = load_number(column, row);
        int large = column->kind == 'u' && column->itemsize == 8;
        part->head_length = put_integer(part->head, large ? (__int128)(uint64_t)number : number);
        break;
    }
    case KEY_FLOAT: {
        uint32_t whole;
        uint64_t payload = float_payload(load_float(value, column->itemsize), &whole);
        part->head_length = put_payload(part->head, whole ? 'i' : 'f', payload);
        break;
    }
    case KEY_TEXT:
        part->head[0] = column->kind == 't' ? 's' : 'b';
        part->bytes = column->data + column_offset(column, row);
        part->length = (size_t)(column_offset(column, row + 1) - column_offset(column, row));
        break;
    case KEY_PADDED: /* numpy takes the zeros at the end for padding */
        part->head[0] = 'b';
        part->bytes = value;
        part->length = column->itemsize;
        while (part->length > 0 && value[part->length - 1] == 0) part->length--;
        break;
    case KEY_UCS4:
        part->head[0] = 's';
        key_part_ucs4(part, value, column->itemsize / 4);
        break;
    case KEY_TIME: {
        int64_t number = load_i64(value);
        __int128 payload;
        if (number == INT64_MIN || node->time.tag == 'N') break;
        if (!time_payload(&node->time, number, &payload)) {
            part->head_length = put_integer(part->head, number);
            break;
        }
        uint32_t length = put_integer(part->head + 5, payload);
        part->head[0] = node->time.tag;
        memcpy(part->head + 1, &length, 4);
        part->head_length = 5 + length;
        break;
    }
    case KEY_DECIMAL:
        part->length = decimal_key(part->room, load_units(column, row), node->scale) - 1;
        part->head[0] = part->room[0];
        part->bytes = part->room + 1;
        break;
    default: /* KEY_RAW */
        part->head[0] = 'b';
        part->bytes = value;
        part->length = column->itemsize;
    }
}

/* --- a block of rows ---------------------------------------------------------------------------------------------- */

SIMD_CLONES static uint64_t numbers_of_block(const uint8_t *data, char kind, uint32_t itemsize, int count,
                                             uint64_t *restrict payloads) {
    uint64_t all = 0;
    switch (itemsize + (kind == 'i') * 16) {
    case 1: /* unsigned, or bool */
        for (int i = 0; i < count; i++) payloads[i] = kind == 'b' ? data[i] != 0 : data[i];
        break;
    case 2:
        for (int i = 0; i < count; i++) {
            uint16_t value;
            memcpy(&value, data + 2 * (size_t)i, sizeof value);
            payloads[i] = value;
        }
        break;
    case 4:
        for (int i = 0; i < count; i++) {
            uint32_t value;
            memcpy(&value, data + 4 * (size_t)i, sizeof value);
            payloads[i] = value;
        }
        break;
    case 16 + 1:
        for (int i = 0; i < count; i++) payloads[i] = (uint64_t)(int8_t)data[i];
        break;
    case 16 + 2:
        for (int i = 0; i < count; i++) {
            int16_t value;
            memcpy(&value, data + 2 * (size_t)i, sizeof value);
            payloads[i] = (uint64_t)value;
        }
        break;
    case 16 + 4:
        for (int i = 0; i < count; i++) {
            int32_t value;
            memcpy(&value, data + 4 * (size_t)i, sizeof value);
            payloads[i] = (uint64_t)value;
        }
        break;
    default:
        memcpy(payloads, data, 8 * (size_t)count);
        if (kind == 'u')
            for (int i = 0; i < count; i++) all |= payloads[i];
    }
    return all;
}

/* Adding FLOAT_ROUND rounds a float below 2^51 to an integer, which then is what the sum's bits have more than those of
 * FLOAT_ROUND: unlike a conversion, every SIMD unit can do it. Larger ones, infinities and NaN, all rare, come
 * after. */
#define FLOAT_ROUND 0x1.8p52

SIMD_CLONES static int small_floats(const double *restrict values, int count, uint64_t *restrict payloads,
                                    uint32_t *restrict tags) {
    const uint64_t base = UINT64_C(0x4338000000000000);
    double sums[64];
    uint64_t bits[64];
    int large = 0;
    for (int i = 0; i < count; i++) sums[i] = values[i] + FLOAT_ROUND;
    memcpy(bits, sums, sizeof bits[0] * (size_t)count);
    memcpy(payloads, values, sizeof *values * (size_t)count);
    for (int i = 0; i < count; i++) payloads[i] = sums[i] - FLOAT_ROUND == values[i] ? bits[i] - base : payloads[i];
    for (int i = 0; i < count; i++) tags[i] = sums[i] - FLOAT_ROUND == values[i] ? 'i' : 'f';
    for (int i = 0; i < count; i++) large |= !(values[i] < 0x1p51 && values[i] > -0x1p51);
    return large;
}

SIMD_CLONES static void widen_floats(const uint8_t *restrict data, int count, double *restrict values) {
    for (int i = 0; i < count; i++) values[i] = load_f32(data + 4 * (size_t)i);
}

static inline void floats_of_block(const uint8_t *data, uint32_t itemsize, int count, uint64_t *restrict payloads,
                                   uint32_t *restrict tags) {
    double values[64];
    int from = 0;
    do { /* a block has at least one row */
        int some = count - from < 64 ? count - from : 64;
        const uint8_t *source = data + (size_t)from * itemsize;
        if (itemsize == 8)
            memcpy(values, source, 8 * (size_t)some);
        else if (itemsize == 4)
            widen_floats(source, some, values);
        else
            for (int i = 0; i < some; i++) values[i] = load_f16(source + 2 * (size_t)i);
        int large = small_floats(values, some, payloads + from, tags + from);
        for (int i = 0; large && i < some; i++) {
            uint32_t whole;
            payloads[from + i] = float_payload(values[i], &whole);
            tags[from + i] = whole ? 'i' : 'f';
        }
    } while ((from += 64) < count);
}

static inline int times_of_block(const key_node_t *node, const uint8_t *data, int count, uint64_t *payloads) {
    for (int i = 0; i < count; i++) {
        int64_t value = load_i64(data + 8 * (size_t)i);
        __int128 payload;
        if (value == INT64_MIN || !time_payload(&node->time, value, &payload) || payload != (int64_t)payload) return 0;
        payloads[i] = (uint64_t)payload;
    }
    return 1;
}

/* Whether all of `count` rows from `start` are 8-byte numbers, or all dates, or all durations: then their payloads
 * and, in a column of floats, the tags i and f. Nulls are not looked at. */
static inline int key_block(const key_node_t *node, int64_t start, int count, uint64_t *payloads, uint32_t *tags) {
    const column_t *column = &node->column;
    const uint8_t *data = column->data + start * column->itemsize;
    switch (node->form) {
    case KEY_NUMBER: return numbers_of_block(data, column->kind, column->itemsize, count, payloads) >> 63 == 0;
    case KEY_FLOAT: floats_of_block(data, column->itemsize, count, payloads, tags); return 1;
    case KEY_TIME: return times_of_block(node, data, count, payloads);
    default: return 0;
    }
}

/* Whether one of `count` rows from `start` is null. */
static inline int key_block_has_nulls(const key_node_t *node, int64_t start, int count) {
    return node->column.valid && memchr(node->column.valid + start, 0, (size_t)count) != NULL;
}

#endif
