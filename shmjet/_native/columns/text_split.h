/* Splits the values of a text column into words, as str.split() does. No Python in here.
 *
 * In two passes, so that the caller can give memory of exactly the right size: text_split_size() counts, text_split()
 * copies. Nulls have no words.
 */
#ifndef SHMJET_TEXT_SPLIT_H
#define SHMJET_TEXT_SPLIT_H

#include "columns/column.h"
#include "columns/text_scan.h"

/* Where words go; with `data` NULL they are only counted. */
typedef struct {
    int64_t words, bytes; /* so far */
    uint8_t *data, *data_end;
    uint8_t *ends; /* int64 per word: the end of each in `data` */
    uint8_t *rows; /* int64 per word: the row it comes from */
} text_words_t;

static inline void text_put_word(text_words_t *to, const uint8_t *word, size_t size, int64_t row) {
    if (to->data) {
        uint8_t *at = to->data + to->bytes;
        if (size <= 16 && to->data_end - at >= 16) memcpy(at, word, 16); /* the next word lies over what is too much */
        else memcpy(at, word, size);
        int64_t end = to->bytes + (int64_t)size;
        memcpy(to->ends + 8 * to->words, &end, 8);
        memcpy(to->rows + 8 * to->words, &row, 8);
    }
    to->words++;
    to->bytes += (int64_t)size;
}

static inline void text_split_value(text_piece_t *piece, const uint8_t *from, const uint8_t *stop, int64_t row,
                                    text_words_t *to) {
    while (from < stop) {
        text_scan(piece, from, stop, 0);
        uint32_t count = piece->edge_count;
        /* A word at the end of the piece may go on behind it. */
        int cut = count && piece->edges[count - 1] == piece->size && from + piece->size < stop;
        if (cut) count -= 2;
        for (uint32_t i = 0; i < count; i += 2)
            text_put_word(to, piece->bytes + piece->edges[i], (size_t)(piece->edges[i + 1] - piece->edges[i]), row);
        if (!cut) {
            from += piece->size + piece->beyond;
            continue;
        }
        from += piece->edges[count];
        if (piece->edges[count] == 0) { /* longer than a piece */
            const uint8_t *end = text_word_end(piece, from, stop);
            text_put_word(to, from, (size_t)(end - from), row);
            from = end;
        }
    }
}

static inline void text_split_column(text_piece_t *piece, const column_t *column, text_words_t *to) {
    for (int64_t row = 0; row < column->rows; row++)
        if (!column_is_null(column, row))
            text_split_value(piece, column->data + column_offset(column, row),
                             column->data + column_offset(column, row + 1), row, to);
}

#endif
