/* Arithmetic on columns of decimals: integers of 64 or 128 bits that count units of the last digit. No Python in here.
 *
 * An operand is a column of either width or a single value (stride 0). Each loop is compiled for every pair of widths.
 * A kernel returns the first row whose result is not in the type asked for, or -1; rows that are not valid do not
 * count.
 */
#ifndef SHMJET_DECIMAL_H
#define SHMJET_DECIMAL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "columns/decimal_key.h"

typedef __int128 units_t;
typedef unsigned __int128 size_units_t;

#define MOST_DIGITS 38

typedef struct {
    const uint8_t *data;
    int width;      /* 8 or 16 bytes */
    int64_t stride; /* width, or 0 for a single value */
    int shift;      /* the value is multiplied by 10^shift */
} decimal_operand_t;

static inline units_t power_of_ten(int exponent) {
    units_t power = 1;
    while (exponent-- > 0) power *= 10;
    return power;
}

static inline units_t units_at(const decimal_operand_t *operand, int width, int64_t row) {
    const uint8_t *p = operand->data + row * operand->stride;
    return width == 8 ? load_i64(p) : load_i128(p);
}

static inline size_units_t size_of(units_t value) {
    return value < 0 ? -(size_units_t)value : (size_units_t)value;
}

static inline void put_units(uint8_t *out, int width, int64_t row, units_t value) {
    if (width == 8) {
        int64_t narrow = (int64_t)value;
        memcpy(out + 8 * row, &narrow, 8);
    } else {
        memcpy(out + 16 * row, &value, 16);
    }
}

/* --- + - * -------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) int64_t combine_widths(char symbol, decimal_operand_t one,
                                                                    decimal_operand_t two, int width_one,
                                                                    int width_two, const uint8_t *valid, int64_t rows,
                                                                    units_t limit, uint8_t *out, int width) {
    const units_t first = power_of_ten(one.shift), second = power_of_ten(two.shift);
    int64_t bad = -1;
    for (int64_t row = 0; row < rows; row++) {
        units_t a, b, result;
        int wrong = __builtin_mul_overflow(units_at(&one, width_one, row), first, &a);
        wrong |= __builtin_mul_overflow(units_at(&two, width_two, row), second, &b);
        if (symbol == '+')
            wrong |= __builtin_add_overflow(a, b, &result);
        else if (symbol == '-')
            wrong |= __builtin_sub_overflow(a, b, &result);
        else
            wrong |= __builtin_mul_overflow(a, b, &result);
        if (wrong) { /* then the result is right modulo 2^128, and right where it is small: 1.6e38 - 0.8e38 is */
            double left = (double)units_at(&one, width_one, row) * (double)first;
            double right = (double)units_at(&two, width_two, row) * (double)second;
            wrong = !(fabs(symbol == '+' ? left + right : symbol == '-' ? left - right : left * right) < 1.5e38);
        }
        wrong |= result >= limit || result <= -limit;
        if (wrong) {
            if (bad < 0 && (!valid || valid[row])) bad = row;
            result = 0;
        }
        put_units(out, width, row, result);
    }
    return bad;
}

static inline __attribute__((always_inline)) int64_t combine_symbol(char symbol, const decimal_operand_t *one,
                                                                    const decimal_operand_t *two, const uint8_t *valid,
                                                                    int64_t rows, units_t limit, uint8_t *out,
                                                                    int width) {
    if (one->width == 8 && two->width == 8 && width == 8)
        return combine_widths(symbol, *one, *two, 8, 8, valid, rows, limit, out, 8);
    if (one->width == 8 && two->width == 8)
        return combine_widths(symbol, *one, *two, 8, 8, valid, rows, limit, out, width);
    if (one->width == 8) return combine_widths(symbol, *one, *two, 8, 16, valid, rows, limit, out, width);
    if (two->width == 8) return combine_widths(symbol, *one, *two, 16, 8, valid, rows, limit, out, width);
    return combine_widths(symbol, *one, *two, 16, 16, valid, rows, limit, out, width);
}

/* one `symbol` two, of which each result has fewer than `digits` + 1 digits. */
static int64_t decimal_combine(char symbol, const decimal_operand_t *one, const decimal_operand_t *two,
                               const uint8_t *valid, int64_t rows, int digits, uint8_t *out, int width) {
    const units_t limit = power_of_ten(digits);
    switch (symbol) {
    case '+': return combine_symbol('+', one, two, valid, rows, limit, out, width);
    case '-': return combine_symbol('-', one, two, valid, rows, limit, out, width);
    default: return combine_symbol('*', one, two, valid, rows, limit, out, width);
    }
}

/* Rounds down to multiples: floor(one / two) and what is left of it, as Python's // and % have it for integers. Rows in
 * which the divisor is 0 get 0. */
static int64_t decimal_divide(int wants_rest, const decimal_operand_t *one, const decimal_operand_t *two,
                              const uint8_t *valid, int64_t rows, int digits, uint8_t *out, int width) {
    const units_t limit = power_of_ten(digits), first = power_of_ten(one->shift), second = power_of_ten(two->shift);
    int64_t bad = -1;
    for (int64_t row = 0; row < rows; row++) {
        units_t a, b, result = 0;
        int wrong = __builtin_mul_overflow(units_at(one, one->width, row), first, &a);
        wrong |= __builtin_mul_overflow(units_at(two, two->width, row), second, &b);
        if (!wrong && b != 0) {
            units_t rest = a % b, whole = a / b;
            if (rest != 0 && (rest < 0) != (b < 0)) {
                rest += b;
                whole--;
            }
            result = wants_rest ? rest : whole;
            wrong = result >= limit || result <= -limit;
        }
        if (wrong && bad < 0 && (!valid || valid[row])) bad = row;
        put_units(out, width, row, wrong ? 0 : result);
    }
    return bad;
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* -1, 0 or 1. A product that leaves 128 bits is larger than any decimal, so its sign decides. */
static inline int compare_units(units_t a, units_t first, units_t b, units_t second) {
    units_t left, right;
    if (__builtin_mul_overflow(a, first, &left)) return a < 0 ? -1 : 1;
    if (__builtin_mul_overflow(b, second, &right)) return b < 0 ? 1 : -1;
    return (left > right) - (left < right);
}

static void decimal_compare(const decimal_operand_t *one, const decimal_operand_t *two, int64_t rows, int8_t *out) {
    const units_t first = power_of_ten(one->shift), second = power_of_ten(two->shift);
    if (one->width == 8 && two->width == 8 && one->shift == 0 && two->shift == 0) {
        for (int64_t row = 0; row < rows; row++) {
            int64_t a = load_i64(one->data + row * one->stride), b = load_i64(two->data + row * two->stride);
            out[row] = (int8_t)((a > b) - (a < b));
        }
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        out[row] = (int8_t)compare_units(units_at(one, one->width, row), first, units_at(two, two->width, row), second);
}

/* A number of 256 bits, enough for 2^53 * 10^38 and for what it is compared with. */
typedef struct {
    size_units_t high, low;
} wide_t;

static inline wide_t wide_product(size_units_t a, size_units_t b) {
    const size_units_t mask = UINT64_MAX;
    size_units_t a1 = a >> 64, a0 = a & mask, b1 = b >> 64, b0 = b & mask;
    size_units_t low = a0 * b0, mid = a1 * b0 + (low >> 64), mid2 = a0 * b1 + (mid & mask);
    return (wide_t){a1 * b1 + (mid >> 64) + (mid2 >> 64), (mid2 << 64) | (low & mask)};
}

static inline wide_t wide_shifted(size_units_t a, int bits) {
    if (bits == 0) return (wide_t){0, a};
    if (bits >= 256) return (wide_t){a ? ~(size_units_t)0 : 0, 0};
    if (bits >= 128) return (wide_t){bits == 128 ? a : a << (bits - 128), 0};
    return (wide_t){a >> (128 - bits), a << bits};
}

/* units * 10^-scale against a float: -1, 0, 1, or 2 for NaN. */
static int compare_with_float(units_t units, int scale, double value) {
    if (value != value) return 2;
    int sign = units < 0 ? -1 : units > 0, other = value < 0 ? -1 : value > 0;
    if (sign != other) return sign < other ? -1 : 1;
    if (sign == 0) return 0;
    double near = (double)size_of(units) / (double)power_of_ten(scale), size = fabs(value);
    if (near > size * (1 + 0x1p-40)) return sign;
    if (near < size * (1 - 0x1p-40)) return -sign;
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(size, &exponent), 53); /* size == mantissa * 2^(exponent - 53) */
    exponent -= 53;
    while (!(mantissa & 1)) { /* so that what is shifted stays small */
        mantissa >>= 1;
        exponent++;
    }
    /* Both sides are about equal, so a left side of `units` shifted by more than 128 bits cannot come up: the right one
     * has at most 180 bits. */
    wide_t right = wide_product(mantissa, (size_units_t)power_of_ten(scale)), left = {0, size_of(units)};
    if (exponent < 0) {
        left = wide_shifted(size_of(units), -exponent);
    } else { /* a whole number below 2^128 */
        right = wide_product(wide_shifted(mantissa, exponent).low, (size_units_t)power_of_ten(scale));
    }
    int order = left.high != right.high ? (left.high > right.high ? 1 : -1)
                                        : (left.low > right.low) - (left.low < right.low);
    return sign * order;
}

/* --- other types -------------------------------------------------------------------------------------------------- */

/* The nearest float: by one exact division where both numbers are floats themselves, else by way of the digits. */
static double nearest_float(units_t units, int scale) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    size_units_t size = size_of(units);
    if (size <= (size_units_t)1 << 53 && scale <= 22) {
        double value = (double)(uint64_t)size / powers[scale];
        return units < 0 ? -value : value;
    }
    char text[64], digits[40];
    int count = 0, at = 0;
    for (size_units_t rest = size; rest; rest /= 10) digits[count++] = (char)('0' + (int)(rest % 10));
    if (units < 0) text[at++] = '-';
    while (count > 0) text[at++] = digits[--count];
    snprintf(text + at, sizeof text - (size_t)at, "e-%d", scale);
    return strtod(text, NULL);
}

/* A float rounded to a scale, half to even of its exact value; 0 where it is not finite or has more than 38 digits. */
static int units_of_float(double value, int scale, units_t *units) {
    if (!(fabs(value) < 1e39)) return 0;
    char text[128];
    int length = snprintf(text, sizeof text, "%.*f", scale, value);
    size_units_t size = 0;
    int digits = 0;
    for (int i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') continue; /* the sign, and the point of any locale */
        if (digits += size != 0 || text[i] != '0', digits > MOST_DIGITS) return 0;
        size = size * 10 + (size_units_t)(text[i] - '0');
    }
    *units = value < 0 ? -(units_t)size : (units_t)size;
    return 1;
}

/* Text such as "-12.50", without exponent; 0 where it is none, or has another digit than 0 beyond the scale. */
static int units_of_text(const uint8_t *text, int64_t length, int scale, units_t *units) {
    size_units_t size = 0;
    int64_t at = length > 0 && (*text == '-' || *text == '+');
    int seen = 0, digits = 0, after = -1;
    for (; at < length; at++) {
        if (text[at] == '.' && after < 0) {
            after = 0;
            continue;
        }
        if (text[at] < '0' || text[at] > '9') return 0;
        seen = 1;
        if (after >= scale) {
            if (text[at] != '0') return 0;
            continue;
        }
        if (after >= 0) after++;
        if (digits += size != 0 || text[at] != '0', digits > MOST_DIGITS) return 0;
        size = size * 10 + (size_units_t)(text[at] - '0');
    }
    if (!seen) return 0;
    for (int left = scale - (after < 0 ? 0 : after); left > 0; left--) {
        if (size && ++digits > MOST_DIGITS) return 0;
        size *= 10;
    }
    *units = *text == '-' ? -(units_t)size : (units_t)size;
    return 1;
}

/* Writes a decimal with all digits of its scale, at most 42 bytes; returns how many. */
static int text_of_units(units_t units, int scale, uint8_t *out) {
    uint8_t digits[48];
    int count = 0, at = 0;
    for (size_units_t rest = size_of(units); rest; rest /= 10) digits[count++] = (uint8_t)('0' + (int)(rest % 10));
    while (count <= scale) digits[count++] = '0';
    if (units < 0) out[at++] = '-';
    while (count > 0) {
        if (count == scale) out[at++] = '.';
        out[at++] = digits[--count];
    }
    return at;
}

#endif
