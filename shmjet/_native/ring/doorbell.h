/* How one process wakes another that sleeps: one futex word for each sleeper. No Python in here.
 *
 * The promise: work that is published before bell_signal() is never left lying while its owner sleeps.
 *
 *   waker:    publish (sequentially consistent store), then load `sleeping`; if set: clear it, word += 1, FUTEX_WAKE
 *   sleeper:  read word, store sleeping = 1, look at everything again, FUTEX_WAIT while word is unchanged
 *
 * Store-then-load on both sides, all sequentially consistent: in the single total order either the sleeper's second
 * look comes after the publication and finds it, or the waker's load comes after `sleeping = 1` and it wakes. A wake
 * between the look and the wait changes the word, so that the kernel refuses to sleep. The waker clears `sleeping`, so
 * that a burst of publications costs one system call; the sleeper sets it again, and looks again, before it sleeps
 * again.
 *
 * bell_ring() is for news that the sleeper cannot see in a ring: it changes the word whether or not the owner sleeps.
 * An owner that has read the word already then does not sleep on it. After that it does what bell_signal() does.
 * `sleeping` is never cleared for another process without a change of the word after it.
 *
 * A sleeper that waits for sockets, too, sleeps in epoll instead (link/link_loop.c): it has an eventfd, and wakers
 * that know it write that in place of FUTEX_WAKE. A wake between its second look and its epoll_wait is an edge that
 * epoll keeps.
 *
 * A waker that is killed between clearing and waking costs the sleeper its timeout, which is therefore never infinite.
 */
#ifndef SHMJET_DOORBELL_H
#define SHMJET_DOORBELL_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BELL_NO_EVENTFD (-1)
#define DOORBELL_SIZE_BYTES 256u

/* The word is changed by wakers, `sleeping` and `commands` are mostly only read: they lie on lines of their own. */
typedef struct {
    _Atomic uint32_t word;
    uint8_t pad0[124];
    _Atomic uint32_t sleeping;
    uint32_t reserved;
    _Atomic uint64_t commands;
    uint8_t pad1[112];
} doorbell_t;

_Static_assert(sizeof(doorbell_t) == DOORBELL_SIZE_BYTES, "the doorbell is part of the format");
_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex word has 32 bits");

static inline long futex_call(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, (uint32_t *)word, operation, value, timeout, NULL, 0);
}

static inline void bell_wake(doorbell_t *bell, int eventfd) {
    atomic_fetch_add_explicit(&bell->word, 1, memory_order_seq_cst);
    if (eventfd == BELL_NO_EVENTFD) {
        futex_call(&bell->word, FUTEX_WAKE, 1, NULL);
    } else {
        const uint64_t one = 1;
        ssize_t written = write(eventfd, &one, sizeof one); /* it cannot fail but when it is readable already */
        (void)written;
    }
}

/* After a sequentially consistent publication, or a fence-free one (fence_free.h): wakes the owner if it sleeps.
 * Returns whether it did, or was about to. */
static inline int bell_signal_by(doorbell_t *bell, int eventfd) {
    if (!atomic_load_explicit(&bell->sleeping, memory_order_seq_cst)) return 0;
    if (atomic_exchange_explicit(&bell->sleeping, 0, memory_order_seq_cst)) bell_wake(bell, eventfd);
    return 1;
}

static inline int bell_signal(doorbell_t *bell) { return bell_signal_by(bell, BELL_NO_EVENTFD); }

/* After any change that the owner should look at. It is changed again by the process that clears `sleeping`, as
 * always: a sleeper that read the word after the first change and set `sleeping` would else sleep with `sleeping`
 * cleared, and the next publication would not wake it. */
static inline void bell_ring_by(doorbell_t *bell, int eventfd) {
    atomic_fetch_add_explicit(&bell->word, 1, memory_order_seq_cst);
    bell_signal_by(bell, eventfd);
}

static inline void bell_ring(doorbell_t *bell) { bell_ring_by(bell, BELL_NO_EVENTFD); }

/* Counts a command and rings. */
static inline void bell_post_by(doorbell_t *bell, int eventfd) {
    atomic_fetch_add_explicit(&bell->commands, 1, memory_order_seq_cst);
    bell_ring_by(bell, eventfd);
}

/* First half of going to sleep. The caller looks at everything again after it, then calls bell_sleep or bell_stay. */
static inline uint32_t bell_prepare(doorbell_t *bell) {
    uint32_t seen = atomic_load_explicit(&bell->word, memory_order_seq_cst);
    atomic_store_explicit(&bell->sleeping, 1, memory_order_seq_cst);
    return seen;
}

static inline void bell_stay(doorbell_t *bell) { atomic_store_explicit(&bell->sleeping, 0, memory_order_seq_cst); }

/* Sleeps until the word differs from `seen`, at most timeout_ns. Returns 0, or the errno (EINTR, ETIMEDOUT, EAGAIN). */
static inline int bell_sleep(doorbell_t *bell, uint32_t seen, int64_t timeout_ns) {
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    int error = futex_call(&bell->word, FUTEX_WAIT, seen, &timeout) == 0 ? 0 : errno;
    bell_stay(bell);
    return error;
}

static inline int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

#endif
