/* Snapshots of a run on several members (docs/design/0032). Attempts take snapshots one after the other: the coordinator has
 * its manifest kept on all other members (a message to each, which may be slow), then keeps it itself, then phase two: what
 * the snapshot has prepared becomes visible. An attempt may be stopped at any moment, also while manifests are on their way;
 * the coordinator may be lost (-DLOSSES=n), and then the next member coordinates with what it has itself. A new attempt begins
 * from the newest snapshot that its coordinator has: sinks commit what that has prepared, and remove what later ones had.
 *
 * Holds: an attempt never begins from a snapshot whose prepared part was removed; and never from an older one than was made
 * visible.
 *
 * Mutations that must fail: MUT_FORGET  a participant keeps manifests that are newer than the snapshot that it restores
 *                           MUT_FETCH   it does not fetch the manifest of that one, as long as it has its chunk files
 *                           MUT_END     it goes on with what it was told to keep by the attempt before
 *                           MUT_ALL     phase two begins when one other member has the manifest
 *                           MUT_WAIT    an attempt begins while the coordinator still writes the manifest of the one before */
#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef SNAPSHOTS
#define SNAPSHOTS 3
#endif
#ifndef LOSSES
#define LOSSES 1
#endif

#define BIT(n) (1 << (n))

#define HAS(m, n) (lost[m] || lead == m || (has[m] & BIT(n)))
#ifdef MUT_ALL
#define ALL_HAVE(n) (HAS(MEMBERS - 1, n))
#elif MEMBERS == 3
#define ALL_HAVE(n) (HAS(0, n) && HAS(1, n) && HAS(2, n))
#else
#define ALL_HAVE(n) (HAS(0, n) && HAS(1, n) && HAS(2, n) && HAS(3, n))
#endif

byte has[MEMBERS];              /* the snapshots that count on a member: bit n for number n; number 0 is the beginning */
byte told[MEMBERS];             /* the snapshot that it is being told to keep, 0 for none */
bool lost[MEMBERS];
byte lead;                      /* who coordinates */
byte removed;                   /* snapshots whose prepared part was removed */
byte visible;                   /* the newest snapshot that has been made visible */
byte writing;                   /* the snapshot whose manifest the coordinator writes for itself, 0 for none */
byte next = 1;
byte losses, i, k, newest;

inline begin() {                /* an attempt begins, from the newest snapshot of its coordinator */
    atomic {
        newest = 0;
        for (k : 0 .. SNAPSHOTS) { if :: has[lead] & BIT(k) -> newest = k :: else fi }
        assert(!(removed & BIT(newest)));
        assert(newest >= visible);
        visible = newest;       /* a restored sink repeats phase two */
        for (k : newest + 1 .. SNAPSHOTS) { removed = removed | BIT(k) }
        for (k : next .. SNAPSHOTS) { removed = removed & ~BIT(k) }     /* snapshots that have not been begun yet */
        for (i : 0 .. MEMBERS - 1) {
#ifndef MUT_END
            told[i] = 0;
#endif
#ifndef MUT_FORGET
            has[i] = has[i] & (BIT(newest + 1) - 1);
#endif
#ifndef MUT_FETCH
            has[i] = has[i] | BIT(newest)
#endif
        }
    }
}

active proctype Run() {
    byte number;
    for (i : 0 .. MEMBERS - 1) { has[i] = 1 }
attempt:
#ifndef MUT_WAIT
    atomic { if :: writing -> has[lead] = has[lead] | BIT(writing); writing = 0 :: else fi }
#endif
    begin();
    do
    :: next <= SNAPSHOTS ->
        atomic {
            number = next;
            next++;
            for (i : 0 .. MEMBERS - 1) { if :: i != lead && !lost[i] -> told[i] = number :: else fi }
        }
        do
        :: atomic { ALL_HAVE(number) -> writing = number }
            do
            :: atomic { writing == 0 -> visible = number } break
            :: goto attempt
            :: atomic { losses < LOSSES && lead < MEMBERS - 1 -> losses++; lost[lead] = true; lead++; writing = 0 } goto attempt
            od
            break
        :: goto attempt         /* it is stopped */
        :: atomic { losses < LOSSES && lead < MEMBERS - 1 -> losses++; lost[lead] = true; lead++ } goto attempt
        od
    :: goto attempt
    :: atomic { losses < LOSSES && lead < MEMBERS - 1 -> losses++; lost[lead] = true; lead++ } goto attempt
    :: next > SNAPSHOTS -> break
    od
}

active proctype Disk() {        /* of the coordinator */
end:
    do
    :: atomic { writing -> has[lead] = has[lead] | BIT(writing); writing = 0 }
    od
}

active [MEMBERS] proctype Member() {   /* what it was told to keep, it keeps at some time */
end:
    do
    :: atomic { told[_pid - 2] && !lost[_pid - 2] -> has[_pid - 2] = has[_pid - 2] | BIT(told[_pid - 2]); told[_pid - 2] = 0 }
    od
}
