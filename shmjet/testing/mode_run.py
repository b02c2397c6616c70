"""One processor, and its successors, driven through one mode of `verify_processor`.

Must not know: how outputs are compared. The order of callbacks is the engine's. A snapshot is taken when the inbox is
empty, and between two calls of `complete` that emit. After a restore the ends of inputs that had ended come again, as
they do in a job whose sources had ended.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.processor import Processor
from shmjet.core.saving import saves_at_end
from shmjet.core.watermark import WatermarkCoalescer
from shmjet.data.errors import BatchError, OutboxError, ProcessorError, locate
from shmjet.data.marks import Watermark
from shmjet.host.process_usage import waited_for_core
from shmjet.testing.mode_outbox import Calls, Entries, ModeOutbox, carried
from shmjet.testing.modes import Mode

MOST_SNAPSHOTS = 64
"""Snapshots while items come, about; where there are more items they are spread over them."""

_COMMIT_POLL = 0.0005
"""Seconds between two calls of a callback that commits and waits."""

ENTRIES_PER_ITEM = 4
"""After a snapshot with more entries than that, more items come before the next one."""


@dataclass(frozen=True)
class Task:
    """What is run in every mode.

    Args:
        inputs: items of each inbound edge, with watermarks among them.
        priorities: of the edges.
        completes: the edges end, and `complete` is called.
        checks_progress: a call that gets nothing done is an error.
        timeout: seconds for a call of a cooperative processor.
    """

    inputs: Sequence[Sequence[Any]]
    priorities: Sequence[int]
    completes: bool
    checks_progress: bool
    timeout: float


class ModeRun:
    """A processor driven through one mode.

    Args:
        task: what to do.
        mode: how.
        make: makes a processor; called again for each restore.
        context: of the first processor.
        expected: number of items expected on each outbound ordinal.
    """

    _MOST_IDLE_CALLS = 10_000
    _MOST_SURPLUS = 10_000
    """Items more than expected that end the run: a processor that offers again what was accepted never stops."""
    _MOST_REPEATED = 1_000
    """The same where state is restored: each item more has taken a processor of its own."""

    def __init__(
        self,
        task: Task,
        mode: Mode,
        make: Callable[[], Processor],
        context: ProcessorContext,
        expected: Sequence[int],
    ) -> None:
        self._task = task
        self._mode = mode
        self._make = make
        self._context = context
        self._expected = expected
        self._inbox = Inbox()
        self._calls = Calls()
        self._processor = make()
        self._outbox = self._new_outbox()
        self.emitted: list[list[Any]] = [[] for _ in expected]
        self._idle_calls = 0
        self._ended: list[int] = []
        self._snapshots = 0
        self._restores = 0
        self._occasions = 0
        self._due = 0
        self._waited = waited_for_core(threading.get_native_id())

    def run(self) -> list[list[Any]]:
        """Run to the end; return what was emitted on each ordinal.

        Raises:
            AssertionError: the processor breaks a rule; the text names the mode.
            Exception: what the processor raises.
        """
        try:
            self._init()
            self._feed()
            if self._task.completes:
                self._complete()
        except OutboxError as error:
            raise AssertionError(f"{self._mode.name}: {error}") from error
        except BatchError as error:
            locate(error, f"vertex {self._context.vertex_name!r}")
            raise
        finally:
            self._processor.close()
        return self.emitted

    def _new_outbox(self) -> ModeOutbox:
        return ModeOutbox(len(self._expected), self._mode.full_at, self._calls)

    def _init(self) -> None:
        self._outbox.begin_callback()
        self._processor.init(self._outbox, self._context)
        self._drain()

    def _feed(self) -> None:
        """Give every edge's batches, group by group of priority, the edges of a group in turn."""
        inputs, priorities = self._task.inputs, self._task.priorities
        coalescer = WatermarkCoalescer(len(inputs))
        for priority in sorted(set(priorities)):
            group = deque(
                (ordinal, deque(_batches(inputs[ordinal], self._mode.batch_size)))
                for ordinal, own in enumerate(priorities)
                if own == priority
            )
            while group:
                ordinal, batches = group.popleft()
                if batches:
                    self._feed_one(ordinal, batches.popleft(), coalescer)
                    group.append((ordinal, batches))
                    self._snapshot_now_and_then(sum(map(len, inputs)))
                elif self._task.completes:
                    self._end_edge(ordinal)
                    self._watermark(coalescer.input_done(ordinal))
                    self._ended.append(ordinal)
                    self._snapshot()

    def _feed_one(self, ordinal: int, batch: list[Any] | Watermark, coalescer: WatermarkCoalescer) -> None:
        if isinstance(batch, Watermark):
            self._watermark(coalescer.observe_watermark(ordinal, batch))
            self._watermark(coalescer.pending())
            return
        coalescer.observe_event(ordinal)
        self._until_true("try_process()", self._processor.try_process)
        self._inbox.fill(batch)
        while self._inbox:
            self._call(f"process({ordinal}, inbox)", lambda: self._processor.process(ordinal, self._inbox))
        self._outbox.require_finished(f"process({ordinal}, inbox)")

    def _end_edge(self, ordinal: int) -> None:
        self._until_true(f"complete_edge({ordinal})", partial(self._processor.complete_edge, ordinal))

    def _watermark(self, watermark: Watermark | None) -> None:
        if watermark is not None:
            self._until_true(
                f"try_process_watermark({watermark})", lambda: self._processor.try_process_watermark(watermark)
            )

    def _complete(self) -> None:
        """Complete, with a snapshot after each call that emits; one of a sink before, which commits what it wrote."""
        if not self._expected and self._task.inputs:
            self._snapshot(last=True)
        while not self._answered("complete()", lambda: self._processor.complete()):
            if self._moved:
                self._snapshot_now_and_then(sum(self._expected))
        self._outbox.require_finished("complete()")
        if self._mode.takes_snapshots and saves_at_end(self._processor):
            self._save()

    def _until_true(self, name: str, callback: Callable[[], Any], *, may_leave_item: bool = False) -> None:
        """Call until the answer is True; then no refused item is left, unless it was refused before."""
        while not self._answered(name, callback):
            pass
        if not may_leave_item:
            self._outbox.require_finished(name)

    def _answered(self, name: str, callback: Callable[[], Any]) -> bool:
        answer = self._call(name, callback)
        if answer is None:
            self._fail(f"{name} returned None; return True when it is through, False to be called again")
        return bool(answer)

    def _call(self, name: str, callback: Callable[[], Any]) -> Any:
        """Make one call, check its time and its progress, and return its answer."""
        before = len(self._inbox)
        self._outbox.begin_callback()
        answer = self._timed(name, callback)
        self._moved = self._drain()
        self._require_progress(name, self._moved or len(self._inbox) < before or bool(answer))
        return answer

    def _timed(self, name: str, callback: Callable[[], Any]) -> Any:
        started, computed = time.perf_counter(), time.thread_time()
        answer = callback()
        took = time.perf_counter() - started
        if took > self._task.timeout and self._processor.is_cooperative:
            before, self._waited = self._waited, waited_for_core(threading.get_native_id())
            idle = took - (time.thread_time() - computed)
            took -= min(self._waited - before, idle)  # what a busy machine has added
        if took > self._task.timeout and self._processor.is_cooperative:
            self._fail(
                f"{name} of a cooperative processor took {took:.3f} s, more than {self._task.timeout} s; "
                "do less per call, or say is_cooperative = False"
            )
        return answer

    def _require_progress(self, name: str, progress: bool) -> None:
        if progress:
            self._idle_calls = 0
        elif not self._outbox.is_shut:
            self._idle_calls += 1
            if name.startswith("snapshot_commit"):
                time.sleep(_COMMIT_POLL)  # a transaction may wait for what is outside: a disk, a server
            elif self._task.checks_progress:
                self._fail(
                    f"{name} returned without progress: it took nothing from the inbox ({len(self._inbox)} items "
                    "left), emitted nothing though the outbox had room, and was not through"
                )
            if self._idle_calls > self._MOST_IDLE_CALLS:
                self._fail(f"{name} made no progress in {self._MOST_IDLE_CALLS} calls")

    def _drain(self) -> bool:
        """Take what was emitted; True when that was anything."""
        moved = False
        surplus = self._MOST_REPEATED if self._restores else self._MOST_SURPLUS
        buckets = zip(self.emitted, self._outbox.buckets, self._expected, strict=True)
        for ordinal, (emitted, bucket, expected) in enumerate(buckets):
            moved = moved or bool(bucket)
            emitted += bucket
            bucket.clear()
            if len(emitted) > expected + surplus:
                rule = self.hint() or "; an item that the outbox has accepted must not be offered again"
                self._fail(f"{len(emitted)} items on ordinal {ordinal} where {expected} are expected, and no end{rule}")
        return moved or (not self.emitted and self._outbox.accepted > 0)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _snapshot_now_and_then(self, occasions: int) -> None:
        """Take a snapshot each time, unless there are more occasions than `MOST_SNAPSHOTS`, or much state."""
        self._occasions += 1
        if self._occasions >= self._due:
            entries = self._snapshot()
            self._due = self._occasions + 1 + max(occasions // MOST_SNAPSHOTS, entries // ENTRIES_PER_ITEM)

    def _snapshot(self, *, last: bool = False) -> int:
        """Take a snapshot, both phases; or lose the processor and go on with a fresh one. Return the entries' number.

        Args:
            last: whether it ends a job: it is valid, and nothing is lost.
        """
        if not self._mode.takes_snapshots:
            return 0
        entries = self._save()
        self._until_true(
            "snapshot_commit_prepare()", lambda: self._processor.snapshot_commit_prepare(), may_leave_item=True
        )
        self._snapshots += 1
        every = self._mode.restore_every
        is_restored = bool(every) and not last and self._snapshots % (every or 1) == 0
        if is_restored and self._restores % 2 == 0:
            self._restore(entries)  # lost between the phases: the state says what is still to be committed
            return len(entries)
        # where nothing is ever restored, every other snapshot fails: nothing may be dropped because of that
        success = bool(every) or last or self._snapshots % 2 == 0
        name = f"snapshot_commit_finish({success})"
        emitted = [len(items) for items in self.emitted]
        self._until_true(name, lambda: self._processor.snapshot_commit_finish(success), may_leave_item=True)
        if [len(items) for items in self.emitted] != emitted:
            self._fail(f"{name} emitted something, which it must not")
        if is_restored:
            self._restore(entries)
        return len(entries)

    def _save(self) -> Entries:
        name = "save_to_snapshot()"
        saved: Entries = []
        while True:
            self._outbox.begin_saving()
            answer = self._timed(name, self._processor.save_to_snapshot)
            entries = self._outbox.end_saving(bool(answer))
            moved = self._drain()
            if answer is None:
                self._fail(f"{name} returned None; return True when it is through, False to be called again")
            try:
                saved += carried(entries)
            except TypeError as error:
                raise AssertionError(f"{self._mode.name}: {name} saved what cannot be restored: {error}") from error
            if answer:
                return saved
            self._require_progress(name, moved or bool(entries))

    def _restore(self, entries: Entries) -> None:
        """Let a fresh processor go on from saved entries."""
        self._restores += 1
        self._processor.close()
        self._context = replace(self._context, execution_id=self._context.execution_id + 1)
        self._outbox = self._new_outbox()
        self._processor = self._make()
        self._init()
        rest = deque(entries)
        while rest:
            count = len(rest) if self._mode.full_at is None else 1
            self._inbox.fill([rest.popleft() for _ in range(count)])
            while self._inbox:
                self._take_back()
        self._until_true("finish_snapshot_restore()", lambda: self._processor.finish_snapshot_restore())
        for ordinal in self._ended:
            self._end_edge(ordinal)

    def _take_back(self) -> None:
        try:
            self._call("restore_from_snapshot(inbox)", lambda: self._processor.restore_from_snapshot(self._inbox))
        except ProcessorError as error:
            if type(self._processor).restore_from_snapshot is Processor.restore_from_snapshot:
                raise AssertionError(f"{self._mode.name}: {error}") from error
            raise

    def hint(self) -> str:
        """Return what a wrong output in this mode may come from."""
        if not self._mode.restore_every:
            return ""
        kind = type(self._processor)
        if kind.save_to_snapshot is Processor.save_to_snapshot:
            return (
                f"\n  {kind.__name__} does not override save_to_snapshot(), so what it knew before a restore is lost; "
                "save all state there and take it back in restore_from_snapshot(), or say without_snapshots()"
            )
        return "\n  in this mode a fresh processor takes over, which knows only what save_to_snapshot() saved"

    def _fail(self, text: str) -> NoReturn:
        raise AssertionError(f"{self._mode.name}: {text}")


def _batches(items: Sequence[Any], size: int | None) -> list[list[Any] | Watermark]:
    """Cut items into batches; a watermark is one by itself."""
    batches: list[list[Any] | Watermark] = []
    current: list[Any] = []
    for item in items:
        if isinstance(item, Watermark) or len(current) == size:
            if current:
                batches.append(current)
            current = []
        if isinstance(item, Watermark):
            batches.append(item)
        else:
            current.append(item)
    if current:
        batches.append(current)
    return batches
