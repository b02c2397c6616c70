/* The different values of a column of text, in the order in which they first come, and the number of each value's among
 * them. A hash table with linear probing, at most half full. No Python in here. */
#ifndef SHMJET_ARROW_DICTIONARY_H
#define SHMJET_ARROW_DICTIONARY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const int64_t *offsets;
    const uint8_t *data;
    int64_t *firsts; /* the row of each different value */
    int64_t count;   /* of them */
    int64_t room;    /* for them */
    int32_t *slots;  /* number of a value + 1; 0: free */
    uint64_t *hashes;
    uint64_t size; /* of slots: a power of two */
} dictionary_t;

static inline uint64_t dictionary_mix(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t dictionary_hash(const uint8_t *text, int64_t length) {
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)length, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = dictionary_mix(hash ^ word, UINT64_C(0xE7037ED1A0B428DB));
    }
    word = 0;
    memcpy(&word, text, (size_t)length);
    return dictionary_mix(hash ^ word, UINT64_C(0x8EBC6AF09C88C6E3));
}

static inline void dictionary_free(dictionary_t *table) {
    free(table->firsts);
    free(table->slots);
    free(table->hashes);
}

/* Makes room for twice as many; returns 0, or -1 without memory. */
static int dictionary_grow(dictionary_t *table) {
    int64_t room = table->room ? 2 * table->room : 512;
    uint64_t size = 2 * (uint64_t)room;
    int64_t *firsts = realloc(table->firsts, (size_t)room * sizeof *firsts);
    if (!firsts) return -1;
    table->firsts = firsts;
    uint64_t *hashes = realloc(table->hashes, (size_t)room * sizeof *hashes);
    if (!hashes) return -1;
    table->hashes = hashes;
    int32_t *slots = calloc(size, sizeof *slots);
    if (!slots) return -1;
    for (int64_t number = 0; number < table->count; number++) {
        uint64_t at = hashes[number] & (size - 1);
        while (slots[at]) at = (at + 1) & (size - 1);
        slots[at] = (int32_t)number + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->size = size;
    table->room = room;
    return 0;
}

/* Returns the number of a row's value; -1 without memory, -2 when there are 2**31 - 1 different ones. */
static inline int64_t dictionary_number(dictionary_t *table, int64_t row) {
    if (table->count == table->room) {
        if (table->count >= INT32_MAX - 1) return -2;
        if (dictionary_grow(table) < 0) return -1;
    }
    const uint8_t *text = table->data + table->offsets[row];
    int64_t length = table->offsets[row + 1] - table->offsets[row];
    uint64_t hash = dictionary_hash(text, length), at = hash & (table->size - 1);
    for (; table->slots[at]; at = (at + 1) & (table->size - 1)) {
        int64_t number = table->slots[at] - 1, first = table->firsts[number];
        if (table->hashes[number] == hash && table->offsets[first + 1] - table->offsets[first] == length &&
            memcmp(table->data + table->offsets[first], text, (size_t)length) == 0)
            return number;
    }
    table->slots[at] = (int32_t)table->count + 1;
    table->hashes[table->count] = hash;
    table->firsts[table->count] = row;
    return table->count++;
}

#endif
