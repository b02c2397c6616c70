/* Where a word table keeps its segments and its long words. No Python in here.
 *
 * Segments all have one size and come out of slabs: a few at first, then 2 MiB at once, for which the kernel is asked
 * for a huge page. A table that is larger than the cache is looked up at random, and with pages of 4 KiB every second
 * look would also miss the TLB; new memory costs one page fault and not hundreds. What a split frees, the next one
 * takes.
 *
 * Long words lie one behind the other in blocks. Nothing is given back before the table ends.
 */
#ifndef SHMJET_WORD_MEMORY_H
#define SHMJET_WORD_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WORD_SLAB (2u << 20)  /* bytes of a slab, and its alignment */
#define WORD_FIRST_SLABS 4    /* so many slabs are of the size of 4 segments */
#define WORD_BLOCK (64 << 10) /* bytes of a block for long words; a word of a quarter of it gets one of its own */

typedef struct word_slab {
    struct word_slab *next;
    uint8_t *memory;
} word_slab_t;

typedef struct word_block {
    struct word_block *next;
    size_t used, size;
    uint8_t bytes[];
} word_block_t;

typedef struct {
    size_t segment_size; /* a multiple of 64 */
    word_slab_t *slabs;
    uint32_t slab_count;
    uint8_t *fresh; /* not yet given out, in the last slab */
    size_t fresh_size;
    uint8_t *spare; /* given back; each begins with the address of the next */
    word_block_t *blocks;
} word_memory_t;

static inline void word_memory_init(word_memory_t *memory, size_t segment_size) {
    memset(memory, 0, sizeof *memory);
    memory->segment_size = segment_size;
}

static inline void word_memory_free(word_memory_t *memory) {
    for (word_slab_t *next, *slab = memory->slabs; slab; slab = next) {
        next = slab->next;
        free(slab->memory);
        free(slab);
    }
    for (word_block_t *next, *block = memory->blocks; block; block = next) {
        next = block->next;
        free(block);
    }
    word_memory_init(memory, memory->segment_size);
}

static inline int word_memory_grow(word_memory_t *memory) {
    int small = memory->slab_count < WORD_FIRST_SLABS;
    size_t size = small ? 4 * memory->segment_size : WORD_SLAB;
    word_slab_t *slab = (word_slab_t *)malloc(sizeof *slab);
    uint8_t *bytes = (uint8_t *)aligned_alloc(small ? 64 : WORD_SLAB, size);
    if (!slab || !bytes) {
        free(slab);
        free(bytes);
        return -1;
    }
#ifdef MADV_HUGEPAGE
    if (!small) (void)madvise(bytes, size, MADV_HUGEPAGE); /* where there are none, small pages will do */
#endif
    *slab = (word_slab_t){memory->slabs, bytes};
    memory->slabs = slab;
    memory->slab_count++;
    memory->fresh = bytes;
    memory->fresh_size = size;
    return 0;
}

/* Memory for a segment, aligned to 64 bytes and not cleared; NULL when there is none. */
static inline uint8_t *word_segment_new(word_memory_t *memory) {
    uint8_t *segment = memory->spare;
    if (segment) {
        memcpy(&memory->spare, segment, sizeof memory->spare);
        return segment;
    }
    if (memory->fresh_size < memory->segment_size && word_memory_grow(memory) < 0) return NULL;
    segment = memory->fresh;
    memory->fresh += memory->segment_size;
    memory->fresh_size -= memory->segment_size;
    return segment;
}

static inline void word_segment_free(word_memory_t *memory, uint8_t *segment) {
    memcpy(segment, &memory->spare, sizeof memory->spare);
    memory->spare = segment;
}

/* Keeps a long word; returns where it lies, NULL when there is no memory. */
static inline const uint8_t *word_keep(word_memory_t *memory, const uint8_t *bytes, size_t size) {
    word_block_t *block = memory->blocks;
    if (!block || block->size - block->used < size) {
        int own = size > WORD_BLOCK / 4;
        size_t room = own ? size : WORD_BLOCK;
        word_block_t *fresh = (word_block_t *)malloc(sizeof *fresh + room);
        if (!fresh) return NULL;
        *fresh = (word_block_t){NULL, 0, room};
        if (own && block) { /* behind the block that is being filled */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            memory->blocks = fresh;
        }
        block = fresh;
    }
    uint8_t *kept = block->bytes + block->used;
    block->used += size;
    memcpy(kept, bytes, size);
    return kept;
}

#endif
