/* Numbers gathered and given back, against qsort; with blocks that are full, begun and few. Exits 0 when all holds. */
#include "items/numbers.h"

#include <stdio.h>

static uint64_t state = 20261122;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void check(size_t count, uint64_t mask, size_t portion, size_t limit) {
    uint64_t *keys = malloc((count + 1) * sizeof *keys);
    for (size_t i = 0; i < count; i++) keys[i] = next_random() & mask;
    numbers_t numbers;
    numbers_init(&numbers);
    for (size_t at = 0; at < count; at += portion)
        expect(numbers_add(&numbers, keys + at, count - at < portion ? count - at : portion) > 0, "memory");
    expect(numbers.left == count, "all are there");
    qsort(keys, count, sizeof *keys, compare);
    size_t taken = 0;
    for (;;) {
        const uint64_t *next = NULL;
        size_t got = numbers_next(&numbers, limit, &next);
        if (!got) break;
        expect(got != SIZE_MAX && got <= count - taken, "no more than there are");
        expect(got <= limit || got <= NUMBERS_LEAST_STEP * (count / NUMBERS_BLOCK + 1), "a bounded slice");
        expect(memcmp(next, keys + taken, got * sizeof *keys) == 0, "order");
        taken += got;
    }
    expect(taken == count && numbers.left == 0, "all came back");
    numbers_free(&numbers);
    free(keys);
}

int main(void) {
    const size_t counts[] = {
        0, 1, 2, 1000, NUMBERS_BLOCK - 1, NUMBERS_BLOCK, NUMBERS_BLOCK + 1, 5 * NUMBERS_BLOCK + 17};
    const uint64_t masks[] = {0, 1, UINT64_C(0xffffffffff), UINT64_MAX};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
            check(counts[c], masks[m], 8192, 8192);
            check(counts[c], masks[m], 100000, 100);
            if (counts[c] <= 1000) check(counts[c], masks[m], 1, 1);
        }
    puts("ok");
    return 0;
}
