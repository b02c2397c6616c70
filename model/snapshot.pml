/* Snapshots of a run (docs/design/0020): two sources, a middle tasklet and a sink, over lanes of bounded size:
 *
 *     source 0 -> lane 0 \
 *                         middle -> lane 2 -> sink
 *     source 1 -> lane 1 /
 *
 * The coordinator takes snapshots at any moment (-DSNAPSHOTS=n, without the last one), each in two phases, with orders to
 * the processes and reports of the tasklets. The middle tasklet may move to the other process (-DSTEALS=n), which has no
 * part in the job before; sources end at any moment before, during and after an order, as each step may come late. Saving
 * may fail (-DFAILS=n), a process may be lost (-DLOSSES=n), the client may suspend and resume (-DTERMINALS=n) or cancel
 * (-DCANCEL). Lane 0 may have priority over lane 1 (-DPRIORITY). The middle may have work of its own after its inputs and
 * not end before it has saved (-DENDLESS). The middle may capture its state at the barrier and save it later, between
 * other steps (-DCAPTURE). After a loss and after a suspension all is restored from
 * the last valid manifest; how an attempt ends is the subject of job.pml, so here that is one step.
 *
 * Holds, exactly once: a manifest is a consistent cut: the middle and the sink have counted what the sources had emitted;
 * the sink makes visible what a valid manifest names, each item once, all of them when the job completes; phase two
 * reaches each tasklet that has saved once; after a terminal snapshot nothing is on its way; every run ends (each step
 * uses up something bounded, and none but the last state has no next step).
 * Holds, at least once (-DAT_LEAST_ONCE): the same, with "at least" in place of "exactly".
 *
 * Mutations that must fail: MUT_ALIGN     the middle saves when the first barrier has come
 *                           MUT_BEYOND    the items behind a barrier are processed while the other lane is awaited
 *                           MUT_REPORT    a tasklet that has moved does not report
 *                           MUT_DEPLOY    the order does not come with the deployment of a tasklet that moves
 *                           MUT_HELD      the barriers that have come do not move with the tasklet
 *                           MUT_MOVE      a tasklet moves while it waits for phase two
 *                           MUT_FINISHED  that a tasklet has finished is forgotten by the next snapshot
 *                           MUT_EARLY     phase two begins before the manifest is written
 *                           MUT_AT_END    the sink completes after a snapshot that began before its last input
 *                           MUT_END       a tasklet ends while it waits for phase two
 *                           MUT_NEXT      after a failure the next snapshot begins while barriers are on their way
 *                           MUT_PRIORITY  a snapshot begins while the lane of higher priority is open
 *                           MUT_TERMINAL  tasklets go on after a terminal barrier
 *                           MUT_DROP      the sink drops what it has prepared when a snapshot fails
 *                           MUT_REPEAT    a restored sink does not repeat phase two
 *                           MUT_LATE      what is captured is not what is saved, but the state of that later moment
 *                           MUT_CAPTURED  a tasklet reports when its state is captured, and not when it is saved */
#ifndef SNAPSHOTS
#define SNAPSHOTS 1
#endif
#ifndef STEALS
#define STEALS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef TERMINALS
#define TERMINALS 0
#endif
#ifndef LONG_SOURCE
#define LONG_SOURCE 2
#endif
#ifndef ROOM
#define ROOM 2
#endif

#define TASKLETS 4
#define MIDDLE 2
#define SINK 3
#define OUT 2                                       /* the lane from the middle to the sink */
#define ITEMS(source) (source == 0 -> LONG_SOURCE : 1)
#define AWAY 2                                      /* instead of a process: handed over */
#define PASSED 3                                    /* ... and passed on by the member */

mtype = { Item, Barrier, Done };
mtype = { Save, Resolve, Adopt };
mtype = { Saved, Failed, Resolved, AtEnd, Finished };
mtype = { Calm, Saving, Writing, Resolving };
mtype = { None, Completed, Cancelled };

chan lanes[3] = [ROOM] of { mtype, byte };          /* the byte: of which source, or of which snapshot */
chan orders[2] = [8] of { mtype, byte };            /* the byte: the number of the snapshot */
chan reports[TASKLETS] = [4] of { mtype };

mtype outcome = None;

/* -- what processes know ---------------------------------------------------------------------------------------------- */
byte ordered[2];                                    /* the newest snapshot that a process has been told to save */
byte resolved[2];                                   /* ... to resolve */
bool success;                                       /* how the newest was resolved: part of the order */
bool terminal;                                      /* of the newest: part of the order */
bool part[2];                                       /* whether a process has a part in the job */

/* -- tasklets --------------------------------------------------------------------------------------------------------- */
byte place[TASKLETS];                               /* the process of a tasklet, or AWAY or PASSED */
byte own[TASKLETS];                                 /* the snapshot that it has saved last */
bool waits[TASKLETS];                               /* for phase two of it */
bool ended[TASKLETS];
bool skips[TASKLETS];                               /* restored as finished: goes straight to its end */
bool stopped[TASKLETS];                             /* by a terminal snapshot */
byte emitted[2];                                    /* by a source */
byte counted[2];                                    /* of each source's, by the middle */
byte arrived[2];                                    /* of each source's, at the sink */
byte base[2], until[2];                              /* the sink's transaction */
bool held[2], closed[3];                            /* lanes whose barrier has come; whose end has come */
bool moved;
bool last, told;                                    /* the sink: has saved after its last input; has said AtEnd */
byte captured[2];                                   /* of what the middle has counted, while it is being saved */
bool writes;                                        /* the middle saves what it has captured */
byte visible[2];                                    /* what the sink has committed */

/* -- files: pieces of the snapshot in progress, and the last valid manifest --------------------------------------------- */
byte emittedPiece[2], countedPiece[2], arrivedPiece[2];
byte emittedKept[2], countedKept[2], arrivedKept[2];
bool finishedKept[TASKLETS];

byte steals, fails, losses, terminals;

/* whether a tasklet may do anything but hear of phase two, and whether it knows of an order that it has not followed */
#ifdef MUT_TERMINAL
#define GOES(t) (outcome == None && !ended[t] && !stopped[t] && !skips[t] && place[t] < AWAY)
#else
#define GOES(t) (outcome == None && !ended[t] && !stopped[t] && !skips[t] && place[t] < AWAY && !(waits[t] && terminal))
#endif
#define SHOULD_SAVE(t) (ordered[place[t]] > own[t])
#define SHOULD_RESOLVE(t) (outcome == None && !ended[t] && place[t] < AWAY && waits[t] && resolved[place[t]] >= own[t])
#ifdef ENDLESS
#define WANTS_END(t) (t != MIDDLE || own[t] > 0)
#else
#define WANTS_END(t) true
#endif
#ifdef MUT_END
#define MAY_END(t) WANTS_END(t)
#else
#define MAY_END(t) (WANTS_END(t) && !waits[t])
#endif
#ifdef AT_LEAST_ONCE
#define PASSES(lane) (!held[lane] || !terminal)
#else
#ifdef MUT_BEYOND
#define PASSES(lane) true
#else
#define PASSES(lane) !held[lane]
#endif
#endif

inline reports_saved(t, number) {
    own[t] = number;
    waits[t] = true;
    if
#ifdef MUT_REPORT
    :: t == MIDDLE && moved -> skip
#endif
    :: reports[t] ! Saved
    :: fails < FAILS -> fails++; reports[t] ! Failed
    fi
}

inline hears(t) {
    waits[t] = false;
    stopped[t] = terminal && success;
    reports[t] ! Resolved
}

inline ends(t) {
    ended[t] = true;
    skips[t] = false;
    reports[t] ! Finished
}

proctype Source(byte me) {
end:
    do
    :: atomic { GOES(me) && emitted[me] < ITEMS(me) && nfull(lanes[me]) -> lanes[me] ! Item, me; emitted[me]++ }
    :: atomic {
        GOES(me) && SHOULD_SAVE(me) && nfull(lanes[me]) ->
        emittedPiece[me] = emitted[me];
        lanes[me] ! Barrier, ordered[place[me]];
        reports_saved(me, ordered[place[me]])
      }
    :: atomic { SHOULD_RESOLVE(me) -> hears(me) }
    :: atomic { GOES(me) && emitted[me] == ITEMS(me) && MAY_END(me) && nfull(lanes[me]) -> lanes[me] ! Done, 0; ends(me) }
    :: atomic { outcome == None && skips[me] && nfull(lanes[me]) -> lanes[me] ! Done, 0; ends(me) }
    od
}

/* -- the middle --------------------------------------------------------------------------------------------------------- */

#ifdef MUT_ALIGN
#define ALIGNED (held[0] || held[1])
#else
#define ALIGNED ((held[0] || closed[0]) && (held[1] || closed[1]) && (held[0] || held[1]))
#endif
#ifdef PRIORITY
#define LATER(lane) (lane == 1 && !closed[0])       /* not before the end of the lane of higher priority */
#else
#define LATER(lane) false
#endif

inline middle_takes(lane) {
    if
    :: lanes[lane] ? [Item, from] && nfull(lanes[OUT]) ->
        lanes[lane] ? Item, from;
        counted[from]++;
        lanes[OUT] ! Item, from
    :: lanes[lane] ? [Barrier, from] ->
        lanes[lane] ? Barrier, from;
        assert(from == barrier || !(held[0] || held[1]));   /* barriers of different snapshots do not meet */
        barrier = from;
        held[lane] = true
    :: lanes[lane] ? [Done, from] -> lanes[lane] ? Done, from; closed[lane] = true
    fi;
    from = 0
}

#define COMES(lane) (nempty(lanes[lane]) && PASSES(lane) && !LATER(lane) && (nfull(lanes[OUT]) || !(lanes[lane] ? [Item, _])))

inline middle_saves(number) {
#ifdef CAPTURE
    captured[0] = counted[0];
    captured[1] = counted[1];
    writes = true;
    lanes[OUT] ! Barrier, number;
    own[MIDDLE] = number;
    waits[MIDDLE] = true;
#ifdef MUT_CAPTURED
    reports[MIDDLE] ! Saved;
#endif
#else
    countedPiece[0] = counted[0];
    countedPiece[1] = counted[1];
    lanes[OUT] ! Barrier, number;
    reports_saved(MIDDLE, number);
#endif
    held[0] = false;
    held[1] = false
}

inline middle_writes() {
    writes = false;
#ifdef MUT_LATE
    countedPiece[0] = counted[0];
    countedPiece[1] = counted[1];
#else
    countedPiece[0] = captured[0];
    countedPiece[1] = captured[1];
#endif
#ifndef MUT_CAPTURED
    reports_saved(MIDDLE, own[MIDDLE]);
#endif
    captured[0] = 0;
    captured[1] = 0
}

proctype Middle() {
    byte from, barrier;
end:
    do
    :: atomic { GOES(MIDDLE) && !ALIGNED && COMES(0) -> middle_takes(0) }
    :: atomic { GOES(MIDDLE) && !ALIGNED && COMES(1) -> middle_takes(1) }
    :: atomic { GOES(MIDDLE) && ALIGNED && nfull(lanes[OUT]) -> middle_saves(barrier) }
    :: atomic {
        GOES(MIDDLE) && closed[0] && closed[1] && !ALIGNED && SHOULD_SAVE(MIDDLE) && nfull(lanes[OUT]) ->
        middle_saves(ordered[place[MIDDLE]])
      }
    :: atomic { outcome == None && place[MIDDLE] < AWAY && writes -> middle_writes() }
    :: atomic { SHOULD_RESOLVE(MIDDLE) -> hears(MIDDLE) }
    :: atomic {
        GOES(MIDDLE) && closed[0] && closed[1] && !ALIGNED && MAY_END(MIDDLE) && nfull(lanes[OUT]) ->
        lanes[OUT] ! Done, 0;
        ends(MIDDLE)
      }
    :: atomic { outcome == None && skips[MIDDLE] && nfull(lanes[OUT]) -> lanes[OUT] ! Done, 0; ends(MIDDLE) }
    :: atomic { outcome == None && ended[MIDDLE] && nempty(lanes[0]) -> lanes[0] ? _, _ }
    :: atomic { outcome == None && ended[MIDDLE] && nempty(lanes[1]) -> lanes[1] ? _, _ }
    :: atomic {                                     /* it is stolen */
#ifdef MUT_MOVE
        GOES(MIDDLE) && steals < STEALS ->
#else
        GOES(MIDDLE) && !waits[MIDDLE] && steals < STEALS ->
#endif
        steals++;
        moved = true;
#ifdef MUT_HELD
        held[0] = false;
        held[1] = false;
#endif
        place[MIDDLE] = AWAY
      }
    od
}

/* -- the sink ----------------------------------------------------------------------------------------------------------- */

inline sink_saves(number) {
    arrivedPiece[0] = arrived[0];
    arrivedPiece[1] = arrived[1];
    until[0] = arrived[0];
    until[1] = arrived[1];
    last = closed[OUT];
    reports_saved(SINK, number)
}

inline commit() {
#ifndef AT_LEAST_ONCE
    assert(arrivedKept[0] == until[0] && arrivedKept[1] == until[1]);                 /* a valid manifest names it */
    assert((visible[0] == base[0] && visible[1] == base[1]) || (visible[0] == until[0] && visible[1] == until[1]));
    visible[0] = until[0];
    visible[1] = until[1];
    base[0] = until[0];
    base[1] = until[1]
#else
    skip
#endif
}

#ifdef MUT_AT_END
#define MAY_COMPLETE closed[OUT]
#else
#define MAY_COMPLETE (closed[OUT] && last)
#endif

proctype Sink() {
    byte from;
end:
    do
    :: atomic {
        GOES(SINK) && lanes[OUT] ? [Item, from] ->
        lanes[OUT] ? Item, from;
        arrived[from]++;
#ifdef AT_LEAST_ONCE
        visible[from]++;                            /* straight through */
#endif
        from = 0
      }
    :: atomic { GOES(SINK) && lanes[OUT] ? [Done, from] -> lanes[OUT] ? Done, from; closed[OUT] = true }
    :: atomic { GOES(SINK) && lanes[OUT] ? [Barrier, from] -> lanes[OUT] ? Barrier, from; sink_saves(from); from = 0 }
    :: atomic { GOES(SINK) && closed[OUT] && SHOULD_SAVE(SINK) -> sink_saves(ordered[place[SINK]]) }
    :: atomic {
        SHOULD_RESOLVE(SINK) ->
        hears(SINK);
        if
        :: success ->
            commit();
            if
            :: MAY_COMPLETE && !terminal -> ends(SINK)
            :: else
            fi
        :: else ->
            last = false;
#ifdef MUT_DROP
            base[0] = until[0];
            base[1] = until[1]
#endif
        fi
      }
    :: atomic { GOES(SINK) && closed[OUT] && !told && !waits[SINK] -> told = true; reports[SINK] ! AtEnd }
    :: atomic { outcome == None && skips[SINK] -> ends(SINK) }
    :: atomic { outcome == None && ended[SINK] && nempty(lanes[OUT]) -> lanes[OUT] ? _, _ }
    od
}

/* -- a process: takes orders ---------------------------------------------------------------------------------------------- */

proctype Process(byte me) {
    mtype order;
    byte number;
end:
    do
    :: atomic {
        outcome == None && nempty(orders[me]) ->
        orders[me] ? order, number;
        if
        :: order == Save -> ordered[me] = number
        :: order == Resolve -> resolved[me] = number
        :: order == Adopt ->
            place[MIDDLE] = me;
            if
            :: number > ordered[me] -> ordered[me] = number
            :: else
            fi
        fi;
        number = 0;
        order = 0
      }
    od
}

/* -- the coordinator, and the member that passes on what moves ------------------------------------------------------------- */

#define ALL(set) (set[0] && set[1] && set[2] && set[3])
#define NEEDS_LAST (atEnd && finished[0] && finished[1] && finished[2] && !finished[3])
#if defined(PRIORITY) && !defined(MUT_PRIORITY)
#define MAY_ASK finished[0]
#else
#define MAY_ASK true
#endif
#ifdef MUT_NEXT
#define MAY_BEGIN (stage == Calm || (stage == Saving && failed))
#else
#define MAY_BEGIN (stage == Calm)
#endif

inline tell(what) {
    for (i : 0 .. 1) {
        if
        :: part[i] -> orders[i] ! what, number
        :: else
        fi
    }
}

inline begin() {
    number++;
    failed = false;
    stage = Saving;
    for (i : 0 .. TASKLETS - 1) {
        isSaved[i] = finished[i];                   /* a tasklet that has finished belongs to all later snapshots */
        isResolved[i] = finished[i];
        asFinished[i] = finished[i]
    };
    tell(Save)
}

inline take(t) {
    reports[t] ? report;
    if
    :: report == Saved || report == Failed ->
        assert(stage == Saving && !isSaved[t]);
        isSaved[t] = true;
        failed = failed || report == Failed
    :: report == Resolved ->
        assert(stage == Resolving && isSaved[t] && !isResolved[t]);     /* once, and after it has saved */
        isResolved[t] = true
    :: report == AtEnd -> atEnd = true
    :: report == Finished ->
#ifndef MUT_FINISHED
        finished[t] = true;
#endif
        if
        :: stage == Saving && !isSaved[t] -> isSaved[t] = true; isResolved[t] = true; asFinished[t] = true
        :: else
        fi
    fi;
    report = 0
}

inline check_cut() {
    for (i : 0 .. 1) {
        assert(!asFinished[i] || emitted[i] == ITEMS(i));
        emittedKept[i] = (asFinished[i] -> ITEMS(i) : emittedPiece[i]);
        countedKept[i] = (asFinished[MIDDLE] -> ITEMS(i) : countedPiece[i]);
        arrivedKept[i] = (asFinished[SINK] -> ITEMS(i) : arrivedPiece[i]);
#ifdef AT_LEAST_ONCE
        assert(countedKept[i] >= emittedKept[i]);
        assert(arrivedKept[i] >= emittedKept[i]);
#else
        assert(countedKept[i] == emittedKept[i]);
        assert(arrivedKept[i] == emittedKept[i]);
#endif
    };
    assert(!asFinished[MIDDLE] || (asFinished[0] && asFinished[1]));
    assert(!asFinished[SINK] || asFinished[MIDDLE]);
    for (i : 0 .. TASKLETS - 1) { finishedKept[i] = asFinished[i] }
}

/* The attempt has ended, and another one begins from the last valid manifest. */
inline restore() {
    for (i : 0 .. 2) {
        do
        :: nempty(lanes[i]) -> lanes[i] ? _, _
        :: empty(lanes[i]) -> break
        od;
        closed[i] = false
    };
    for (i : 0 .. TASKLETS - 1) {
        do
        :: nempty(reports[i]) -> reports[i] ? _
        :: empty(reports[i]) -> break
        od;
        place[i] = 0;
        own[i] = number;
        waits[i] = false;
        ended[i] = false;
        stopped[i] = false;
        skips[i] = finishedKept[i];
        finished[i] = false;
        isSaved[i] = false;
        isResolved[i] = false;
        asFinished[i] = false
    };
    for (i : 0 .. 1) {
        do
        :: nempty(orders[i]) -> orders[i] ? _, _
        :: empty(orders[i]) -> break
        od;
        ordered[i] = number;
        resolved[i] = number;
        part[i] = (i == 0);
        held[i] = false;
        emitted[i] = emittedKept[i];
        counted[i] = countedKept[i];
        arrived[i] = arrivedKept[i];
        until[i] = arrivedKept[i];
        emittedPiece[i] = 0; countedPiece[i] = 0; arrivedPiece[i] = 0;
#ifdef MUT_REPEAT
        base[i] = arrivedKept[i]
#endif
    };
#ifndef MUT_REPEAT
    for (i : 0 .. 1) { base[i] = baseKept[i] };
    commit();
#endif
    writes = false; captured[0] = 0; captured[1] = 0;
    last = false; told = false; moved = false; terminal = false; success = false;
    atEnd = false; failed = false;
    stage = Calm
}

proctype Coordinator() {
    mtype stage = Calm, report;
    byte number, taken, i;
    byte baseKept[2];
    bool isSaved[TASKLETS], isResolved[TASKLETS], asFinished[TASKLETS], finished[TASKLETS], atEnd, failed;
    do
    :: atomic { nempty(reports[0]) -> take(0) }
    :: atomic { nempty(reports[1]) -> take(1) }
    :: atomic { nempty(reports[2]) -> take(2) }
    :: atomic { nempty(reports[3]) -> take(3) }
    :: atomic {                                     /* the timer, or a client that suspends */
        MAY_BEGIN && MAY_ASK && taken < SNAPSHOTS && !ALL(finished) ->
        taken++;
        terminal = false;
        if
        :: skip
        :: terminals < TERMINALS -> terminals++; terminal = true
        fi;
        begin()
      }
    :: atomic { stage == Calm && NEEDS_LAST -> terminal = false; begin() }
    :: atomic {                                     /* phase one has ended */
        stage == Saving && ALL(isSaved) ->
        success = !failed;
        if
        :: failed -> tell(Resolve); stage = Resolving
#ifdef MUT_EARLY
        :: !failed -> tell(Resolve); stage = Writing
#else
        :: !failed -> stage = Writing
#endif
        fi
      }
    :: atomic {
        stage == Writing ->
        baseKept[0] = base[0];
        baseKept[1] = base[1];
        check_cut();
#ifndef MUT_EARLY
        tell(Resolve);
#endif
        stage = Resolving
      }
    :: atomic {
        stage == Resolving && ALL(isResolved) ->
        stage = Calm;
        if
        :: terminal && success ->                   /* suspended; and resumed */
            assert(ended[MIDDLE] || (empty(lanes[0]) && empty(lanes[1])));
            assert(ended[SINK] || empty(lanes[OUT]));
            for (i : 0 .. 1) { assert(emitted[i] == emittedKept[i] && arrived[i] == arrivedKept[i]) };
#ifndef AT_LEAST_ONCE
            for (i : 0 .. 1) { assert(visible[i] == arrivedKept[i]) };
#endif
            restore()
        :: else -> terminal = false
        fi
      }
    :: atomic {
        place[MIDDLE] == AWAY ->                    /* pass it on to the other process: now it has a part */
        place[MIDDLE] = PASSED;
        i = (part[1] && steals == 2 -> 0 : 1);
        part[i] = true;
#ifdef MUT_DEPLOY
        orders[i] ! Adopt, 0
#else
        orders[i] ! Adopt, number
#endif
      }
    :: atomic { losses < LOSSES && !ALL(finished) -> losses++; restore() }
    :: atomic {
        ALL(finished) && stage == Calm ->
        for (i : 0 .. 1) {
#ifdef AT_LEAST_ONCE
            assert(visible[i] >= ITEMS(i))
#else
            assert(visible[i] == ITEMS(i))
#endif
        };
        outcome = Completed;
        break                                       /* the others stay where they are: only this one must end */
      }
#ifdef CANCEL
    :: atomic { !ALL(finished) -> outcome = Cancelled; break }
#endif
    od
}

init {
    atomic {
        part[0] = true;
        run Source(0);
        run Source(1);
        run Middle();
        run Sink();
        run Process(0);
        run Process(1);
        run Coordinator()
    }
}
