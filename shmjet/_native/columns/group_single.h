/* Adding values that all belong to one group: a table without keys, sorted rows, one key that most rows have. No Python
 * in here.
 *
 * A state that every value changes is a chain of stores and loads, which no processor does ahead. Here a block is first
 * put together in LANES independent lanes, of which the compiler makes vectors, and then added to the state at once.
 * Sums of floats carry their rounding errors along in every lane, so they are as exact as one by one. A block with a
 * value that is not finite, or whose sum is not, is left to the plain loops: the functions return 0 then.
 */
#ifndef SHMJET_GROUP_SINGLE_H
#define SHMJET_GROUP_SINGLE_H

#include "columns/group_keys.h"
#include "columns/simd.h"

#define LANES 8
#define SINGLE_LEAST 32 /* rows from which on it pays */

__extension__ typedef __int128 single_int_t;
typedef double single_floats_t __attribute__((vector_size(32)));
typedef double single_wide_floats_t __attribute__((vector_size(64)));

/* Whether all rows of a block belong to its first row's group. */
SIMD_CLONES static int single_group(const uint32_t *groups, int count) {
    uint32_t differs = 0;
    for (int i = 0; i < count; i++) differs |= groups[i] ^ groups[0];
    return !differs;
}

SIMD_CLONES static void single_halves(const uint8_t *words, int count, int is_unsigned, uint64_t *low, uint64_t *high) {
    uint64_t least = 0, most = 0;
    for (size_t i = 0, end = (size_t)count; i < end; i++) { /* of an int gcc makes an address for each word */
        uint64_t word = load_u64(words + 8 * i);
        least += word & UINT32_MAX;
        most += is_unsigned ? word >> 32 : (uint64_t)((int64_t)word >> 32);
    }
    *low = least, *high = most;
}

/* The sum of at most BLOCK integers. */
static inline single_int_t single_sum_int(const uint8_t *words, int count, int is_unsigned) {
    uint64_t low, high;
    single_halves(words, count, is_unsigned, &low, &high);
    return (single_int_t)(int64_t)high * ((single_int_t)1 << 32) + (single_int_t)low;
}

/* Adds a value to a sum, and what rounding takes from the sum to its error (Knuth's TwoSum). */
#define SINGLE_ADD(type, sum, error, value)                            \
    do {                                                               \
        type total = (sum) + (value), part = total - (sum);            \
        (error) += ((sum) - (total - part)) + ((value) - part);        \
        (sum) = total;                                                 \
    } while (0)

/* The sum of a block, and what it lacks, in two vectors of `lanes` lanes. */
#define SINGLE_SUM_FLOATS(name, type, lanes)                                                        \
    static int single_sum_floats_##name(const uint8_t *words, int count, double *sum, double *error) { \
        type sum_a = {0}, sum_b = {0}, error_a = {0}, error_b = {0}, a, b;                          \
        int i = 0;                                                                                  \
        for (; i + 2 * (lanes) <= count; i += 2 * (lanes)) {                                        \
            memcpy(&a, words + 8 * (size_t)i, sizeof a);                                            \
            memcpy(&b, words + 8 * (size_t)i + sizeof a, sizeof b);                                 \
            SINGLE_ADD(type, sum_a, error_a, a);                                                    \
            SINGLE_ADD(type, sum_b, error_b, b);                                                    \
        }                                                                                           \
        if (i < count) {                                                                            \
            double rest[2 * (lanes)] = {0};                                                         \
            memcpy(rest, words + 8 * (size_t)i, 8 * (size_t)(count - i));                           \
            memcpy(&a, rest, sizeof a);                                                             \
            memcpy(&b, rest + (lanes), sizeof b);                                                   \
            SINGLE_ADD(type, sum_a, error_a, a);                                                    \
            SINGLE_ADD(type, sum_b, error_b, b);                                                    \
        }                                                                                           \
        SINGLE_ADD(type, sum_a, error_a, sum_b);                                                    \
        error_a += error_b;                                                                         \
        double all = sum_a[0], lack = error_a[0];                                                   \
        for (int lane = 1; lane < (lanes); lane++) {                                                \
            double total = all + sum_a[lane], part = total - all;                                   \
            lack += error_a[lane] + ((all - (total - part)) + (sum_a[lane] - part));                \
            all = total;                                                                            \
        }                                                                                           \
        *sum = all, *error = lack;                                                                  \
        return all - all == 0;                                                                      \
    }

/* Vectors are as wide as the processor has them: gcc keeps wider ones in memory. */
SIMD_CLONES SINGLE_SUM_FLOATS(any, single_floats_t, 4)
#ifdef SIMD_WIDEST
SIMD_WIDEST SINGLE_SUM_FLOATS(widest, single_wide_floats_t, 8)
#endif

static inline int single_sum_floats(const uint8_t *words, int count, double *sum, double *error) {
#ifdef SIMD_WIDEST
    if (__builtin_cpu_supports("avx512f")) return single_sum_floats_widest(words, count, sum, error);
#endif
    return single_sum_floats_any(words, count, sum, error);
}

SIMD_CLONES static int64_t single_least(const uint8_t *words, int count) {
    int64_t least = INT64_MAX;
    for (size_t i = 0, end = (size_t)count; i < end; i++) {
        int64_t value = (int64_t)load_u64(words + 8 * i);
        least = value < least ? value : least;
    }
    return least;
}

SIMD_CLONES static int64_t single_greatest(const uint8_t *words, int count) {
    int64_t greatest = INT64_MIN;
    for (size_t i = 0, end = (size_t)count; i < end; i++) {
        int64_t value = (int64_t)load_u64(words + 8 * i);
        greatest = value > greatest ? value : greatest;
    }
    return greatest;
}

/* The mean of what values differ from `first`, and the squares of what they differ from that mean. */
SIMD_CLONES static int single_squares(const uint8_t *words, int count, double first, double *mean, double *squares) {
    double sums[LANES] = {0}, deltas[BLOCK], all = 0, square = 0;
    for (size_t i = 0, end = (size_t)count; i < end; i++) {
        double value;
        memcpy(&value, words + 8 * i, sizeof value);
        deltas[i] = value - first;
    }
    for (int i = 0; i < count; i++) sums[i % LANES] += deltas[i];
    for (int lane = 0; lane < LANES; lane++) all += sums[lane], sums[lane] = 0;
    all /= count;
    for (int i = 0; i < count; i++) sums[i % LANES] += (deltas[i] - all) * (deltas[i] - all);
    for (int lane = 0; lane < LANES; lane++) square += sums[lane];
    *mean = all, *squares = square;
    return square - square == 0;
}

#endif
