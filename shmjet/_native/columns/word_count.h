/* Splits text into words, folds their case and counts them, in one pass. No Python in here.
 *
 * A piece of text is scanned into a copy in lower case and a list of the borders of its words (text_scan.h); each
 * word is loaded from the copy as two lanes, hashed, and looked up in batches (word_table.h). Only ASCII letters are
 * folded here. Words with other bytes go as they are into a second table, `raw`: lower case of the rest of Unicode, and
 * what to do with bytes that are not UTF-8, is asked of the interpreter, once for each distinct word and not each time
 * it occurs. That is exact because neither rule looks beyond white space (a sigma is final or not within its word).
 */
#ifndef SHMJET_WORD_COUNT_H
#define SHMJET_WORD_COUNT_H

#include "columns/column.h"
#include "columns/text_scan.h"
#include "columns/word_table.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(SHMJET_NO_SIMD)
#define WORD_MODERN __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt"), flatten))
#endif

typedef struct {
    word_table_t words; /* final */
    word_table_t raw;   /* with bytes that are not ASCII, to be folded */
    int lower;
    int modern;    /* the processor has the instructions of WORD_MODERN */
    int64_t total; /* words met in text */
} word_counter_t;

static inline void word_counter_init(word_counter_t *counter, int lower, uint64_t seed) {
    word_table_init(&counter->words, seed);
    word_table_init(&counter->raw, seed);
    counter->lower = lower;
    counter->modern = 0;
#ifdef WORD_MODERN
    counter->modern = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
#endif
    counter->total = 0;
}

static inline void word_counter_free(word_counter_t *counter) {
    word_table_free(&counter->words);
    word_table_free(&counter->raw);
}

/* All ones in the first `size` bytes of two lanes; little-endian. */
static inline void word_lanes_mask(size_t size, uint64_t *first, uint64_t *second) {
    static const uint64_t edge[4] = {~UINT64_C(0), ~UINT64_C(0), 0, 0};
    const uint8_t *at = (const uint8_t *)edge + 16 - size;
    *first = word_lane(at);
    *second = word_lane(at + 8);
}

/* Sorts out the words that are not all ASCII and counts both kinds. */
static inline int word_count_mixed(word_counter_t *counter, const word_t *words, uint32_t size) {
    word_t ascii[WORD_BATCH], raw[WORD_BATCH];
    uint32_t ascii_size = 0, raw_size = 0;
    for (uint32_t i = 0; i < size; i++) {
        size_t bytes;
        const uint8_t *at = word_bytes(&words[i], &bytes);
        uint8_t met = 0;
        for (size_t k = 0; k < bytes; k++) met |= at[k];
        if (met & 0x80) raw[raw_size++] = words[i];
        else ascii[ascii_size++] = words[i];
    }
    int status = word_table_add(&counter->words, ascii, NULL, ascii_size);
    return status ? status : word_table_add(&counter->raw, raw, NULL, raw_size);
}

/* Counts words of a piece: those between edges 0 and `count`. */
static inline int word_count_piece(word_counter_t *counter, const text_piece_t *piece, uint32_t count) {
    word_t words[WORD_BATCH];
    counter->total += count / 2;
    for (uint32_t done = 0; done < count;) {
        const uint16_t *edges = piece->edges + done;
        uint32_t size = (count - done) / 2 < WORD_BATCH ? (count - done) / 2 : WORD_BATCH;
        uint64_t met = 0;
        for (uint32_t i = 0; i < size; i++) {
            const uint8_t *bytes = piece->bytes + edges[2 * i];
            size_t length = (size_t)(edges[2 * i + 1] - edges[2 * i]);
            if (__builtin_expect(length <= WORD_SHORT, 1)) {
                uint64_t first, second;
                word_lanes_mask(length, &first, &second);
                first &= word_lane(bytes);
                second &= word_lane(bytes + 8);
                met |= first | second;
                words[i] = word_of_lanes(&counter->words, first, second, length);
            } else {
                words[i] = word_of_bytes(&counter->words, bytes, length, &met);
            }
        }
        done += 2 * size;
        int status = met & TEXT_TOPS ? word_count_mixed(counter, words, size)
                                     : word_table_add(&counter->words, words, NULL, size);
        if (status) return -1;
    }
    return 0;
}

/* Counts one word that is longer than a piece. It is folded in memory of its own, which it hands on to the table. */
static __attribute__((noinline)) int word_count_giant(word_counter_t *counter, const uint8_t *bytes, size_t size) {
    uint8_t *copy = (uint8_t *)malloc(size);
    if (!copy) return -1;
    for (size_t i = 0; i < size; i++)
        copy[i] = (uint8_t)(bytes[i] | (counter->lower & ((uint8_t)(bytes[i] - 'A') < 26)) << 5);
    uint64_t met = 0;
    counter->total++;
    word_t word = word_of_bytes(&counter->words, copy, size, &met);
    int status = word_table_add(met & TEXT_TOPS ? &counter->raw : &counter->words, &word, NULL, 1);
    free(copy);
    return status;
}

/* As word_count_text(). */
static inline const uint8_t *word_count_scanned(word_counter_t *counter, text_piece_t *piece, const uint8_t *from,
                                             const uint8_t *limit, const uint8_t *stop, int last) {
    while (from < limit) {
        if (counter->lower) text_scan(piece, from, stop, 1);
        else text_scan(piece, from, stop, 0);
        uint32_t count = piece->edge_count;
        int at_stop = from + piece->size == stop;
        int cut = count && piece->edges[count - 1] == piece->size && !(at_stop && last);
        uint32_t complete = cut ? count - 2 : count;
        uint32_t wanted = complete;
        while (wanted && from + piece->edges[wanted - 2] >= limit) wanted -= 2;
        if (word_count_piece(counter, piece, wanted) < 0) return NULL;
        if (wanted < complete) return from + piece->edges[wanted];
        if (!cut) {
            from += piece->size + piece->beyond;
            continue;
        }
        from += piece->edges[count - 2];
        if (from >= limit || at_stop) return from;
        if (piece->edges[count - 2] == 0) { /* longer than a piece */
            const uint8_t *end = text_word_end(piece, from, stop);
            if (end == stop && !last) return from;
            if (word_count_giant(counter, from, (size_t)(end - from)) < 0) return NULL;
            from = end;
        }
    }
    return from;
}

#ifdef WORD_MODERN
/* The same, compiled for processors since 2013: counting bits and filling vectors in one instruction gives a tenth. */
WORD_MODERN static const uint8_t *word_count_modern(word_counter_t *counter, text_piece_t *piece, const uint8_t *from,
                                                    const uint8_t *limit, const uint8_t *stop, int last) {
    return word_count_scanned(counter, piece, from, limit, stop, last);
}
#endif

/* Counts the words that begin in [from, limit) and end at or before `stop`, where the readable bytes end. `from` must
 * not cut a word or a character of white space. `last`: the text ends at `stop`, so a word there is complete. Returns
 * where to go on: at the beginning of a word without an end, once more bytes can be read; else at `limit` or behind
 * it, with no word cut. NULL: no memory.
 */
static inline const uint8_t *word_count_text(word_counter_t *counter, text_piece_t *piece, const uint8_t *from,
                                             const uint8_t *limit, const uint8_t *stop, int last) {
#ifdef WORD_MODERN
    if (counter->modern) return word_count_modern(counter, piece, from, limit, stop, last);
#endif
    return word_count_scanned(counter, piece, from, limit, stop, last);
}

/* Counts the words of each value of a text column; nulls have none. Returns 0, or -1 without memory. */
static inline int word_count_column(word_counter_t *counter, text_piece_t *piece, const column_t *column) {
    for (int64_t row = 0; row < column->rows; row++) {
        if (column_is_null(column, row)) continue;
        const uint8_t *stop = column->data + column_offset(column, row + 1);
        if (!word_count_text(counter, piece, column->data + column_offset(column, row), stop, stop, 1)) return -1;
    }
    return 0;
}

/* Adds counts of words that are final; nulls are left out. Returns as word_table_add(). */
static inline int word_count_merge(word_counter_t *counter, const column_t *column, const uint8_t *counts) {
    word_t words[WORD_BATCH];
    int64_t amounts[WORD_BATCH];
    uint32_t size = 0;
    uint64_t met = 0;
    int status = 0;
    for (int64_t row = 0; row < column->rows && status == 0; row++) {
        if (column_is_null(column, row)) continue;
        int64_t from = column_offset(column, row);
        words[size] = word_of_bytes(&counter->words, column->data + from,
                                    (size_t)(column_offset(column, row + 1) - from), &met);
        amounts[size++] = load_i64(counts + 8 * row);
        if (size < WORD_BATCH) continue;
        status = word_table_add(&counter->words, words, amounts, size);
        size = 0;
    }
    return status || !size ? status : word_table_add(&counter->words, words, amounts, size);
}

#endif
