/* Values of a text column, each behind its length: the form that Parquet's PLAIN encoding has for byte arrays. No
 * Python in here. */
#ifndef SHMJET_TEXT_PREFIX_H
#define SHMJET_TEXT_PREFIX_H

#include <string.h>

#include "columns/column.h"

/* Bytes of a length, little-endian. */
enum { TEXT_PREFIX = 4 };

/* Writes each value behind its length into `to`, which has `room` bytes. Returns the bytes written; -1 when offsets
 * fall or leave the column's `bytes` of data, or `room` is too small; -2 when a value is longer than a length can say.
 *
 * Short values are copied 16 bytes at once where both sides have them: what is written behind the value is written
 * over by the next one, and the last ones are copied exactly. */
static inline int64_t text_prefix_column(const column_t *column, int64_t bytes, uint8_t *to, int64_t room) {
    int64_t used = 0;
    for (int64_t row = 0; row < column->rows; row++) {
        int64_t begin = column_offset(column, row), length = column_offset(column, row + 1) - begin;
        if (begin < 0 || length < 0 || length > bytes - begin || length > room - used - TEXT_PREFIX) return -1;
        if (length > INT32_MAX) return -2;
        const uint32_t value = (uint32_t)length;
        const uint8_t prefix[TEXT_PREFIX] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                                             (uint8_t)(value >> 24)};
        memcpy(to + used, prefix, TEXT_PREFIX);
        used += TEXT_PREFIX;
        if (length <= 16 && bytes - begin >= 16 && room - used >= 16)
            memcpy(to + used, column->data + begin, 16);
        else if (length)
            memcpy(to + used, column->data + begin, (size_t)length);
        used += length;
    }
    return used;
}

#endif
