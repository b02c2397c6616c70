/* Numbers of 64 bits, gathered and given back in order, in bounded steps. No Python in here.
 *
 * Keys (radix.h) are gathered in blocks that fit the second-level cache and are sorted when they are full. In the end
 * the blocks are merged slice by slice: of the keys that lie `step` further on in each block the least is the pivot;
 * every block gives up what is not above it, and the slice is sorted by digits, in the cache again. So nothing takes
 * longer than a block, however many there are, and each number is touched three times. Equal keys are equal numbers:
 * there is no order among them to be kept.
 */
#ifndef SHMJET_NUMBERS_H
#define SHMJET_NUMBERS_H

#include <stdlib.h>

#include "items/radix.h"

#define NUMBERS_BLOCK 65536
#define NUMBERS_LEAST_STEP 64

typedef struct {
    uint64_t *keys;
    size_t at, end;
} numbers_block_t;

typedef struct {
    numbers_block_t *blocks;
    size_t count, room;
    uint64_t *scratch;  /* of a block */
    uint64_t *slice, *slice_scratch;
    size_t slice_room;
    size_t left;        /* keys that have not been given back */
    int is_merging;
} numbers_t;

static inline void numbers_init(numbers_t *self) { memset(self, 0, sizeof *self); }

static inline void numbers_free(numbers_t *self) {
    for (size_t b = 0; b < self->count; b++) free(self->blocks[b].keys);
    free(self->blocks);
    free(self->scratch);
    free(self->slice);
    numbers_init(self);
}

static inline void numbers_sort_block(numbers_t *self, numbers_block_t *block) {
    uint64_t *sorted = radix_sort_keys(block->keys, self->scratch, block->end);
    if (sorted == block->keys) return;
    self->scratch = block->keys;
    block->keys = sorted;
}

/* Returns a block that has room, or NULL without memory. */
static inline numbers_block_t *numbers_open_block(numbers_t *self) {
    if (self->count && self->blocks[self->count - 1].end < NUMBERS_BLOCK) return &self->blocks[self->count - 1];
    if (!self->scratch && !(self->scratch = malloc(NUMBERS_BLOCK * sizeof *self->scratch))) return NULL;
    if (self->count == self->room) {
        size_t room = self->room ? 2 * self->room : 16;
        numbers_block_t *grown = realloc(self->blocks, room * sizeof *grown);
        if (!grown) return NULL;
        self->blocks = grown;
        self->room = room;
    }
    uint64_t *keys = malloc(NUMBERS_BLOCK * sizeof *keys);
    if (!keys) return NULL;
    self->blocks[self->count] = (numbers_block_t){keys, 0, 0};
    return &self->blocks[self->count++];
}

/* Adds keys. Returns how many: fewer than there are when there is no memory. */
static inline size_t numbers_add(numbers_t *self, const uint64_t *keys, size_t count) {
    size_t added = 0;
    while (added < count) {
        numbers_block_t *block = numbers_open_block(self);
        if (!block) break;
        size_t part = NUMBERS_BLOCK - block->end < count - added ? NUMBERS_BLOCK - block->end : count - added;
        memcpy(block->keys + block->end, keys + added, part * sizeof *keys);
        block->end += part;
        added += part;
        if (block->end == NUMBERS_BLOCK) numbers_sort_block(self, block);
    }
    self->left += added;
    return added;
}

/* Begins to give back: from now on nothing is added. */
static inline void numbers_settle(numbers_t *self) {
    if (self->is_merging) return;
    self->is_merging = 1;
    if (self->count && self->blocks[self->count - 1].end < NUMBERS_BLOCK)
        numbers_sort_block(self, &self->blocks[self->count - 1]);
}

/* The end of what is not above the pivot in keys[at, end), which ascend. */
static inline size_t numbers_above(const uint64_t *keys, size_t at, size_t end, uint64_t pivot) {
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (keys[middle] <= pivot)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

/* Points `keys` at the next keys in order, at most `limit` unless the blocks are very many, valid until the next call.
 * Returns their number, 0 at the end, SIZE_MAX without memory. */
static inline size_t numbers_next(numbers_t *self, size_t limit, const uint64_t **keys) {
    numbers_settle(self);
    size_t live = 0;
    for (size_t b = 0; b < self->count; b++) {
        if (self->blocks[b].at < self->blocks[b].end)
            self->blocks[live++] = self->blocks[b];
        else
            free(self->blocks[b].keys);
    }
    self->count = live;
    if (!live) return 0;
    if (live == 1) { /* in order already */
        numbers_block_t *block = self->blocks;
        size_t part = block->end - block->at < limit ? block->end - block->at : limit;
        *keys = block->keys + block->at;
        block->at += part;
        self->left -= part;
        return part;
    }
    size_t step = limit / live > NUMBERS_LEAST_STEP ? limit / live : NUMBERS_LEAST_STEP;
    if (self->slice_room < live * step) {
        free(self->slice);
        self->slice_room = 0;
        self->slice = malloc(2 * live * step * sizeof *self->slice);
        if (!self->slice) return SIZE_MAX;
        self->slice_room = live * step;
        self->slice_scratch = self->slice + self->slice_room;
    }
    uint64_t pivot = UINT64_MAX;
    for (size_t b = 0; b < live; b++) {
        const numbers_block_t *block = &self->blocks[b];
        uint64_t last = block->keys[block->end - block->at > step ? block->at + step - 1 : block->end - 1];
        if (last < pivot) pivot = last;
    }
    size_t total = 0;
    for (size_t b = 0; b < live; b++) {
        numbers_block_t *block = &self->blocks[b];
        size_t end = block->end - block->at > step ? block->at + step : block->end;
        size_t stop = numbers_above(block->keys, block->at, end, pivot);
        memcpy(self->slice + total, block->keys + block->at, (stop - block->at) * sizeof *self->slice);
        total += stop - block->at;
        block->at = stop;
    }
    *keys = radix_sort_keys(self->slice, self->slice_scratch, total);
    self->left -= total;
    return total;
}

#endif
