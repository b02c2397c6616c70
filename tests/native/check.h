/* What the tests in C have in common: a check that says what did not hold, and numbers that look random. */
#ifndef SHMJET_TESTS_CHECK_H
#define SHMJET_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* 64 bits: the next of the same sequence in each run. */
static inline uint64_t any(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* A number below `limit`. */
static inline uint64_t draw(uint64_t limit) { return (any() >> 11) % limit; }

#endif
