/* Blocks of key and input columns as 8-byte words, their hashes, and the text that a row keeps. No Python in here.
 *
 * A table works on BLOCK rows at a time, column by column, so that the type of a column is looked at once a block and
 * the loops are plain. A number becomes one word. Text becomes two, after Umbra's and Velox's strings (Neumann,
 * Freitag: "Umbra", CIDR 2020): length and first four bytes; then, for up to 12 bytes in all, the rest, else where
 * the bytes are. So most comparisons of text need no look elsewhere.
 *
 * The hash multiplies to 128 bits and folds (as wyhash does), with a random seed for each table, so that none who
 * chooses keys can choose collisions. It has nothing in common with the murmur3 that has spread the keys over the
 * workers: with that one all keys of a worker would share bits.
 */
#ifndef SHMJET_GROUP_KEYS_H
#define SHMJET_GROUP_KEYS_H

#include "columns/column.h"

#define BLOCK 256
#define TEXT_INLINE 12
#define NULL_WORD UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t load_u64(const void *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint32_t load_u32(const void *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline void store_u64(void *p, uint64_t value) { memcpy(p, &value, sizeof value); }

static inline uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide_t;
    wide_t product = (wide_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

/* IEEE 754 binary16 to binary64. */
static inline double half_to_double(uint16_t half) {
    uint64_t sign = (uint64_t)(half >> 15) << 63, exponent = (half >> 10) & 31, fraction = half & 1023;
    double value;
    if (exponent == 0) { /* zero and subnormal numbers: multiples of 2^-24 */
        value = (double)fraction * 0x1p-24;
        return sign ? -value : value;
    }
    uint64_t bits = sign | (exponent == 31 ? UINT64_C(2047) << 52 : (exponent - 15 + 1023) << 52) | fraction << 42;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The words of `count` numbers from row `start` on: where they are in the column when it has 8-byte values, else in
 * `room`. Floats become float64, all others int64 (uint64 keeps its bits). */
static inline const uint8_t *number_words(const column_t *column, int64_t start, int count, uint64_t *room) {
    const uint8_t *data = column->data + start * column->itemsize;
    if (column->itemsize == 8) return data;
#define WIDEN(type, to)                                                                                                \
    for (int i = 0; i < count; i++) {                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, data + (size_t)i * sizeof value, sizeof value);                                                 \
        to wide = (to)value;                                                                                           \
        memcpy(&room[i], &wide, sizeof wide);                                                                          \
    }
    if (column->kind == 'f') {
        if (column->itemsize == 4) {
            WIDEN(float, double)
        } else
            for (int i = 0; i < count; i++) {
                uint16_t half;
                memcpy(&half, data + 2 * (size_t)i, sizeof half);
                double wide = half_to_double(half);
                memcpy(&room[i], &wide, sizeof wide);
            }
    } else if (column->kind == 'i') {
        if (column->itemsize == 4) {
            WIDEN(int32_t, int64_t)
        } else if (column->itemsize == 2) {
            WIDEN(int16_t, int64_t)
        } else {
            WIDEN(int8_t, int64_t)
        }
    } else {
        if (column->itemsize == 4) {
            WIDEN(uint32_t, int64_t)
        } else if (column->itemsize == 2) {
            WIDEN(uint16_t, int64_t)
        } else {
            WIDEN(uint8_t, int64_t)
        }
    }
#undef WIDEN
    return (const uint8_t *)room;
}

/* Gives all NaNs the same bits and -0.0 those of 0.0, so that equal keys are equal words. */
static inline void unify_floats(const uint8_t *words, int count, uint64_t *room) {
    for (int i = 0; i < count; i++) {
        double value = load_f64(words + 8 * i) + 0.0;
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        room[i] = value == value ? bits : UINT64_C(0x7ff8000000000000);
    }
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *data;
    uint32_t length;
} bytes_t;

/* Up to 8 bytes as a little-endian number, without reading beyond them. */
static inline uint64_t load_some(const uint8_t *p, uint32_t length) {
    if (length >= 8) return load_u64(p);
    if (length >= 4) return load_u32(p) | (uint64_t)load_u32(p + length - 4) << (8 * (length - 4));
    if (length == 0) return 0;
    return p[0] | (uint64_t)p[length >> 1] << (8 * (length >> 1)) | (uint64_t)p[length - 1] << (8 * (length - 1));
}

/* The bytes of a value: fixed text without the zeros that pad it. Returns -1 for a value of 4 GiB or more. */
static inline int column_bytes(const column_t *column, int64_t row, bytes_t *bytes) {
    if (column_is_variable(column)) {
        int64_t from = column_offset(column, row), length = column_offset(column, row + 1) - from;
        if (length > UINT32_MAX) return -1;
        *bytes = (bytes_t){column->data + from, (uint32_t)length};
        return 0;
    }
    const uint8_t *data = column->data + row * column->itemsize;
    uint32_t length = column->itemsize;
    if (column->kind == 'S')
        while (length && !data[length - 1]) length--;
    else if (column->kind == 'U')
        while (length && !load_u32(data + length - 4)) length -= 4;
    *bytes = (bytes_t){data, length};
    return 0;
}

static inline uint64_t text_head(bytes_t text) {
    return text.length | load_some(text.data, text.length < 4 ? text.length : 4) << 32;
}

static inline uint64_t text_tail(bytes_t text) {
    return text.length > 4 ? load_some(text.data + 4, text.length < TEXT_INLINE ? text.length - 4 : 8) : 0;
}

static inline uint64_t text_hash(bytes_t text, uint64_t head, uint64_t tail, const uint64_t seed[2]) {
    if (text.length <= TEXT_INLINE) return fold(head ^ seed[0], tail ^ seed[1]);
    uint64_t hash = text.length ^ seed[0];
    const uint8_t *p = text.data;
    uint32_t left = text.length;
    for (; left > 16; left -= 16, p += 16) hash = fold(load_u64(p) ^ seed[1], load_u64(p + 8) ^ hash);
    uint64_t a = load_some(p, left), b = left > 8 ? load_some(p + 8, left - 8) : 0;
    return fold(fold(a ^ seed[1], b ^ hash), seed[1]);
}

/* Compares in the order of code points: UTF-8 and bytes byte by byte, UCS-4 by its characters. */
static inline int text_less(bytes_t a, bytes_t b, int is_ucs4) {
    uint32_t shared = a.length < b.length ? a.length : b.length;
    if (!is_ucs4) {
        int order = memcmp(a.data, b.data, shared);
        return order ? order < 0 : a.length < b.length;
    }
    for (uint32_t i = 0; i < shared; i += 4) {
        uint32_t x = load_u32(a.data + i), y = load_u32(b.data + i);
        if (x != y) return x < y;
    }
    return a.length < b.length;
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

/* One key column of one block. */
typedef struct {
    const uint8_t *words; /* BLOCK words: the number, or the head of the text */
    int is_text;
    uint64_t head[BLOCK], tail[BLOCK];
    bytes_t text[BLOCK];
} key_block_t;

/* Reads a block of a key column: its words, 0 where it is null, and a bit for nulls. Returns -1 for a text too long. */
static inline int key_load(key_block_t *key, const column_t *column, char class, int place, int64_t start, int count,
                           uint64_t *nulls) {
    key->is_text = class == 't';
    const uint8_t *valid = column->valid ? column->valid + start : NULL;
    if (key->is_text) {
        for (int i = 0; i < count; i++) {
            if (valid && !valid[i])
                key->text[i] = (bytes_t){(const uint8_t *)"", 0};
            else if (column_bytes(column, start + i, &key->text[i]) < 0)
                return -1;
            key->head[i] = text_head(key->text[i]);
            key->tail[i] = text_tail(key->text[i]);
        }
        key->words = (const uint8_t *)key->head;
    } else {
        key->words = number_words(column, start, count, key->head);
        if (class == 'f') {
            unify_floats(key->words, count, key->head);
            key->words = (const uint8_t *)key->head;
        }
        if (valid) {
            for (int i = 0; i < count; i++) key->head[i] = valid[i] ? load_u64(key->words + 8 * i) : 0;
            key->words = (const uint8_t *)key->head;
        }
    }
    if (valid)
        for (int i = 0; i < count; i++) nulls[i] |= (uint64_t)!valid[i] << place % 64;
    return 0;
}

/* Adds a key column to the hashes of a block; the first one begins them. */
static inline void key_hash(const key_block_t *key, int place, const uint64_t seeds[2], int count,
                            const uint64_t *nulls, uint64_t *restrict hashes) {
    const uint64_t seed[2] = {seeds[0], seeds[1]};
    const uint8_t *words = key->words;
    if (key->is_text)
        for (int i = 0; i < count; i++) {
            uint64_t hash = text_hash(key->text[i], key->head[i], key->tail[i], seed);
            hashes[i] = place ? fold(hashes[i] ^ seed[1], hash ^ seed[0]) : hash;
        }
    else if (place)
        for (int i = 0; i < count; i++) hashes[i] = fold(hashes[i] ^ seed[1], load_u64(words + 8 * i) ^ seed[0]);
    else
        for (int i = 0; i < count; i++) hashes[i] = fold(load_u64(words + 8 * i) ^ seed[0], seed[1]);
    if (nulls)
        for (int i = 0; i < count; i++) hashes[i] ^= (nulls[i] >> place % 64 & 1) * NULL_WORD;
}

#endif
