/* Lines of text as values of a text column. No Python in here.
 *
 * A line ends with LF, CR LF or CR, as in Python's text mode; the terminators are left out, so the values are copied
 * together, which a reader that uses its buffer again must do anyway.
 */
#ifndef SHMJET_LINES_H
#define SHMJET_LINES_H

#include "columns/csv_marks.h"

typedef struct {
    int64_t position; /* of the first line not taken */
    int64_t rows;
} lines_t;

/* Appends the lines of `text` (delimiter LF, quote CR) from `state->position` on behind row `state->rows`, at most up
 * to `row_limit` rows; the text ends with a terminator or with the file, `data` has room for all of it. */
static inline void lines_split(const csv_text_t *text, uint8_t *data, uint8_t *offsets, int64_t row_limit,
                               lines_t *state) {
    int64_t position = state->position, row = state->rows, used;
    csv_cursor_t cursor = csv_cursor(text, position);
    memcpy(&used, offsets + 8 * row, 8);
    while (position < text->size && row < row_limit) {
        int64_t end = csv_next(&cursor), length = end - position;
        memcpy(data + used, text->data + position, (size_t)length);
        used += length;
        row++;
        memcpy(offsets + 8 * row, &used, 8);
        position = end + 1;
        if (end >= text->size) {
            position = text->size;
        } else if (text->data[end] == '\r' && position < text->size && text->data[position] == '\n') {
            csv_next(&cursor);
            position++;
        }
    }
    state->position = position;
    state->rows = row;
}

static inline int lines_is_blank(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

/* Counts the lines of `data` that are not blank; -1: a JSON value goes on behind the end of its line. `data` is JSON
 * values one after the other, so of two tokens of one value at least one is a bracket, a comma or a colon: what ends a
 * line or begins the next one tells. A CR alone ends a line, too. */
static inline int64_t lines_of_json(const uint8_t *data, int64_t size) {
    int has_cr = size > 0 && memchr(data, '\r', (size_t)size) != NULL;
    int64_t count = 0;
    for (const uint8_t *at = data, *end = data + size, *next; at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (next == NULL) next = end;
        if (has_cr) {
            const uint8_t *cr = memchr(at, '\r', (size_t)(next - at));
            if (cr != NULL) next = cr;
        }
        const uint8_t *first = at, *last = next - 1;
        while (first < next && lines_is_blank(*first)) first++;
        if (first == next) continue;
        while (lines_is_blank(*last)) last--;
        if (memchr("}],:", *first, 4) != NULL || memchr("{[,:", *last, 4) != NULL) return -1;
        count++;
    }
    return count;
}

#endif
