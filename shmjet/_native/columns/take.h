/* Taking values by the numbers of their rows. No Python in here.
 *
 * Rows lie anywhere, so each value may be a miss of the caches and of the pages that a core remembers. They are asked
 * for TAKE_AHEAD rows before they are read: then many are on their way at once.
 */
#ifndef SHMJET_TAKE_H
#define SHMJET_TAKE_H

#include <stdint.h>

#include "columns/simd.h"

#define TAKE_AHEAD 256

/* Whether all numbers are from 0 to below `count`. */
SIMD_CLONES static int rows_are_there(const int64_t *rows, int64_t wanted, int64_t count) {
    uint64_t beyond = 0;
    for (int64_t i = 0; i < wanted; i++) beyond |= (uint64_t)rows[i] | (uint64_t)(count - 1 - rows[i]);
    return !(beyond >> 63);
}

#define TAKE(type)                                                                                                  \
    static void take_##type(const type *from, const int64_t *rows, int64_t wanted, type *restrict to) {             \
        int64_t i = 0;                                                                                              \
        for (; i + TAKE_AHEAD < wanted; i++) {                                                                      \
            __builtin_prefetch(from + rows[i + TAKE_AHEAD]);                                                        \
            to[i] = from[rows[i]];                                                                                  \
        }                                                                                                           \
        for (; i < wanted; i++) to[i] = from[rows[i]];                                                              \
    }

TAKE(uint32_t)
TAKE(uint64_t)

#endif
