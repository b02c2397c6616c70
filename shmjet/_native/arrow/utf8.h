/* Whether bytes are valid UTF-8, as Unicode defines it: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef SHMJET_ARROW_UTF8_H
#define SHMJET_ARROW_UTF8_H

#include <stdint.h>
#include <string.h>

/* Returns the place of the first byte that begins no valid character, or `size`. */
static inline int64_t utf8_valid_until(const uint8_t *text, int64_t size) {
    int64_t at = 0;
    while (at < size) {
        uint64_t words[4];
        while (at + (int64_t)sizeof words <= size) {
            memcpy(words, text + at, sizeof words);
            if ((words[0] | words[1] | words[2] | words[3]) & UINT64_C(0x8080808080808080)) break;
            at += (int64_t)sizeof words;
        }
        if (at == size) break;
        uint8_t lead = text[at];
        if (lead < 0x80) {
            at++;
            continue;
        }
        int more = lead >= 0xC2 && lead < 0xE0 ? 1 : (lead & 0xF0) == 0xE0 ? 2 : lead >= 0xF0 && lead < 0xF5 ? 3 : 0;
        if (!more || at + more >= size) return at;
        uint8_t next = text[at + 1];
        if ((next & 0xC0) != 0x80 || (lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
            (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F))
            return at;
        for (int i = 2; i <= more; i++)
            if ((text[at + i] & 0xC0) != 0x80) return at;
        at += more + 1;
    }
    return size;
}

/* Returns the first of the values `data[offsets[i] .. offsets[i + 1])` that is not valid by itself, or -1. All are
 * looked at as one text first, which is fast. */
static inline int64_t utf8_wrong_row(const int64_t *offsets, int64_t rows, const uint8_t *data) {
    int64_t size = offsets[rows] - offsets[0];
    int cut = utf8_valid_until(data + offsets[0], size) < size;
    for (int64_t row = 0; row < rows && !cut; row++)
        cut = offsets[row] < offsets[rows] && (data[offsets[row]] & 0xC0) == 0x80;
    for (int64_t row = 0; row < rows && cut; row++) {
        size = offsets[row + 1] - offsets[row];
        if (utf8_valid_until(data + offsets[row], size) < size) return row;
    }
    return -1;
}

#endif
