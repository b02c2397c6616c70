/* The order of the values of a column, as unsigned integers. No Python in here.
 *
 * A value becomes one or several pieces: 64-bit words whose order, first piece first, is the order of the values. So
 * one algorithm (sort.h) sorts columns of every kind, and several columns are no more than one with more pieces.
 * Integers have their sign bit turned, floats are turned as Herf's "radix tricks" has it (-0.0 equals 0.0), text gives
 * 7 bytes a piece and in the lowest byte how many of its bytes are left, up to 8, so that "a" stands before "a\0" and
 * a shared prefix is known to go on. A descending column has its pieces inverted.
 *
 * Nulls stand last, or first if wanted, also in descending columns; NaN and NaT stand after all other values, also in
 * descending ones. Which of the three a row is, the flag piece 0 says, in columns that have nulls or may have NaT.
 */
#ifndef SHMJET_ORDER_H
#define SHMJET_ORDER_H

#include "columns/column.h"

#define ALWAYS static inline __attribute__((always_inline))
#define SIGN_BIT (UINT64_C(1) << 63)
#define TEXT_PIECE 7 /* bytes of text in a piece */

typedef enum {
    ORDER_BOOL, ORDER_I8, ORDER_I16, ORDER_I32, ORDER_I64, ORDER_U8, ORDER_U16, ORDER_U32, ORDER_U64,
    ORDER_F16, ORDER_F32, ORDER_F64, ORDER_FLONG, ORDER_DATE, ORDER_C64, ORDER_C128, ORDER_CLONG,
    ORDER_BYTES, ORDER_CODES, ORDER_TEXT, ORDER_NONE
} order_form_t;

typedef struct {
    column_t column;
    order_form_t form;
    uint64_t flip;      /* all ones in a descending column */
    int flagged;        /* has nulls, or may have NaT */
    int nulls_first;
    int64_t pieces;     /* with piece 0, the flag; text has as many as it needs */
    const uint8_t *end; /* of the text: bytes that may be read */
} order_key_t;

ALWAYS uint64_t order_load(const uint8_t *p, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, p, bytes);
    return value;
}

/* Up to 8 bytes as a number whose order is theirs; bytes that are missing count as 0. */
ALWAYS uint64_t order_bytes(const uint8_t *p, int64_t left) {
    if (left >= 8) return __builtin_bswap64(order_load(p, 8));
    uint64_t value = 0;
    for (int64_t i = 0; i < left; i++) value |= (uint64_t)p[i] << (56 - 8 * i);
    return value;
}

/* `ones` has a bit for each bit of the float, `infinity` is its bit pattern. */
ALWAYS uint64_t order_float(uint64_t bits, uint64_t ones, uint64_t infinity, uint64_t flip) {
    uint64_t sign = (ones >> 1) + 1;
    if ((bits & ~sign & ones) > infinity) return flip | ones;
    if (bits == sign) bits = 0;
    return (bits & sign ? ~bits & ones : bits | sign) ^ flip;
}

ALWAYS uint64_t order_f32(const uint8_t *p, uint64_t flip) {
    return order_float(order_load(p, 4), UINT32_MAX, 0x7f800000u, flip);
}

ALWAYS uint64_t order_f64(const uint8_t *p, uint64_t flip) {
    return order_float(order_load(p, 8), UINT64_MAX, UINT64_C(0x7ff) << 52, flip);
}

static inline int order_is_nan(order_form_t form, const uint8_t *p) {
    if (form == ORDER_C64) return order_f32(p, 0) == UINT32_MAX;
    if (form == ORDER_C128) return order_f64(p, 0) == UINT64_MAX;
    long double value;
    memcpy(&value, p, sizeof value);
    return value != value;
}

/* A long double: `which` 0 is the word with the sign, 1 the rest. x86 has 80 bits of it, ARM64 128. */
static inline uint64_t order_long(const uint8_t *p, int which, uint64_t flip) {
    const unsigned high = sizeof(long double) == 16 && __LDBL_MANT_DIG__ == 64 ? 2 : 8;
    const uint64_t ones = high == 2 ? 0xffff : UINT64_MAX, sign = (ones >> 1) + 1;
    long double value;
    memcpy(&value, p, sizeof value);
    if (value != value) return UINT64_MAX;
    uint64_t word = which ? order_load(p, 8) : order_load(p + 8, high);
    int negative = (order_load(p + 8, high) & sign) != 0 && value != 0;
    if (which) return (negative ? ~word : word) ^ flip;
    if (value == 0) word &= ~sign;
    return (negative ? ~word & ones : word | sign) ^ flip;
}

static inline uint64_t order_complex(order_form_t form, const uint8_t *p, int64_t piece, uint64_t flip) {
    int64_t half = form == ORDER_C64 ? 4 : form == ORDER_C128 ? 8 : (int64_t)sizeof(long double);
    /* numpy's order: by which parts are NaN, then by the real part, then by the imaginary one. */
    if (piece == 1) return (uint64_t)(2 * order_is_nan(form, p) + order_is_nan(form, p + half));
    if (form == ORDER_C64) return order_f32(p + half * (piece - 2), flip);
    if (form == ORDER_C128) return order_f64(p + half * (piece - 2), flip);
    return order_long(p + half * ((piece - 2) / 2), (piece - 2) % 2, flip);
}

/* 7 bytes of text from 7 * (piece - 1) on; the lowest byte is 8 when more follow. */
ALWAYS uint64_t order_text(const order_key_t *key, int64_t piece, int64_t row) {
    int64_t start = column_offset(&key->column, row) + TEXT_PIECE * (piece - 1);
    int64_t left = column_offset(&key->column, row + 1) - start;
    const uint8_t *p = key->column.data + start;
    if (left <= 0) return key->flip;
    if (left > TEXT_PIECE) return (order_bytes(p, 8) >> 8 << 8 | 8) ^ key->flip;
    uint64_t bytes = key->end - p >= 8 ? __builtin_bswap64(order_load(p, 8)) >> (64 - 8 * left) << (64 - 8 * left)
                                       : order_bytes(p, left);
    return (bytes | (uint64_t)left) ^ key->flip;
}

/* A piece from 1 on of the value in a row. `form` is key->form, given apart so that it can be a constant. */
ALWAYS uint64_t order_piece(const order_key_t *key, order_form_t form, int64_t piece, int64_t row) {
    const uint8_t *data = key->column.data;
    const uint64_t flip = key->flip;
    const int64_t size = key->column.itemsize;
    switch (form) {
    case ORDER_BOOL: return (data[row] != 0) ^ flip;
    case ORDER_I8: return ((uint64_t)(int64_t)(int8_t)data[row] ^ SIGN_BIT) ^ flip;
    case ORDER_I16: return ((uint64_t)(int64_t)(int16_t)order_load(data + 2 * row, 2) ^ SIGN_BIT) ^ flip;
    case ORDER_I32: return ((uint64_t)(int64_t)(int32_t)order_load(data + 4 * row, 4) ^ SIGN_BIT) ^ flip;
    case ORDER_I64:
    case ORDER_DATE: return (order_load(data + 8 * row, 8) ^ SIGN_BIT) ^ flip;
    case ORDER_U8: return data[row] ^ flip;
    case ORDER_U16: return order_load(data + 2 * row, 2) ^ flip;
    case ORDER_U32: return order_load(data + 4 * row, 4) ^ flip;
    case ORDER_U64: return order_load(data + 8 * row, 8) ^ flip;
    case ORDER_F16: return order_float(order_load(data + 2 * row, 2), UINT16_MAX, 0x7c00, flip);
    case ORDER_F32: return order_f32(data + 4 * row, flip);
    case ORDER_F64: return order_f64(data + 8 * row, flip);
    case ORDER_FLONG: return order_long(data + size * row, piece == 2, flip);
    case ORDER_C64:
    case ORDER_C128:
    case ORDER_CLONG: return order_complex(form, data + size * row, piece, flip);
    case ORDER_BYTES: return order_bytes(data + size * row + 8 * (piece - 1), size - 8 * (piece - 1)) ^ flip;
    case ORDER_CODES: {
        const uint8_t *p = data + size * row + 8 * (piece - 1);
        uint64_t second = size - 8 * (piece - 1) >= 8 ? order_load(p + 4, 4) : 0;
        return (order_load(p, 4) << 32 | second) ^ flip;
    }
    case ORDER_TEXT: return order_text(key, piece, row);
    case ORDER_NONE: break;
    }
    return 0;
}

/* 1 when the row has no value: null, or NaT. */
ALWAYS int order_has_none(const order_key_t *key, int64_t row) {
    if (column_is_null(&key->column, row)) return 1;
    return key->form == ORDER_DATE && load_i64(key->column.data + 8 * row) == INT64_MIN;
}

/* Piece 0. */
ALWAYS uint64_t order_flag(const order_key_t *key, int64_t row) {
    if (column_is_null(&key->column, row)) return key->nulls_first ? 0 : 2;
    return (uint64_t)order_has_none(key, row) + (uint64_t)key->nulls_first;
}

static inline order_form_t order_form(const column_t *column) {
    const uint32_t size = column->itemsize;
    switch (column->kind) {
    case 'b': return size == 1 ? ORDER_BOOL : ORDER_NONE;
    case 'i':
        return size == 1   ? ORDER_I8
               : size == 2 ? ORDER_I16
               : size == 4 ? ORDER_I32
               : size == 8 ? ORDER_I64
                           : ORDER_NONE;
    case 'u':
        return size == 1   ? ORDER_U8
               : size == 2 ? ORDER_U16
               : size == 4 ? ORDER_U32
               : size == 8 ? ORDER_U64
                           : ORDER_NONE;
    case 'f':
        if (size == 2) return ORDER_F16;
        if (size == 4) return ORDER_F32;
        if (size == 8) return ORDER_F64;
        return size == sizeof(long double) ? ORDER_FLONG : ORDER_NONE;
    case 'c':
        if (size == 8) return ORDER_C64;
        if (size == 16) return ORDER_C128;
        return size == 2 * sizeof(long double) ? ORDER_CLONG : ORDER_NONE;
    case 'M':
    case 'm': return size == 8 ? ORDER_DATE : ORDER_NONE;
    case 'S':
    case 'V': return ORDER_BYTES;
    case 'U': return size % 4 ? ORDER_NONE : ORDER_CODES;
    case 't':
    case 'y': return ORDER_TEXT;
    default: return ORDER_NONE;
    }
}

/* Returns 0, or -1 for a column that has no order here. */
static inline int order_key(order_key_t *key, const column_t *column, int descending, int nulls_first) {
    key->column = *column;
    key->form = order_form(column);
    key->flip = descending ? UINT64_MAX : 0;
    key->flagged = column->valid != NULL || key->form == ORDER_DATE;
    key->nulls_first = nulls_first;
    key->end = column_is_variable(column) ? column->data + column_offset(column, column->rows) : NULL;
    switch (key->form) {
    case ORDER_NONE: return -1;
    case ORDER_TEXT: key->pieces = INT64_MAX; break;
    case ORDER_FLONG: key->pieces = 3; break;
    case ORDER_C64:
    case ORDER_C128: key->pieces = 4; break;
    case ORDER_CLONG: key->pieces = 6; break;
    case ORDER_BYTES:
    case ORDER_CODES: key->pieces = 1 + ((int64_t)column->itemsize + 7) / 8; break;
    default: key->pieces = 2;
    }
    return 0;
}

static inline int order_compare_text(const order_key_t *a, int64_t i, const order_key_t *b, int64_t j) {
    int64_t at_a = column_offset(&a->column, i), at_b = column_offset(&b->column, j);
    int64_t length_a = column_offset(&a->column, i + 1) - at_a, length_b = column_offset(&b->column, j + 1) - at_b;
    int order =
        memcmp(a->column.data + at_a, b->column.data + at_b, (size_t)(length_a < length_b ? length_a : length_b));
    if (!order) order = (length_a > length_b) - (length_a < length_b);
    return a->flip ? -order : order;
}

/* Compares row i of some columns with row j of others of the same kinds, from piece `piece` of the first on. Returns
 * less than, equal to or greater than 0. */
static inline int order_compare(const order_key_t *a, int64_t i, const order_key_t *b, int64_t j, int64_t count,
                                int64_t piece) {
    for (int64_t k = 0; k < count; k++, a++, b++, piece = 0) {
        if (a->flagged || b->flagged) {
            uint64_t x = order_flag(a, i), y = order_flag(b, j);
            if (x != y) return x < y ? -1 : 1;
            if (order_has_none(a, i)) continue;
        }
        if (a->form == ORDER_TEXT) {
            int order = order_compare_text(a, i, b, j);
            if (order) return order;
            continue;
        }
        for (int64_t p = piece ? piece : 1; p < a->pieces; p++) {
            uint64_t x = order_piece(a, a->form, p, i), y = order_piece(b, b->form, p, j);
            if (x != y) return x < y ? -1 : 1;
        }
    }
    return 0;
}

#endif
