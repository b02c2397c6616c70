"""Drives one processor: Jet's ProcessorTasklet as a state machine with bounded steps.

A call does one thing: flush what is left in the outbox, or make one callback of the processor and flush what it
emitted. No callback is made while something of the last one is still waiting for room, so backpressure reaches the
processor, and through its inbox the lanes and their producers. What is given to a callback adapts to what items
cost, so that a call takes about `LatencyPolicy.call_ns`.

Which edge is drained when is the `InputSelector`'s business, how often numbers are published the `Meter`'s. It must not
know processes: lanes, counters and the wake-up of neighbours come in from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from shmjet._native import Poller
from shmjet.core import Inbox, Outbox, Processor, ProcessorContext, ProcessorError, Watermark
from shmjet.core.latency_policy import LatencyPolicy
from shmjet.core.processor import forgot_answer
from shmjet.core.wake_up import set_wake_up
from shmjet.data.marks import DONE, IDLE, Barrier, Mark
from shmjet.execution import counters as words
from shmjet.execution.adaptive_limit import AdaptiveLimit, call_time
from shmjet.execution.counters import COUNTS, ProcessorCounters
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.input_selector import InputSelector
from shmjet.execution.interrupts import ExecutionInterrupted
from shmjet.execution.logs import about, speaker
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.snapshot_steps import SnapshotSteps
from shmjet.execution.tasklet_metrics import Meter
from shmjet.execution.tasklet_output import TaskletOutput
from shmjet.execution.tasklet_state import State
from shmjet.ring.lane import LaneReader, LaneWriter

_MOVING = (
    *("_emit_limit", "_inbox_limit", "_process_limit", "_watermark", "last_barrier", "state"),
    *("due_ns", "_held_up", "_overlooks"),
)
"""Fields that move to another worker as they are."""

_LEAST_DRAINED = 256
"""Items that an edge is drained of at least, if it has them, however few the processor is given at once."""


class ProcessorTasklet:
    """One processor with its inbox, outbox and lanes.

    Args:
        processor: driven by this tasklet alone.
        context: passed to its `init`.
        outbox: passed to its `init`.
        inbound: its inbound edges, one per ordinal.
        outbound: its outbound ordinals in order.
        counters: where its metrics go.
        policy: of the job: how long calls take.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self,
        processor: Processor,
        context: ProcessorContext,
        outbox: Outbox,
        inbound: Sequence[InboundEdge],
        outbound: Sequence[Outbound],
        counters: ProcessorCounters,
        policy: LatencyPolicy,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.processor = processor
        self.context = context
        self._about = about(context)
        self.counters = counters
        self.runnable = True
        self.polling = False
        self.due_ns = 0
        """When the processor wants its next call, in nanoseconds of the clock; 0 when it has set no timer."""
        self._held_up = State.NULLARY_PROCESS
        """The state whose callback waits for the timer."""
        self._overlooks = False
        """Whether the callback has left what came before its timer was set."""
        self._is_called = False
        """Whether the processor has been woken from outside, whatever its timer says."""
        self.stays_until_ns = 0
        self.clock = clock
        self.inbox = Inbox()
        self._outbox = outbox
        self._outbox.overdue = self._overdue if processor.is_cooperative else _never
        self.output = TaskletOutput(outbox, outbound, counters, clock)
        self.intake = InputSelector(inbound)
        self._edges = self.intake.edges
        self.meter = Meter(counters, len(outbound), processor)
        self._watermark: Watermark | None = None
        self.last_barrier = -1
        self._progress = False
        self._worked = False
        self._elapsed_ns = 0
        self._closed = False
        self._initialised = False
        self._emission_ns = policy.emission_ns
        self._slow_call_ns = policy.slow_call_ns
        self._worked_ns = policy.worked_ns
        self._inbox_limit = AdaptiveLimit(policy.call_items, policy)
        most = max(outbox.high_water_marks, default=policy.call_items)
        self._emit_limit = AdaptiveLimit(most, policy)
        self._process_limit = AdaptiveLimit(most, policy)
        self._begun_ns = 0
        self._has_nullary = type(processor).try_process is not Processor.try_process
        self.steps = {
            State.PROCESS_WATERMARK: self._process_watermark,
            State.NULLARY_PROCESS: self._nullary_process,
            State.PROCESS_INBOX: self._process_inbox,
            State.COMPLETE_EDGE: self._complete_edge,
            State.COMPLETE: self.complete,
            State.EMIT_BARRIER: self._emit_barrier,
            State.EMIT_DONE_ITEM: self.emit_done_item,
        }
        self.state = State.NULLARY_PROCESS
        self.snapshots: SnapshotSteps | None = None
        self.background: Callable[[], None] | None = None
        """A bounded step to be taken in each call, after its own, until the step sets this back."""
        self._at_end = self.emit_done
        self._make_pollers()

    def take_snapshots(self, snapshots: SnapshotSteps) -> None:
        """Take part in snapshots, by these steps."""
        self.snapshots = snapshots
        self._at_end = snapshots.end

    def _make_pollers(self) -> None:
        consumers = [consumer for edge in self._edges for consumer in edge.consumers]
        producers = self.output.producers
        soaked = [consumer for edge in self.intake.buffered for consumer in edge.consumers]
        self.poller = self._all_inputs = Poller(consumers, producers)
        self._soaked_inputs = Poller(soaked, producers) if soaked else None

    # -- life ---------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Call the processor's `init`; what it emits there is flushed by the first call."""
        speaker.about = self._about
        self._initialised = True
        self._outbox.begin_callback()
        self.processor.init(self._outbox, self.context)
        unit = self.processor.work_unit
        if unit not in words.WORK_UNITS:
            raise ProcessorError(f"work_unit of {type(self.processor).__name__} is {unit!r}; use 'items' or 'bytes'")
        self.counters.words[words.WORK_UNIT] = words.WORK_UNITS.index(unit)
        self.output.unflushed = True

    @property
    def done(self) -> bool:
        """True when DONE has been emitted on every lane."""
        return self.state is State.END

    def wake(self) -> None:
        """Note that a neighbour on the same worker made work for this tasklet."""
        self.runnable = True

    def note_room(self) -> None:
        """Note that a neighbour on the same worker has taken something: news for a tasklet that waits for room."""
        if self.output.may_have_left:
            self.runnable = True

    def wake_processor(self) -> None:
        """Have the processor called soon, whatever its timer says; any thread may call this."""
        self._is_called = True
        self.runnable = True  # last: a call in between sees the first, and after a call under way another follows

    def close(self) -> None:
        """Call the processor's `close`, once, however often this is called; its errors are logged only.

        It is not called where `init` was not, neither here nor on the worker that the processor has come from.
        """
        if self._closed or not self._initialised:
            return
        self._closed = True
        speaker.about = self._about
        try:
            self.processor.close()
        except ExecutionInterrupted:
            raise
        except BaseException:  # SystemExit and asyncio's CancelledError too
            self.context.logger.exception("close() of vertex %r failed", self.context.vertex_name)

    def release(self) -> None:
        """Let go of everything after the end, so that no cycle keeps the processor's tables alive."""
        self.steps.clear()
        self._outbox.overdue = None
        self._edges.clear()
        self.output.edges.clear()
        if self.snapshots is not None:
            self.snapshots.release()
            self.snapshots = None
        self._at_end = _nothing
        self.background = None
        set_wake_up(self.context, _nothing)
        del self.processor

    def call(self) -> bool:
        """Do one bounded step.

        Returns:
            whether anything was moved or changed, or the processor has worked; False means that calling again is
            useless until a lane has new items or room, until `due_ns`, or, with `polling` set, until something outside
            has changed.
        """
        self.runnable = self.polling = self._worked = False
        if self._is_called or (self.due_ns and self.is_due()):
            self._is_called = False
            self.due_ns = 0
        speaker.about = self._about
        self._progress = bool(self.intake.buffered) and self.intake.soak()
        if not self.output.unflushed or self._flush():
            self.steps[self.state]()
            if self.output.unflushed and not self._flush():
                self.meter.blocked += 1
        if not self._progress:
            self.flush_buffered()
        if self.background is not None:
            self.background()
        may_take = self._may_take()
        if self._progress and not self._is_through(may_take):
            self.runnable = True
        wants_input = may_take and not (self.due_ns and self._overlooks)
        if self._soaked_inputs is None:
            self.poller.inputs = wants_input
        else:  # buffered edges are emptied all the time, others when there is a use for it
            self.poller = self._all_inputs if wants_input else self._soaked_inputs
        meter = self.meter
        if self._progress or self.polling or meter.is_stale:
            if self.state is State.END or meter.is_due(self._begun_ns):
                if COUNTS:
                    self.publish()
            else:
                meter.is_stale = True
                meter.is_postponed = COUNTS
        return self._progress or self._worked

    def publish(self) -> None:
        """Publish the numbers: after the first calls and the last one, and now and then between."""
        self.meter.publish(self._begun_ns, self.state, self.processor, self.intake, self.output.edges)

    def is_due(self) -> bool:
        """Say whether the processor's timer has run out."""
        return 0 < self.due_ns <= self.clock()

    def note_progress(self) -> None:
        """Note that this call has changed something, so that the next one may do something too."""
        self._progress = True

    def poll(self) -> None:
        """Have the tasklet called again after a while, or at once if this call has changed something."""
        self.polling = not self._progress

    def _look_again(self) -> None:
        """Have the processor called again although nothing has moved: when it wants that, or at once, or after a while.

        At once if it has worked, after a while if it has not.
        """
        if self._set_timer(self.state):
            return
        self.polling = not self._progress
        self._worked = self.polling and self._elapsed_ns >= self._worked_ns

    def _set_timer(self, state: State) -> bool:
        """Set the timer that the processor asks for; False when it asks for none, or the outbox has refused an item.

        Args:
            state: whose callback waits for it.
        """
        wait = self.processor.next_call
        if wait is None or self._outbox.has_unfinished_item:
            return False
        self.due_ns = call_time(self.clock(), wait, self.processor)
        self._held_up = state
        self._overlooks = self.state is State.NULLARY_PROCESS and self.intake.has_input
        return True

    @property
    def _is_early(self) -> bool:
        """Whether the callback of this state waits for the timer."""
        return self.due_ns != 0 and self._held_up is self.state

    def _is_through(self, may_take: bool) -> bool:
        """Say whether the next call, too, has to wait for news or for the timer, although this one has done something.

        Items in rings, and what neighbours leave in local lanes from now on, are news.

        Args:
            may_take: what `_may_take` says.
        """
        # After every call that has moved something: first what tells it at once while there is much to do.
        if (self.state is State.COMPLETE or self._has_nullary) and not self._is_early:
            return False
        if self.state is not State.COMPLETE and (
            not may_take or self._watermark is not None or self.intake.may_have_more
        ):
            return False
        return not (self.output.may_have_left or self._outbox.has_unfinished_item or self.background is not None)

    def _may_take(self) -> bool:
        """Say whether the next call may take new items from a lane: nothing is left of those before."""
        state = self.state
        return (
            (state is State.PROCESS_INBOX or state is State.NULLARY_PROCESS)
            and not self.output.unflushed
            and not self.intake.has_items
            and not self.inbox
        )

    # -- moving to another worker -------------------------------------------------------------------------------

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of it is half done, so that it may move: all output has left, no item is in fragments."""
        return (
            not self.output.unflushed
            and not self.output.has_buffered_rows
            and not self._outbox.has_unfinished_item
            and not self._closed
            and self.state is not State.END
            and not self.intake.in_fragments
            and (self.snapshots is None or self.snapshots.is_at_rest)
        )

    @property
    def outbox(self) -> Outbox:
        """The processor's outbox."""
        return self._outbox

    @property
    def busy_ns(self) -> int:
        """Nanoseconds spent in the processor so far."""
        return self.meter.busy_ns

    def export_state(self) -> dict[str, Any]:
        """Return all that a twin on another worker needs to go on; only while it `is_at_rest`."""
        plain = {name: getattr(self, name) for name in _MOVING}
        plain["inbox"] = list(self.inbox)
        plain["intake"] = self.intake.export_state()
        plain["meter"] = self.meter.export_state()
        plain["output"] = self.output.export_state()
        plain["snapshots"] = None if self.snapshots is None else self.snapshots.export_state()
        return plain

    def import_state(self, state: dict[str, Any]) -> None:
        """Go on where a twin on another worker stopped; instead of `init`."""
        self._initialised = True
        state = dict(state)
        self.intake.import_state(state.pop("intake"))
        self.meter.import_state(state.pop("meter"))
        self.output.import_state(state.pop("output"))
        self.inbox.fill(state.pop("inbox"))
        snapshots = state.pop("snapshots")
        for name, value in state.items():
            setattr(self, name, value)
        if self.snapshots is not None:
            self.snapshots.import_state({} if snapshots is None else snapshots)
        self.runnable = True

    def relink_output(self, ordinal: int, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to a consumer that moves away."""
        self.output.relink(ordinal, old, new)
        self._make_pollers()
        self.runnable = True

    def relink_input(self, ordinal: int, lane: int, new: LaneReader) -> None:
        """Go on with another lane from a producer that moves away, after what the old one holds."""
        self._edges[ordinal].relink(lane, new)
        self._make_pollers()
        self.runnable = True

    # -- output -------------------------------------------------------------------------------------------------

    def _flush(self) -> bool:
        """Hand over the outbox; True when all of it has left."""
        complete, moved = self.output.flush()
        if moved:
            self._progress = True
        return complete

    def flush_buffered(self) -> None:
        """Hand over the rows of batches that routers keep back; as far as lanes have room."""
        if self.output.flush_buffered():
            self._progress = True

    def emit_mark(self, mark: Mark) -> None:
        """Queue a mark on every ordinal, after all that the processor has emitted."""
        self.output.emit_mark(mark)
        self._progress = True

    # -- states -------------------------------------------------------------------------------------------------

    def _process_watermark(self) -> None:
        watermark = self._watermark
        if watermark is None:
            self.enter(State.NULLARY_PROCESS)
            return
        if self._is_early:
            return
        if self.timed("try_process_watermark()", lambda: self.processor.try_process_watermark(watermark)):
            self._outbox.require_finished("try_process_watermark()")
            self._watermark = None
            if not self.output.edges:
                self.counters.words[words.LAST_FORWARDED_WATERMARK] = watermark.timestamp
            self._progress = True
            self.state = State.NULLARY_PROCESS
            self._observe(self.intake.pending_idle())
        else:
            self._look_again()

    def _nullary_process(self) -> None:
        if self._has_nullary:
            if self._is_early and (self._overlooks or not self._find_input()):
                return
            self.due_ns = 0
            if not self.timed("try_process()", self.processor.try_process):
                self._look_again()
                return
        self.enter(State.PROCESS_INBOX)

    def _process_inbox(self) -> None:
        intake = self.intake
        if self.inbox:
            if not self._is_early:
                self._process()
        elif intake.barrier is None and self._watermark is None and self._fill_inbox():
            self._process()
        elif intake.barrier is not None:
            self.enter(State.EMIT_BARRIER)
        elif self._watermark is not None:
            self.enter(State.PROCESS_WATERMARK)
        elif intake.edge is not None and intake.edge.done:
            self.enter(State.COMPLETE_EDGE)
        elif not intake.group:
            self.enter(State.COMPLETE)
        elif self._has_nullary:
            self.state = State.NULLARY_PROCESS
            if not self._set_timer(self.state):
                self.polling = not self._progress

    def _process(self) -> None:
        inbox, intake = self.inbox, self.intake
        assert intake.edge is not None
        before = len(inbox)
        self._outbox.limit = self._process_limit.value
        start = self._begun_ns = self.clock()
        self._outbox.begin_callback()
        self.processor.process(intake.edge.ordinal, inbox)
        elapsed = self.clock() - start
        self._spent(elapsed)
        left = len(inbox)
        taken = before - left
        self._process_limit.update(max(taken, self._outbox.accepted), elapsed)
        if taken:
            self._progress = True
            self._inbox_limit.update(taken, elapsed)
        if not left and (intake.mark is not None or self._has_nullary) and not intake.has_items:
            self._observe(intake.take_mark())
            self.state = State.PROCESS_WATERMARK
            if self._has_time_for_watermark(elapsed):
                self.enter(State.PROCESS_WATERMARK)
                return
        if left:
            if self.processor.next_call != math.inf and self._set_timer(self.state):
                return
        elif self._has_nullary:
            self._set_timer(State.NULLARY_PROCESS)
        if not self.output.unflushed:
            self.polling = not self._progress
            self._worked = self.polling and self._elapsed_ns >= self._worked_ns

    def _has_time_for_watermark(self, elapsed_ns: int) -> bool:
        """Say whether the watermark behind a batch may follow in the same call, which costs as much as a short one."""
        return (
            self._watermark is not None
            and not self._has_nullary
            and not self._outbox.has_unfinished_item
            and elapsed_ns < self._worked_ns
        )

    def _complete_edge(self) -> None:
        edge = self.intake.edge
        assert edge is not None
        if self._is_early:
            return
        if not self.timed("complete_edge()", lambda: self.processor.complete_edge(edge.ordinal)):
            self._look_again()
            return
        self._outbox.require_finished("complete_edge()")
        self._progress = True
        self._observe(self.intake.end_edge())
        self.state = State.PROCESS_WATERMARK

    def complete(self) -> None:
        if self._is_early:
            return
        outbox = self._outbox
        outbox.limit = self._emit_limit.value
        start = self._begun_ns = self.clock()
        outbox.begin_callback()
        complete = self.processor.complete()
        if complete is None:
            forgot_answer(self.processor, "complete()")
        elapsed = self.clock() - start
        self._spent(elapsed)
        accepted = outbox.accepted
        if accepted:
            self._emit_limit.update(accepted, elapsed)
        else:
            self._emit_limit.update_without_items(elapsed)
        if complete:
            outbox.require_finished("complete()")
            self._at_end()
        elif any(outbox.buckets):
            self._set_timer(self.state)
        else:
            self._look_again()
        self.output.unflushed = True

    def _overdue(self) -> bool:
        """Say whether this callback has taken so long that more items have to wait for the next one."""
        return self.clock() - self._begun_ns > self._emission_ns

    def _emit_barrier(self) -> None:
        """Wait at a barrier that was faster than the order to save: with that come steps that pass the barrier on."""

    def pass_barrier(self, barrier: Barrier) -> None:
        """Queue a barrier for all lanes, and take in again what comes after it."""
        self.last_barrier = barrier.snapshot_id
        self.emit_mark(barrier)
        self.intake.resume()

    def emit_done(self) -> None:
        """Queue DONE for all lanes: the processor is not called any more."""
        self.emit_mark(DONE)
        self.counters.hold_no_source()
        self.state = State.EMIT_DONE_ITEM

    def emit_done_item(self) -> None:
        """Reached only when the outbox, DONE included, has been flushed."""
        self.intake.refuse_late()
        self._progress = True
        self.state = State.END

    # -- input --------------------------------------------------------------------------------------------------

    def _fill_inbox(self) -> bool:
        """Give the inbox the next slice, if there is one; at most one edge is drained, in turn in the open group."""
        intake, limit = self.intake, self._inbox_limit.value
        if not intake.has_items and intake.mark is None:
            self._drain()
        if intake.has_items:
            self.inbox.fill(intake.next_slice(limit))
            return True
        self._observe(intake.take_mark())
        return False

    def _find_input(self) -> bool:
        """Say whether there is anything to take in, which the next step then finds drained."""
        if not self.intake.has_input:
            self._drain()
        return self.intake.has_input

    def _drain(self) -> None:
        if self.intake.drain(max(self._inbox_limit.value, _LEAST_DRAINED)):
            self._progress = True

    def _observe(self, watermark: Watermark | None) -> None:
        """Take a watermark coalesced over all edges; the idle message goes straight through."""
        if watermark is None:
            return
        self._progress = True
        if watermark == IDLE:
            self.emit_mark(watermark)
        else:
            self.counters.words[words.COALESCED_WATERMARK] = watermark.timestamp
            self.counters.words[words.TIME_CHANGED_NS] = self._begun_ns
            self._watermark = watermark

    # -- bookkeeping --------------------------------------------------------------------------------------------

    def enter(self, state: State) -> None:
        """Change the state and take its step at once: nothing has been asked of the processor yet."""
        self.state = state
        self.steps[state]()

    def timed(self, name: str, callback: Callable[[], bool | None]) -> bool:
        self._outbox.limit = None
        self._outbox.begin_callback()
        start = self._begun_ns = self.clock()
        result = callback()
        self._spent(self.clock() - start)
        if result is None:
            forgot_answer(self.processor, name)
        return bool(result)

    def _spent(self, elapsed_ns: int) -> None:
        meter = self.meter
        self._elapsed_ns = elapsed_ns
        meter.calls += 1
        meter.busy_ns += elapsed_ns
        if elapsed_ns > self._slow_call_ns:
            meter.slow_calls += 1
        if any(self._outbox.buckets):
            self.output.unflushed = True
            self._progress = True


def _never() -> bool:
    return False


def _nothing() -> None:
    """Stands for a step of a tasklet that has been released."""
