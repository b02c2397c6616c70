/* Sorting 64-bit keys, alone or in pairs with a pointer: least significant digit first, so that it is stable.
 *
 * Digits in which all keys agree are skipped; they are found by one look at all keys, in which it is also seen when
 * nothing is to be done, or so little that a few stretches need only be merged. So the price is that of the digits
 * that differ: 40-bit numbers take four passes of 2 ns a pair. Python's own sort takes n log n comparisons of objects,
 * each of them a look into far memory. The method is Hollerith's; no Python in here. */
#ifndef SHMJET_RADIX_H
#define SHMJET_RADIX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t key;
    void *item;
} radix_pair_t;

#define RADIX_MOST_BITS 11

/* The key of an int in its order as unsigned. */
static inline uint64_t radix_of_int(int64_t number) { return (uint64_t)number ^ (UINT64_C(1) << 63); }

/* The key of a float in its order; both zeros have the same. It must not be NaN. */
static inline uint64_t radix_of_float(double number) {
    uint64_t bits;
    if (number == 0) number = 0;
    memcpy(&bits, &number, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

/* The numbers that have these keys. */
static inline int64_t int_of_radix(uint64_t key) { return (int64_t)(key ^ UINT64_C(1) << 63); }

static inline double float_of_radix(uint64_t key) {
    uint64_t bits = key >> 63 ? key & ~(UINT64_C(1) << 63) : ~key;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* How many ascending stretches of keys are merged rather than sorted by digits: two take one pass, four two of them. */
#define RADIX_FEW_STRETCHES 4

/* Defines the sort for one type of element, whose key is KEY(element):
 *
 *   type *name(type *elements, type *scratch, size_t count)
 *
 * sorts by the keys and returns where the elements are then: where they were or in `scratch`, which is as long. */
#define RADIX_SORT(name, type, KEY)                                                                                    \
    static inline void name##_pass(const type *from, type *to, size_t count, unsigned shift, unsigned bits) {          \
        size_t places[1 << RADIX_MOST_BITS];                                                                           \
        uint64_t mask = (UINT64_C(1) << bits) - 1;                                                                     \
        memset(places, 0, sizeof places[0] << bits);                                                                   \
        for (size_t i = 0; i < count; i++) places[KEY(from[i]) >> shift & mask]++;                                     \
        size_t place = 0;                                                                                              \
        for (size_t digit = 0; digit <= mask; digit++) {                                                               \
            size_t here = places[digit];                                                                               \
            places[digit] = place;                                                                                     \
            place += here;                                                                                             \
        }                                                                                                              \
        for (size_t i = 0; i < count; i++) to[places[KEY(from[i]) >> shift & mask]++] = from[i];                       \
    }                                                                                                                  \
                                                                                                                       \
    /* Merges [0, middle) and [middle, count). What is equal stays in order. No branches on keys: they are hard to     \
     * predict. */                                                                                                     \
    static inline void name##_merge(const type *from, type *to, size_t middle, size_t count) {                         \
        size_t i = 0, j = middle, k = 0;                                                                               \
        while (i < middle && j < count) {                                                                              \
            int second = KEY(from[j]) < KEY(from[i]);                                                                  \
            to[k++] = *(second ? from + j : from + i);                                                                 \
            j += (size_t)second;                                                                                       \
            i += (size_t)!second;                                                                                      \
        }                                                                                                              \
        if (i < middle) memcpy(to + k, from + i, (middle - i) * sizeof *to);                                           \
        if (j < count) memcpy(to + k, from + j, (count - j) * sizeof *to);                                             \
    }                                                                                                                  \
                                                                                                                       \
    static inline type *name(type *elements, type *scratch, size_t count) {                                            \
        uint64_t differing = 0;                                                                                        \
        size_t starts[RADIX_FEW_STRETCHES + 1] = {0}, stretches = 1;                                                   \
        for (size_t i = 1; i < count; i++) {                                                                           \
            differing |= KEY(elements[i]) ^ KEY(elements[0]);                                                          \
            if (KEY(elements[i]) < KEY(elements[i - 1])) {                                                             \
                if (stretches < RADIX_FEW_STRETCHES) starts[stretches] = i;                                            \
                stretches++;                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        if (stretches == 1) return elements;                                                                           \
        if (stretches <= RADIX_FEW_STRETCHES) {                                                                        \
            while (stretches > 1) {                                                                                    \
                size_t left = 0;                                                                                       \
                starts[stretches] = count;                                                                             \
                for (size_t s = 0; s < stretches; s += 2) {                                                            \
                    size_t start = starts[s], middle = starts[s + 1],                                                  \
                           end = s + 2 <= stretches ? starts[s + 2] : middle;                                          \
                    name##_merge(elements + start, scratch + start, middle - start, end - start);                      \
                    starts[left++] = start;                                                                            \
                }                                                                                                      \
                stretches = left;                                                                                      \
                type *other = elements;                                                                                \
                elements = scratch;                                                                                    \
                scratch = other;                                                                                       \
            }                                                                                                          \
            return elements;                                                                                           \
        }                                                                                                              \
        unsigned bits = count < 4096 ? 8 : RADIX_MOST_BITS;                                                            \
        unsigned shift = (unsigned)__builtin_ctzll(differing);                                                         \
        while (shift < 64 && differing >> shift) {                                                                     \
            name##_pass(elements, scratch, count, shift, bits);                                                        \
            type *other = elements;                                                                                    \
            elements = scratch;                                                                                        \
            scratch = other;                                                                                           \
            shift += bits;                                                                                             \
            if (shift < 64 && differing >> shift) shift += (unsigned)__builtin_ctzll(differing >> shift);              \
        }                                                                                                              \
        return elements;                                                                                               \
    }

#define RADIX_PAIR_KEY(pair) ((pair).key)
#define RADIX_PLAIN_KEY(key) (key)

RADIX_SORT(radix_sort, radix_pair_t, RADIX_PAIR_KEY)
RADIX_SORT(radix_sort_keys, uint64_t, RADIX_PLAIN_KEY)

#endif
