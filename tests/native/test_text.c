/* Tests of the text kernels without Python: text_scan.h, text_split.h, text_case.h, text_prefix.h, word_table.h,
 * word_count.h, word_walk.h.
 *
 * Everything is held against a scalar splitter, on random bytes in buffers of exactly the right size, so that the
 * address sanitizer sees every byte read too much. Prints "ok". The argument is the number of random texts. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "columns/text_case.h"
#include "columns/text_prefix.h"
#include "columns/text_split.h"
#include "columns/word_count.h"
#include "columns/word_walk.h"

static uint64_t state = 88172645463325252u;

static uint32_t random_below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

/* ---- the reference ---- */

static unsigned space_at(const uint8_t *p, size_t left) {
    static const char *const spaces[] = {
        "\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", " ", "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80",
        "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
        "\xe2\x81\x9f", "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t size = strlen(spaces[i]);
        if (size <= left && !memcmp(p, spaces[i], size)) return (unsigned)size;
    }
    return 0;
}

/* Writes begin and end of each word; returns how many there are. */
static size_t split_slowly(const uint8_t *text, size_t size, size_t (*words)[2]) {
    size_t count = 0, at = 0;
    while (at < size) {
        unsigned space = space_at(text + at, size - at);
        if (space) {
            at += space;
            continue;
        }
        words[count][0] = at;
        while (at < size && !space_at(text + at, size - at)) at++;
        words[count++][1] = at;
    }
    return count;
}

/* ---- random text ---- */

static size_t random_text(uint8_t *to, size_t size) {
    static const char *const pieces[] = {" ",
                                         " ",
                                         "\n",
                                         "\xc2\x85",
                                         "\xe2\x80\x83",
                                         "\xe3\x80\x80",
                                         "\xe1\x9a\x80",
                                         "\xe2",
                                         "\xe2\x80",
                                         "\xc2",
                                         "\xe3",
                                         "\x80",
                                         "\xa0",
                                         "a",
                                         "The",
                                         "cat",
                                         "X",
                                         "\xc3\x89",
                                         "seventeen-letters",
                                         "exactly-16-bytes",
                                         "\x1c",
                                         "\x7f",
                                         "\xff",
                                         "word"};
    size_t at = 0;
    uint32_t kind = random_below(4), long_word = random_below(8) == 0 ? random_below(10000) : 0;
    while (at < size) {
        if (long_word && random_below(20) == 0) {
            for (uint32_t i = 0; i < long_word && at < size; i++) to[at++] = (uint8_t)('A' + i % 57);
            continue;
        }
        if (kind == 0) {
            to[at++] = (uint8_t)random_below(256);
            continue;
        }
        const char *piece = pieces[random_below(kind == 1 ? 2 : sizeof pieces / sizeof *pieces)];
        if (kind == 1 && random_below(2)) piece = "alpha";
        for (size_t i = 0; piece[i] && at < size; i++) to[at++] = (uint8_t)piece[i];
    }
    return at;
}

/* ---- tests ---- */

static uint8_t lowered(uint8_t byte) { return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + 32) : byte; }

static int64_t count_of(const word_table_t *table, const uint8_t *bytes, size_t size) {
    word_walk_t walk = word_walk(table, 0, 0, 1);
    for (const word_slot_t *slot; (slot = word_next(&walk));) {
        size_t found;
        const uint8_t *word = word_bytes(&slot->word, &found);
        if (found == size && !memcmp(word, bytes, size)) return slot->count;
    }
    return 0;
}

static int64_t total_of(const word_table_t *table) {
    int64_t total = 0, words = 0;
    word_walk_t walk = word_walk(table, 0, 0, 1);
    for (const word_slot_t *slot; (slot = word_next(&walk)); words++) total += slot->count;
    assert(words == table->distinct);
    return total;
}

static void test_split(const column_t *column, size_t (*words)[2], size_t count) {
    text_piece_t piece;
    text_words_t size = {0, 0, NULL, NULL, NULL, NULL};
    text_split_column(&piece, column, &size);
    assert(size.words == (int64_t)count);
    uint8_t *data = malloc((size_t)size.bytes + 1), *ends = malloc(8 * count + 1), *rows = malloc(8 * count + 1);
    text_words_t out = {0, 0, data, data + size.bytes, ends, rows};
    text_split_column(&piece, column, &out);
    assert(out.words == size.words && out.bytes == size.bytes);
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = words[i][1] - words[i][0];
        assert(load_i64(ends + 8 * i) == at + (int64_t)length && load_i64(rows + 8 * i) == 0);
        assert(!memcmp(data + at, column->data + words[i][0], length));
        at += (int64_t)length;
    }
    free(data);
    free(ends);
    free(rows);
}

static void test_count(const uint8_t *text, size_t size, size_t (*words)[2], size_t count, int lower) {
    word_counter_t counter;
    text_piece_t piece;
    word_counter_init(&counter, lower, 7);
    /* In steps: each reads a window of its own size, and goes on where it is told to. */
    size_t at = 0;
    while (at < size) {
        size_t window = 1 + random_below(random_below(2) ? 100 : 20000);
        const uint8_t *next;
        do {
            size_t stop = size - at < window ? size : at + window;
            uint8_t *copy = malloc(stop - at); /* nothing readable behind */
            memcpy(copy, text + at, stop - at);
            next = word_count_text(&counter, &piece, copy, copy + (stop - at), copy + (stop - at), stop == size);
            assert(next);
            next = text + at + (next - copy);
            free(copy);
            window *= 2;
        } while (next == text + at);
        at = (size_t)(next - text);
        assert(at <= size);
    }
    assert(counter.total == (int64_t)count && total_of(&counter.words) + total_of(&counter.raw) == (int64_t)count);
    uint8_t *one = malloc(size + 1), *other = malloc(size + 1);
    for (size_t i = 0; i < count; i += 1 + count / 20) {
        size_t length = words[i][1] - words[i][0];
        int64_t expected = 0;
        int high = 0;
        for (size_t k = 0; k < length; k++) {
            uint8_t byte = text[words[i][0] + k];
            one[k] = lower ? lowered(byte) : byte;
            high |= byte & 0x80;
        }
        for (size_t j = 0; j < count; j++) {
            if (words[j][1] - words[j][0] != length) continue;
            for (size_t k = 0; k < length; k++) {
                uint8_t byte = text[words[j][0] + k];
                other[k] = lower ? lowered(byte) : byte;
            }
            expected += !memcmp(one, other, length);
        }
        assert(count_of(high ? &counter.raw : &counter.words, one, length) == expected);
    }
    free(one);
    free(other);
    word_counter_free(&counter);
}

/* Words that begin before the limit are counted, wherever the limit is: each in exactly one of two parts. */
static void test_limit(const uint8_t *text, size_t size, size_t count) {
    size_t limit = random_below((uint32_t)size + 1), start = 0;
    word_counter_t counter;
    text_piece_t piece;
    word_counter_init(&counter, 1, 7);
    const uint8_t *next = word_count_text(&counter, &piece, text, text + limit, text + size, 1);
    assert(next >= text + limit || limit == 0);
    start = (size_t)(next - text);
    next = word_count_text(&counter, &piece, text + start, text + size, text + size, 1);
    assert(next >= text + size || start >= size);
    assert(counter.total == (int64_t)count && total_of(&counter.words) + total_of(&counter.raw) == (int64_t)count);
    word_counter_free(&counter);
}

/* A text cut anywhere: the words that begin in one part and those from where the other resumes are all words, once. */
static void test_resume(const uint8_t *text, size_t size, size_t (*words)[2], size_t count) {
    text_piece_t piece;
    for (int i = 0; i < 20; i++) {
        size_t cut = random_below((uint32_t)size + 1), begin = cut > 3 ? cut - 3 : 0, expected = cut;
        for (size_t k = 0; k < count; k++)
            if (words[k][0] < cut && words[k][1] > cut) expected = words[k][1];
        for (size_t k = cut > 2 ? cut - 2 : 0; k < cut; k++) /* white space that is cut */
            if (k + space_at(text + k, size - k) > cut) expected = k + space_at(text + k, size - k);
        const uint8_t *found = text_resume(&piece, text + begin, text + cut, text + size);
        assert(found == text + expected);
    }
}

static void test_lower(const column_t *column, size_t size) {
    uint8_t *to = malloc(size + 1), other;
    int64_t found = text_lower_column(column, to, &other);
    int high = 0;
    for (size_t i = 0; i < size; i++) high |= column->data[i] & 0x80;
    assert(found == (high != 0) && other == (high != 0));
    for (size_t i = 0; i < size; i++) assert(to[i] == lowered(column->data[i]));
    free(to);
}

static void test_random_text(void) {
    size_t size = random_below(random_below(3) ? 300 : 30000);
    uint8_t *scratch = malloc(size + 1), *text = malloc(size ? size : 1);
    size = random_text(scratch, size);
    memcpy(text, scratch, size);
    free(scratch);
    size_t(*words)[2] = malloc((size + 1) * sizeof *words);
    size_t count = split_slowly(text, size, words);
    int64_t offsets[2] = {0, (int64_t)size};
    column_t column = {'t', 0, 1, text, (const uint8_t *)offsets, NULL};
    test_split(&column, words, count);
    test_lower(&column, size);
    test_count(text, size, words, count, random_below(4) != 0);
    test_limit(text, size, count);
    test_resume(text, size, words, count);
    free(words);
    free(text);
}

static void test_a_large_table(void) {
    word_table_t table;
    word_table_init(&table, 3);
    enum { COUNT = 200000 };
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < COUNT; i++) {
            char text[40];
            int size = snprintf(text, sizeof text, i % 3 ? "%d" : "a-long-word-with-the-number-%d", i);
            uint64_t met = 0;
            word_t word = word_of_bytes(&table, (const uint8_t *)text, (size_t)size, &met);
            int64_t count = 1 + i;
            assert(word_table_add(&table, &word, &count, 1) == 0);
        }
    assert(table.distinct == COUNT);
    assert(total_of(&table) == INT64_C(2) * COUNT * (COUNT + 1) / 2);
    int64_t visited = 0;
    for (uint32_t shares = 1; shares < 20; shares += 6) {
        visited = 0;
        for (uint32_t share = 0; share < shares; share++) {
            uint64_t position = 0;
            while (position != UINT64_MAX) { /* in steps */
                word_walk_t walk = word_walk(&table, position, share, shares);
                for (int i = 0; i < 1000; i++) {
                    const word_slot_t *slot = word_next(&walk);
                    if (!slot) break;
                    assert(word_share(slot->word.tag, shares) == share);
                    visited++;
                }
                position = walk.position;
            }
        }
        assert(visited == COUNT);
    }
    word_table_free(&table);
}

/* Words whose hashes agree in all bits that choose a segment: the segment widens, and the directory stays small. */
static void test_hashes_made_on_purpose(void) {
    word_table_t table;
    word_table_init(&table, 3);
    for (uint64_t round = 0; round < 2; round++)
        for (uint64_t i = 0; i < 20000; i++) {
            word_t word = {i, 0, UINT64_C(0xabcdef0000000000) | (i & 0xffff) << 8 | 9};
            assert(word_table_add(&table, &word, NULL, 1) == 0);
        }
    assert(table.distinct == 20000 && total_of(&table) == 40000);
    assert(table.depth <= 12);
    word_table_free(&table);
}

static void test_a_count_that_overflows(void) {
    word_table_t table;
    word_table_init(&table, 0);
    uint64_t met = 0;
    word_t word = word_of_bytes(&table, (const uint8_t *)"", 0, &met);
    int64_t most = INT64_MAX, one = 1;
    assert(word_table_add(&table, &word, &most, 1) == 0);
    assert(word_table_add(&table, &word, &one, 1) == -2);
    assert(total_of(&table) == INT64_MAX && table.distinct == 1);
    word_table_free(&table);
}

/* Values of all lengths behind their lengths, in buffers of exactly the right size. */
static void test_prefixes(void) {
    enum { ROWS = 40 };
    int64_t offsets[ROWS + 1] = {0}, bytes = 0;
    for (int row = 0; row < ROWS; row++) offsets[row + 1] = bytes += random_below(random_below(3) ? 20 : 100);
    uint8_t *text = malloc((size_t)bytes + !bytes), *out = malloc((size_t)bytes + TEXT_PREFIX * ROWS);
    for (int64_t i = 0; i < bytes; i++) text[i] = (uint8_t)random_below(256);
    column_t column = {'t', 0, ROWS, text, (const uint8_t *)offsets, NULL};
    assert(text_prefix_column(&column, bytes, out, bytes + TEXT_PREFIX * ROWS) == bytes + TEXT_PREFIX * ROWS);
    const uint8_t *at = out;
    for (int row = 0; row < ROWS; row++) {
        uint32_t length = (uint32_t)(offsets[row + 1] - offsets[row]);
        assert((at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24) == length);
        assert(!memcmp(at + TEXT_PREFIX, text + offsets[row], length));
        at += TEXT_PREFIX + length;
    }
    assert(text_prefix_column(&column, bytes, out, bytes + TEXT_PREFIX * ROWS - 1) == -1);
    assert(!bytes || text_prefix_column(&column, bytes - 1, out, bytes + TEXT_PREFIX * ROWS) == -1);
    offsets[ROWS / 2] = -1;
    assert(text_prefix_column(&column, bytes, out, bytes + TEXT_PREFIX * ROWS) == -1);
    free(text);
    free(out);
}

int main(int argc, char **argv) {
    int texts = argc > 1 ? atoi(argv[1]) : 1000;
    for (int i = 0; i < texts; i++) test_random_text();
    for (int i = 0; i < texts; i++) test_prefixes();
    test_a_large_table();
    test_hashes_made_on_purpose();
    test_a_count_that_overflows();
    puts("ok");
    return 0;
}
