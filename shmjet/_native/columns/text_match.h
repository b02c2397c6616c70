/* Which values of a column of text have a pattern: a literal anywhere, at an end, among a set; or what an automaton
 * accepts; and how values compare. No Python in here.
 *
 * A literal is searched in the bytes of all values at once, because values are short and a search has a cost to begin
 * with: a hit that crosses the end of a value is none. UTF-8 needs no care: no character begins inside another one.
 */
#ifndef SHMJET_TEXT_MATCH_H
#define SHMJET_TEXT_MATCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "columns/column.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The first place in `from .. stop` where the `size` bytes of `needle` are, NULL if there is none. */
static inline const uint8_t *text_find(const uint8_t *from, const uint8_t *stop, const uint8_t *needle, size_t size) {
    if ((size_t)(stop - from) < size) return NULL;
    if (size == 1) return memchr(from, needle[0], (size_t)(stop - from));
#if defined(__SSE2__)
    /* Sixteen places at once: where the first and the last byte fit, the rest is compared. */
    const __m128i first = _mm_set1_epi8((char)needle[0]), last = _mm_set1_epi8((char)needle[size - 1]);
    const uint8_t *limit = stop - size + 1; /* one past the last place where it can begin */
    for (; limit - from >= 16; from += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + size - 1));
        unsigned hits = (unsigned)_mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(a, first), _mm_cmpeq_epi8(b, last)));
        for (; hits; hits &= hits - 1) {
            const uint8_t *at = from + __builtin_ctz(hits);
            if (memcmp(at + 1, needle + 1, size - 1) == 0) return at;
        }
    }
#endif
    return memmem(from, (size_t)(stop - from), needle, size);
}

/* found[row] = whether the value has the needle in it. An empty needle is in every value. */
static inline void text_contains_column(const column_t *column, const uint8_t *needle, size_t size, uint8_t *found) {
    int64_t rows = column->rows;
    memset(found, size == 0, (size_t)rows);
    if (!size || !rows) return;
    const uint8_t *at = column->data + column_offset(column, 0), *stop = column->data + column_offset(column, rows);
    int64_t row = 0;
    while ((at = text_find(at, stop, needle, size))) {
        int64_t place = at - column->data, step = 1;
        /* the row that the hit begins in: the next ones are likely, so the steps grow */
        while (row + step < rows && column_offset(column, row + step) <= place) {
            row += step;
            step *= 2;
        }
        for (; step; step /= 2)
            while (row + step < rows && column_offset(column, row + step) <= place) row += step;
        int64_t end = column_offset(column, row + 1);
        if (place + (int64_t)size <= end) {
            found[row] = 1;
            at = column->data + end;
        } else {
            at++;
        }
    }
}

static inline void text_starts_column(const column_t *column, const uint8_t *part, size_t size, uint8_t *found) {
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), end = column_offset(column, row + 1);
        found[row] = end - from >= (int64_t)size && memcmp(column->data + from, part, size) == 0;
    }
}

static inline void text_ends_column(const column_t *column, const uint8_t *part, size_t size, uint8_t *found) {
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), end = column_offset(column, row + 1);
        found[row] = end - from >= (int64_t)size && memcmp(column->data + end - size, part, size) == 0;
    }
}

/* Compares by bytes, a value that another one begins with first. */
static inline int text_order(const uint8_t *a, int64_t size, const uint8_t *b, int64_t other) {
    int order = memcmp(a, b, (size_t)(size < other ? size : other));
    return order ? (order > 0) - (order < 0) : (size > other) - (size < other);
}

/* sign[row] = -1, 0, 1 as the value of `one` is less than, equal to or greater than that of `two`, which has one row
 * for all of them if `is_scalar`. */
static inline void text_compare_columns(const column_t *one, const column_t *two, int is_scalar, int8_t *sign) {
    for (int64_t row = 0; row < one->rows; row++) {
        int64_t other = is_scalar ? 0 : row;
        int64_t a = column_offset(one, row), b = column_offset(two, other);
        sign[row] = (int8_t)text_order(one->data + a, column_offset(one, row + 1) - a, two->data + b,
                                       column_offset(two, other + 1) - b);
    }
}

/* equal[row] = whether the two values are the same. Most differ in their lengths. */
static inline void text_equal_columns(const column_t *one, const column_t *two, int is_scalar, uint8_t *equal) {
    for (int64_t row = 0; row < one->rows; row++) {
        int64_t other = is_scalar ? 0 : row;
        int64_t a = column_offset(one, row), b = column_offset(two, other), size = column_offset(one, row + 1) - a;
        equal[row] = size == column_offset(two, other + 1) - b &&
                     memcmp(one->data + a, two->data + b, (size_t)size) == 0;
    }
}

/* found[row] = whether the value is among those of `set`, which are sorted by their bytes. */
static inline void text_among_column(const column_t *column, const column_t *set, uint8_t *found) {
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), size = column_offset(column, row + 1) - from;
        int64_t low = 0, high = set->rows;
        found[row] = 0;
        while (low < high) {
            int64_t middle = low + (high - low) / 2, begin = column_offset(set, middle);
            int order = text_order(column->data + from, size, set->data + begin,
                                   column_offset(set, middle + 1) - begin);
            if (order == 0) {
                found[row] = 1;
                break;
            }
            if (order < 0) high = middle;
            else low = middle + 1;
        }
    }
}

enum { DFA_REFUSES = 0, DFA_ACCEPTS = 1, DFA_UNKNOWN = 2 };

/* A value that an automaton goes through. */
typedef struct {
    int64_t row;
    const uint8_t *at, *end;
    size_t state;
} dfa_value_t;

/* Values that are gone through in step: each byte waits for the state that the one before it led to, so several values
 * take hardly more time than one. */
#define DFA_VALUES 8
#define DFA_STEPS 4 /* between two looks whether the answers are known */
#define DFA_LONG 8  /* bytes of values on average from which on that pays */

/* Goes through DFA_VALUES values as far as the shortest one reaches, or until all answers are known. */
static inline void text_dfa_together(dfa_value_t *values, const uint16_t *table) {
    const uint8_t *at[DFA_VALUES];
    size_t state[DFA_VALUES];
    int64_t left = INT64_MAX;
    for (int k = 0; k < DFA_VALUES; k++) {
        at[k] = values[k].at;
        state[k] = values[k].state;
        if (values[k].end - at[k] < left) left = values[k].end - at[k];
    }
    int64_t i = 0;
    for (int is_open = 1; is_open && left - i >= DFA_STEPS; i += DFA_STEPS) {
        for (int64_t j = i; j < i + DFA_STEPS; j++)
            for (int k = 0; k < DFA_VALUES; k++) state[k] = table[state[k] * 256 + at[k][j]];
        is_open = 0;
        for (int k = 0; k < DFA_VALUES; k++) is_open |= state[k] > DFA_UNKNOWN;
    }
    for (int k = 0; k < DFA_VALUES; k++) {
        values[k].at += i;
        values[k].state = state[k];
    }
}

/* Goes through the rest of a value and returns the answer. */
static inline uint8_t text_dfa_alone(dfa_value_t value, const uint16_t *table, const uint8_t *at_end) {
    while (value.at < value.end && value.state > DFA_UNKNOWN) value.state = table[value.state * 256 + *value.at++];
    return at_end[value.state];
}

static inline dfa_value_t text_dfa_begin(const column_t *column, int64_t row, uint16_t start) {
    return (dfa_value_t){row, column->data + column_offset(column, row), column->data + column_offset(column, row + 1),
                         start};
}

/* Runs an automaton over each value whose found[row] is not 0, and writes the answer there. State s has 256 successors,
 * one for each byte, at table + 256 * s; the states 0, 1 and 2 are the answers above, for good, and their own
 * successors. `at_end[s]` is the answer for a value that ends in s. Returns the number of unknown ones. */
static inline int64_t text_dfa_column(const column_t *column, const uint16_t *table, const uint8_t *at_end,
                                      uint16_t start, uint8_t *found) {
    const int64_t rows = column->rows;
    int64_t unknown = 0;
    if (rows && column_offset(column, rows) - column_offset(column, 0) < DFA_LONG * rows) {
        for (int64_t row = 0; row < rows; row++) {
            if (!found[row]) continue;
            found[row] = text_dfa_alone(text_dfa_begin(column, row, start), table, at_end);
            unknown += found[row] == DFA_UNKNOWN;
        }
        return unknown;
    }
    for (int64_t row = 0; row < rows;) {
        dfa_value_t values[DFA_VALUES];
        int count = 0;
        for (; row < rows && count < DFA_VALUES; row++)
            if (found[row]) values[count++] = text_dfa_begin(column, row, start);
        if (count == DFA_VALUES) text_dfa_together(values, table);
        for (int k = 0; k < count; k++) {
            found[values[k].row] = text_dfa_alone(values[k], table, at_end);
            unknown += found[values[k].row] == DFA_UNKNOWN;
        }
    }
    return unknown;
}

#endif
