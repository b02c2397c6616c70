/* Keys of a join: what makes two values of columns equal. No Python in here.
 *
 * As in Python: numbers are equal by value whatever their type (True, 1, 1.0 and 1+0j), text and bytes never, nulls
 * and NaN equal nothing. So a value becomes a class and bytes that are equal exactly when the values are: integers
 * within int64 are class INTEGER wherever they come from, other numbers that a double holds FLOAT, the rest of uint64
 * LARGE. These are the kinds of docs/formats/keys.md; the bytes stay within the table, so nothing else hangs on them.
 */
#ifndef SHMJET_JOIN_KEYS_H
#define SHMJET_JOIN_KEYS_H

#include "columns/order.h"

typedef enum {
    KEY_NONE, /* equals nothing */
    KEY_INTEGER, KEY_FLOAT, KEY_LARGE, KEY_DATE, KEY_SPAN, KEY_COMPLEX, KEY_TEXT, KEY_BYTES, KEY_RAW
} key_class_t;

typedef struct {
    column_t column;
    order_form_t form;
} key_column_t;

/* A value: `length` bytes at `bytes`, or in `words` if that is NULL. */
typedef struct {
    key_class_t class;
    uint64_t length;
    const uint8_t *bytes;
    uint64_t words[2];
} key_value_t;

static inline key_class_t key_of_double(double value, uint64_t *payload) {
    if (value != value) return KEY_NONE;
    if (value >= -0x1p63 && value < 0x1p63 && (double)(int64_t)value == value) {
        *payload = (uint64_t)(int64_t)value;
        return KEY_INTEGER;
    }
    memcpy(payload, &value, 8);
    return KEY_FLOAT;
}

static inline key_class_t key_of_large(uint64_t value, uint64_t *payload) {
    double near = (double)value;
    if (near < 0x1p64 && (uint64_t)near == value) return key_of_double(near, payload);
    *payload = value;
    return KEY_LARGE;
}

/* The class and payload of a number, bool, date or span that is not null. `form` is column->form, apart to be
 * constant. */
ALWAYS key_class_t key_number(const key_column_t *key, order_form_t form, int64_t row, uint64_t *payload) {
    const uint8_t *data = key->column.data;
    switch (form) {
    case ORDER_BOOL: *payload = data[row] != 0; return KEY_INTEGER;
    case ORDER_I8: *payload = (uint64_t)(int64_t)(int8_t)data[row]; return KEY_INTEGER;
    case ORDER_I16: *payload = (uint64_t)(int64_t)(int16_t)order_load(data + 2 * row, 2); return KEY_INTEGER;
    case ORDER_I32: *payload = (uint64_t)(int64_t)(int32_t)order_load(data + 4 * row, 4); return KEY_INTEGER;
    case ORDER_I64: *payload = order_load(data + 8 * row, 8); return KEY_INTEGER;
    case ORDER_U8: *payload = data[row]; return KEY_INTEGER;
    case ORDER_U16: *payload = order_load(data + 2 * row, 2); return KEY_INTEGER;
    case ORDER_U32: *payload = order_load(data + 4 * row, 4); return KEY_INTEGER;
    case ORDER_U64:
        *payload = order_load(data + 8 * row, 8);
        return *payload >> 63 ? key_of_large(*payload, payload) : KEY_INTEGER;
    case ORDER_F32: return key_of_double(load_f32(data + 4 * row), payload);
    case ORDER_F64: return key_of_double(load_f64(data + 8 * row), payload);
    case ORDER_DATE:
        *payload = order_load(data + 8 * row, 8);
        if (*payload == SIGN_BIT) return KEY_NONE; /* NaT */
        return key->column.kind == 'M' ? KEY_DATE : KEY_SPAN;
    default: return KEY_NONE;
    }
}

/* Returns 0, or -1 for a column that cannot be a key: float16, long double and UCS-4 text have to be converted
 * before. */
static inline int key_column(key_column_t *key, const column_t *column) {
    key->column = *column;
    key->form = order_form(column);
    switch (key->form) {
    case ORDER_NONE:
    case ORDER_F16:
    case ORDER_FLONG:
    case ORDER_CLONG:
    case ORDER_CODES: return -1;
    default: return 0;
    }
}

/* 1 when the column's values are one word: numbers, dates and spans. */
static inline int key_is_word(const key_column_t *key) {
    return key->form <= ORDER_DATE && key->form != ORDER_F16 && key->form != ORDER_FLONG;
}

static inline void key_complex(const key_column_t *key, int64_t row, key_value_t *value) {
    const uint8_t *p = key->column.data + (int64_t)key->column.itemsize * row;
    double real = key->form == ORDER_C64 ? load_f32(p) : load_f64(p);
    double imaginary = key->form == ORDER_C64 ? load_f32(p + 4) : load_f64(p + 8);
    if (imaginary == 0) {
        value->class = key_of_double(real, value->words);
        return;
    }
    if (real == 0) real = 0; /* -0.0 equals 0.0 */
    value->class = real != real || imaginary != imaginary ? KEY_NONE : KEY_COMPLEX;
    value->length = 16;
    memcpy(&value->words[0], &real, 8);
    memcpy(&value->words[1], &imaginary, 8);
}

/* Reads the value in a row of any column that can be a key. */
static inline void key_value(const key_column_t *key, int64_t row, key_value_t *value) {
    value->bytes = NULL;
    value->length = 8;
    value->class = KEY_NONE;
    value->words[0] = 0;
    if (column_is_null(&key->column, row)) return;
    switch (key->form) {
    case ORDER_TEXT: {
        int64_t start = column_offset(&key->column, row);
        value->bytes = key->column.data + start;
        value->length = (uint64_t)(column_offset(&key->column, row + 1) - start);
        value->class = key->column.kind == 't' ? KEY_TEXT : KEY_BYTES;
        return;
    }
    case ORDER_BYTES:
        value->bytes = key->column.data + (int64_t)key->column.itemsize * row;
        value->length = key->column.itemsize;
        value->class = key->column.kind == 'S' ? KEY_BYTES : KEY_RAW;
        while (value->class == KEY_BYTES && value->length && !value->bytes[value->length - 1]) value->length--;
        return;
    case ORDER_C64:
    case ORDER_C128: key_complex(key, row, value); return;
    default: value->class = key_number(key, key->form, row, value->words);
    }
}

static inline const uint8_t *key_bytes(const key_value_t *value) {
    return value->bytes ? value->bytes : (const uint8_t *)value->words;
}

/* -- hashes: of 64 good bits, but of no format --------------------------------------------------------------------- */

#define KEY_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t key_mix(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t key_hash_word(uint64_t payload, key_class_t class) {
    return key_mix(payload ^ UINT64_C(0xa0761d6478bd642f), KEY_MULTIPLIER + 2 * (uint64_t)class);
}

/* After Wang Yi's wyhash: 8 bytes a multiplication; the last 8, 4 or fewer are read so that they overlap. */
static inline uint64_t key_hash_value(const key_value_t *value, uint64_t seed) {
    const uint8_t *p = key_bytes(value);
    uint64_t left = value->length,
             hash = key_mix(seed ^ left ^ UINT64_C(0xe7037ed1a0b428db), KEY_MULTIPLIER + 2 * (uint64_t)value->class);
    for (; left > 8; left -= 8, p += 8) hash = key_mix(hash ^ order_load(p, 8), UINT64_C(0x8ebc6af09c88c6e3));
    uint64_t last = 0;
    if (left == 8)
        last = order_load(p, 8);
    else if (left >= 4)
        last = order_load(p, 4) << 32 | order_load(p + left - 4, 4);
    else if (left)
        last = (uint64_t)p[0] << 16 | (uint64_t)p[left >> 1] << 8 | p[left - 1];
    return key_mix(hash ^ last, UINT64_C(0x589965cc75374cc3));
}

#endif
