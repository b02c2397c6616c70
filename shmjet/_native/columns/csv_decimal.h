/* From decimal text to int64, uint64 and double. No Python in here.
 *
 * A field's bounds are known before it is parsed (csv.h finds them), so digits are taken eight at a time from the end:
 * a word that is filled up with '0' on the left costs no branch on the number of digits (Lemire, "Quickly parsing eight
 * digits", 2022). Doubles are correctly rounded, always: up to 2^53 and 10^22 by one exact multiplication or division
 * (Clinger 1990); up to 19 digits by a 64 x 128 bit product (Eisel-Lemire: "Number parsing at a gigabyte per second",
 * 2021, and Mushtak and Lemire 2023, who prove that it needs no fallback); what is longer or further from 1 than 10^60
 * goes to the `slow` function of the caller.
 */
#ifndef SHMJET_CSV_DECIMAL_H
#define SHMJET_CSV_DECIMAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "columns/csv_powers.h"

/* The outcome for a value. The order is known to csv_errors.py. */
typedef enum {
    CSV_VALUE_GOOD = 0,
    CSV_VALUE_UNREADABLE, /* not text of this type */
    CSV_VALUE_TOO_LARGE,  /* outside the range of the type */
    CSV_VALUE_TOO_FINE,   /* a date with more than its unit can hold */
} csv_value_t;

/* Reads a number that has the syntax of a decimal float, correctly rounded; returns 0 on success. */
typedef int (*csv_slow_t)(const uint8_t *text, size_t length, double *value);

static inline uint64_t csv_load(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline int csv_all_digits(uint64_t word) {
    const uint64_t high = 0xf0f0f0f0f0f0f0f0u;
    return ((word & high) | (((word + 0x0606060606060606u) & high) >> 4)) == 0x3333333333333333u;
}

static inline uint64_t csv_eight_digits(uint64_t word) {
    word = ((word & 0x0f0f0f0f0f0f0f0fu) * 2561) >> 8;
    word = ((word & 0x00ff00ff00ff00ffu) * 6553601) >> 16;
    return ((word & 0x0000ffff0000ffffu) * 42949672960001u) >> 32;
}

/* The last `count` (1 to 8) characters before `end`, after '0' characters. Eight bytes before `end` must be
 * readable. */
static inline uint64_t csv_last_word(const uint8_t *end, int64_t count) {
    uint64_t word = csv_load(end - 8);
    if (count == 8) return word;
    int shift = (int)(64 - 8 * count);
    return (word >> shift << shift) | (0x3030303030303030u >> (8 * count));
}

/* Reads 1 to 19 digits. `floor` is the first readable byte. Returns whether all are digits. */
static inline int csv_digits(const uint8_t *p, const uint8_t *end, const uint8_t *floor, uint64_t *value) {
    int64_t count = end - p;
    if (end - floor < 24) {
        uint64_t sum = 0;
        for (; p < end; p++) {
            unsigned digit = *p - '0';
            if (digit > 9) return 0;
            sum = 10 * sum + digit;
        }
        *value = sum;
        return 1;
    }
    uint64_t low = csv_last_word(end, count < 8 ? count : 8), sum = 0, scale = 100000000u;
    if (!csv_all_digits(low)) return 0;
    low = csv_eight_digits(low);
    if (count > 8) {
        uint64_t word = csv_last_word(end - 8, count < 16 ? count - 8 : 8);
        if (!csv_all_digits(word)) return 0;
        sum = csv_eight_digits(word);
        if (count > 16) {
            word = csv_last_word(end - 16, count - 16);
            if (!csv_all_digits(word)) return 0;
            sum += csv_eight_digits(word) * scale;
        }
    }
    *value = sum * scale + low;
    return 1;
}

/* Reads an optional sign and digits. */
static inline csv_value_t csv_integer(const uint8_t *p, const uint8_t *end, const uint8_t *floor, int *negative,
                                      uint64_t *magnitude) {
    *negative = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+');
    if (p == end) return CSV_VALUE_UNREADABLE;
    if (end - p <= 19) return csv_digits(p, end, floor, magnitude) ? CSV_VALUE_GOOD : CSV_VALUE_UNREADABLE;
    uint64_t sum = 0;
    int large = 0;
    for (; p < end; p++) {
        unsigned digit = *p - '0';
        if (digit > 9) return CSV_VALUE_UNREADABLE;
        large |= __builtin_mul_overflow(sum, 10u, &sum);
        large |= __builtin_add_overflow(sum, (uint64_t)digit, &sum);
    }
    *magnitude = sum;
    return large ? CSV_VALUE_TOO_LARGE : CSV_VALUE_GOOD;
}

/* w * 10^q for w > 0 and CSV_POWER_LOW <= q <= CSV_POWER_HIGH: no result is subnormal or infinite. */
static inline double csv_product(uint64_t w, int q) {
    int zeros = __builtin_clzll(w);
    w <<= zeros;
    const uint64_t *power = csv_powers[q - CSV_POWER_LOW];
    unsigned __int128 product = (unsigned __int128)w * power[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1ff) == 0x1ff) { /* the 55 bits that count could still change */
        uint64_t carry = (uint64_t)(((unsigned __int128)w * power[1]) >> 64);
        high += __builtin_add_overflow(low, carry, &low);
    }
    int upper = (int)(high >> 63);
    uint64_t mantissa = high >> (upper + 9);
    int64_t exponent = (((152170 + 65536) * (int64_t)q) >> 16) + 63 + upper - zeros + 1023;
    /* exactly half way between two doubles, which only small powers can be: to even, not up */
    if (low <= 1 && q >= -4 && q <= 23 && (mantissa & 3) == 1 && mantissa << (upper + 9) == high)
        mantissa &= ~(uint64_t)1;
    mantissa = (mantissa + (mantissa & 1)) >> 1;
    if (mantissa >> 53) {
        mantissa = (uint64_t)1 << 52;
        exponent++;
    }
    uint64_t bits = (mantissa & (((uint64_t)1 << 52) - 1)) | (uint64_t)exponent << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int csv_word_is(const uint8_t *p, const uint8_t *end, const char *lower) {
    size_t length = strlen(lower);
    if ((size_t)(end - p) != length) return 0;
    for (size_t i = 0; i < length; i++)
        if ((p[i] | 0x20) != (uint8_t)lower[i]) return 0;
    return 1;
}

static inline csv_value_t csv_named_float(const uint8_t *p, const uint8_t *end, double *value) {
    const uint64_t inf_bits = (uint64_t)0x7ff << 52, nan_bits = inf_bits | (uint64_t)1 << 51;
    if (csv_word_is(p, end, "nan")) {
        memcpy(value, &nan_bits, sizeof *value);
    } else if (csv_word_is(p, end, "inf") || csv_word_is(p, end, "infinity")) {
        memcpy(value, &inf_bits, sizeof *value);
    } else {
        return CSV_VALUE_UNREADABLE;
    }
    return CSV_VALUE_GOOD;
}

static inline const uint8_t *csv_run(const uint8_t *p, const uint8_t *end, uint64_t *sum) {
    for (; end - p >= 8 && csv_all_digits(csv_load(p)); p += 8)
        *sum = *sum * 100000000u + csv_eight_digits(csv_load(p));
    for (; p < end && (unsigned)(*p - '0') < 10; p++) *sum = *sum * 10 + (unsigned)(*p - '0');
    return p;
}

static const double csv_exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                          1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline double csv_signed(double value, int negative) { return negative ? -value : value; }

/* Reads what Python's float() reads, without underscores and spaces. */
static inline csv_value_t csv_float(const uint8_t *p, const uint8_t *end, const uint8_t *floor, csv_slow_t slow,
                                    double *value) {
    const uint8_t *begin = p;
    int negative = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+');
    int64_t count = end - p;
    if (count > 0 && count <= 8 && end - floor >= 8) { /* at most eight characters, perhaps with a point */
        uint64_t word = csv_last_word(end, count), point = word ^ 0x2e2e2e2e2e2e2e2eu;
        point = ~(((point & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | point | 0x7f7f7f7f7f7f7f7fu);
        int digits_behind = 0;
        if (point) {
            int at = __builtin_ctzll(point) & ~7; /* the first point, in bits; what is before it moves one up */
            uint64_t before = ((uint64_t)1 << at) - 1, behind = at == 56 ? 0 : ~(uint64_t)0 << (at + 8);
            word = (word & behind) | (word & before) << 8 | 0x30;
            digits_behind = (56 - at) / 8;
        }
        if (csv_all_digits(word) && !(count == 1 && point)) {
            *value = csv_signed((double)csv_eight_digits(word) / csv_exact_powers[digits_behind], negative);
            return CSV_VALUE_GOOD;
        }
    }
    uint64_t sum = 0;
    while (end - p > 1 && *p == '0' && (unsigned)(p[1] - '0') < 10) p++;
    const uint8_t *start = p;
    p = csv_run(p, end, &sum);
    int64_t digits = p - start, exponent = 0;
    if (p < end && *p == '.') {
        const uint8_t *fraction = ++p;
        if (sum == 0 && digits <= 1) { /* zeros behind the point do not count as digits */
            while (p < end && *p == '0') p++;
            const uint8_t *first = p;
            p = csv_run(p, end, &sum);
            exponent = fraction - p;
            if (digits == 0 && exponent == 0) return CSV_VALUE_UNREADABLE;
            digits = p - first;
        } else {
            p = csv_run(p, end, &sum);
            exponent = fraction - p;
            digits -= exponent;
        }
    } else if (digits == 0) {
        if (csv_named_float(p, end, value) != CSV_VALUE_GOOD) return CSV_VALUE_UNREADABLE;
        *value = csv_signed(*value, negative);
        return CSV_VALUE_GOOD;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        int down = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (p == end) return CSV_VALUE_UNREADABLE;
        int64_t given = 0;
        for (; p < end && (unsigned)(*p - '0') < 10; p++) given = given < 1000000 ? 10 * given + (*p - '0') : given;
        exponent += down ? -given : given;
    }
    if (p < end) return CSV_VALUE_UNREADABLE;
    if (digits > 19) return slow(begin, (size_t)(end - begin), value) ? CSV_VALUE_UNREADABLE : CSV_VALUE_GOOD;
    if (sum == 0) {
        *value = csv_signed(0.0, negative);
    } else if (sum >> 53 == 0 && exponent >= -22 && exponent <= 22) {
        double exact = (double)sum;
        exact = exponent < 0 ? exact / csv_exact_powers[-exponent] : exact * csv_exact_powers[exponent];
        *value = csv_signed(exact, negative);
    } else if (exponent >= CSV_POWER_LOW && exponent <= CSV_POWER_HIGH) {
        *value = csv_signed(csv_product(sum, (int)exponent), negative);
    } else {
        return slow(begin, (size_t)(end - begin), value) ? CSV_VALUE_UNREADABLE : CSV_VALUE_GOOD;
    }
    return CSV_VALUE_GOOD;
}

#endif
