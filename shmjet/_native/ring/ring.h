/* A single-producer, single-consumer byte ring in shared memory. No Python, no allocation, no system call.
 *
 * One process writes records, one reads them. Nothing is locked and nothing is compared-and-swapped: each side owns
 * one 64-bit position that only grows (`tail` for the producer, `head` for the consumer) and keeps a private copy of
 * the other's, which it reloads only when the copy says that it cannot go on.
 *
 * Memory order
 *   - The producer writes a record and then stores `tail` (release or stronger). The consumer loads `tail` (acquire)
 *     before it reads the record. A consumer that sees the new tail therefore sees the whole record, and a producer
 *     killed at any instruction before that store leaves nothing behind.
 *   - The consumer reads a record and then stores `head` (release or stronger); the producer loads `head` (acquire)
 *     before it overwrites those bytes.
 *   - `wake_at` and `head` form a Dekker pair: the producer stores wake_at and then loads head, the consumer stores
 *     head and then loads wake_at. All four are sequentially consistent, so at least one side sees the other and no
 *     wake-up is lost. `tail` and a doorbell's `sleeping` form the same pair, see doorbell.h; for small records it is
 *     made without a fence of the producer's, see fence_free.h.
 *
 * Records are aligned to 16 bytes, never wrap, and are at most half the ring; so one always fits into an empty ring.
 * What is left at the end is filled with a skip record that is published together with the record behind it.
 *
 * Everything read from shared memory is bounded before it is used: a torn or damaged word gives RING_CORRUPT, never an
 * access outside the ring. The layout has its page in docs/formats/ring.md.
 */
#ifndef SHMJET_RING_H
#define SHMJET_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shmjet's formats are little-endian"
#endif

#define RING_MAGIC 0x52544a53u /* "SJTR" */
#define RING_VERSION 1u
#define RING_HEADER_SIZE 512u
#define RING_ALIGNMENT 64u
#define RING_MIN_CAPACITY 4096u
#define RING_MAX_CAPACITY (1ull << 31)
#define RECORD_HEADER_SIZE 16u
#define RECORD_SKIP 255u

enum { RING_OK = 0, RING_EMPTY = 1, RING_CORRUPT = -1, RING_NOT_FORMATTED = -2, RING_TOO_SHORT = -3 };

/* The control block. Words that different sides write lie 128 bytes apart: two lines, because the prefetcher of x86 and
 * the lines of some ARM cores work on 128. */
typedef struct {
    uint32_t magic;
    uint32_t version;
    uint64_t capacity;   /* bytes of data, a power of two */
    uint64_t queue_size; /* items that may be in the ring at once */
    uint8_t pad0[128 - 24];
    _Atomic uint64_t tail;     /* producer: end of the last published record */
    _Atomic uint64_t items_in; /* producer: items ever published */
    uint8_t pad1[128 - 16];
    _Atomic uint64_t wake_at;    /* producer: the head position at which it wants to be woken; 0 = none */
    _Atomic uint64_t fence_free; /* producer: 1 = it publishes without a fence, see fence_free.h */
    uint8_t pad2[128 - 16];
    _Atomic uint64_t head;      /* consumer: everything before this may be overwritten */
    _Atomic uint64_t items_out; /* consumer: items ever released */
    uint8_t pad3[128 - 16];
} ring_shared_t;

_Static_assert(sizeof(ring_shared_t) == RING_HEADER_SIZE, "the control block is part of the format");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "positions are plain 8-byte words");

/* The header of a record. `length` counts the payload only. */
typedef struct {
    uint32_t length;
    uint8_t kind;
    uint8_t codec;
    uint16_t flags;
    uint32_t count;
    uint32_t reserved;
} record_header_t;

_Static_assert(sizeof(record_header_t) == RECORD_HEADER_SIZE, "the record header is part of the format");

typedef struct {
    ring_shared_t *shared;
    uint8_t *data;
    uint64_t capacity, queue_size, max_record;
    uint64_t tail, items_in;        /* this side's own */
    uint64_t head, items_out;       /* copies of the other side's */
    uint64_t wake_at;               /* what is stored in shared->wake_at */
    uint32_t fence_free, awake;     /* see fence_free.h */
} ring_producer_t;

typedef struct {
    ring_shared_t *shared;
    uint8_t *data;
    uint64_t capacity, queue_size;
    uint64_t head, items_out;       /* released; this side's own */
    uint64_t position, items_seen;  /* read, perhaps not yet released */
    uint64_t tail;                  /* copy of the other side's */
    uint64_t answered;              /* the wake mark that has been answered already */
} ring_consumer_t;

/* A place where a record can be written: `room` bytes from `record` on, its header included. */
typedef struct {
    uint8_t *record;
    uint64_t room;
    uint64_t skip; /* bytes to be filled at the end of the ring before it */
} ring_claim_t;

typedef struct {
    const uint8_t *payload;
    record_header_t header;
} ring_record_t;

static inline uint64_t record_size(uint64_t payload) { return (RECORD_HEADER_SIZE + payload + 15u) & ~(uint64_t)15u; }

static inline int ring_capacity_is_valid(uint64_t capacity) {
    return capacity >= RING_MIN_CAPACITY && capacity <= RING_MAX_CAPACITY && (capacity & (capacity - 1)) == 0;
}

/* Writes a fresh control block. Only before either side is opened: no other process may look yet. */
static inline void ring_format(void *memory, uint64_t capacity, uint64_t queue_size) {
    ring_shared_t *shared = (ring_shared_t *)memory;
    memset(shared, 0, sizeof *shared);
    shared->version = RING_VERSION;
    shared->capacity = capacity;
    shared->queue_size = queue_size;
    atomic_thread_fence(memory_order_release);
    shared->magic = RING_MAGIC;
}

static inline int ring_validate(const ring_shared_t *shared, uint64_t available, uint64_t *capacity,
                                uint64_t *queue_size) {
    if (available < RING_HEADER_SIZE) return RING_TOO_SHORT;
    if (shared->magic != RING_MAGIC || shared->version != RING_VERSION) return RING_NOT_FORMATTED;
    *capacity = shared->capacity;
    *queue_size = shared->queue_size;
    if (!ring_capacity_is_valid(*capacity) || *queue_size == 0) return RING_CORRUPT;
    return *capacity > available - RING_HEADER_SIZE ? RING_TOO_SHORT : RING_OK;
}

/* Opens the writing end over `available` bytes. The positions continue where the last holder of this end left them. */
static inline int ring_open_producer(ring_producer_t *p, void *memory, uint64_t available) {
    ring_shared_t *shared = (ring_shared_t *)memory;
    uint64_t capacity = 0, queue_size = 0;
    int status = ring_validate(shared, available, &capacity, &queue_size);
    if (status != RING_OK) return status;
    memset(p, 0, sizeof *p);
    p->capacity = capacity;
    p->queue_size = queue_size;
    p->max_record = capacity / 2;
    p->data = (uint8_t *)memory + RING_HEADER_SIZE;
    p->tail = atomic_load_explicit(&shared->tail, memory_order_acquire);
    p->items_in = atomic_load_explicit(&shared->items_in, memory_order_acquire);
    p->head = atomic_load_explicit(&shared->head, memory_order_acquire);
    p->items_out = atomic_load_explicit(&shared->items_out, memory_order_acquire);
    p->wake_at = atomic_load_explicit(&shared->wake_at, memory_order_acquire);
    if (p->tail - p->head > capacity || (p->tail & 15u)) return RING_CORRUPT;
    /* the mark of the last holder; its successor begins anew */
    if (atomic_load_explicit(&shared->fence_free, memory_order_relaxed))
        atomic_store_explicit(&shared->fence_free, 0, memory_order_release);
    p->shared = shared;
    return RING_OK;
}

static inline int ring_open_consumer(ring_consumer_t *c, void *memory, uint64_t available) {
    ring_shared_t *shared = (ring_shared_t *)memory;
    uint64_t capacity = 0, queue_size = 0;
    int status = ring_validate(shared, available, &capacity, &queue_size);
    if (status != RING_OK) return status;
    memset(c, 0, sizeof *c);
    c->capacity = capacity;
    c->queue_size = queue_size;
    c->data = (uint8_t *)memory + RING_HEADER_SIZE;
    c->head = c->position = atomic_load_explicit(&shared->head, memory_order_acquire);
    c->items_out = c->items_seen = atomic_load_explicit(&shared->items_out, memory_order_acquire);
    c->tail = atomic_load_explicit(&shared->tail, memory_order_acquire);
    if (c->tail - c->head > capacity || (c->head & 15u)) return RING_CORRUPT;
    c->shared = shared;
    return RING_OK;
}

/* Takes a fresh look at what the consumer has released. */
static inline int ring_refresh(ring_producer_t *p) {
    uint64_t head = atomic_load_explicit(&p->shared->head, memory_order_acquire);
    uint64_t items_out = atomic_load_explicit(&p->shared->items_out, memory_order_acquire);
    if (p->tail - head > p->capacity || (head & 15u)) return RING_CORRUPT;
    p->head = head;
    p->items_out = items_out;
    return RING_OK;
}

static inline uint64_t ring_free_bytes(const ring_producer_t *p) { return p->capacity - (p->tail - p->head); }

static inline uint64_t ring_free_items(const ring_producer_t *p) {
    uint64_t queued = p->items_in - p->items_out;
    return queued < p->queue_size ? p->queue_size - queued : 0;
}

/* The free bytes at the tail, without wrapping. */
static inline void ring_claim_here(const ring_producer_t *p, ring_claim_t *claim) {
    uint64_t offset = p->tail & (p->capacity - 1), room = p->capacity - offset, free_bytes = ring_free_bytes(p);
    if (room > free_bytes) room = free_bytes;
    claim->record = p->data + offset;
    claim->room = room < p->max_record ? room : p->max_record;
    claim->skip = 0;
}

/* The free bytes from the start of the ring on, once the rest at its end is skipped. */
static inline void ring_claim_start(const ring_producer_t *p, ring_claim_t *claim) {
    uint64_t offset = p->tail & (p->capacity - 1), rest = p->capacity - offset, free_bytes = ring_free_bytes(p);
    uint64_t room = offset != 0 && free_bytes > rest ? free_bytes - rest : 0;
    claim->record = p->data;
    claim->room = room < p->max_record ? room : p->max_record;
    claim->skip = rest;
}

/* Finds room for a record of `size` bytes (record_size()); looks at the consumer's position again only if it must. */
static inline int ring_claim(ring_producer_t *p, uint64_t size, ring_claim_t *claim) {
    for (int fresh = 0;; fresh = 1) {
        ring_claim_here(p, claim);
        if (claim->room >= size) return RING_OK;
        ring_claim_start(p, claim);
        if (claim->room >= size) return RING_OK;
        if (fresh) return RING_EMPTY;
        if (ring_refresh(p) != RING_OK) return RING_CORRUPT;
    }
}

/* Publishes the record whose payload has been written at claim->record + RECORD_HEADER_SIZE. The store of `tail` is the
 * moment at which it exists. Sequentially consistent when a doorbell is looked at afterwards, unless that is done
 * without a fence; else release. */
static inline void ring_commit(ring_producer_t *p, const ring_claim_t *claim, const record_header_t *header,
                               uint64_t items, int with_bell) {
    if (claim->skip) {
        record_header_t skip = {(uint32_t)(claim->skip - RECORD_HEADER_SIZE), RECORD_SKIP, 0, 0, 0, 0};
        memcpy(p->data + (p->tail & (p->capacity - 1)), &skip, sizeof skip);
    }
    memcpy(claim->record, header, sizeof *header);
    p->items_in += items;
    p->tail += claim->skip + record_size(header->length);
    atomic_store_explicit(&p->shared->items_in, p->items_in, memory_order_relaxed);
    if (with_bell && !p->fence_free)
        atomic_store_explicit(&p->shared->tail, p->tail, memory_order_seq_cst);
    else
        atomic_store_explicit(&p->shared->tail, p->tail, memory_order_release);
    /* fence-free: the compiler must not move the load of `sleeping` in front */
    atomic_signal_fence(memory_order_seq_cst);
    if (p->wake_at) {
        p->wake_at = 0;
        atomic_store_explicit(&p->shared->wake_at, 0, memory_order_relaxed);
    }
}

/* Leaves the position at which the producer wants to be woken: half of what is queued consumed, and room for a record
 * of `size` bytes; beyond the current head and never beyond the tail, so that it is always reached. Returns RING_OK
 * when the mark stands, RING_EMPTY when the consumer has passed it already (try again), RING_CORRUPT for a damaged
 * head. In an empty ring there is nothing left that the consumer could pass, so no mark is left there. */
static inline int ring_leave_wake_mark(ring_producer_t *p, uint64_t size) {
    if (p->tail == p->head) return RING_EMPTY;
    uint64_t queued = p->tail - p->head, wanted = p->head + ((queued + 1) / 2);
    uint64_t offset = p->tail & (p->capacity - 1), rest = p->capacity - offset;
    uint64_t end = p->tail + size + (rest < size ? rest : 0);
    if (end > p->capacity && end - p->capacity > wanted) wanted = end - p->capacity;
    if (wanted > p->tail) wanted = p->tail;
    if (wanted <= p->head) wanted = p->head + 1;
    p->wake_at = wanted;
    atomic_store_explicit(&p->shared->wake_at, wanted, memory_order_seq_cst);
    uint64_t head = atomic_load_explicit(&p->shared->head, memory_order_seq_cst);
    if (p->tail - head > p->capacity || (head & 15u)) return RING_CORRUPT;
    return head >= wanted ? RING_EMPTY : RING_OK;
}

/* True when the consumer has reached the wake mark. Sequentially consistent: part of the check before sleeping. */
static inline int ring_wake_mark_reached(const ring_producer_t *p) {
    return atomic_load_explicit(&p->shared->head, memory_order_seq_cst) >= p->wake_at;
}

/* True when there is a record to read. Sequentially consistent: part of the check before sleeping. */
static inline int ring_has_data(const ring_consumer_t *c) {
    return c->tail != c->position || atomic_load_explicit(&c->shared->tail, memory_order_seq_cst) != c->position;
}

/* Hands out the next record and moves past it; its bytes stay valid until ring_release(). */
static inline int ring_next(ring_consumer_t *c, ring_record_t *record) {
    for (;;) {
        if (c->position == c->tail) {
            uint64_t tail = atomic_load_explicit(&c->shared->tail, memory_order_acquire);
            if (tail == c->position) return RING_EMPTY;
            if (tail - c->head > c->capacity || tail - c->position > c->capacity || (tail & 15u)) return RING_CORRUPT;
            c->tail = tail;
        }
        uint64_t offset = c->position & (c->capacity - 1), queued = c->tail - c->position, rest = c->capacity - offset;
        memcpy(&record->header, c->data + offset, sizeof record->header);
        uint64_t size = record_size(record->header.length);
        if (size > queued || size > rest) return RING_CORRUPT;
        c->position += size;
        if (record->header.kind == RECORD_SKIP) continue;
        record->payload = c->data + offset + RECORD_HEADER_SIZE;
        return RING_OK;
    }
}

/* Goes back to `position`, which ring_next() had handed out and ring_release() has not yet freed. */
static inline void ring_unread(ring_consumer_t *c, uint64_t position) { c->position = position; }

/* Frees everything handed out so far. Returns true when the producer waits for exactly this and must be woken: once for
 * every mark, however many records are released after it. */
static inline int ring_release(ring_consumer_t *c) {
    c->head = c->position;
    c->items_out = c->items_seen;
    atomic_store_explicit(&c->shared->items_out, c->items_out, memory_order_release);
    atomic_store_explicit(&c->shared->head, c->head, memory_order_seq_cst);
    uint64_t mark = atomic_load_explicit(&c->shared->wake_at, memory_order_seq_cst);
    if (mark == 0 || mark == c->answered || c->head < mark) return 0;
    c->answered = mark;
    return 1;
}

#endif
