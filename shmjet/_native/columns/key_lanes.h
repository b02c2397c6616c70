/* MurmurHash3_x86_32 of many rows at once. No Python in here.
 *
 * The canonical bytes of numeric keys have the same length in every row, so the hashes of a block of rows advance side
 * by side, one SIMD lane a row: each step feeds a byte or a 4-byte word to all of them. A composite key shifts its
 * numbers off the 4-byte grid (a tag of one byte stands before each); `fill` says by how many bytes, and is the same in
 * all lanes. The plain 8-byte key, by far the most common, has a loop of its own without any state in memory.
 *
 * key_stream_t is the same hash for one row whose bytes come in pieces of any length.
 */
#ifndef SHMJET_KEY_LANES_H
#define SHMJET_KEY_LANES_H

#include "columns/column.h"
#include "codec/hash.h"
#include "columns/simd.h"

enum { KEY_BLOCK = 512 }; /* rows hashed together: their state stays in the first-level cache */

static inline uint32_t murmur_mix(uint32_t hash, uint32_t word) {
    return rotate_left(hash ^ rotate_left(word * 0xcc9e2d51u, 15) * 0x1b873593u, 13) * 5 + 0xe6546b64u;
}

static inline uint32_t murmur_end(uint32_t hash, uint32_t length) {
    hash ^= length;
    hash ^= hash >> 16;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13;
    hash *= 0xc2b2ae35u;
    return hash ^ (hash >> 16);
}

static inline uint32_t murmur_of_8(uint64_t bits) {
    return murmur_end(murmur_mix(murmur_mix(0, (uint32_t)bits), (uint32_t)(bits >> 32)), 8);
}

/* The hashes of `count` 8-byte values at any address. */
SIMD_CLONES static void murmur_of_values_8(const uint8_t *data, int64_t count, uint32_t *restrict hashes) {
    for (int64_t i = 0; i < count; i++) hashes[i] = murmur_of_8((uint64_t)load_i64(data + 8 * i));
}

/* --- lanes ------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t hash[KEY_BLOCK], carry[KEY_BLOCK]; /* carry: the bytes not hashed yet, `fill` of them */
    uint32_t fill, length;
    int count;
} key_lanes_t;

static inline void lanes_start(key_lanes_t *lanes, int count) {
    memset(lanes->hash, 0, sizeof lanes->hash[0] * (size_t)count);
    memset(lanes->carry, 0, sizeof lanes->carry[0] * (size_t)count);
    lanes->fill = lanes->length = 0;
    lanes->count = count;
}

/* One word for each lane; or, when `words` is NULL, `same` for all. */
SIMD_CLONES static void lanes_word(key_lanes_t *restrict lanes, const uint32_t *restrict words, uint32_t same) {
    int count = lanes->count;
    uint32_t shift = 8 * lanes->fill;
    lanes->length += 4;
    for (int i = 0; i < count; i++) {
        uint64_t bytes = (uint64_t)(words ? words[i] : same) << shift | lanes->carry[i];
        lanes->hash[i] = murmur_mix(lanes->hash[i], (uint32_t)bytes);
        lanes->carry[i] = (uint32_t)(bytes >> 32);
    }
}

/* One byte for each lane, in the low bits of a word; or `same` for all. */
SIMD_CLONES static void lanes_byte(key_lanes_t *restrict lanes, const uint32_t *restrict bytes, uint32_t same) {
    int count = lanes->count;
    uint32_t shift = 8 * lanes->fill;
    lanes->length++;
    for (int i = 0; i < count; i++) lanes->carry[i] |= (bytes ? bytes[i] : same) << shift;
    if (++lanes->fill < 4) return;
    lanes->fill = 0;
    for (int i = 0; i < count; i++) {
        lanes->hash[i] = murmur_mix(lanes->hash[i], lanes->carry[i]);
        lanes->carry[i] = 0;
    }
}

SIMD_CLONES static void lanes_end(key_lanes_t *restrict lanes, uint32_t *restrict hashes) {
    int count = lanes->count;
    uint32_t length = lanes->length;
    if (lanes->fill)
        for (int i = 0; i < count; i++)
            lanes->hash[i] ^= rotate_left(lanes->carry[i] * 0xcc9e2d51u, 15) * 0x1b873593u;
    for (int i = 0; i < count; i++) hashes[i] = murmur_end(lanes->hash[i], length);
}

/* --- one row in pieces -------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t hash, carry, fill, length;
} key_stream_t;

static inline void stream_byte(key_stream_t *stream, uint8_t byte) {
    stream->carry |= (uint32_t)byte << (8 * stream->fill);
    stream->length++;
    if (++stream->fill < 4) return;
    stream->hash = murmur_mix(stream->hash, stream->carry);
    stream->carry = stream->fill = 0;
}

static inline void stream_bytes(key_stream_t *stream, const uint8_t *bytes, size_t count) {
    uint32_t shift = 8 * stream->fill;
    stream->length += (uint32_t)(count & ~(size_t)3);
    for (; count >= 4; bytes += 4, count -= 4) {
        uint64_t word = (uint64_t)load_32(bytes) << shift | stream->carry;
        stream->hash = murmur_mix(stream->hash, (uint32_t)word);
        stream->carry = (uint32_t)(word >> 32);
    }
    for (; count > 0; count--) stream_byte(stream, *bytes++);
}

static inline uint32_t stream_end(const key_stream_t *stream) {
    uint32_t hash = stream->hash;
    if (stream->fill) hash ^= rotate_left(stream->carry * 0xcc9e2d51u, 15) * 0x1b873593u;
    return murmur_end(hash, stream->length);
}

#endif
