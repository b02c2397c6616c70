/* A slab: where one process puts batches of columns for others to read in place. No Python, no system call.
 *
 * A ring hands its bytes back in order, so a reader that keeps a view of one record would hold up all that follow. A
 * batch therefore lies in a slot of its writer's slab, and the ring carries the slot's place. A slot has a count of
 * how many may still look at it: the writer sets it before it publishes the record, a reader takes one away when its
 * last view is gone, in any order. When the count is 0 the writer may use the memory again. Nothing is sent back and
 * no process waits: a writer that finds no room sends the batch by the ring instead.
 *
 * So that readers that keep their views cannot use the slab up, `held` counts the bytes that readers have as views; a
 * reader that would raise it above half the slab copies on arrival and lets go at once.
 *
 * The slab is cut into units; a slot is a run of units, found by first fit, so that the lowest addresses, which were
 * used last and are still in the cache, are used again first. Which units are taken is known to the writer alone.
 *
 * Memory order: a reader's last look at a slot comes before its decrement (release), which the writer loads (acquire)
 * before it writes there. What the writer puts into a slot is published by the ring's tail.
 *
 * The layout has its page in docs/formats/slab.md.
 */
#ifndef SHMJET_SLAB_H
#define SHMJET_SLAB_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SLAB_MAGIC 0x42534a53u /* "SJSB" */
#define SLAB_HEADER_SIZE 256u
#define SLAB_UNIT 16384u
#define SLAB_ALIGNMENT 64u
#define SLAB_NONE UINT64_MAX

typedef struct {
    uint32_t magic;
    uint32_t units;
    uint8_t pad0[128 - 8];
    _Atomic uint64_t held; /* bytes of slots that readers have as views */
    uint8_t pad1[128 - 8];
} slab_shared_t;

_Static_assert(sizeof(slab_shared_t) == SLAB_HEADER_SIZE, "the header is part of the format");

typedef struct {
    slab_shared_t *shared;
    _Atomic uint32_t *counts; /* by unit; that of a slot's first unit counts for the slot */
    uint8_t *data;
    uint32_t units;
} slab_t;

/* Bytes before the data: header and counts, up to a page's end. */
static inline uint64_t slab_data_offset(uint64_t units) {
    return (SLAB_HEADER_SIZE + 4 * units + 4095u) & ~(uint64_t)4095u;
}

/* The units that fit into `size` bytes. */
static inline uint64_t slab_units(uint64_t size) {
    uint64_t units = size / (SLAB_UNIT + 4);
    while (units && slab_data_offset(units) + units * SLAB_UNIT > size) units--;
    return units < UINT32_MAX ? units : UINT32_MAX;
}

static inline void slab_place(slab_t *slab, void *memory, uint32_t units) {
    slab->shared = (slab_shared_t *)memory;
    slab->counts = (_Atomic uint32_t *)((uint8_t *)memory + SLAB_HEADER_SIZE);
    slab->data = (uint8_t *)memory + slab_data_offset(units);
    slab->units = units;
}

/* Makes an empty slab of `size` bytes; only its writer, before it publishes the first slot. */
static inline void slab_format(slab_t *slab, void *memory, uint64_t size) {
    slab_place(slab, memory, (uint32_t)slab_units(size));
    memset(memory, 0, SLAB_HEADER_SIZE + 4 * (size_t)slab->units);
    slab->shared->units = slab->units;
    atomic_thread_fence(memory_order_release);
    slab->shared->magic = SLAB_MAGIC;
}

/* Opens a slab that its writer has formatted; 0, or -1 when there is none that fits into `size` bytes. */
static inline int slab_open(slab_t *slab, void *memory, uint64_t size) {
    const slab_shared_t *shared = (const slab_shared_t *)memory;
    if (size < SLAB_HEADER_SIZE || shared->magic != SLAB_MAGIC || shared->units != slab_units(size)) return -1;
    slab_place(slab, memory, shared->units);
    return 0;
}

static inline uint32_t slab_units_of(uint64_t bytes) { return (uint32_t)((bytes + SLAB_UNIT - 1) / SLAB_UNIT); }

/* Finds a slot of `wanted` units within the first `usable` ones, first fit; returns its first unit or UINT32_MAX.
 * `lengths` is the writer's own: at the first unit of every slot its length, else 0. Slots that no reader looks at any
 * more are freed on the way. */
static inline uint32_t slab_allocate(const slab_t *slab, uint32_t *lengths, uint32_t usable, uint32_t wanted) {
    uint32_t run = 0;
    for (uint32_t unit = 0; unit < usable;) {
        uint32_t length = lengths[unit];
        if (length && atomic_load_explicit(&slab->counts[unit], memory_order_acquire) != 0) {
            run = 0;
            unit += length;
            continue;
        }
        lengths[unit] = 0;
        uint32_t step = length ? length : 1;
        run += step;
        unit += step;
        if (run >= wanted) {
            uint32_t first = unit - run;
            lengths[first] = wanted;
            return first;
        }
    }
    return UINT32_MAX;
}

static inline void slab_retain(const slab_t *slab, uint32_t unit, uint32_t count) {
    atomic_fetch_add_explicit(&slab->counts[unit], count, memory_order_relaxed);
}

static inline void slab_drop(const slab_t *slab, uint32_t unit) {
    atomic_fetch_sub_explicit(&slab->counts[unit], 1, memory_order_release);
}

/* Says whether a reader may keep `bytes` as a view; counts them if so. Two readers at once may go over the half by one
 * slot. */
static inline int slab_may_hold(const slab_t *slab, uint64_t bytes) {
    uint64_t half = (uint64_t)slab->units * SLAB_UNIT / 2;
    if (atomic_load_explicit(&slab->shared->held, memory_order_relaxed) + bytes > half) return 0;
    atomic_fetch_add_explicit(&slab->shared->held, bytes, memory_order_relaxed);
    return 1;
}

static inline void slab_let_go(const slab_t *slab, uint64_t bytes) {
    atomic_fetch_sub_explicit(&slab->shared->held, bytes, memory_order_relaxed);
}

#endif
