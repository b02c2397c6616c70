/* Publishing small records without a fence, while their reader is awake. No Python in here.
 *
 * A publication that has to find a sleeper stores `tail` and then loads `sleeping`, and neither may pass the other. On
 * x86-64 that takes a locked instruction, which waits until the store buffer is empty: a fifth of the time of sending
 * 64 bytes. The price is paid for every record, the need for it arises only when the reader goes to sleep. So it is
 * the sleeper's to pay (an asymmetric Dekker pair: Dice, Huang, Yang 2001; `sys_membarrier` is Linux' form of it):
 *
 *   producer   store `tail` (release), then load `sleeping`; nothing but the compiler is kept from reordering
 *   sleeper    store `sleeping`, membarrier() - every process that has registered passes a full barrier on whatever
 *   core
 *              it runs - then look at everything again
 *
 * A barrier that falls between the producer's two accesses makes `tail` visible to the sleeper's second look;
 * a barrier before them lets the load see `sleeping`, a barrier after them finds `tail` published.
 *
 * membarrier() interrupts every core on which a registered process runs, some microseconds each, so only a process
 * that needs it should call it. A ring says in `fence_free` whether its producer does without fences:
 *   - It begins after FENCE_FREE_AFTER small records in a row that found their reader awake, registers its process,
 *     stores `fence_free` and passes a full fence: a sleeper that has read `fence_free` before that is met by the next
 *     load of `sleeping`.
 *   - It ends with the first record that finds its reader asleep; the release store of `fence_free` comes after every
 *     `tail`.
 *   - A sleeper calls membarrier() only if one of its rings is fence-free. It is called at most once for
 *     FENCE_FREE_AFTER records then, and never in a job whose frames are large.
 * Where membarrier() is missing (seccomp, kernels before 4.16) no producer begins. A sleeper that must call it and
 * cannot sleeps for UNFENCED_NS at most, which is longer than any store stays in a buffer.
 *
 * On ARM64 a sequentially consistent store followed by such a load costs no more than release and acquire: never
 * fence-free. */
#ifndef SHMJET_FENCE_FREE_H
#define SHMJET_FENCE_FREE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/ring.h"

#define FENCE_FREE_AFTER 64u
#define FENCE_FREE_RECORD 512u /* payload bytes above which a fence is lost in the cost of the record */
#define FENCE_FREE_NEVER UINT32_MAX
#define UNFENCED_NS 1000000

enum { MEMBARRIER_GLOBAL = 1 << 1, MEMBARRIER_REGISTER = 1 << 2 }; /* MEMBARRIER_CMD_(REGISTER_)GLOBAL_EXPEDITED */

static inline int membarrier_call(int command) {
#if defined(__x86_64__) && defined(SYS_membarrier)
    return (int)syscall(SYS_membarrier, command, 0, 0);
#else
    (void)command;
    return -1;
#endif
}

static inline void fence_free_begin(ring_producer_t *p) {
    p->awake = FENCE_FREE_NEVER;
    if (membarrier_call(MEMBARRIER_REGISTER) != 0) return;
    p->awake = 0;
    p->fence_free = 1;
    atomic_store_explicit(&p->shared->fence_free, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void fence_free_end(ring_producer_t *p) {
    if (p->awake != FENCE_FREE_NEVER) p->awake = 0;
    if (!p->fence_free) return;
    p->fence_free = 0;
    atomic_store_explicit(&p->shared->fence_free, 0, memory_order_release);
}

/* After a publication of `length` bytes that has looked at its reader's bell: was the reader asleep? */
static inline void fence_free_learn(ring_producer_t *p, uint64_t length, int asleep) {
    if (asleep)
        fence_free_end(p);
    else if (!p->fence_free && length <= FENCE_FREE_RECORD && p->awake != FENCE_FREE_NEVER &&
             ++p->awake == FENCE_FREE_AFTER)
        fence_free_begin(p);
}

/* Between saying that one sleeps and looking again, when one of the rings to look at is fence-free. Returns how long
 * the caller may sleep at most. */
static inline int64_t sleeper_fence(int64_t timeout_ns) {
    if (membarrier_call(MEMBARRIER_GLOBAL) == 0) return timeout_ns;
    return timeout_ns < UNFENCED_NS ? timeout_ns : UNFENCED_NS;
}

static inline int ring_is_fence_free(const ring_consumer_t *c) {
    return atomic_load_explicit(&c->shared->fence_free, memory_order_seq_cst) != 0;
}

#endif
