/* Lower case of ASCII letters, and which values have others. No Python in here.
 *
 * Of str.lower() only the ASCII part is done here: what the rest of Unicode needs (a final sigma, an I with a dot that
 * becomes two characters) depends on the version of Unicode that the interpreter has, so values with other bytes are
 * marked, and the caller asks the interpreter.
 */
#ifndef SHMJET_TEXT_CASE_H
#define SHMJET_TEXT_CASE_H

#include "columns/column.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(SHMJET_NO_SIMD)
#define TEXT_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TEXT_CLONES
#endif

/* Copies with ASCII letters in lower case; returns a byte whose top bit says that something was not ASCII. The compiler
 * makes vector code of it. */
TEXT_CLONES static uint8_t text_lower_ascii(uint8_t *to, const uint8_t *from, size_t size) {
    uint8_t met = 0;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = from[i];
        met |= byte;
        to[i] = (uint8_t)(byte | ((uint8_t)(byte - 'A') < 26) << 5);
    }
    return met;
}

TEXT_CLONES static uint8_t text_met(const uint8_t *from, size_t size) {
    uint8_t met = 0;
    for (size_t i = 0; i < size; i++) met |= from[i];
    return met;
}

/* Lower-cases the data of a column into `to` (from offset 0 to the last, as many bytes as they are apart) and sets
 * `other[row]` to 1 for each value that is not all ASCII, whose bytes in `to` then mean nothing. Returns their
 * number. */
static inline int64_t text_lower_column(const column_t *column, uint8_t *to, uint8_t *other) {
    int64_t first = column_offset(column, 0), found = 0;
    size_t size = (size_t)(column_offset(column, column->rows) - first);
    memset(other, 0, (size_t)column->rows);
    if (!(text_lower_ascii(to, column->data + first, size) & 0x80)) return 0;
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t from = column_offset(column, row), end = column_offset(column, row + 1);
        other[row] = text_met(column->data + from, (size_t)(end - from)) >> 7;
        found += other[row];
    }
    return found;
}

#endif
