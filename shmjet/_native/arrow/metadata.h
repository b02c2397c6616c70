/* The metadata of a field: int32 count, then for each key and each value an int32 length and its bytes. No Python. */
#ifndef SHMJET_ARROW_METADATA_H
#define SHMJET_ARROW_METADATA_H

#include <stdint.h>
#include <string.h>

/* Returns the bytes of metadata, or -1 when a length in it is negative. */
static inline int64_t metadata_size(const char *metadata) {
    int32_t pairs, length;
    int64_t at = sizeof pairs;
    memcpy(&pairs, metadata, sizeof pairs);
    if (pairs < 0) return -1;
    for (int64_t i = 0; i < 2 * (int64_t)pairs; i++) {
        memcpy(&length, metadata + at, sizeof length);
        if (length < 0) return -1;
        at += (int64_t)sizeof length + length;
    }
    return at;
}

#endif
