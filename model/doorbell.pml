/* Sleeping without losing a wake-up (shmjet/_native/doorbell.h, ring.h): two producers with a ring each, one consumer,
 * which may be taken over by a second process at any moment (work stealing: the owner word moves). Both directions sleep:
 * the consumer for items, a producer for room, by the wake mark in its ring.
 *
 * A deadlock (an invalid end state) is a lost wake-up. Stores marked seq_cst are visible at once; with a mutation they are
 * not, or come too late, and spin must find a run that sleeps for ever:
 *   MUT_TAIL   the tail is published by a plain store, which may still be in the store buffer when `sleeping` is read
 *   MUT_ORDER  the producer reads the owner word before it publishes
 *   MUT_CHECK  the sleeper does not look again after it has said that it sleeps
 *   MUT_MARK   the producer does not look again after it has left its wake mark */
#ifndef CAP
#define CAP 1
#endif
#ifndef ITEMS
#define ITEMS 2
#endif
#define NONE 255

byte tail[2], head[2];
byte mark[2] = NONE;
bool held[2];                   /* MUT_TAIL: the last tail store is still in the buffer */
byte word[4], owner = 2;        /* bells 0 and 1: producers; 2 and 3: the first consumer and its thief */
bool sleeping[4], asleep[4];
byte consumed;
bool handedOver;

#define VISIBLE(p) (tail[p] - held[p])

inline signal(b) {              /* bell_signal */
    if
    :: sleeping[b] ->
        atomic { old = sleeping[b]; sleeping[b] = false };
        if
        :: old -> word[b]++; asleep[b] = false
        :: else
        fi
    :: else
    fi
}

#define SLEEP(b, ready)                                                                     \
    seen = word[b];                                                                         \
    sleeping[b] = true;                                                                     \
    if                                                                                      \
    :: (ready) -> sleeping[b] = false                                                       \
    :: !(ready) ->                                                                          \
        atomic { if :: word[b] == seen -> asleep[b] = true :: else fi };                    \
        (!asleep[b]);                                                                       \
        sleeping[b] = false                                                                 \
    fi

#ifdef MUT_TAIL
active proctype Memory() {
end:
    do
    :: held[0] -> held[0] = false
    :: held[1] -> held[1] = false
    od
}
#endif

active [2] proctype Producer() {
    byte sent, seen, to;
    bool old;
    byte me = _pid;
#ifdef MUT_TAIL
    me = _pid - 1;
#endif
    do
    :: sent == ITEMS -> break
    :: sent < ITEMS && tail[me] - head[me] < CAP ->
#ifdef MUT_ORDER
        to = owner;
#endif
#ifdef MUT_TAIL
        (!held[me]);
        atomic { tail[me]++; held[me] = true };
#else
        tail[me]++;
#endif
        sent++;
#ifndef MUT_ORDER
        to = owner;
#endif
        signal(to)
    :: sent < ITEMS && tail[me] - head[me] == CAP ->
        mark[me] = tail[me] - CAP + 1;              /* from the head that was seen: never beyond the tail */
#ifdef MUT_MARK
        SLEEP(me, false)
#else
        SLEEP(me, head[me] >= mark[me])
#endif
    od
}

inline round() {
    moved = false;
    p = 0;
    do
    :: p < 2 && VISIBLE(p) != head[p] ->
        head[p]++;
        consumed++;
        moved = true;
        if
        :: mark[p] != NONE && head[p] >= mark[p] -> signal(p)
        :: else
        fi;
        p++
    :: p < 2 && VISIBLE(p) == head[p] -> p++
    :: p == 2 -> break
    od
}

#define ANY (VISIBLE(0) != head[0] || VISIBLE(1) != head[1])

proctype Consumer(byte me) {
    byte p, seen;
    bool moved, old;
    do
    :: consumed == 2 * ITEMS -> break
    :: consumed < 2 * ITEMS ->
        round();
        if
        :: me == 2 && consumed < 2 * ITEMS ->       /* a thief has asked: hand over, between two rounds */
            owner = 3;
            handedOver = true;
            break
        :: moved
        :: !moved && consumed < 2 * ITEMS ->
#ifdef MUT_CHECK
            SLEEP(me, false)
#else
            SLEEP(me, ANY)
#endif
        :: consumed == 2 * ITEMS
        fi
    od
}

active proctype First() { run Consumer(2) }

active proctype Thief() {
end:
    (handedOver);
    run Consumer(3)
}
