/* Sleeping without losing a wake-up (shmjet/_native/ring/doorbell.h, fence_free.h, ring.h): two producers with a ring
 * each, one consumer, which may be taken over by a second process at any moment (work stealing: the owner word moves). Both
 * directions sleep: the consumer for items, a producer for room, by the wake mark in its ring.
 *
 * A producer may publish without a fence, for as long as its ring says so: then its tail store may stay in the store
 * buffer (of one entry here) for any time, while it reads `sleeping` already. A consumer that goes to sleep and finds that a ring
 * says so has the kernel empty all buffers (membarrier) before it looks again. A producer begins whenever it likes, and
 * stops when it has met a sleeper.
 *
 * A deadlock (an invalid end state) is a lost wake-up. Stores marked seq_cst are visible at once; with a mutation they are
 * not, or come too late, and spin must find a run that sleeps for ever:
 *   MUT_TAIL   a producer publishes without a fence without saying so
 *   MUT_FENCE  the sleeper leaves the buffers alone
 *   MUT_LEAVE  a producer says that it has stopped while a fence-free store is in its buffer still
 *   MUT_ORDER  the producer reads the owner word before it publishes
 *   MUT_CHECK  the sleeper does not look again after it has said that it sleeps
 *   MUT_MARK   the producer does not look again after it has left its wake mark */
#ifndef CAP
#define CAP 1
#endif
#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef FENCE_FREE
#define FENCE_FREE 0                 /* producers that may publish without a fence */
#endif
#define NONE 255

byte tail[2], head[2];
byte mark[2] = NONE;
bool held[2];                   /* the last tail store is still in the buffer */
bool fence_free[2];
byte word[4], owner = 2;        /* bells 0 and 1: producers; 2 and 3: the first consumer and its thief */
bool sleeping[4], asleep[4];
byte consumed;
bool handedOver;

#define VISIBLE(p) (tail[p] - held[p])

inline signal(b) {              /* bell_signal */
    met = sleeping[b];
    if
    :: met ->
        atomic { old = sleeping[b]; sleeping[b] = false };
        if
        :: old -> word[b]++; atomic { asleep[b] = false; old = false }
        :: else
        fi
    :: else
    fi
}

inline fence() {                /* sleeper_fence; `moved` is free here */
#if FENCE_FREE > 0
    moved = fence_free[0];
#if FENCE_FREE > 1
    moved = moved || fence_free[1];
#endif
#ifndef MUT_FENCE
    if
    :: moved -> d_step { held[0] = false; held[1] = false; moved = false }
    :: else
    fi
#endif
#else
    skip
#endif
}

#define SLEEP(b, before, ready)                                                             \
    seen = word[b];                                                                         \
    sleeping[b] = true;                                                                     \
    before;                                                                                 \
    if                                                                                      \
    :: (ready) -> sleeping[b] = false                                                       \
    :: !(ready) ->                                                                          \
        atomic { if :: word[b] == seen -> asleep[b] = true :: else fi };                    \
        (!asleep[b]);                                                                       \
        sleeping[b] = false                                                                 \
    fi

#if FENCE_FREE > 0 || defined(MUT_TAIL)
#define FIRST 1
active proctype Memory() {
end:
    do
    :: held[0] -> held[0] = false
    :: held[1] -> held[1] = false
    od
}
#else
#define FIRST 0
#endif

active [PRODUCERS] proctype Producer() {
    byte sent, seen, to;
    bool old, met;
    byte me = _pid - FIRST;
    do
    :: sent == ITEMS -> break
    :: sent < ITEMS && tail[me] - head[me] < CAP ->
#ifdef MUT_ORDER
        to = owner;
#endif
        if
        :: me < FENCE_FREE && !fence_free[me] -> fence_free[me] = true         /* with a full fence */
        :: skip
        fi;
        (!held[me]);
        if
        :: fence_free[me] -> atomic { tail[me]++; held[me] = true }
#ifdef MUT_TAIL
        :: !fence_free[me] -> atomic { tail[me]++; held[me] = true }
#else
        :: !fence_free[me] -> tail[me]++
#endif
        fi;
        sent++;
#ifndef MUT_ORDER
        to = owner;
#endif
        signal(to);
        if
        :: met && fence_free[me] ->
#ifndef MUT_LEAVE
            (!held[me]);                            /* a release store */
#endif
            fence_free[me] = false
        :: else
        fi
    :: sent < ITEMS && tail[me] - head[me] == CAP ->
        (!held[me]);                                /* seq_cst, so not before the tail */
        mark[me] = tail[me] - CAP + 1;              /* from the head that was seen: never beyond the tail */
#ifdef MUT_MARK
        SLEEP(me, skip, false)
#else
        SLEEP(me, skip, head[me] >= mark[me])
#endif
    od
}

inline round() {
    moved = false;
    p = 0;
    do
    :: p < PRODUCERS && VISIBLE(p) != head[p] ->
        head[p]++;
        consumed++;
        moved = true;
        if
        :: mark[p] != NONE && head[p] >= mark[p] -> signal(p)
        :: else
        fi;
        p++
    :: p < PRODUCERS && VISIBLE(p) == head[p] -> p++
    :: p == PRODUCERS -> break
    od
}

#define ANY (VISIBLE(0) != head[0] || VISIBLE(1) != head[1])

proctype Consumer(byte me) {
    byte p, seen;
    bool moved, old, met;
    do
    :: consumed == PRODUCERS * ITEMS -> break
    :: consumed < PRODUCERS * ITEMS ->
        round();
        if
        :: me == 2 && consumed < PRODUCERS * ITEMS ->       /* a thief has asked: hand over, between two rounds */
            owner = 3;
            handedOver = true;
            break
        :: moved
        :: !moved && consumed < PRODUCERS * ITEMS ->
#ifdef MUT_CHECK
            SLEEP(me, fence(), false)
#else
            SLEEP(me, fence(), ANY)
#endif
        :: consumed == PRODUCERS * ITEMS
        fi
    od
}

active proctype First() { run Consumer(2) }

active proctype Thief() {
end:
    (handedOver);
    run Consumer(3)
}
