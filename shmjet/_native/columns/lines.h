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

#endif
