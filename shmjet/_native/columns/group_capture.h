/* What a group table held at one moment, while rows are added to it: copy on write. No Python in here.
 *
 * A capture costs no copy of the table. It notes how many groups there are, and has a bit for each block of their rows
 * and for each block of the heap. A block is copied before it is written to (group_preserve(), group_preserve_heap()),
 * and all others are copied one after the other by group_copy_on(), in steps of a size that the caller chooses. From
 * then on the capture is a table of its own that can be read, and the other one is as fast as before.
 *
 * Rows never move and new ones are appended, so that only old rows are looked after; the index is not captured. The
 * copy is in private memory of the process. A table has one capture at a time whose blocks are still being copied.
 */
#ifndef SHMJET_GROUP_CAPTURE_H
#define SHMJET_GROUP_CAPTURE_H

#include <stdlib.h>

#include "columns/group_memory.h"

#define CAPTURE_BLOCK_BITS 12

typedef struct {
    uint64_t count, waiting; /* blocks; how many of them have not been copied */
    uint64_t next;           /* all blocks before have been copied */
    uint64_t *bits;          /* the blocks that have not */
} group_blocks_t;

typedef struct {
    group_memory_t copy; /* header, rows, marks, heap; without a descriptor */
    group_blocks_t rows; /* of 2^row_bits rows with their marks */
    group_blocks_t heap; /* of 2^CAPTURE_BLOCK_BITS bytes */
    uint32_t row_bits;
} group_capture_t;

static inline int blocks_open(group_blocks_t *blocks, uint64_t things, uint32_t bits) {
    blocks->count = blocks->waiting = (things + (UINT64_C(1) << bits) - 1) >> bits;
    blocks->bits = malloc((size_t)(blocks->count / 64 + 1) * 8);
    if (!blocks->bits) return errno = ENOMEM, -1;
    memset(blocks->bits, 0xff, (size_t)(blocks->count / 64 + 1) * 8);
    return 0;
}

static inline int block_waits(const group_blocks_t *blocks, uint64_t block) {
    return blocks->bits[block / 64] >> block % 64 & 1;
}

static inline void block_is_copied(group_blocks_t *blocks, uint64_t block) {
    blocks->bits[block / 64] &= ~(UINT64_C(1) << block % 64);
    blocks->waiting--;
}

static inline void group_capture_close(group_capture_t *capture) {
    free(capture->rows.bits);
    free(capture->heap.bits);
    group_unmap(&capture->copy);
    free(capture);
}

static inline int group_map_private(group_memory_t *memory, int region, uint64_t bytes) {
    if (!bytes) return 0;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return -1;
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    memory->base[region] = base;
    memory->mapped[region] = bytes;
    return 0;
}

/* Captures what a memory holds. Returns NULL with errno when there is no room. */
static inline group_capture_t *group_capture_open(const group_memory_t *memory) {
    const group_header_t *header = memory->header;
    group_capture_t *capture = calloc(1, sizeof *capture);
    if (!capture) return errno = ENOMEM, NULL;
    group_memory_t *copy = &capture->copy;
    uint64_t rows = header->groups ? header->groups + 1 : 0;
    copy->fd = -1;
    while ((uint64_t)header->stride << (capture->row_bits + 1) <= UINT64_C(1) << CAPTURE_BLOCK_BITS)
        capture->row_bits++;
    if (group_map_private(copy, REGION_DIRECTORY, GROUP_DIRECTORY_OFFSET) < 0 ||
        group_map_private(copy, REGION_ROWS, rows * header->stride) < 0 ||
        group_map_private(copy, REGION_MARKS, rows * header->mark_bytes) < 0 ||
        group_map_private(copy, REGION_HEAP, header->heap) < 0 ||
        blocks_open(&capture->rows, rows, capture->row_bits) < 0 ||
        blocks_open(&capture->heap, header->heap, CAPTURE_BLOCK_BITS) < 0) {
        int error = errno;
        group_capture_close(capture);
        errno = error;
        return NULL;
    }
    copy->header = (void *)copy->base[REGION_DIRECTORY];
    memcpy(copy->header, header, sizeof *header);
    memset(copy->header->allocated, 0, sizeof copy->header->allocated);
    for (int region = 0; region < GROUP_REGIONS; region++) copy->header->allocated[region] = copy->mapped[region];
    return capture;
}

static inline int group_capture_waits(const group_capture_t *capture) {
    return capture->rows.waiting || capture->heap.waiting;
}

static inline void group_copy_part(const group_memory_t *from, group_memory_t *to, int region, uint64_t start,
                                   uint64_t end) {
    if (end > to->mapped[region]) end = to->mapped[region];
    if (start < end) memcpy(to->base[region] + start, from->base[region] + start, end - start);
}

static inline void group_copy_rows(const group_memory_t *memory, group_capture_t *capture, uint64_t block) {
    const group_header_t *header = capture->copy.header;
    uint64_t start = block << capture->row_bits, end = (block + 1) << capture->row_bits;
    group_copy_part(memory, &capture->copy, REGION_ROWS, start * header->stride, end * header->stride);
    group_copy_part(memory, &capture->copy, REGION_MARKS, start * header->mark_bytes, end * header->mark_bytes);
    block_is_copied(&capture->rows, block);
}

static inline void group_copy_heap(const group_memory_t *memory, group_capture_t *capture, uint64_t block) {
    group_copy_part(memory, &capture->copy, REGION_HEAP, block << CAPTURE_BLOCK_BITS,
                    (block + 1) << CAPTURE_BLOCK_BITS);
    block_is_copied(&capture->heap, block);
}

/* Before states of these groups are written to. */
static inline void group_preserve(const group_memory_t *memory, group_capture_t *capture, const uint32_t *groups,
                                  int count) {
    uint64_t last = capture->copy.header->groups;
    for (int i = 0; i < count; i++) {
        uint64_t block = groups[i] >> capture->row_bits;
        if (groups[i] <= last && block_waits(&capture->rows, block)) group_copy_rows(memory, capture, block);
    }
}

/* Before bytes of the heap are written to. */
static inline void group_preserve_heap(const group_memory_t *memory, group_capture_t *capture, uint64_t at,
                                       uint64_t length) {
    uint64_t end = at + length < capture->copy.header->heap ? at + length : capture->copy.header->heap;
    if (at >= end) return;
    for (uint64_t block = at >> CAPTURE_BLOCK_BITS; block <= (end - 1) >> CAPTURE_BLOCK_BITS; block++)
        if (block_waits(&capture->heap, block)) group_copy_heap(memory, capture, block);
}

/* Copies up to so many of the blocks that wait. Returns whether there are more. */
static inline int group_copy_on(const group_memory_t *memory, group_capture_t *capture, uint64_t blocks) {
    group_blocks_t *rows = &capture->rows, *heap = &capture->heap;
    for (; blocks && rows->waiting; rows->next++)
        if (block_waits(rows, rows->next)) group_copy_rows(memory, capture, rows->next), blocks--;
    for (; blocks && heap->waiting; heap->next++)
        if (block_waits(heap, heap->next)) group_copy_heap(memory, capture, heap->next), blocks--;
    return group_capture_waits(capture);
}

#endif
