/* The SPSC ring of shmjet/_native/ring/ring.h: records never wrap, a skip mark fills the end, the tail is published after the
 * payload. The producer may have a store buffer (FIFO: x86-TSO) or a buffer that lets stores pass each other (-DPSO), in which
 * the release order is what keeps payload before tail. -DBROKEN publishes without it and must fail with -DPSO.
 *
 * Positions count cells without end; a cell holds the number of the record that wrote it. */
#ifndef CAP
#define CAP 4
#endif
#ifndef RECORDS
#define RECORDS 6
#endif
#define SKIP 255

byte cells[CAP];        /* shared memory: what is visible */
byte tail = 0;          /* published by the producer, counts cells */
byte head = 0;          /* published by the consumer */

/* The producer's store buffer: payload stores (cell, value) and at most one tail store. */
byte bufCell[CAP]; byte bufValue[CAP]; byte bufCount = 0;
bool tailPending = false; byte tailValue;

inline flushOne() {     /* the memory system makes one buffered store visible */
    if
    :: bufCount > 0 ->
        cells[bufCell[0]] = bufValue[0];
        bufCount--;
        k = 0;
        do
        :: k < bufCount -> bufCell[k] = bufCell[k + 1]; bufValue[k] = bufValue[k + 1]; k++
        :: else -> break
        od
#ifdef BROKEN           /* no release: the tail may overtake the payload */
    :: tailPending -> tail = tailValue; tailPending = false
#else
    :: bufCount == 0 && tailPending -> tail = tailValue; tailPending = false
#endif
    fi
}

inline store(cell, value) {
#ifdef BUFFER
    atomic { bufCell[bufCount] = cell; bufValue[bufCount] = value; bufCount++ }
#else
    cells[cell] = value
#endif
}

inline publish(value) {
#ifdef BUFFER
    (!tailPending);     /* one tail store in the buffer at a time is enough to show every order */
    tailValue = value; tailPending = true
#else
    tail = value
#endif
}

active proctype Memory() {
    byte k;
end:
    do
    :: atomic { (bufCount > 0 || tailPending) -> flushOne() }
    od
}

active proctype Producer() {
    byte n = 1, size, room, at, i, mine = 0;
    do
    :: n > RECORDS -> break
    :: else ->
        /* a record is at most half the ring (one cell in a ring of one) */
        if
        :: size = 1
        :: CAP >= 4 -> size = 2
        fi;
        at = mine % CAP;
        if
        :: at + size > CAP ->               /* it would wrap: a skip mark fills the end */
            room = CAP - at;
            (mine + room - head <= CAP && bufCount + room <= CAP);
            atomic { i = 0; do :: i < room -> store(at + i, SKIP); i++ :: else -> break od };
            mine = mine + room;
            publish(mine)
        :: else ->
            (mine + size - head <= CAP);
            i = 0;
            do
            :: i < size -> (bufCount < CAP); store(at + i, n); i++
            :: else -> break
            od;
            mine = mine + size;
            publish(mine);
            n++
        fi
    od
}

active proctype Consumer() {
    byte expected = 1, mine = 0, at, seen, value;
    do
    :: expected > RECORDS -> break
    :: else ->
        (tail != mine);                      /* acquire */
        seen = tail;
        assert(seen > mine && seen - mine <= CAP);
        at = mine % CAP;
        value = cells[at];
        if
        :: value == SKIP ->
            mine = mine + (CAP - at)
        :: else ->
            assert(value == expected);       /* whole, in order, nothing lost, nothing old */
            do
            :: mine < seen && cells[mine % CAP] == value -> mine++
            :: else -> break
            od;
            expected++
        fi;
        assert(mine <= seen);
        head = mine                          /* release */
    od
}
