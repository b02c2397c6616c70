/* Where the words of UTF-8 text begin and end, by the rules of Python's str.split(). No Python in here.
 *
 * Text is looked at 64 bytes at a time: SIMD comparisons give one bit a byte, "white space" and "not ASCII", and
 * the borders of words are where the bits of white space change (the way simdjson finds structural characters: Langdale
 * and Lemire, "Parsing Gigabytes of JSON per Second", 2019). The same pass lower-cases ASCII letters into a copy of the
 * text that has spare room behind it, so that a word can be loaded from there in whole lanes.
 *
 * White space is what str.isspace() says: \t \n \v \f \r \x1c-\x1f and space; U+0085 U+00A0 U+1680 U+2000-200A U+2028
 * U+2029 U+202F U+205F U+3000. A byte that begins one of these cannot continue another character, so they are found
 * by their bytes alone, wherever one begins to look, and bytes that are not valid UTF-8 are never white space. That is
 * what decoding with errors="replace" and splitting gives, too.
 */
#ifndef SHMJET_TEXT_SCAN_H
#define SHMJET_TEXT_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(SHMJET_NO_SIMD)
#include <emmintrin.h>
#define TEXT_SSE2 1
#endif

#define TEXT_CHUNK 4096 /* bytes scanned at once: the copy and the edges stay in the L1 cache */
#define TEXT_SPARE 64   /* bytes that may be read behind any word of the copy */

/* Bits of 64 bytes, the first in bit 0. */
typedef struct {
    uint64_t space; /* ASCII white space */
    uint64_t high;  /* not ASCII */
} text_class_t;

/* A scanned piece of text. */
typedef struct {
    uint8_t bytes[TEXT_CHUNK + TEXT_SPARE]; /* the copy */
    uint16_t edges[TEXT_CHUNK + 64];        /* begin and end of each word, in bytes from the beginning of the piece */
    uint32_t edge_count;                    /* even: a word that goes on behind the piece ends at its size */
    uint32_t size;                          /* bytes of the piece */
    uint32_t beyond;                        /* bytes behind it that belong to white space that begins in it */
} text_piece_t;

static inline uint64_t text_load(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Classes of 8 bytes without SIMD: bit 7 of each byte says yes. For processors other than x86-64, and for tests. */
#define TEXT_ONES UINT64_C(0x0101010101010101)
#define TEXT_TOPS UINT64_C(0x8080808080808080)

/* ASCII bytes from `least` to `most`; bytes that are not ASCII are never among them. */
static inline uint64_t text_lanes_between(uint64_t lanes, unsigned least, unsigned most) {
    uint64_t low = lanes & ~TEXT_TOPS;
    return (low + TEXT_ONES * (0x80 - least)) & ~(low + TEXT_ONES * (0x7f - most)) & ~lanes & TEXT_TOPS;
}

static inline uint64_t text_lower_lanes(uint64_t lanes) { return lanes | text_lanes_between(lanes, 'A', 'Z') >> 2; }

static inline uint64_t text_lane_bits(uint64_t tops) { return ((tops >> 7) * UINT64_C(0x0102040810204080)) >> 56; }

/* Classifies 64 bytes and copies them, ASCII letters in lower case if `lower`. */
static inline text_class_t text_classify(const uint8_t *from, uint8_t *to, int lower) {
    text_class_t bits = {0, 0};
#ifdef TEXT_SSE2
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const void *)(from + 16 * i));
        __m128i control = _mm_sub_epi8(bytes, _mm_set1_epi8(0x09)), last = _mm_sub_epi8(bytes, _mm_set1_epi8(0x1c));
        __m128i space = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(control, _mm_set1_epi8(0x0d - 0x09)), control),
                                     _mm_cmpeq_epi8(_mm_min_epu8(last, _mm_set1_epi8(0x20 - 0x1c)), last));
        bits.space |= (uint64_t)(uint32_t)_mm_movemask_epi8(space) << (16 * i);
        bits.high |= (uint64_t)(uint32_t)_mm_movemask_epi8(bytes) << (16 * i);
        if (lower) {
            __m128i letter = _mm_sub_epi8(bytes, _mm_set1_epi8('A'));
            __m128i upper = _mm_cmpeq_epi8(_mm_min_epu8(letter, _mm_set1_epi8('Z' - 'A')), letter);
            bytes = _mm_or_si128(bytes, _mm_and_si128(upper, _mm_set1_epi8(0x20)));
        }
        _mm_storeu_si128((void *)(to + 16 * i), bytes);
    }
#else
    for (int i = 0; i < 8; i++) {
        uint64_t lanes = text_load(from + 8 * i);
        uint64_t space = text_lanes_between(lanes, 0x09, 0x0d) | text_lanes_between(lanes, 0x1c, 0x20);
        bits.space |= text_lane_bits(space) << (8 * i);
        bits.high |= text_lane_bits(lanes & TEXT_TOPS) << (8 * i);
        if (lower) lanes = text_lower_lanes(lanes);
        memcpy(to + 8 * i, &lanes, 8);
    }
#endif
    return bits;
}

/* Among 64 bytes, those with which white space of several bytes may begin: C2, E1, E2, E3. */
static inline uint64_t text_candidates(const uint8_t *from) {
    uint64_t bits = 0;
#ifdef TEXT_SSE2
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const void *)(from + 16 * i));
        __m128i three = _mm_sub_epi8(bytes, _mm_set1_epi8((char)0xe1));
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)0xc2)),
                                     _mm_cmpeq_epi8(_mm_min_epu8(three, _mm_set1_epi8(2)), three));
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(found) << (16 * i);
    }
#else
    for (int i = 0; i < 8; i++) {
        uint64_t lanes = text_load(from + 8 * i), low = lanes & ~TEXT_TOPS;
        uint64_t found = (text_lanes_between(low, 0x42, 0x42) | text_lanes_between(low, 0x61, 0x63)) & lanes;
        bits |= text_lane_bits(found) << (8 * i);
    }
#endif
    return bits;
}

/* The bytes of white space of several bytes that begins at `p`, 0 if none does. Does not read at or behind `stop`. */
static inline unsigned text_wide_space(const uint8_t *p, const uint8_t *stop) {
    if (stop - p < 2) return 0;
    if (p[0] == 0xc2) return p[1] == 0x85 || p[1] == 0xa0 ? 2 : 0;
    if (stop - p < 3) return 0;
    uint8_t last = p[2];
    switch (p[0]) {
    case 0xe1: return p[1] == 0x9a && last == 0x80 ? 3 : 0;
    case 0xe2:
        if (p[1] == 0x80) return (last >= 0x80 && last <= 0x8a) || last == 0xa8 || last == 0xa9 || last == 0xaf ? 3 : 0;
        return p[1] == 0x81 && last == 0x9f ? 3 : 0;
    case 0xe3: return p[1] == 0x80 && last == 0x80 ? 3 : 0;
    }
    return 0;
}

/* Adds the white space of several bytes among 64 bytes to `space`. `*beyond` has a bit for each byte of the next
 * 64 that belongs to white space which begins here; what it had before belongs to these 64. */
static inline uint64_t text_wide_spaces(uint64_t space, uint64_t candidates, const uint8_t *from, const uint8_t *stop,
                                        uint64_t *beyond) {
    space |= *beyond;
    *beyond = 0;
    for (; candidates; candidates &= candidates - 1) {
        int at = __builtin_ctzll(candidates);
        uint64_t bytes = (UINT64_C(1) << text_wide_space(from + at, stop)) - 1;
        space |= bytes << at;
        if (at > 61) *beyond |= bytes >> (64 - at);
    }
    return space;
}

/* Writes the places of the bits of `edges`, plus `base`; may write up to 7 more behind them. Returns the end. */
static inline uint16_t *text_list_edges(uint16_t *to, uint64_t edges, uint32_t base) {
    uint16_t *end = to + __builtin_popcountll(edges);
    while (edges) {
        for (int i = 0; i < 8; i++) { /* written in eights, so that the number of edges is guessed wrong less often */
            to[i] = (uint16_t)(base + (uint32_t)__builtin_ctzll(edges | UINT64_C(1) << 63));
            edges &= edges - 1;
        }
        to += 8;
    }
    return end;
}

/* Scans from `from`, where no character of white space is cut, up to TEXT_CHUNK bytes but not to `stop` or beyond. */
static inline void text_scan(text_piece_t *piece, const uint8_t *from, const uint8_t *stop, int lower) {
    size_t left = (size_t)(stop - from);
    uint32_t size = left < TEXT_CHUNK ? (uint32_t)left : TEXT_CHUNK;
    uint16_t *edge = piece->edges;
    uint64_t inside = 0, beyond = 0; /* 1 while in a word */
    for (uint32_t at = 0; at < size; at += 64) {
        uint8_t rest[64];
        const uint8_t *bytes = from + at;
        if (size - at < 64) { /* the end of the text is padded with spaces */
            memset(rest, ' ', sizeof rest);
            memcpy(rest, bytes, size - at);
            bytes = rest;
        }
        text_class_t bits = text_classify(bytes, piece->bytes + at, lower);
        if (bits.high | beyond) {
            uint64_t candidates = bits.high ? text_candidates(bytes) : 0;
            bits.space = text_wide_spaces(bits.space, candidates, from + at, stop, &beyond);
        }
        uint64_t word = ~bits.space;
        edge = text_list_edges(edge, word ^ (word << 1 | inside), at);
        inside = word >> 63;
    }
    if ((edge - piece->edges) & 1) *edge++ = (uint16_t)size;
    piece->edge_count = (uint32_t)(edge - piece->edges);
    piece->size = size;
    piece->beyond = (uint32_t)__builtin_popcountll(beyond);
}

/* The end of the word that begins at `from`, however long it is. */
static inline const uint8_t *text_word_end(text_piece_t *piece, const uint8_t *from, const uint8_t *stop) {
    while (from < stop) {
        text_scan(piece, from, stop, 0);
        if (!piece->edge_count || piece->edges[0]) return from; /* white space at once */
        from += piece->edges[1];
        if (piece->edges[1] < piece->size) return from;
    }
    return from;
}

/* The first place at or behind `from` that no word which begins before it reaches, and where no character of white
 * space is cut; `stop` when such a word goes on up to there. `begin` is where the readable bytes begin: 3 before
 * `from` at least, or the beginning of the text. */
static inline const uint8_t *text_resume(text_piece_t *piece, const uint8_t *begin, const uint8_t *from,
                                         const uint8_t *stop) {
    if (from == begin) return from;
    for (unsigned back = 1; back <= 3 && from - begin >= (ptrdiff_t)back; back++) {
        const uint8_t *p = from - back;
        unsigned size = (*p >= 0x09 && *p <= 0x0d) || (*p >= 0x1c && *p <= 0x20) ? 1 : text_wide_space(p, stop);
        if (size >= back) return p + size;
    }
    return text_word_end(piece, from, stop);
}

#endif
