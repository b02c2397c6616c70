/* A tasklet on its way from its owner A through the member M to the thief B (docs/design/0006): the job does not end
 * early and does not hang, and every tasklet ends or is closed exactly once, whatever crosses what. A refuses at will. M may
 * cancel at any moment (-DCANCEL), B may die at any moment (-DDEATH).
 *
 * Mutations that must fail: MUT_COUNT  "ended" counts without the number of adopted tasklets
 *                           MUT_CANCEL a tasklet that is passed on after the cancelling is not followed by a Cancel */
#ifndef TASKLETS
#define TASKLETS 3
#endif

mtype = { HandOver, Ended, Dead, Adopt, Cancel };

chan toM[2] = [6] of { mtype, byte };   /* from A (0) and B (1); the byte: adopted so far */
chan fromM[2] = [6] of { mtype };

byte thief;                             /* the mark in A's control block */
byte done, closed;
bool over, cancelled, dead;

#define REPORT(me) toM[me] ! Ended, adopted

proctype Worker(byte me; byte running) {
    byte adopted;
    bool dropped, mayHaveEnded;
    do
    :: over -> break
#ifndef ENDLESS
    :: running > 0 ->                               /* a tasklet comes to its end */
        atomic { running--; done++ };
        if
        :: running == 0 -> REPORT(me)
        :: else
        fi
#endif
    :: me == 0 && thief && running > 0 ->           /* hand one over, or refuse */
        thief = 0;
        if
        :: toM[me] ! HandOver, 0;
            running--;
            if
            :: running == 0 -> REPORT(me)
            :: else
            fi
        :: skip
        fi
    :: me == 1 && !thief && !over && !dropped -> thief = 1
    :: fromM[me] ? Adopt ->
        adopted++;
        if
        :: dropped -> closed++; REPORT(me)          /* cancelled meanwhile: all that is left is to close it */
        :: else -> running++
        fi
    :: fromM[me] ? Cancel ->
        if
        :: dropped || running == 0 -> dropped = true
        :: else ->
            atomic { closed = closed + running; running = 0 };
            dropped = true;
            REPORT(me)
        fi
#ifdef DEATH
    :: me == 1 && !dead ->
        atomic { dead = true; closed = closed + running; running = 0 };   /* what it had is gone, and counted */
        toM[me] ! Dead, 0;
        break
#endif
    od
}

proctype Member() {
    bool ended[2], lost;
    byte passed[2], count;
    ended[1] = true;                                /* B has no part in the job at first */
    do
    :: ended[0] && ended[1] -> break
    :: toM[0] ? HandOver, count ->
        if
        :: lost -> closed++                         /* its successor is given it with a Cancel, and closes it */
        :: else ->
            ended[1] = false;
            passed[1]++;
            fromM[1] ! Adopt;
            if
#ifndef MUT_CANCEL
            :: cancelled -> fromM[1] ! Cancel
#endif
            :: else
            fi
        fi
    :: toM[0] ? Ended, count -> ended[0] = true
    :: toM[1] ? Ended, count ->
#ifdef MUT_COUNT
        ended[1] = true
#else
        if
        :: count == passed[1] -> ended[1] = true
        :: else
        fi
#endif
    :: toM[1] ? Dead, count ->
        lost = true;
        ended[1] = true;
        do                                          /* what was on its way to it is lost with it */
        :: fromM[1] ? Adopt -> closed++
        :: fromM[1] ? Cancel
        :: empty(fromM[1]) -> break
        od;
        if
        :: !cancelled -> cancelled = true; if :: !ended[0] -> fromM[0] ! Cancel :: else fi
        :: else
        fi
#ifdef CANCEL
    :: !cancelled ->
        cancelled = true;
        if :: !ended[0] -> fromM[0] ! Cancel :: else fi;
        if :: !ended[1] -> fromM[1] ! Cancel :: else fi
#endif
    od;
    assert(done + closed == TASKLETS);              /* not early, each exactly once */
    over = true
}

init {
    atomic {
        run Worker(0, TASKLETS);
        run Worker(1, 0);
        run Member()
    }
}
