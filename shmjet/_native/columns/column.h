/* What a column is: plain memory, one of the kinds below. No Python in here.
 *
 * `kind` is numpy's dtype.kind for columns of fixed width, and 't' (UTF-8) or 'y' (bytes) for those of variable width,
 * whose value i is data[offsets[i] .. offsets[i + 1]); offsets[0] need not be 0. Nothing is aligned: values are read
 * with memcpy (load_* below), which costs nothing on x86-64 and ARM64. All is little-endian.
 */
#ifndef SHMJET_COLUMN_H
#define SHMJET_COLUMN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    char kind;              /* b i u f c M m S U V, or t y */
    uint32_t itemsize;      /* bytes of a value; 0 for t and y */
    int64_t rows;
    const uint8_t *data;    /* rows * itemsize bytes, or the text */
    const uint8_t *offsets; /* rows + 1 int64 for t and y, else NULL */
    const uint8_t *valid;   /* rows bytes, 0 = null, or NULL when nothing is null */
} column_t;

static inline int64_t load_i64(const void *p) {
    int64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline double load_f64(const void *p) {
    double value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline double load_f32(const void *p) {
    float value;
    memcpy(&value, p, sizeof value);
    return (double)value;
}

static inline double load_f16(const void *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    uint64_t exponent = (half >> 10) & 31, fraction = half & 1023, sign = (uint64_t)(half >> 15) << 63;
    if (exponent == 0) return sign ? -(double)fraction * 0x1p-24 : (double)fraction * 0x1p-24;
    uint64_t bits = sign | (exponent == 31 ? UINT64_C(0x7ff) : exponent + 1008) << 52 | fraction << 42;
    return load_f64(&bits);
}

/* A float of 2, 4 or 8 bytes. */
static inline double load_float(const void *p, uint32_t itemsize) {
    return itemsize == 8 ? load_f64(p) : itemsize == 4 ? load_f32(p) : load_f16(p);
}

static inline int column_is_variable(const column_t *column) { return column->offsets != NULL; }

static inline int column_is_null(const column_t *column, int64_t row) { return column->valid && !column->valid[row]; }

static inline int64_t column_offset(const column_t *column, int64_t row) { return load_i64(column->offsets + 8 * row); }

#endif
