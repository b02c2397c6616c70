/* Who may run a task that has been handed over but not begun: one word for each, settled by compare-and-swap. No
 * Python.
 *
 * A client puts tasks into the ring of one worker before that worker can run them, and may want one back: to give it
 * to a worker with nothing to do, to cancel it, or because the worker has died. The worker asks for each task just
 * before it begins (claims_take), the client asks when it wants it back (claims_revoke), and exactly one of the two is
 * told yes.
 *
 * Task n lives in cell n mod cells. The client stores 2n (queued) before it publishes the task; taking it makes 2n +
 * 1, revoking it 0. As a cell is used again only after its task is over, an old number never meets a new one.
 *
 * `current` and `started` say what the worker runs and since when; the worker alone writes them. They are a picture
 * for processes that look from outside (time limits), so release and acquire are enough.
 */
#ifndef SHMJET_CLAIMS_H
#define SHMJET_CLAIMS_H

#include <stdatomic.h>
#include <stdint.h>

#define CLAIMS_HEADER_SIZE 128u

typedef struct {
    _Atomic uint64_t current; /* number of the task that runs; 0 = none */
    _Atomic int64_t started;  /* when it began, CLOCK_MONOTONIC in ns */
    uint8_t pad[CLAIMS_HEADER_SIZE - 16];
    _Atomic uint64_t cells[];
} claims_t;

_Static_assert(sizeof(claims_t) == CLAIMS_HEADER_SIZE, "the cells start behind a header of their own lines");

static inline void claims_put(claims_t *claims, uint64_t cells, uint64_t number) {
    atomic_store_explicit(&claims->cells[number % cells], 2 * number, memory_order_release);
}

/* True for at most one of claims_take and claims_revoke, and only the first time. */
static inline int claims_settle(claims_t *claims, uint64_t cells, uint64_t number, uint64_t outcome) {
    uint64_t queued = 2 * number;
    return atomic_compare_exchange_strong_explicit(&claims->cells[number % cells], &queued, outcome,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static inline int claims_take(claims_t *claims, uint64_t cells, uint64_t number, int64_t now) {
    if (!claims_settle(claims, cells, number, 2 * number + 1)) return 0;
    atomic_store_explicit(&claims->started, now, memory_order_relaxed);
    atomic_store_explicit(&claims->current, number, memory_order_release);
    return 1;
}

static inline int claims_revoke(claims_t *claims, uint64_t cells, uint64_t number) {
    return claims_settle(claims, cells, number, 0);
}

/* The task that runs is over; returns how long it took. */
static inline int64_t claims_done(claims_t *claims, int64_t now) {
    atomic_store_explicit(&claims->current, 0, memory_order_release);
    return now - atomic_load_explicit(&claims->started, memory_order_relaxed);
}

#endif
