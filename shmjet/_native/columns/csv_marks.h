/* Where the bytes are that structure CSV text, and where its records end. No Python in here.
 *
 * Sixty-four bytes become a word of 64 bits, a 1 for each delimiter, quote, carriage return and newline; a cursor then
 * goes from 1 to 1 (the bitmaps of simdjson, Langdale and Lemire 2019). With SSE2, which every x86-64 has, that costs
 * about 12 cycles for 64 bytes, a tenth of what the values cost; elsewhere eight bytes at a time do. The grammar is
 * RFC 4180's: a quote is special where it begins a field, a doubled one inside quotes is one quote, delimiters and
 * line ends inside quotes are text; a record ends with LF, CR LF or CR.
 */
#ifndef SHMJET_CSV_MARKS_H
#define SHMJET_CSV_MARKS_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__) && !defined(CSV_WITHOUT_SIMD)
#include <emmintrin.h>
#endif

typedef struct {
    const uint8_t *data;
    int64_t size;
    int at_end;        /* the file ends with the data */
    uint8_t delimiter;
    uint8_t quote;     /* the delimiter again where there are no quotes */
    int has_quote;
} csv_text_t;

typedef struct {
    const csv_text_t *text;
    int64_t base;  /* of the 64 bytes that `bits` are about */
    uint64_t bits; /* those not yet met */
} csv_cursor_t;

#if defined(__SSE2__) && !defined(CSV_WITHOUT_SIMD)
static inline uint64_t csv_marks_of(const uint8_t *p, uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    const __m128i wa = _mm_set1_epi8((char)a), wb = _mm_set1_epi8((char)b), wc = _mm_set1_epi8((char)c),
                  wd = _mm_set1_epi8((char)d);
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
        __m128i found = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, wa), _mm_cmpeq_epi8(bytes, wb)),
                                     _mm_or_si128(_mm_cmpeq_epi8(bytes, wc), _mm_cmpeq_epi8(bytes, wd)));
        bits |= (uint64_t)(uint16_t)_mm_movemask_epi8(found) << (16 * i);
    }
    return bits;
}
#else
static inline uint64_t csv_zero_bytes(uint64_t word) { /* 0x80 in each byte that is 0, exactly */
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    return ~(((word & low) + low) | word | low);
}

static inline uint64_t csv_marks_of(const uint8_t *p, uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    const uint64_t every = 0x0101010101010101u;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t word;
        memcpy(&word, p + 8 * i, 8);
        uint64_t found = csv_zero_bytes(word ^ every * a) | csv_zero_bytes(word ^ every * b) |
                         csv_zero_bytes(word ^ every * c) | csv_zero_bytes(word ^ every * d);
        bits |= ((found >> 7) * 0x0102040810204080u >> 56) << (8 * i); /* gathers the eight bits */
    }
    return bits;
}
#endif

/* The marks of up to 64 bytes from `at` on. */
static inline uint64_t csv_marks(const csv_text_t *text, int64_t at, uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    int64_t left = text->size - at;
    if (left >= 64) return csv_marks_of(text->data + at, a, b, c, d);
    if (left <= 0) return 0;
    uint8_t last[64] = {0};
    memcpy(last, text->data + at, (size_t)left);
    return csv_marks_of(last, a, b, c, d) & (((uint64_t)1 << left) - 1);
}

static inline uint64_t csv_cursor_marks(const csv_cursor_t *cursor) {
    return csv_marks(cursor->text, cursor->base, cursor->text->delimiter, cursor->text->quote, '\n', '\r');
}

static inline csv_cursor_t csv_cursor(const csv_text_t *text, int64_t at) {
    csv_cursor_t cursor = {text, at, 0};
    cursor.bits = csv_cursor_marks(&cursor);
    return cursor;
}

/* The position of the next mark, which is then behind the cursor; the size of the text when there is none. */
static inline int64_t csv_next(csv_cursor_t *cursor) {
    while (!cursor->bits) {
        cursor->base += 64;
        if (cursor->base >= cursor->text->size) {
            cursor->base = cursor->text->size - 64; /* stays here */
            return cursor->text->size;
        }
        cursor->bits = csv_cursor_marks(cursor);
    }
    int64_t at = cursor->base + __builtin_ctzll(cursor->bits);
    cursor->bits &= cursor->bits - 1;
    return at;
}

typedef enum {
    CSV_BETWEEN,    /* a delimiter follows */
    CSV_LAST,       /* the record ends */
    CSV_CUT,        /* the text ends before the field does: more is needed */
    CSV_UNCLOSED,   /* the file ends inside quotes */
} csv_ending_t;

typedef struct {
    int64_t begin, end; /* of the value, without quotes */
    int64_t next;       /* where the next field or record begins */
    uint8_t quoted;
    uint8_t doubled;    /* there are doubled quotes in it */
    uint8_t trailing;   /* there is text behind the closing quote, which is an error */
} csv_span_t;

/* Goes over a quoted field's content, the cursor being inside it. Returns where the closing quote is, -1 when the text
 * ends before that is known. */
static inline int64_t csv_closing_quote(csv_cursor_t *cursor, csv_span_t *span) {
    const csv_text_t *text = cursor->text;
    for (;;) {
        int64_t at = csv_next(cursor);
        if (at >= text->size) return -1;
        if (text->data[at] != text->quote) continue;
        if (at + 1 == text->size) return text->at_end ? at : -1;
        if (text->data[at + 1] != text->quote) return at;
        csv_next(cursor);
        span->doubled = 1;
    }
}

/* Finds the end of the field that begins at `begin` (or inside whose quotes it lies, with `inside`). */
static inline csv_ending_t csv_field(csv_cursor_t *cursor, int64_t begin, int inside, csv_span_t *span) {
    const csv_text_t *text = cursor->text;
    int64_t end;
    span->quoted = inside || (text->has_quote && begin < text->size && text->data[begin] == text->quote);
    span->doubled = span->trailing = 0;
    span->begin = begin;
    if (span->quoted) {
        if (!inside) span->begin = csv_next(cursor) + 1; /* the cursor meets the opening quote */
        span->end = csv_closing_quote(cursor, span);
        if (span->end < 0) return text->at_end ? CSV_UNCLOSED : CSV_CUT;
        end = csv_next(cursor);
        span->trailing = end != span->end + 1;
    } else {
        end = csv_next(cursor);
    }
    if (text->has_quote)
        while (end < text->size && text->data[end] == text->quote) end = csv_next(cursor);
    if (!span->quoted) span->end = end;
    span->next = end + 1;
    if (end >= text->size) {
        span->next = text->size;
        return text->at_end ? CSV_LAST : CSV_CUT;
    }
    uint8_t mark = text->data[end];
    if (mark == text->delimiter) return CSV_BETWEEN;
    if (mark == '\r') {
        if (end + 1 == text->size) return text->at_end ? CSV_LAST : CSV_CUT; /* a newline may follow */
        if (text->data[end + 1] == '\n') {
            csv_next(cursor);
            span->next = end + 2;
        }
    }
    return CSV_LAST;
}

/* What is known of the two ways in which a stretch of a file could be read: its first byte outside quotes, at the
 * start of a record, or inside quotes. Small enough to be one int for Python. */
typedef struct {
    uint8_t inside[2]; /* whether the last byte lies inside quotes */
    uint8_t closing[2]; /* the last byte is a quote that closed them, unless another follows */
    uint8_t last;      /* the last byte */
} csv_parity_t;

static inline csv_parity_t csv_parity_at_start(void) {
    csv_parity_t parity = {{0, 1}, {0, 0}, '\n'};
    return parity;
}

/* Follows both ways over more bytes. Only quotes matter, and what is before them, so stretches without cost one
 * comparison a byte. */
static inline void csv_follow(csv_parity_t *parity, const csv_text_t *text, int64_t start) {
    uint8_t quote = text->quote;
    int64_t closed[2] = {parity->closing[0] ? start - 1 : -2, parity->closing[1] ? start - 1 : -2};
    for (int64_t base = start; base < text->size; base += 64) {
        for (uint64_t bits = csv_marks(text, base, quote, quote, quote, quote); bits; bits &= bits - 1) {
            int64_t at = base + __builtin_ctzll(bits);
            uint8_t before = at == start ? parity->last : text->data[at - 1];
            int opens = before == text->delimiter || before == '\n' || before == '\r';
            for (int way = 0; way < 2; way++) {
                if (parity->inside[way]) {
                    parity->inside[way] = 0;
                    closed[way] = at;
                } else if (opens || closed[way] == at - 1) {
                    parity->inside[way] = 1;
                }
            }
        }
    }
    if (text->size <= start) return;
    parity->last = text->data[text->size - 1];
    for (int way = 0; way < 2; way++) parity->closing[way] = !parity->inside[way] && closed[way] == text->size - 1;
}

#endif
