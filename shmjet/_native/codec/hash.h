/* MurmurHash3_x86_32 (Austin Appleby, public domain). No Python in here.
 *
 * Partition ids hang on it, for edges, maps and column batches alike, so it must never change: tests hold it against
 * mmh3.
 */
#ifndef SHMJET_HASH_H
#define SHMJET_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t rotate_left(uint32_t x, int bits) { return (x << bits) | (x >> (32 - bits)); }

static inline uint32_t load_32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint32_t murmur3_32(const void *data, size_t length, uint32_t seed) {
    const uint8_t *bytes = (const uint8_t *)data;
    const uint32_t c1 = 0xcc9e2d51u, c2 = 0x1b873593u;
    uint32_t hash = seed;
    size_t blocks = length / 4;
    for (size_t i = 0; i < blocks; i++) {
        hash ^= rotate_left(load_32(bytes + 4 * i) * c1, 15) * c2;
        hash = rotate_left(hash, 13) * 5 + 0xe6546b64u;
    }
    const uint8_t *rest = bytes + 4 * blocks;
    uint32_t last = 0;
    switch (length & 3) {
    case 3: last ^= (uint32_t)rest[2] << 16; /* fall through */
    case 2: last ^= (uint32_t)rest[1] << 8;  /* fall through */
    case 1: hash ^= rotate_left((last ^ rest[0]) * c1, 15) * c2;
    }
    hash ^= (uint32_t)length;
    hash ^= hash >> 16;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13;
    hash *= 0xc2b2ae35u;
    return hash ^ (hash >> 16);
}

#endif
