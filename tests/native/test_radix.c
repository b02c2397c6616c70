/* The radix sort against a stable insertion sort, for every kind of difference between keys. Exits 0 when all holds. */
#include "items/radix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 20260101;

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
    const radix_pair_t *left = a, *right = b;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    return (uintptr_t)left->item < (uintptr_t)right->item ? -1 : 1; /* items are numbered: what stable means */
}

static void check(size_t count, uint64_t mask, uint64_t base) {
    radix_pair_t *pairs = malloc((count + 1) * sizeof *pairs), *scratch = malloc((count + 1) * sizeof *scratch);
    radix_pair_t *expected = malloc((count + 1) * sizeof *expected);
    for (size_t i = 0; i < count; i++) {
        pairs[i] = (radix_pair_t){base ^ (next_random() & mask), (void *)(uintptr_t)(i + 1)};
        expected[i] = pairs[i];
    }
    qsort(expected, count, sizeof *expected, compare);
    const radix_pair_t *sorted = radix_sort(pairs, scratch, count);
    for (size_t i = 0; i < count; i++)
        expect(sorted[i].key == expected[i].key && sorted[i].item == expected[i].item, "order and stability");
    free(pairs);
    free(scratch);
    free(expected);
}

/* Ascending stretches, each of keys that the others have too: few of them are merged. */
static void check_stretches(size_t stretches, size_t length) {
    size_t count = stretches * length;
    radix_pair_t *pairs = malloc((count + 1) * sizeof *pairs), *scratch = malloc((count + 1) * sizeof *scratch);
    radix_pair_t *expected = malloc((count + 1) * sizeof *expected);
    for (size_t i = 0; i < count; i++) {
        uint64_t key = i % length ? pairs[i - 1].key + next_random() % 3 : next_random() % 5;
        expected[i] = pairs[i] = (radix_pair_t){key, (void *)(uintptr_t)(i + 1)};
    }
    qsort(expected, count, sizeof *expected, compare);
    const radix_pair_t *sorted = radix_sort(pairs, scratch, count);
    for (size_t i = 0; i < count; i++)
        expect(sorted[i].key == expected[i].key && sorted[i].item == expected[i].item, "stretches");
    free(pairs);
    free(scratch);
    free(expected);
}

int main(void) {
    for (size_t stretches = 1; stretches <= 2 * RADIX_FEW_STRETCHES; stretches++)
        for (size_t length = 1; length < 200; length = 2 * length + 1) check_stretches(stretches, length);
    const size_t counts[] = {0, 1, 2, 3, 100, 4095, 4096, 10000};
    const uint64_t masks[] = {0, 1, 0xff, UINT64_C(1) << 63, UINT64_MAX, UINT64_C(0xff00000000000000),
                              UINT64_C(0x8000000000000001), UINT64_C(0xffffff0000), 0x7ff};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
            check(counts[c], masks[m], 0);
            check(counts[c], masks[m], next_random());
        }
    const double floats[] = {-INFINITY, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1.5, INFINITY};
    for (size_t i = 1; i < sizeof floats / sizeof *floats; i++)
        expect(radix_of_float(floats[i - 1]) < radix_of_float(floats[i]), "order of floats");
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        expect(float_of_radix(radix_of_float(floats[i])) == floats[i], "floats come back");
    expect(radix_of_float(-0.0) == radix_of_float(0.0), "zeros are equal");
    const int64_t ints[] = {INT64_MIN, -2, -1, 0, 1, INT64_MAX};
    for (size_t i = 1; i < sizeof ints / sizeof *ints; i++)
        expect(radix_of_int(ints[i - 1]) < radix_of_int(ints[i]), "order of ints");
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        expect(int_of_radix(radix_of_int(ints[i])) == ints[i], "ints come back");
    puts("ok");
    return 0;
}
