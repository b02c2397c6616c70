/* The tagged form of a decimal as a key (docs/formats/keys.md): of the integer or float that it equals, if there is
 * one, else of its sign, digits and exponent. No Python in here. */
#ifndef SHMJET_DECIMAL_KEY_H
#define SHMJET_DECIMAL_KEY_H

#include "columns/column.h"

#define DECIMAL_KEY_BYTES 72

static inline __int128 load_i128(const void *p) {
    __int128 value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* A decimal of a column of 8 or 16 bytes a value. */
static inline __int128 load_units(const column_t *column, int64_t row) {
    const uint8_t *p = column->data + row * column->itemsize;
    return column->itemsize == 8 ? load_i64(p) : load_i128(p);
}

static inline uint32_t decimal_key_word(uint8_t *out, uint8_t tag, uint64_t payload) {
    out[0] = tag;
    memcpy(out + 1, &payload, 8);
    return 9;
}

/* Whether a number of 128 bits is a float's value without rounding. */
static inline int is_float(unsigned __int128 size) {
    while (size >> 64 && !(size & 1)) size >>= 1;
    if (size >> 64) return 0;
    uint64_t bits = (uint64_t)size;
    while (bits && !(bits & 1)) bits >>= 1;
    return bits >> 53 == 0;
}

/* An integer of any size. */
static inline uint32_t decimal_key_integer(uint8_t *out, __int128 value) {
    if (value == (int64_t)value) return decimal_key_word(out, 'i', (uint64_t)value);
    unsigned __int128 size = value < 0 ? -(unsigned __int128)value : (unsigned __int128)value;
    double near = (double)value;
    if (is_float(size)) return decimal_key_word(out, 'f', (uint64_t)load_i64(&near));
    uint32_t bits = 0;
    for (unsigned __int128 rest = size; rest; rest >>= 1) bits++;
    out[0] = 'I';
    memcpy(out + 1, &value, bits / 8 + 1);
    return 1 + bits / 8 + 1;
}

/* Writes the tagged form of units * 10^-scale, at most DECIMAL_KEY_BYTES, and returns how many bytes it has. */
static inline uint32_t decimal_key(uint8_t *out, __int128 units, uint32_t scale) {
    if (units == 0) return decimal_key_integer(out, 0);
    while (scale > 0 && units % 10 == 0) {
        units /= 10;
        scale--;
    }
    if (scale == 0) return decimal_key_integer(out, units);
    /* Without zeros at its end it equals a float only if a power of 5 cancels all of the denominator but a power of
     * 2. */
    unsigned __int128 size = units < 0 ? -(unsigned __int128)units : (unsigned __int128)units, fifth = size;
    uint32_t left = scale;
    while (left > 0 && fifth % 5 == 0) {
        fifth /= 5;
        left--;
    }
    if (left == 0 && is_float(fifth)) {
        double value = (double)fifth;
        for (uint32_t i = 0; i < scale; i++) value *= 0.5;
        if (units < 0) value = -value;
        return decimal_key_word(out, 'f', (uint64_t)load_i64(&value));
    }
    uint8_t digits[40];
    uint32_t count = 0, at = 1;
    for (unsigned __int128 rest = size; rest; rest /= 10) digits[count++] = (uint8_t)('0' + (int)(rest % 10));
    const uint32_t nine = 9, length = count + 1;
    out[0] = 'D';
    memcpy(out + at, &nine, 4);
    at += 4;
    at += decimal_key_word(out + at, 'i', units < 0);
    memcpy(out + at, &length, 4);
    at += 4;
    out[at++] = 's';
    while (count > 0) out[at++] = digits[--count];
    memcpy(out + at, &nine, 4);
    at += 4;
    return at + decimal_key_word(out + at, 'i', (uint64_t)-(int64_t)scale);
}

#endif
