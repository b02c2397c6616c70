/* A run of a job as a chain of attempts (docs/design/0019). An attempt has one coordinator, on member 0 at first, and a
 * participant on each member, member 0 included. Orders and reports keep their order; a member that dies takes with it what
 * is under way to it and from it. A participant stands for its workers: an error and the loss of a worker are one thing
 * here. Anything may fail at any moment while it prepares, runs or commits (-DFAILURES=n, in all); the client may cancel
 * (-DCANCEL); a member may die (-DLOSS: the last one; -DCRASH: member 0 with the coordinator; then the next member
 * coordinates, and knows from the run's record how far it was). An attempt that fails is followed by the next one of the
 * run, as long as there is one (-DATTEMPTS=n) and nothing may have been made visible.
 *
 * Holds: none starts before all are ready; no two attempts of a run process at once, on whatever members; a commit
 * comes after the last tasklet; the client is told one outcome, once; "completed" only when all have ended well and
 * committed; the first error is reported; a cancelled run does not complete; everything lets go in the end.
 *
 * Mutations that must fail: MUT_START   the first that is ready starts all
 *                           MUT_LOST    a member that is lost does not count as ended
 *                           MUT_NEXT    the next attempt does not wait for the end of the one before
 *                           MUT_ORPHAN  a participant goes on when its coordinator is gone
 *                           MUT_HOLD    a participant prepares while a part of an older attempt has not ended
 *                           MUT_EPOCH   a participant prepares for a coordinator that another one has followed
 *                           MUT_CANCEL  a run can be cancelled while it commits
 *                           MUT_COMMIT  an attempt that fails while it commits is followed by the next one
 *                           MUT_ERROR   the last error is told */
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef FAILURES
#define FAILURES 2
#endif
#ifdef CRASH
#define COORDINATORS 2
#else
#define COORDINATORS 1
#endif

mtype = { Prepare, Start, Cancel, Commit, Finish, Ready, Failed, Ended, Committed, Finished };
mtype = { Idle, Preparing, Prepared, Running, Stopping, Committing, Finishing };
mtype = { None, Completed, FailedRun, Cancelled };

#define AT(gen, member) ((gen) * MEMBERS + (member))
chan orders[COORDINATORS * MEMBERS] = [5] of { mtype, byte };      /* the byte: the attempt */
chan reports[COORDINATORS * MEMBERS] = [6] of { mtype, byte };     /* the byte: which error, for Failed */

bool dead[MEMBERS];
bool gone[COORDINATORS];                /* the coordinator has let go of the run, or is dead */
byte failures;
mtype outcome = None;
byte attempts;                          /* begun so far: from the run's record */
byte view[MEMBERS];                     /* who coordinates, as far as a member knows */
bool visible;                           /* a commit has been ordered: from the run's record */

/* what is looked at only */
byte prepared[MEMBERS];                 /* the newest attempt for which a member has been ready */
byte running[COORDINATORS * MEMBERS];   /* the attempt that a part processes */
byte ended[MEMBERS];                    /* the attempt whose part has ended well there */
byte commits[MEMBERS];                  /* how often results have been made visible there */
byte unended[MEMBERS];                  /* parts that have not ended */

/* -- a participant: the part of one member, as one coordinator orders it ------------------------------------------------ */

#define LIVES !dead[me]
#ifdef MUT_HOLD
#define MAY_PREPARE true
#else
#define MAY_PREPARE unended[me] == 0
#endif
#define REPORT(what, which) if :: gone[gen] -> skip :: else -> reports[AT(gen, me)] ! what, which fi

inline has_ended() {
    running[AT(gen, me)] = 0;
    unended[me]--;
    phase = Finishing;
    REPORT(Ended, 0)
}

inline drain() {
    do
    :: orders[AT(gen, me)] ? _, attempt
    :: empty(orders[AT(gen, me)]) -> break
    od
}

inline fails() {
    failures++;
    REPORT(Failed, failures)
}

proctype Participant(byte gen; byte me) {
    mtype phase = Idle;
    byte attempt, i;
    do
    :: atomic { dead[me] -> running[AT(gen, me)] = 0; break }
    :: atomic { LIVES && phase == Idle && gone[gen] -> drain(); break }
    :: atomic {
        LIVES && phase == Idle && MAY_PREPARE && orders[AT(gen, me)] ? [Prepare, attempt] ->
        orders[AT(gen, me)] ? Prepare, attempt;
        if
#ifndef MUT_EPOCH
        :: gen < view[me] -> skip                   /* refused: another one coordinates now */
        :: gen >= view[me] ->
#else
        ::
#endif
            view[me] = gen;
            phase = Preparing;
            unended[me]++
        fi
      }
    :: atomic { LIVES && phase == Preparing -> phase = Prepared; prepared[me] = attempt; REPORT(Ready, 0) }
    :: atomic {
        LIVES && failures < FAILURES && (phase == Preparing || phase == Prepared || phase == Running) ->
        phase = Stopping;
        fails()
      }
    :: atomic { LIVES && phase == Running -> ended[me] = attempt; has_ended() }
    :: atomic { LIVES && phase == Stopping -> has_ended() }
    :: atomic {
        LIVES && phase != Idle && orders[AT(gen, me)] ? [Start, attempt] ->
        orders[AT(gen, me)] ? Start, attempt;
        if
        :: phase == Prepared ->
            for (i : 0 .. MEMBERS - 1) { assert(dead[i] || prepared[i] >= attempt) };
            for (i : 0 .. COORDINATORS * MEMBERS - 1) {
                assert(dead[i % MEMBERS] || running[i] == 0 || running[i] == attempt)
            };
            running[AT(gen, me)] = attempt;
            phase = Running
        :: else
        fi
      }
    :: atomic {
        LIVES && phase != Idle && orders[AT(gen, me)] ? [Cancel, attempt] ->
        orders[AT(gen, me)] ? Cancel, attempt;
        if
        :: phase == Preparing || phase == Prepared || phase == Running -> phase = Stopping
        :: else
        fi
      }
    :: atomic {
        LIVES && phase == Finishing && orders[AT(gen, me)] ? [Commit, attempt] ->
        orders[AT(gen, me)] ? Commit, attempt;
        for (i : 0 .. COORDINATORS * MEMBERS - 1) { assert(dead[i % MEMBERS] || running[i] == 0) };
        if
        :: failures < FAILURES -> fails()
        :: commits[me]++; assert(commits[me] == 1); REPORT(Committed, 0)
        fi
      }
    :: atomic {
        LIVES && phase == Finishing && orders[AT(gen, me)] ? [Finish, attempt] ->
        orders[AT(gen, me)] ? Finish, attempt;
        phase = Idle;
        REPORT(Finished, 0)
      }
#ifndef MUT_ORPHAN
    :: atomic {
        LIVES && gone[gen] && phase != Idle ->      /* whatever it was told is of no account any more */
        drain();
        if
        :: phase == Finishing -> phase = Idle
        :: else -> phase = Stopping
        fi
      }
#endif
    od
}

/* -- the coordinator of an attempt, and the run that decides what follows it --------------------------------------------- */

#define TELL(member, what) if :: dead[member] || lost[member] -> skip :: else -> orders[AT(gen, member)] ! what, attempt fi
#ifdef MUT_CANCEL
#define MAY_CANCEL (stage == Preparing || stage == Running || stage == Committing)
#else
#define MAY_CANCEL (stage == Preparing || stage == Running)
#endif
#define ALL(set) (set[0] && set[1] && (MEMBERS < 3 || set[MEMBERS - 1]))

inline tell_all(what) {
    for (i : 0 .. MEMBERS - 1) {
        if
        :: !isEnded[i] || what == Finish || what == Commit -> TELL(i, what)
        :: else
        fi
    }
}

inline tell_client(what) {
    assert(outcome == None);
    outcome = what
}

inline finish() {
    stage = Finishing;
    if
    :: cancelled -> assert(!visible); tell_client(Cancelled)
    :: !cancelled && error == 0 ->
        for (i : 0 .. MEMBERS - 1) { assert(lost[i] || (ended[i] == attempt && commits[i] == 1)) };
        tell_client(Completed)
    :: else ->
#ifdef MUT_COMMIT
        if :: attempts < ATTEMPTS -> follows = true :: else -> assert(told == error); tell_client(FailedRun) fi
#else
        if
        :: attempts < ATTEMPTS && !visible -> follows = true
        :: else -> assert(told == error); tell_client(FailedRun)
        fi
#endif
    fi;
    tell_all(Finish)
}

inline check_ended() {
    if
    :: stage == Stopping && ALL(isEnded) -> finish()
#ifdef MUT_NEXT
    :: stage == Stopping && !ALL(isEnded) && attempts < ATTEMPTS && !visible && error && !cancelled ->
        stage = Finishing; follows = true; tell_all(Finish);
        for (i : 0 .. MEMBERS - 1) { isFinished[i] = true }
#endif
    :: stage == Running && ALL(isEnded) ->
        stage = Committing;
        visible = true;
        tell_all(Commit)
    :: else
    fi
}

inline stop() {
    if
    :: stage == Preparing || stage == Running || stage == Committing -> stage = Stopping; tell_all(Cancel)
    :: else
    fi;
    check_ended()
}

inline failed(which) {
    if
    :: stage != Finishing ->
        if
        :: !cancelled && told == 0 -> told = which          /* the first: what the client has to be told */
        :: else
        fi;
        if
#ifdef MUT_ERROR
        :: !cancelled -> error = which
#else
        :: !cancelled && error == 0 -> error = which
#endif
        :: else
        fi;
        stop()
    :: else
    fi
}

inline take(member) {
    reports[AT(gen, member)] ? report, which;
    if
    :: lost[member] -> skip
    :: else ->
        if
        :: report == Ready ->
            isReady[member] = true;
            if
#ifdef MUT_START
            :: stage == Preparing -> stage = Running; tell_all(Start)
#else
            :: stage == Preparing && ALL(isReady) -> stage = Running; tell_all(Start)
#endif
            :: else
            fi
        :: report == Failed -> failed(which)
        :: report == Ended -> isEnded[member] = true; check_ended()
        :: report == Committed ->
            hasCommitted[member] = true;
            if :: stage == Committing && ALL(hasCommitted) -> finish() :: else fi
        :: report == Finished -> isFinished[member] = true
        fi
    fi
}

proctype Coordinator(byte gen; byte me) {
    bool isReady[MEMBERS], isEnded[MEMBERS], hasCommitted[MEMBERS], isFinished[MEMBERS], lost[MEMBERS];
    bool cancelled, follows;
    byte attempt, error, told, which, i;
    mtype stage, report;
begin:
    atomic {
        if :: dead[me] -> goto away :: else fi;
        attempts++;
        attempt = attempts;
        error = 0; told = 0; follows = false;
        stage = Preparing;
        for (i : 0 .. MEMBERS - 1) {
            lost[i] = dead[i];                              /* the view has no member that is lost */
            isReady[i] = lost[i]; isEnded[i] = lost[i]; hasCommitted[i] = lost[i]; isFinished[i] = lost[i];
            TELL(i, Prepare)
        }
    };
    do
    :: dead[me] -> goto away
    :: atomic { LIVES && nempty(reports[AT(gen, 0)]) -> take(0) }
    :: atomic { LIVES && nempty(reports[AT(gen, 1)]) -> take(1) }
#if MEMBERS > 2
    :: atomic { LIVES && nempty(reports[AT(gen, 2)]) -> take(2) }
#endif
#ifndef MUT_LOST
    :: atomic {
        LIVES && dead[MEMBERS - 1] && !lost[MEMBERS - 1] ->
        i = MEMBERS - 1;
        lost[i] = true;
        which = (isEnded[i] && hasCommitted[i] -> 0 : 99);
        isReady[i] = true; isEnded[i] = true; hasCommitted[i] = true; isFinished[i] = true;
        if
        :: which -> failed(which)
        :: else
        fi
      }
#endif
#ifdef CANCEL
    :: atomic { LIVES && !cancelled && MAY_CANCEL -> cancelled = true; stop() }
#endif
    :: LIVES && stage == Finishing && ALL(isFinished) ->
        if
        :: follows -> goto begin
        :: else -> goto away
        fi
    od;
away:
    atomic {
        gone[gen] = true;
#ifdef CRASH
        if
        :: gen == 0 && dead[0] && outcome == None ->        /* the next member has the record, and goes on */
            if
            :: attempts < ATTEMPTS && !visible -> run Coordinator(1, 1)
            :: else -> outcome = FailedRun; gone[1] = true
            fi
        :: gen == 0 && !(dead[0] && outcome == None) -> gone[1] = true
        :: else
        fi
#endif
    }
}

proctype Death() {
#ifdef CRASH
    if :: dead[0] = true :: skip fi;
#endif
#ifdef LOSS
    if :: dead[MEMBERS - 1] = true :: skip fi;
#endif
    skip
}

init {
    byte member;
    atomic {
        for (member : 0 .. MEMBERS - 1) {
            run Participant(0, member);
#ifdef CRASH
            run Participant(1, member);
#endif
        };
        run Coordinator(0, 0);
        run Death()
    };
    (_nr_pr == 1);
    assert(outcome != None
#if defined(CRASH) && defined(LOSS)
        || dead[1]                                          /* with the second coordinator the client's member */
#endif
    )
}
