"""The states of a tasklet that belong to snapshots: restore, save, commit, wait.

A tasklet of a job with a guarantee has one `SnapshotSteps`, which adds its states to the tasklet's and takes the place
of three: at an aligned barrier state is saved before the barrier goes on, `complete()` gives way to an order to save,
and the end waits for phase two. Tasklets of a job without a guarantee get theirs when it is exported.

*Save*: `save_to_snapshot` until True, in slices of about a millisecond, each of which is encoded before the next; then
`snapshot_commit_prepare`; then the barrier. Where the processor captures its state, the barrier goes on at once, and
the slices, shorter ones, come between the tasklet's other callbacks; the report follows the last. *Resolve* comes
between any two callbacks: it sets the tasklet's present state aside until `snapshot_commit_finish` has returned True.
Nothing in here knows messages' ways or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from shmjet.core import ShmjetError
from shmjet.core.processor import NotSavedError
from shmjet.core.saving import capture, captures, saves_at_end
from shmjet.data.marks import Barrier
from shmjet.execution.lasting_pieces import NOTHING
from shmjet.execution.snapshot_orders import Place, SnapshotOrders
from shmjet.execution.snapshot_writer import PIECE_BYTES, ProcessorEntries, column_bytes
from shmjet.execution.state_partitions import StatePartitions
from shmjet.execution.tasklet_state import State
from shmjet.snapshots.chunk import Entry

if TYPE_CHECKING:
    from shmjet.execution.tasklet import ProcessorTasklet

_SLICE_NS = 500_000
"""Nanoseconds for which one call offers entries, and for which it encodes entries that wait."""
BACKGROUND_SLICE_NS = 150_000
"""The same in the background."""
_MOVING = ("saved_id", "_resolved_id", "_told", "_released")
"""Fields that move to another worker as they are."""
_AT_REST = frozenset(
    (State.PROCESS_WATERMARK, State.NULLARY_PROCESS, State.PROCESS_INBOX, State.COMPLETE_EDGE, State.COMPLETE)
)


@dataclass
class Share:
    """What a processor gets back of a snapshot.

    Args:
        is_finished: it had ended, and is not to run again.
        lists: of entries, read when they are asked for.
        heads: items by the ordinal of an ordered edge: they come before anything that comes on it.
        final: of a processor that had ended, its last entries.
        tells_rest: whether these tell other processors what is left to do in its place.
    """

    is_finished: bool
    lists: Iterator[list[Entry]]
    heads: list[tuple[int, list[Any]]] = field(default_factory=list)
    final: list[Entry] = field(default_factory=list)
    tells_rest: bool = False


class SnapshotSteps:
    """The part of a tasklet that takes part in snapshots.

    Args:
        tasklet: gets its states.
        orders: of the execution in this process.
        place: of the processor.
        partitions: of the vertex.
        share: returns what the processor gets back, when it is time; None: nothing is restored.
        waits_at_end: it is a sink of a job with a guarantee: it completes after a last snapshot.
    """

    def __init__(
        self,
        tasklet: ProcessorTasklet,
        orders: SnapshotOrders,
        place: Place,
        partitions: StatePartitions,
        *,
        share: Callable[[], Share] | None = None,
        waits_at_end: bool = False,
    ) -> None:
        self.saved_id = 0
        """The last snapshot of which this tasklet has passed the barrier."""
        self._tasklet = tasklet
        self._processor = tasklet.processor
        self._orders = orders
        self._place = place
        self._partitions = partitions
        self._find_share = share
        self._share: Share | None = None
        self._waits_at_end = waits_at_end
        self._resolved_id = 0
        self._saving = Barrier(0)
        self._after = State.COMPLETE
        self._resumes = State.COMPLETE
        self._entries: ProcessorEntries | None = None
        self._offered = False
        self._is_captured = False
        self._may_fail = False
        """Whether an error while state is saved fails the snapshot only."""
        self._lasting = self._newly_lasting = NOTHING
        """What the last valid snapshot, and the last that was saved, have to which later ones may refer."""
        self._final: list[Entry] = []
        self._tells_rest = False
        self._completed = False
        self._stopped = False
        self._told = False
        self._released = False
        self._slice_ns = 0
        tasklet.steps |= {
            State.RESTORE_SNAPSHOT: self._restore,
            State.FINISH_RESTORE: self._finish_restore,
            State.SAVE_SNAPSHOT: self._save,
            State.SNAPSHOT_COMMIT_PREPARE: self._prepare,
            State.SNAPSHOT_COMMIT_FINISH: self._commit,
            State.WAIT_FOR_SNAPSHOT: self._wait,
            State.SAVE_FINAL: self._save_final,
            State.EMIT_BARRIER: self._at_barrier,
            State.COMPLETE: self._complete,
            State.EMIT_DONE_ITEM: self._end,
        }
        if share is not None:
            tasklet.state = State.RESTORE_SNAPSHOT

    def join_late(self) -> None:
        """Take part from now on, also of a tasklet that has ended, or is about to, without saving its last state.

        State that cannot be saved fails the export then, and not the job, which has no other use for snapshots.
        """
        self._may_fail = True
        tasklet = self._tasklet
        if tasklet.state not in (State.EMIT_DONE_ITEM, State.END):
            return
        complete = not saves_at_end(self._processor)
        while not complete:  # it tells its position, which does not need what has been closed
            complete, entries = self._offer()
            self._final += entries
            self._tells_rest = True
        if tasklet.done:
            final, tells_rest = self._final, self._tells_rest
            self._orders.ended(self._place, 0, self._partitions, final, tells_rest=tells_rest)

    # -- orders -------------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """Look at the newest orders; the tasklet is called even if nothing else has a use for that."""
        resolve = self._orders.resolve
        state = self._tasklet.state
        if (
            resolve is not None
            and self._resolved_id < self.saved_id == resolve.snapshot_id
            and state is not State.SNAPSHOT_COMMIT_FINISH
        ):
            self._resumes = state
            self._tasklet.state = State.SNAPSHOT_COMMIT_FINISH
        self._tasklet.runnable = True

    # -- restore ------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        tasklet, inbox = self._tasklet, self._tasklet.inbox
        share = self._share
        if share is None:
            assert self._find_share is not None
            share = self._share = self._find_share()
            if share.is_finished:
                self._final, self._tells_rest = share.final, share.tells_rest
                self._completed = True
                tasklet.emit_done()
                return
            for ordinal, items in share.heads:
                tasklet.intake.edges[ordinal].restore_heads(items)
        if not inbox:
            entries = next(share.lists, None)
            if entries is None:
                tasklet.enter(State.FINISH_RESTORE)
                return
            inbox.fill(entries)
        before = len(inbox)
        tasklet.timed("restore_from_snapshot()", self._restore_inbox)
        if len(inbox) < before:
            tasklet.note_progress()
        else:
            tasklet.poll()

    def _restore_inbox(self) -> bool:
        self._processor.restore_from_snapshot(self._tasklet.inbox)
        return True

    def _finish_restore(self) -> None:
        tasklet = self._tasklet
        if not tasklet.timed("finish_snapshot_restore()", self._processor.finish_snapshot_restore):
            tasklet.poll()
            return
        self._share = None
        tasklet.state = State.NULLARY_PROCESS
        tasklet.note_progress()

    # -- phase one ----------------------------------------------------------------------------------------------

    def _at_barrier(self) -> None:
        """Save before the barrier that has come on all inputs goes on."""
        barrier = self._tasklet.intake.barrier
        assert barrier is not None
        if barrier.snapshot_id <= self.saved_id:
            raise ShmjetError(f"the barrier of snapshot {barrier.snapshot_id} came after that of {self.saved_id}")
        self._begin(barrier, State.PROCESS_WATERMARK)

    def _complete(self) -> None:
        """Complete, unless an order to save is newer than what has been saved."""
        save = self._orders.save
        waits = self._waits_at_end and not self._released
        if waits and not self._told:
            self._told = True
            self._orders.at_end(self._place)
        if save is not None and save.snapshot_id > self.saved_id and self._orders.saves:
            self._begin(Barrier(save.snapshot_id, save.terminal), State.COMPLETE)
        elif not waits:
            self._tasklet.complete()

    def _begin(self, barrier: Barrier, after: State) -> None:
        self._saving, self._after = barrier, after
        self._entries, self._offered = None, False
        self._tasklet.enter(State.SAVE_SNAPSHOT)

    def _save(self) -> None:
        save = self._orders.save
        if save is None or save.snapshot_id < self._saving.snapshot_id:
            return  # the barrier was faster than the order, which calls this tasklet when it comes
        if self._entries is None:
            self._entries = self._orders.entries_of(self._place, self._partitions, self._lasting)
            heads = self._tasklet.intake.heads()
            if heads:
                self._entries.add_own(heads)
        try:
            if not self._save_some(self._entries):
                return
        except NotSavedError as error:
            self._refuse(str(error))
        except Exception as error:
            if not self._may_fail:
                raise
            self._refuse(f"{type(error).__name__}: {error}")
        if save.prepares:
            self._tasklet.enter(State.SNAPSHOT_COMMIT_PREPARE)
        else:
            self._pass_barrier()

    def _save_some(self, into: ProcessorEntries) -> bool:
        """Capture the state, or save for a slice; return whether the barrier may go on."""
        if not captures(self._processor):
            return self._save_slice(into)
        if not self._tasklet.timed("_capture()", partial(capture, self._processor)):
            self._tasklet.poll()
            return False
        self._is_captured = True
        return True

    def _refuse(self, why: str) -> None:
        """Have the snapshot fail, to which this processor adds nothing more."""
        name = self._tasklet.context.vertex_name
        self._orders.refuse(f"the state of vertex {name!r} cannot be saved: {why}")

    def _save_slice(self, into: ProcessorEntries) -> bool:
        """Save for a slice, which in the background either writes or offers; return whether all entries are written."""
        self._begin_slice()
        before = len(into.pieces)
        if not into.write_full(self._slice_is_over):
            self._tasklet.note_progress()
            return False
        if self._is_captured and len(into.pieces) > before:
            return False
        if not self._offered:
            self._offered, entries = self._offer()
            if entries:
                into.add(entries)
                self._tasklet.note_progress()
            if not self._offered:
                self._tasklet.poll()
                return False
        self._tasklet.note_progress()
        self._begin_slice()
        return into.flush(self._slice_is_over)

    def _save_captured(self) -> None:
        """Save for a slice, after the barrier has been passed on."""
        assert self._entries is not None
        self._tasklet.note_progress()
        try:
            if not self._save_slice(self._entries):
                return
        except Exception as error:
            if not self._may_fail:
                raise
            self._refuse(f"{type(error).__name__}: {error}")
        self._tasklet.background = None
        self._report()

    def _offer(self) -> tuple[bool, list[Entry]]:
        """Let the processor offer entries for a slice; return whether these are all, and them."""
        outbox = self._tasklet.outbox
        entries: list[Entry] = []

        def save() -> bool | None:
            nonlocal entries
            outbox.begin_saving(self._entries)
            complete = self._processor.save_to_snapshot()
            entries = outbox.end_saving(bool(complete))
            return complete

        overdue, outbox.overdue = outbox.overdue, self._has_offered_enough
        self._begin_slice()
        try:
            return self._tasklet.timed("save_to_snapshot()", save), entries
        finally:
            outbox.overdue = overdue

    def _begin_slice(self) -> None:
        length = BACKGROUND_SLICE_NS if self._is_captured else _SLICE_NS
        self._slice_ns = self._tasklet.clock() + length

    def _slice_is_over(self) -> bool:
        return self._tasklet.clock() > self._slice_ns

    def _has_offered_enough(self) -> bool:
        """Whether the slice is over; in the background, what is offered in one is also written in one."""
        return self._slice_is_over() or (self._is_captured and column_bytes(self._tasklet.outbox.saved) >= PIECE_BYTES)

    def _prepare(self) -> None:
        if self._tasklet.timed("snapshot_commit_prepare()", self._processor.snapshot_commit_prepare):
            self._pass_barrier()
        else:
            self._tasklet.poll()

    def _pass_barrier(self) -> None:
        tasklet, barrier = self._tasklet, self._saving
        tasklet.pass_barrier(barrier)
        self.saved_id = barrier.snapshot_id
        tasklet.state = State.WAIT_FOR_SNAPSHOT if barrier.terminal else self._after
        if self._is_captured:
            tasklet.background = self._save_captured
            tasklet.runnable = True
        else:
            self._report()

    def _report(self) -> None:
        """Report what has been written: phase two comes after this."""
        assert self._entries is not None
        self._orders.saved(self._place, self._entries.pieces)
        self._newly_lasting = self._entries.lasting()
        self._entries, self._is_captured = None, False
        self.notice()

    # -- phase two ----------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Do nothing until phase two."""

    def _commit(self) -> None:
        tasklet, save, resolve = self._tasklet, self._orders.save, self._orders.resolve
        assert save is not None
        assert resolve is not None
        success = resolve.success
        if save.prepares and not tasklet.timed(
            "snapshot_commit_finish()", lambda: self._processor.snapshot_commit_finish(success)
        ):
            tasklet.poll()
            return
        self._resolved_id = self.saved_id
        if success and save.prepares:
            self._lasting = self._newly_lasting
        self._orders.resolved(self._place)
        tasklet.note_progress()
        self._released = self._released or (success and save.prepares and self._after is State.COMPLETE)
        if self._completed:
            self.end()
        elif not self._saving.terminal:
            tasklet.state = self._resumes
        elif success:
            self._stopped = True
            tasklet.emit_done()
        else:
            tasklet.state = self._after

    # -- the end ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Go on after `complete()` has returned True: to DONE, when phase two is over and the last state is saved."""
        self._completed = True
        tasklet = self._tasklet
        if self._resolved_id < self.saved_id:
            tasklet.state = State.WAIT_FOR_SNAPSHOT
        elif saves_at_end(self._processor):
            tasklet.state = State.SAVE_FINAL
            tasklet.note_progress()
        else:
            tasklet.emit_done()

    def _save_final(self) -> None:
        complete, entries = self._offer()
        self._final += entries
        if complete:
            self._tells_rest = True
            self._tasklet.emit_done()
        elif entries:
            self._tasklet.note_progress()
        else:
            self._tasklet.poll()

    def _end(self) -> None:
        self._tasklet.emit_done_item()
        if not self._stopped:
            final, tells_rest = self._final, self._tells_rest
            self._orders.ended(self._place, self.saved_id, self._partitions, final, tells_rest=tells_rest)

    # -- moving to another worker -------------------------------------------------------------------------------

    @property
    def is_at_rest(self) -> bool:
        """Whether the tasklet may move: it neither restores nor saves, and waits for nothing."""
        return self._tasklet.state in _AT_REST and self._resolved_id == self.saved_id

    def export_state(self) -> dict[str, Any]:
        """Return all that a twin on another worker needs to go on; only while it `is_at_rest`."""
        return {name: getattr(self, name) for name in _MOVING}

    def import_state(self, state: dict[str, Any]) -> None:
        """Go on where a twin on another worker stopped, and look at the orders here."""
        for name, value in state.items():
            setattr(self, name, value)
        self.notice()

    def release(self) -> None:
        """Let go of the tasklet and its processor."""
        del self._processor, self._tasklet
