/* Walks through a word table in steps, all of it or one share of the hashes. No Python in here. */
#ifndef SHMJET_WORD_WALK_H
#define SHMJET_WORD_WALK_H

#include "columns/word_table.h"

/* What to visit, and how far one is: a place in the directory, 2^32 times, plus a slot of the segment there. */
typedef struct {
    const word_table_t *table;
    uint64_t position;
    uint32_t share, shares;
} word_walk_t;

/* Begins at a position that a walk of the same share reached before, or at 0. */
static inline word_walk_t word_walk(const word_table_t *table, uint64_t position, uint32_t share, uint32_t shares) {
    word_walk_t walk = {table, position, share, shares};
    if (table->places && shares > 1) {
        uint64_t tag = ((uint64_t)share << 32) / shares << 32; /* not above the least of the share */
        uint64_t entry = tag >> (64 - table->depth);
        entry &= ~UINT64_C(0) << (table->depth - table->segments[table->places[entry].segment].depth);
        if (walk.position < entry << 32) walk.position = entry << 32;
    }
    return walk;
}

/* The next word with its count, NULL behind the last. Slots of one segment come in no order, segments in that of
 * hashes. */
static inline const word_slot_t *word_next(word_walk_t *walk) {
    const word_table_t *table = walk->table;
    uint64_t entries = table->places ? UINT64_C(1) << table->depth : 0, entry = walk->position >> 32;
    uint64_t at = walk->position & UINT32_MAX;
    while (entry < entries) {
        if (walk->shares > 1 && word_share(entry << (64 - table->depth), walk->shares) > walk->share) break;
        const word_place_t *place = &table->places[entry];
        for (; at < place->mask + WORD_GROUP; at++) {
            if (!place->marks[at]) continue;
            const word_slot_t *slot = place->slots + at;
            if (walk->shares > 1 && word_share(slot->word.tag, walk->shares) != walk->share) continue;
            walk->position = entry << 32 | (at + 1);
            return slot;
        }
        entry += UINT64_C(1) << (table->depth - table->segments[place->segment].depth);
        at = 0;
    }
    walk->position = UINT64_MAX;
    return NULL;
}

#endif
