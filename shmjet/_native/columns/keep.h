/* Keeping the rows that a mask of bytes marks. No Python in here.
 *
 * Every value is written, and the place goes on where the mask is true: no branch that is guessed. With AVX2 four words
 * go at once; a table says how the words that stay move to the front (Lemire, "Decoding billions of integers per
 * second").
 */
#ifndef SHMJET_KEEP_H
#define SHMJET_KEEP_H

#include <stdint.h>
#include <string.h>

#include "columns/simd.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define KEEP_WIDE __attribute__((target("avx2")))
#endif

#define KEEP_SLACK 32 /* words of room beyond the kept ones, with which all rows go fast */

typedef uint8_t keep_lanes_t __attribute__((vector_size(32)));

SIMD_CLONES static int64_t marked_rows(const uint8_t *mask, int64_t rows) {
    int64_t marked = 0, i = 0;
    while (i + 32 <= rows) {
        keep_lanes_t lanes = {0}, marks;
        for (int turn = 0; turn < 255 && i + 32 <= rows; turn++, i += 32) {
            memcpy(&marks, mask + i, sizeof marks);
            lanes -= (keep_lanes_t)(marks != 0);
        }
        for (int lane = 0; lane < 32; lane++) marked += lanes[lane];
    }
    for (; i < rows; i++) marked += mask[i] != 0;
    return marked;
}

/* Keeps the values where `mask` is not 0; `to` has room for one more than these, or for all rows. Returns how many
 * there are. Eight rows of which none is kept, or all are, are looked at once. */
#define KEEP(type)                                                                                                  \
    static inline int64_t keep_##type(const type *from, const uint8_t *mask, int64_t rows, type *to) {              \
        int64_t kept = 0, i = 0;                                                                                    \
        for (; i + 8 <= rows; i += 8) {                                                                             \
            uint64_t marks;                                                                                         \
            memcpy(&marks, mask + i, sizeof marks);                                                                 \
            if (!marks) continue;                                                                                   \
            if (marks == UINT64_C(0x0101010101010101)) {                                                            \
                memcpy(to + kept, from + i, 8 * sizeof *to);                                                        \
                kept += 8;                                                                                          \
                continue;                                                                                           \
            }                                                                                                       \
            for (int row = 0; row < 8; row++) {                                                                     \
                to[kept] = from[i + row];                                                                           \
                kept += mask[i + row] != 0;                                                                         \
            }                                                                                                       \
        }                                                                                                           \
        for (; i < rows; i++) {                                                                                     \
            to[kept] = from[i];                                                                                     \
            kept += mask[i] != 0;                                                                                   \
        }                                                                                                           \
        return kept;                                                                                                \
    }

KEEP(uint8_t)
KEEP(uint16_t)
KEEP(uint32_t)
KEEP(uint64_t)

#ifdef KEEP_WIDE
#define KEEP_PLACE(a, b, c, d) {2 * (a), 2 * (a) + 1, 2 * (b), 2 * (b) + 1, 2 * (c), 2 * (c) + 1, 2 * (d), 2 * (d) + 1}

/* Halves of the words that stay, for each choice of four. */
static const int32_t KEEP_PLACES[16][8] __attribute__((aligned(32))) = {
    KEEP_PLACE(0, 0, 0, 0), KEEP_PLACE(0, 0, 0, 0), KEEP_PLACE(1, 0, 0, 0), KEEP_PLACE(0, 1, 0, 0),
    KEEP_PLACE(2, 0, 0, 0), KEEP_PLACE(0, 2, 0, 0), KEEP_PLACE(1, 2, 0, 0), KEEP_PLACE(0, 1, 2, 0),
    KEEP_PLACE(3, 0, 0, 0), KEEP_PLACE(0, 3, 0, 0), KEEP_PLACE(1, 3, 0, 0), KEEP_PLACE(0, 1, 3, 0),
    KEEP_PLACE(2, 3, 0, 0), KEEP_PLACE(0, 2, 3, 0), KEEP_PLACE(1, 2, 3, 0), KEEP_PLACE(0, 1, 2, 3),
};

/* Keeps words for as long as there is room for KEEP_SLACK of them. Returns how many; `reached`: the rows looked at. */
KEEP_WIDE static int64_t keep_wide(const uint64_t *from, const uint8_t *mask, int64_t rows, uint64_t *to, int64_t room,
                                   int64_t *reached) {
    static const uint8_t counts[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    int64_t kept = 0, i = 0;
    for (; i + 32 <= rows && kept + KEEP_SLACK <= room; i += 32) {
        __m256i marks = _mm256_loadu_si256((const __m256i *)(const void *)(mask + i));
        uint32_t bits = ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(marks, _mm256_setzero_si256()));
        if (!bits) continue;
        for (int row = 0; row < 32; row += 4) {
            uint32_t four = bits >> row & 15;
            __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + row));
            __m256i places = _mm256_load_si256((const __m256i *)(const void *)KEEP_PLACES[four]);
            _mm256_storeu_si256((__m256i *)(void *)(to + kept), _mm256_permutevar8x32_epi32(words, places));
            kept += counts[four];
        }
    }
    *reached = i;
    return kept;
}
#endif

/* As keep_uint64_t(), for `room` words at `to`: these and one more, or all rows. The more room, the faster. */
static inline int64_t keep_words(const uint64_t *from, const uint8_t *mask, int64_t rows, uint64_t *to, int64_t room) {
    int64_t kept = 0, reached = 0;
#ifdef KEEP_WIDE
    if (__builtin_cpu_supports("avx2")) kept = keep_wide(from, mask, rows, to, room, &reached);
#endif
    (void)room;
    return kept + keep_uint64_t(from + reached, mask + reached, rows - reached, to + kept);
}

#endif
