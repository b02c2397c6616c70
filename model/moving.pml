/* A partition that moves from member 0 to member 2, while it is written to (docs/design/0029, 0031). Member 1 has a backup
 * (without -DALONE). The keeper of the primary copies piece by piece, and sends what has changed meanwhile, while the
 * partition stays open. With the end of the copy the new member joins the backups: it is told of what has changed since,
 * and no write returns that it does not have. When all backups have everything it is reported SYNCED. At last the
 * partition is closed and handed over (not with -DSTAYS: then member 2 becomes one more backup). The agreement on tables
 * is taken for granted: a table is in force at once and each member learns it at some time, or never, if it is not in the
 * view. A new view may come at any moment, with the same members or without one of them (-DVIEWS=n, -DLOSSES=n, in all). A
 * member that is dropped may go on with the last table that it knew, or do nothing any more. A primary may report a backup
 * STALE (-DSTALES=n), and a copy may fail while the new member is waited for (-DFAILS=n). A keeper goes on with the table
 * with which it began while another one comes; messages of copies are taken meanwhile. Clients ask any member that has the
 * partition open, and ask again. They do -DOPS=n operations, from -DFIRST=n on.
 *
 * Holds: who opens the partition has everything that was acknowledged, unless all members that had it by the table are
 * gone; all members that have it by the table have what is acknowledged; a change, its result and what they are about are there
 * together; no operation is done twice; not two members of a view have the partition open.
 *
 * Mutations that must fail: MUT_NOTE    changes are not noted while the partition is copied
 *                           MUT_LATE    they are noted from the first piece that has been read
 *                           MUT_BEGIN   a copy goes on from what was there of an earlier one
 *                           MUT_ANSWER  the new member joins before it has taken the end of the copy
 *                           MUT_WAIT    writes are not waited for on a member that joins, until a table shows it
 *                           MUT_JOIN    who joins is told only of what changes from then on
 *                           MUT_SETTLE  it is reported before it has everything
 *                           MUT_COUNT   changes are no longer noted for the copy, and not yet for the new backup
 *                           MUT_DRAIN   it is handed over before the backups have everything
 *                           MUT_EPOCH   changes of an older view are taken
 *                           MUT_RESULT  results do not move
 *                           MUT_STALE   a backup that is reported STALE is not waited for, though no table shows it
 *                           MUT_REOPEN  a partition that is opened again forgets which change its backups lack
 *                           MUT_TABLE   a keeper removes by an older table what is being copied to it by a newer one
 *                           MUT_FOLLOW  what counted in an older view is given up after a copy of the new one has ended */
#ifndef OPS
#define OPS 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef VIEWS
#define VIEWS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef STALES
#define STALES 0
#endif
#define TABLES 9
#define RECORDS 4
#define NO_MEMBER 7

#define BIT(n) (1 << (n))
#define AT(m, n) ((m) * 3 + (n))

mtype = { Begin, PieceA, PieceB, PieceR, Terms, Changed, End };

/* -- tables ------------------------------------------------------------------------------------------------------------ */

byte epoch[TABLES], view[TABLES], first[TABLES], synced[TABLES], copying[TABLES];
byte began[TABLES];             /* the primary by the first table of the view */
byte last;                      /* the table in force */
byte at[3];                     /* the table that a member knows */
byte views, losses, stales;
byte fails_left = FAILS;
bool gone;                      /* all members that had the partition are gone: it begins anew, and nothing is promised */
byte says_synced[3], says_stale[3], says_handed;   /* what the primary reports about a member, and in which epoch */

#ifdef STAYS
#define BEST(v) ((v) & 1 -> 0 : ((v) & 2 -> 1 : 2))
#define WANTED(v) (v)
#else
#define BEST(v) ((v) & 4 -> 2 : ((v) & 1 -> 0 : 1))
#define WANTED(v) ((v) & 4 -> (v) & 6 : (v))
#endif
#define HOLDS(t, m) (synced[t] & BIT(m))
#define GETS(t, m) (copying[t] & BIT(m))
#define GOING(t) (copying[t] == 0 && first[t] != BEST(view[t]))

byte has_it, gets_it, leads;    /* of the next table */

inline next_table() {
    assert(last + 1 < TABLES);
    epoch[last + 1] = epoch[last];
    view[last + 1] = view[last];
    began[last + 1] = began[last];
    put_table()
}

inline put_table() {
    if
    :: gets_it == 0 ->          /* who is not wanted lets go, but for a primary that has not handed over */
        has_it = WANTED(view[last + 1]) | (leads != BEST(view[last + 1]) -> BIT(leads) : 0)
    :: else
    fi;
    first[last + 1] = leads; copying[last + 1] = gets_it; synced[last + 1] = has_it;
    last++;
    has_it = 0; gets_it = 0; leads = 0
}

/* -- members ----------------------------------------------------------------------------------------------------------- */

byte cell_a[3], cell_b[3], results[3];      /* what the partition holds: operation 0 adds 1 to a, 1 takes b away; each leaves a result */
bool opened[3];
bool has[3];                    /* it is closed, and all of it is here */
bool complete[3];               /* it was, by the table that was looked at last */
byte followed[3];               /* the epoch that has been looked at */
byte term[3];                   /* the table under which a member began to lead, plus 1 */
byte counted[3];                /* how many backups its store knows of */
bool noted[3];                  /* changes are noted for a copy */
byte rows[3];                   /* the backups that are waited for */
byte reported[3];               /* copies that were reported, and are not in a table yet */
byte logged[3];                 /* the number of the last record */
byte changed[3];                /* the number of the last change that is waited for */
byte of_cell[3 * RECORDS], of_results[3 * RECORDS]; /* records: a * 4 + b, and results */
byte confirmed[9];              /* AT(primary, backup): the number up to which that one has everything */
byte reached[3], in_term[3];    /* what a replica has: up to that number of the primary of that term */
chan copies[3] = [DEPTH] of { mtype, byte, byte, byte, byte };   /* to a member: what, the sender, in which epoch, of a table, values */
byte failed;                    /* BIT(sender): a message was refused */

byte acknowledged;
byte some;

#define EPOCH(m) epoch[at[m]]
#define HAS_ALL(m, k, number) ((rows[m] & BIT(k)) == 0 || confirmed[AT(m, k)] >= (number))
#define REACHED(m, number) (HAS_ALL(m, 0, number) && HAS_ALL(m, 1, number) && HAS_ALL(m, 2, number))
#define BACKED_UP(m) REACHED(m, logged[m])

#define WHOLE(m) (cell_a[m] == (results[m] & 1) && cell_b[m] != ((results[m] >> 1) & 1))

inline empty_store(m) { cell_a[m] = 0; cell_b[m] = 0; results[m] = 0; reached[m] = 0; in_term[m] = 0 }

inline open_up(m) {
    if :: !has[m] -> empty_store(m) :: else fi;
    has[m] = false;
    opened[m] = true;
    counted[m] = (rows[m] != 0);
#ifdef MUT_REOPEN
    changed[m] = 0;
#endif
    if
    :: !gone && (view[last] & BIT(m)) ->
        assert((acknowledged & ~results[m]) == 0);
        assert(WHOLE(m));
        assert(!opened[(m + 1) % 3] || !(view[last] & BIT((m + 1) % 3)));
        assert(!opened[(m + 2) % 3] || !(view[last] & BIT((m + 2) % 3)))
    :: else
    fi
}

inline close_down(m) { if :: opened[m] -> opened[m] = false; has[m] = true :: else fi }

inline look_at_view(m, t) {     /* what counted in an older view, or by an older table, is given up */
    reported[m] = (followed[m] == epoch[t] -> reported[m] : 0);
    has[m] = has[m] && (HOLDS(t, m) || (followed[m] == epoch[t] && !complete[m]));
    complete[m] = HOLDS(t, m);
    followed[m] = epoch[t]
}

#define FIND(m, k) confirmed[AT(m, k)] = ((k != m && (some & ~rows[m] & BIT(k))) -> logged[m] : confirmed[AT(m, k)])

inline follow_backups(m) {      /* by the table that is known now */
    if
    :: term[m] && first[at[m]] == m && (view[at[m]] & BIT(m)) ->
        reported[m] = reported[m] & copying[at[m]];
        some = (synced[at[m]] | reported[m]) & ~BIT(m);
        FIND(m, 0); FIND(m, 1); FIND(m, 2);
        rows[m] = some;
        some = 0
    :: else
    fi
}

#define CHANGED (at[m] != t || gone || !(view[last] & BIT(m)))  /* or it is dropped, and finds that out */
#define IN_FORCE (EPOCH(m) == e)
#define OVER (EPOCH(m) != e || gone || !(view[last] & BIT(m)))
#define SEND(what, x, y) \
    atomic { \
        if \
        :: OVER || (failed & BIT(m)) -> goto fails \
        :: IN_FORCE && !(failed & BIT(m)) && nfull(copies[n]) -> copies[n] ! what, m, e, x, y \
        fi \
    }
#define FINISH atomic { if :: empty(copies[n]) && !(failed & BIT(m)) :: OVER || (failed & BIT(m)) -> goto fails fi }

active proctype Cluster() {
    byte n, lost, v;
    atomic {
#ifdef ALONE
        view[0] = 5; synced[0] = 1;
#else
        view[0] = 7; synced[0] = 3;
#endif
        epoch[0] = 1; copying[0] = 4; cell_b[0] = 1; cell_b[1] = (synced[0] & 2 -> 1 : 0);
        term[0] = 1; opened[0] = true; rows[0] = synced[0] & 2; counted[0] = (rows[0] != 0);
        has[1] = (rows[0] != 0); in_term[1] = (rows[0] != 0);
        for (n : 0 .. 2) { followed[n] = 1; complete[n] = HOLDS(0, n) }
        n = 0
    }
end:
    do
    :: atomic { !gone -> select(n : 0 .. 2);
        if
        :: says_synced[n] == epoch[last] && GETS(last, n) ->
            says_synced[n] = 0; has_it = synced[last] | BIT(n); gets_it = copying[last] & ~BIT(n); leads = first[last]; next_table()
        :: says_stale[n] == epoch[last] && HOLDS(last, n) && first[last] != n && last < TABLES - 4 ->
            says_stale[n] = 0;
            has_it = synced[last] & ~BIT(n); gets_it = copying[last] | (BIT(n) & WANTED(view[last])); leads = first[last];
            next_table()
        :: says_handed == epoch[last] && GOING(last) && HOLDS(last, BEST(view[last])) ->
            says_handed = 0; has_it = synced[last]; gets_it = 0; leads = BEST(view[last]); next_table()
        :: else
        fi;
        n = 0
      }
    :: atomic { !gone && views < VIEWS && last + 4 < TABLES ->   /* a new view */
        views++;
        v = view[last];
        if
        :: lost = 0
        :: losses < LOSSES -> losses++; if :: lost = 1 :: lost = 2 :: lost = 4 fi
        fi;
        v = v & ~lost;
        if
        :: (synced[last] & v) == 0 -> gone = true
        :: else ->
            epoch[last + 1] = epoch[last] + 1;
            view[last + 1] = v;
            has_it = synced[last] & v;
            gets_it = WANTED(v) & ~has_it;
            leads = (v & BIT(first[last]) -> first[last] : (has_it & 1 -> 0 : (has_it & 2 -> 1 : 2)));
            began[last + 1] = leads;
            put_table()
        fi;
        v = 0; lost = 0
      }
    :: atomic { !gone -> select(n : 0 .. 2); if :: view[last] & BIT(n) -> at[n] = last :: else fi; n = 0 }
    od
}

active [3] proctype Keeper() {
    byte m = _pid - 1, t, e, n, from, begun;
end:
    do
    :: atomic { !gone && view[at[m]] & BIT(m) ->
        t = at[m]; e = epoch[t];
        look_at_view(m, t);
        if :: first[t] != m || GOING(t) -> close_down(m) :: else fi;
        if :: first[t] != m && term[m] -> term[m] = 0; rows[m] = 0 :: else fi;
        if :: first[t] != m && (HOLDS(t, m) || GETS(t, m)) -> goto again :: else fi
      }
      if
#ifndef MUT_TABLE
      :: CHANGED -> goto again
      :: atomic { at[m] == t && !HOLDS(t, m) && !GETS(t, m) -> has[m] = false; empty_store(m); goto again }
#else
      :: atomic { !HOLDS(t, m) && !GETS(t, m) -> has[m] = false; empty_store(m); goto again }
#endif
      :: first[t] == m
      fi;
      if
      :: atomic { GOING(t) && term[m] ->
            follow_backups(m)
        }
#ifndef MUT_DRAIN
        if :: BACKED_UP(m) :: OVER -> goto again fi;
#endif
        atomic {        /* another table may have come: what counts is what that says */
            if
            :: IN_FORCE && GOING(at[m]) && first[at[m]] == m -> says_handed = e; term[m] = 0; rows[m] = 0
            :: else
            fi
        }
        goto again
      :: GOING(t) && !term[m] -> goto again
      :: atomic { !GOING(t) && !opened[m] && term[m] -> follow_backups(m); open_up(m) }
      :: !GOING(t) && !term[m] ->       /* begin to lead: first all backups have the same */
        n = 0;
        do
        :: began[t] != m -> break       /* it was handed over: they have */
        :: began[t] == m && n < 3 ->
            if
            :: atomic { n != m && HOLDS(t, n) && EPOCH(n) == e && has[n] && has[m] ->
                if
                :: in_term[n] == in_term[m] && reached[n] > reached[m] ->
                    cell_a[m] = cell_a[n]; cell_b[m] = cell_b[n]; results[m] = results[n]; reached[m] = reached[n]
                :: in_term[n] == in_term[m] && reached[n] < reached[m] ->
                    cell_a[n] = cell_a[m]; cell_b[n] = cell_b[m]; results[n] = results[m]; reached[n] = reached[m]
                :: else
                fi
              }
            :: atomic { n != m && HOLDS(t, n) && EPOCH(n) == e && !has[n] && has[m] -> says_stale[n] = e } goto again
            :: n == m || !HOLDS(t, n) || !has[m]
            :: CHANGED -> goto again
            fi;
            n++
        :: else -> break
        od;
        atomic {
            if :: EPOCH(m) != e -> goto again :: else fi;
            term[m] = t + 1;
            follow_backups(m);
            open_up(m)
        }
      :: !GOING(t) && opened[m] ->
        atomic { follow_backups(m); counted[m] = (rows[m] != 0) }
      fi;
      /* -- a copy ------------------------------------------------------------------------------------------------ */
      if
      :: atomic { at[m] == t && GETS(t, 2) && !(reported[m] & 4) && m != 2 -> n = 2 }
      :: atomic { at[m] == t && GETS(t, 1) && !(reported[m] & 2) && m != 1 -> n = 1 }
      :: atomic { at[m] == t && GETS(t, 0) && !(reported[m] & 1) && m != 0 -> n = 0 }
      :: goto again
      fi;
      atomic {
        (EPOCH(n) == e || CHANGED);
        if :: at[m] != t || !opened[m] -> goto again :: else fi;
        failed = failed & ~BIT(m);
#ifndef MUT_NOTE
        noted[m] = true;
#endif
        begun = logged[m];
        from = begun
      }
      SEND(Begin, 0, 0);
      SEND(PieceA, cell_a[m], 0);
#ifdef MUT_LATE
      begun = logged[m];
      from = begun;
#endif
      if
      :: cell_b[m] -> SEND(PieceB, 1, 0)
      :: !cell_b[m]
      fi;
#ifndef MUT_RESULT
      SEND(PieceR, results[m], 0);
#endif
      SEND(Terms, term[m], begun);
      do
      :: from < logged[m] -> from++; SEND(Changed, from, 0)
      :: break
      od;
#ifndef MUT_ANSWER
      FINISH;
#endif
      SEND(End, 0, 0);
#ifndef MUT_ANSWER
      FINISH;
#endif
      atomic {                          /* from now on it is told as backups are, from where its copy is on */
        if :: OVER || at[m] != t && !GETS(at[m], n) -> goto fails :: else fi;
#ifndef MUT_WAIT
        reported[m] = reported[m] | BIT(n);
#endif
        follow_backups(m);
#ifndef MUT_JOIN
        confirmed[AT(m, n)] = (confirmed[AT(m, n)] < from -> confirmed[AT(m, n)] : from);
#endif
        begun = logged[m]
      }
#ifndef MUT_COUNT
      atomic { counted[m] = (rows[m] != 0 && opened[m]) };
#endif
#ifndef MUT_SETTLE
      if
      :: REACHED(m, begun)
      :: !REACHED(m, begun) && fails_left -> fails_left--; goto fails
      :: OVER -> goto fails
      fi;
#endif
      noted[m] = false;
      atomic {
        if :: !IN_FORCE || !GETS(at[m], n) -> goto again :: else fi;
        says_synced[n] = e;
        says_stale[n] = 0;
        says_handed = 0         /* what does not fit the table is not repeated */
      }
      goto again;
fails:
      atomic {
        if :: IN_FORCE -> reported[m] = reported[m] & ~BIT(n) :: else fi;
        follow_backups(m)
      }
      noted[m] = false;
again:
      atomic { n = 0; from = 0; begun = 0; t = 0; e = 0 }
    od
}

active [3] proctype Taker() {   /* messages of copies, one after the other, while the keeper works */
    byte m = _pid - 4, sender, e, x, y;
    mtype what;
end:
    do
    :: atomic { copies[m] ? what, sender, e, x, y ->
        if
        :: EPOCH(m) != e || !(view[at[m]] & BIT(m)) || (!GETS(at[m], m) && what != PieceA && what != PieceB && what != PieceR) ->
            failed = failed | BIT(sender)
        :: else ->
#ifndef MUT_FOLLOW
            if :: followed[m] != EPOCH(m) -> look_at_view(m, at[m]) :: else fi;
#endif
            if
            :: what == Begin ->
                has[m] = false; complete[m] = false;
#ifndef MUT_BEGIN
                empty_store(m)
#endif
            :: what == PieceA -> cell_a[m] = x
            :: what == PieceB -> cell_b[m] = x
            :: what == PieceR -> results[m] = x
            :: what == Terms -> in_term[m] = x; reached[m] = y
            :: what == Changed && in_term[m] == term[sender] && x > reached[m] ->
                cell_a[m] = of_cell[sender * RECORDS + x] >> 2;
                cell_b[m] = of_cell[sender * RECORDS + x] & 3;
                results[m] = of_results[sender * RECORDS + x];
                reached[m] = x
            :: what == End -> has[m] = true
            :: else
            fi
        fi;
        what = Begin; sender = 0; e = 0; x = 0; y = 0
      }
    od
}

#ifdef MUT_EPOCH
#define OF_ONE_VIEW(p, n) true
#else
#define OF_ONE_VIEW(p, n) (EPOCH(n) == EPOCH(p) && (view[at[n]] & BIT(n)))
#endif

active proctype Feeds() {       /* changes to backups, on a way of their own */
    byte p, n, i;
end:
    do
    :: atomic { !gone -> select(p : 0 .. 2); select(n : 0 .. 2);
        i = AT(p, n);
        if
        :: (rows[p] & BIT(n)) && stales < STALES && HOLDS(at[p], n) && first[at[p]] == p ->
            stales++;
            says_stale[n] = EPOCH(p);
            says_synced[n] = 0;
#ifdef MUT_STALE
            rows[p] = rows[p] & ~BIT(n)
#endif
        :: (rows[p] & BIT(n)) && confirmed[i] < logged[p] && has[n] && in_term[n] <= term[p] && OF_ONE_VIEW(p, n) ->
            if
            :: in_term[n] < term[p] || reached[n] < logged[p] ->
                cell_a[n] = of_cell[p * RECORDS + logged[p]] >> 2;
                cell_b[n] = of_cell[p * RECORDS + logged[p]] & 3;
                results[n] = of_results[p * RECORDS + logged[p]];
                in_term[n] = term[p];
                reached[n] = logged[p]
            :: else
            fi;
            confirmed[i] = logged[p]
        :: else
        fi;
        p = 0; n = 0; i = 0
      }
    od
}

#define KNOWS(n) (!HOLDS(last, n) || !(view[last] & BIT(n)) || (results[n] & BIT(op)))

active [OPS] proctype Client() {
    byte op = _pid - 8 + FIRST, m = NO_MEMBER, k;
end:
    do
    :: atomic { !gone && m == NO_MEMBER -> select(k : 0 .. 2);
        if
        :: opened[k] ->
            m = k;
            if
            :: results[m] & BIT(op)     /* it has been done */
            :: else ->
                if :: op & 1 -> cell_b[m] = 0 :: else -> cell_a[m]++ fi;
                results[m] = results[m] | BIT(op);
                assert(!(view[last] & BIT(m)) || WHOLE(m));
                if
                :: noted[m] || counted[m] ->
                    logged[m]++; changed[m] = logged[m];
                    of_cell[m * RECORDS + logged[m]] = cell_a[m] * 4 + cell_b[m];
                    of_results[m * RECORDS + logged[m]] = results[m]
                :: else
                fi
            fi
        :: else
        fi;
        k = 0
      }
    :: atomic { !gone && m != NO_MEMBER && REACHED(m, changed[m]) ->
        acknowledged = acknowledged | BIT(op);
        assert(!opened[first[last]] || (results[first[last]] & BIT(op)));
        assert(KNOWS(0) && KNOWS(1) && KNOWS(2));
        break
      }
    :: atomic { m != NO_MEMBER -> m = NO_MEMBER }
    od
}
