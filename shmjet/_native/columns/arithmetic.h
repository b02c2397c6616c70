/* Integer arithmetic that tells whether a result has left its type. No Python in here.
 *
 * One pass over the operands, without a branch for a row: the compiler makes vector code of it. What is under nulls is
 * looked at like the rest, so the caller, who knows the nulls, decides what a report means.
 */
#ifndef SHMJET_ARITHMETIC_H
#define SHMJET_ARITHMETIC_H

#include <stdint.h>

#include "columns/simd.h"

/* A step of 0 takes the first value of an operand for all rows. */
#define ARITHMETIC_WIDE(type, wide)                                                                                 \
    SIMD_CLONES static int arithmetic_##type(char symbol, const type *a, int step_a, const type *b, int step_b,     \
                                             type *to, int64_t rows) {                                              \
        int left = 0;                                                                                               \
        if (symbol == '+')                                                                                          \
            for (int64_t i = 0; i < rows; i++) {                                                                    \
                wide exact = (wide)a[i * step_a] + (wide)b[i * step_b];                                             \
                to[i] = (type)exact;                                                                                \
                left |= (wide)to[i] != exact;                                                                       \
            }                                                                                                       \
        else if (symbol == '-')                                                                                     \
            for (int64_t i = 0; i < rows; i++) {                                                                    \
                wide exact = (wide)a[i * step_a] - (wide)b[i * step_b];                                             \
                to[i] = (type)exact;                                                                                \
                left |= (wide)to[i] != exact;                                                                       \
            }                                                                                                       \
        else                                                                                                        \
            for (int64_t i = 0; i < rows; i++) {                                                                    \
                wide exact = (wide)a[i * step_a] * (wide)b[i * step_b];                                             \
                to[i] = (type)exact;                                                                                \
                left |= (wide)to[i] != exact;                                                                       \
            }                                                                                                       \
        return left;                                                                                                \
    }

ARITHMETIC_WIDE(int8_t, int32_t)
ARITHMETIC_WIDE(int16_t, int32_t)
ARITHMETIC_WIDE(int32_t, int64_t)
ARITHMETIC_WIDE(uint8_t, int32_t)
ARITHMETIC_WIDE(uint16_t, int64_t)
ARITHMETIC_WIDE(uint32_t, __int128)

SIMD_CLONES static int arithmetic_int64_t(char symbol, const int64_t *a, int step_a, const int64_t *b, int step_b,
                                          int64_t *to, int64_t rows) {
    uint64_t left = 0; /* its top bit */
    if (symbol == '+') {
        for (int64_t i = 0; i < rows; i++) {
            uint64_t x = (uint64_t)a[i * step_a], y = (uint64_t)b[i * step_b], sum = x + y;
            to[i] = (int64_t)sum;
            left |= (x ^ sum) & (y ^ sum);
        }
        return left >> 63;
    }
    if (symbol == '-') {
        for (int64_t i = 0; i < rows; i++) {
            uint64_t x = (uint64_t)a[i * step_a], y = (uint64_t)b[i * step_b], difference = x - y;
            to[i] = (int64_t)difference;
            left |= (x ^ y) & (x ^ difference);
        }
        return left >> 63;
    }
    int wrong = 0;
    for (int64_t i = 0; i < rows; i++) wrong |= __builtin_mul_overflow(a[i * step_a], b[i * step_b], &to[i]);
    return wrong;
}

SIMD_CLONES static int arithmetic_uint64_t(char symbol, const uint64_t *a, int step_a, const uint64_t *b, int step_b,
                                           uint64_t *to, int64_t rows) {
    int left = 0;
    if (symbol == '+')
        for (int64_t i = 0; i < rows; i++) left |= __builtin_add_overflow(a[i * step_a], b[i * step_b], &to[i]);
    else if (symbol == '-')
        for (int64_t i = 0; i < rows; i++) left |= __builtin_sub_overflow(a[i * step_a], b[i * step_b], &to[i]);
    else
        for (int64_t i = 0; i < rows; i++) left |= __builtin_mul_overflow(a[i * step_a], b[i * step_b], &to[i]);
    return left;
}

#endif
