"""map, filter and flat_map with coroutine functions: several calls at once, while the worker does other work.

All processors of a stage in a process share one event loop. It never runs for long: each callback of a processor lets
it take a few turns that do not wait, emits what is ready and starts new calls. While calls are under way the processor
polls, so the engine comes back at least once a millisecond. Order is kept, where it is wanted, by emitting from the
oldest call on. A watermark waits among the calls until those before it have ended, and holds nothing up. A snapshot
does not wait for calls: their items are saved, and after a restore the calls are made again, before a watermark that
waited.
After Jet's `AsyncTransformUsingServiceOrderedP` and `...UnorderedP`.

Must not know what services are, or what the calls wait for.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain
from time import monotonic_ns
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.kept_services import ServiceKeep, keep_in
from shmjet.core.key_functions import KeyFn
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext, ProcessorSupplier
from shmjet.data.errors import ProcessorError
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import timed_results
from shmjet.processors.general.service_use import ServiceCall, ServiceSupplier, place_of
from shmjet.processors.general.services import ServiceFactory
from shmjet.processors.general.state_keys import own_key

_LOWEST = -(1 << 63)
_WATERMARK_KEY = BroadcastKey("watermark")

END_S = 5.0
"""How long calls that have been cancelled, and the closing of a service, may take."""


class LoopHolder:
    """An event loop and a service that lives in it, for the processors of a process.

    Args:
        factory: makes the service, in the loop if it is a coroutine function.
    """

    def __init__(self, factory: ServiceFactory[Any]) -> None:
        self._factory = factory
        self._users = 0
        self._service: Any = None
        self._keep: ServiceKeep
        self._place: Hashable = None
        self.loop: Any = None
        self.ended = 0
        """Calls that have ended; a caller that waits for progress compares it."""

    def acquire(self, context: ProcessorContext) -> Any:
        """Return the service; each call is answered by one of `release`."""
        if not self._users:
            self._keep, self._place = keep_in(context), place_of(self._factory, context)
            kept = self._keep.take(self._place)
            if kept is not None:
                self._service, self.loop = kept
                self._users = 1
                return self._service
            self.loop = asyncio.new_event_loop()
            try:
                made: Any = self._factory(context)
                self._service = self.loop.run_until_complete(made) if inspect.isawaitable(made) else made
            except BaseException:
                self.loop.close()
                raise
        self._users += 1
        return self._service

    def release(self) -> None:
        """Close service and loop if no other processor uses them."""
        self._users -= 1
        if self._users:
            return
        kept, self._service = (self._service, self.loop), None
        if not self._keep.keep(self._place, kept, self._close):
            self._close(kept)

    def _close(self, kept: tuple[Any, asyncio.AbstractEventLoop]) -> None:
        service, loop = kept
        try:
            closing = self._factory.closing(service)
            if inspect.isawaitable(closing):
                loop.run_until_complete(asyncio.wait_for(closing, END_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def start(self, call: Any) -> asyncio.Task[Any]:
        """Start a call."""
        task: asyncio.Task[Any] = self.loop.create_task(call)
        task.add_done_callback(self._note)
        return task

    def _note(self, _task: asyncio.Task[Any]) -> None:
        self.ended += 1

    def turn(self, most_ns: int) -> None:
        """Let the loop do what can be done now: two turns, and more while calls end, for `most_ns` nanoseconds."""
        loop = self.loop
        deadline = monotonic_ns() + most_ns
        turns = 0
        while True:
            before = self.ended
            loop.call_soon(loop.stop)
            loop.run_forever()
            turns += 1
            if turns >= 2 and (self.ended == before or monotonic_ns() >= deadline):
                return

    def cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        """End calls whose results are not wanted any more."""
        for task in tasks:
            task.cancel()
        if tasks and not self.loop.is_closed():
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=END_S))
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # looked at, so that asyncio does not complain


class AsyncServiceProcessor(BulkProcessor):
    """Calls a coroutine function for each item, up to a number of calls at once.

    Args:
        holder: of loop and service.
        call: of the function.
        kind: what its results mean.
        most: calls at once.
        in_order: results are emitted in the order of their items.
        timed: items are timed, and results get the timestamps of their items.
        on_error: what is done with an item whose function raises; None: the job fails.
    """

    state_kind = "using_service_async"

    movable = False

    def __init__(
        self,
        holder: LoopHolder,
        call: ServiceCall,
        kind: str,
        most: int,
        in_order: bool,
        timed: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        self.holder = holder
        self._call = call
        self._kind = kind
        self._most = most
        self._in_order = in_order
        self._timed = timed
        self._on_error = on_error
        self.failure_policies = (on_error,)
        self._calls: deque[tuple[Any, asyncio.Task[Any] | None]] = deque()
        """Items, timed or bare, with their calls; and watermarks, without."""
        self._marks = 0  # watermarks among them
        self._last_mark = _LOWEST
        self._again: deque[Any] = deque()  # items whose calls are lost
        self._mark_again: int | None = None  # a watermark that waited for them
        self._acquired = False
        self.next_call = math.inf

    def start(self, context: ProcessorContext) -> None:
        """Take loop and service."""
        self._service = self.holder.acquire(context)
        self._acquired = True

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Start as many calls as may run at once and emit what is ready; repeat while calls end at once."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while True:
            self._start(inbox)
            under_way = len(self._calls)
            self._advance()
            if not inbox or len(self._calls) == under_way or not self.emission.idle or monotonic_ns() >= deadline:
                break
        self._start(inbox)

    @property
    def _free(self) -> int:
        return self._most - len(self._calls) + self._marks

    def _start(self, inbox: Inbox) -> None:
        self._start_again()
        if self._free > 0:
            self._call_for(inbox.take(self._free))

    def _start_again(self) -> None:
        """Make lost calls again, before any others; then comes the watermark that waited for them."""
        again = self._again
        if again:
            self._call_for([again.popleft() for _ in range(min(self._free, len(again)))])
        if self._mark_again is not None and not again:
            mark, self._mark_again = self._mark_again, None
            self._add_mark(Watermark(mark))

    def _call_for(self, items: list[Any]) -> None:
        for item in items:
            bare = item[1] if self._timed else item
            try:
                call = self._call.one(self._service, bare)
                if not inspect.isawaitable(call):
                    raise TypeError(
                        f"vertex {self.context.vertex_name!r}: expected a coroutine function, but the function "
                        f"returned {type(call).__name__}: {call!r:.80}"
                    )
            except Exception as error:
                self._failed(bare, error)
            else:
                self._calls.append((item, self.holder.start(call)))
            self.next_call = None

    def _failed(self, item: Any, error: Exception) -> None:
        if self._on_error is None or self.guard is None:
            raise error
        self.guard.failed(self._on_error, item, error)
        self.failed_items_skipped = self.guard.skipped

    def _advance(self) -> bool:
        """Let the loop run and emit what is ready; True when no call is under way and all is emitted."""
        self._start_again()
        is_through = self._emit_ended()
        self.next_call = math.inf if is_through else None
        return is_through

    def _emit_ended(self) -> bool:
        emission, guard = self.emission, self.guard
        if not emission.flush():
            return False
        if self._calls:
            self.holder.turn(policy_in(self.context).call_ns // 2)
            results = self._ended()
            if results:
                emission.start(chain.from_iterable(results) if self._kind == "flat_map" else results)
                if not emission.flush():
                    return False
        if guard is not None and not guard.flush():
            return False
        return not self._calls and not self._again

    def _ended(self) -> list[Any]:
        """Take the calls out that have ended, in order or not, and return their results; watermarks among them."""
        calls = self._calls
        ended: list[tuple[Any, asyncio.Task[Any] | None]] = []
        while calls and ((task := calls[0][1]) is None or task.done()):
            ended.append(calls.popleft())
        if not self._in_order and calls:
            done = [each for each in calls if each[1] is not None and each[1].done()]
            if done:
                ended += done
                self._calls = deque(each for each in calls if each[1] is None or not each[1].done())
        results: list[Any] = []
        for item, task in ended:
            if task is not None:
                self._add_result(results, item, task)
            else:
                self._marks -= 1
                results.append([item] if self._kind == "flat_map" else item)
        return results

    def _add_result(self, results: list[Any], item: Any, task: asyncio.Task[Any]) -> None:
        bare = item[1] if self._timed else item
        try:
            value = task.result()
        except Exception as error:
            self._failed(bare, error)
            return
        if self._kind == "flat_map":
            results.append(self._drawn_from(item, bare, value))
        elif self._kind == "filter":
            if value:
                results.append(item)
        elif value is not None:
            results.append((item[0], value) if self._timed else value)

    def _drawn_from(self, item: Any, bare: Any, value: Any) -> Iterable[Any]:
        drawn: Iterable[Any] = value
        if self._on_error is not None and self.guard is not None:
            drawn = self.guard.results(self._on_error, bare, value)
        return timed_results(item[0], drawn, self.context.vertex_name) if self._timed else drawn

    def try_process(self) -> bool:
        """Go on with the calls that are under way."""
        self._advance()
        return True

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Pass it on when the calls of the items before it have ended; it waits among them."""
        if watermark == IDLE:
            return self._advance() and super().try_process_watermark(watermark)
        if self._again:
            self._advance()
            return False
        if self._calls or not self.emission.idle:
            self._add_mark(watermark)
            self._advance()
            return True
        if watermark.timestamp <= self._last_mark:
            return True
        if not super().try_process_watermark(watermark):
            return False
        self._last_mark = watermark.timestamp
        return True

    def _add_mark(self, watermark: Watermark) -> None:
        """Put a watermark behind the calls under way; of several without a call between them the last stays."""
        if watermark.timestamp <= self._last_mark:
            return
        calls = self._calls
        if calls and calls[-1][1] is None:
            calls.pop()
            self._marks -= 1
        calls.append((watermark, None))
        self._marks += 1
        self._last_mark = watermark.timestamp
        self.next_call = None

    def save_to_snapshot(self) -> bool:
        """Emit the results that there are, and save the items of the calls under way."""
        if not self.emission.flush() or not (self.guard is None or self.guard.flush()):
            return False
        return super().save_to_snapshot()

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return the items without results, in order, and the last watermark that waits."""
        call, own = self._call, own_key(self.context)
        under_way = (item for item, task in self._calls if task is not None)
        for item in chain(under_way, self._again):
            yield call.key_of(item[1] if self._timed else item) if call.keyed else own, item
        if self._marks:
            yield _WATERMARK_KEY, self._last_mark
        elif self._mark_again is not None:
            yield _WATERMARK_KEY, self._mark_again

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take items whose calls are to be made again."""
        for key, item in entries:
            if key == _WATERMARK_KEY:
                self._mark_again = item if self._mark_again is None else min(item, self._mark_again)
            else:
                self._again.append(item)
        self.next_call = None

    def complete(self) -> bool:
        """Wait for the last calls."""
        return self._advance()

    def close(self) -> None:
        """Cancel what is under way and give loop and service back."""
        if not self._acquired:
            return
        self._acquired = False
        try:
            self.holder.cancel([task for _, task in self._calls if task is not None])
            self._calls.clear()
        finally:
            self.holder.release()


class _Maker:
    """Makes one processor; a class, so that it pickles."""

    state_kind = "using_service_async"

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __call__(self, holder: LoopHolder) -> Processor:
        return AsyncServiceProcessor(holder, *self._arguments)


def using_service_async(
    kind: str,
    factory: ServiceFactory[Any],
    fn: Callable[..., Any],
    key_fn: KeyFn = None,
    keyed: bool = False,
    max_concurrent_ops: int = 4,
    preserve_order: bool = True,
    *,
    timed: bool = False,
    on_error: OnError | None = None,
) -> ProcessorSupplier:
    """Map, filter or flat_map with a service and a coroutine function.

    Args:
        kind: "map", "filter" or "flat_map".
        factory: makes the service; it must be cooperative.
        fn: coroutine function, `fn(service, item)`, or `fn(service, key, item)` when `keyed`.
        key_fn: key of an item.
        keyed: hand the key over.
        max_concurrent_ops: calls of one processor that are under way at once, at most; with `preserve_order` a call
            counts until all calls before it have ended.
        preserve_order: emit results in the order of their items.
        timed: items are pairs `(timestamp, item)`; the function sees the item, and results are pairs with its
            timestamp.
        on_error: what is done with an item whose function raises; None: the job fails.

    Raises:
        ProcessorError: an unknown kind, fewer than one call at once, or a factory that is not cooperative.

    Example:
        >>> import asyncio
        >>> async def slow(_, item):
        ...     await asyncio.sleep(0.001)
        ...     return item * 2
        >>> doubling = using_service_async("map", ServiceFactory(object), slow)
    """
    if kind not in ("map", "filter", "flat_map"):
        raise ProcessorError(f"using_service_async: expected map, filter or flat_map, got {kind!r}")
    if max_concurrent_ops < 1:
        raise ProcessorError(f"using_service_async: max_concurrent_ops must be at least 1, got {max_concurrent_ops}")
    if not factory.is_cooperative:
        raise ProcessorError("using_service_async: calls that are awaited do not block; leave is_cooperative True")
    call = ServiceCall(fn, key_fn, keyed)
    maker = _Maker(call, kind, max_concurrent_ops, preserve_order, timed, on_error)
    return ServiceSupplier(maker, LoopHolder, factory, f"{kind}_using_service_async")
