"""Coroutine functions run side by side, in order or not, never more than asked for, and end with the processor."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shmjet.core import DAG, between
from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox
from shmjet.data.errors import ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.general.async_services import using_service_async
from shmjet.processors.general.services import ServiceFactory
from shmjet.testing import verify_processor
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit
from tests.processors.driving import Driver


class Running:
    """A processor that is driven until it has done what there is to do."""

    def __init__(self, fn: Any, *arguments: Any, kind: str = "map", factory: Any = None, room: int = 2048) -> None:
        supplier = using_service_async(kind, factory or ServiceFactory(dict), fn, *arguments)
        (self.processor,) = supplier.get(1)
        self.outbox = Outbox([room])
        self.processor.init(self.outbox, ProcessorContext(vertex_name="v"))
        self.output: list[Any] = []

    def call(self, callback: Any, *arguments: Any) -> Any:
        self.outbox.begin_callback()
        result = callback(*arguments)
        self.output += self.outbox.buckets[0]
        self.outbox.buckets[0] = []
        return result

    def run(self, items: list[Any]) -> list[Any]:
        inbox = Inbox()
        inbox.fill(list(items))
        deadline = time.monotonic() + 60
        while inbox and time.monotonic() < deadline:
            self.call(self.processor.process, 0, inbox)
        while not self.call(self.processor.complete):
            assert time.monotonic() < deadline
        return self.output

    def until_output(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.output) < count:
            self.call(self.processor.try_process)
            assert time.monotonic() < deadline

    def save(self) -> list[Any]:
        self.outbox.begin_saving()
        assert self.processor.save_to_snapshot()
        return self.outbox.end_saving(True)

    def restore(self, entries: list[Any]) -> None:
        inbox = Inbox()
        inbox.fill(list(entries))
        self.call(self.processor.restore_from_snapshot, inbox)
        assert self.call(self.processor.finish_snapshot_restore)


@pytest.fixture
def running() -> Iterator[Any]:
    made: list[Running] = []

    def make(*arguments: Any, **options: Any) -> Running:
        made.append(Running(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.processor.close()


class Gauge:
    """Counts the calls that are under way; the first ones wait until as many are as may be."""

    def __init__(self, allowed: int) -> None:
        self.now = self.most = 0
        self.allowed = allowed
        self.full = asyncio.Event()

    async def call(self, _: Any, item: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self.allowed:
            self.full.set()
        await self.full.wait()
        await asyncio.sleep(0)
        self.now -= 1
        return item


async def _after_the_next(ended: dict[int, asyncio.Event], item: int) -> int:
    """End after the call of the next item, if the item is even."""
    await ended.setdefault(item + 1, asyncio.Event()).wait() if item % 2 == 0 else await asyncio.sleep(0)
    ended.setdefault(item, asyncio.Event()).set()
    return item


def test_order_is_kept_when_asked(running: Any) -> None:
    assert running(_after_the_next, None, False, 8, True).run(list(range(40))) == list(range(40))


def test_without_order_what_ends_first_leaves_first(running: Any) -> None:
    released = threading.Event()
    until_released = _until(released)

    async def first_is_slow(service: Any, item: int) -> int:
        return item if item else await until_released(service, item)

    each = running(first_is_slow, None, False, 8, False)
    inbox = Inbox()
    inbox.fill(list(range(8)))
    each.call(each.processor.process, 0, inbox)
    each.until_output(7)
    released.set()
    found = each.run(list(range(8, 40)))
    assert sorted(found) == list(range(40))
    assert sorted(found[:7]) == list(range(1, 8))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("most", [1, 3])
def test_never_more_calls_than_allowed_are_under_way(running: Any, in_order: bool, most: int) -> None:
    gauge = Gauge(most)
    running(gauge.call, None, False, most, in_order).run(list(range(20)))
    assert gauge.most == most


async def _none_or_double(service: Any, item: int) -> int | None:
    return item * 2 if item % 2 else None


async def _is_odd(service: Any, item: int) -> bool:
    await asyncio.sleep(0)
    return item % 2 == 1


async def _repeated(service: Any, item: int) -> list[int]:
    return [item] * item


async def _with_key(service: Any, key: int, item: int) -> tuple[int, int]:
    return key, item


def test_the_three_kinds_mean_what_they_mean_without_async(running: Any) -> None:
    assert running(_none_or_double).run([1, 2, 3]) == [2, 6]
    assert running(_is_odd, kind="filter").run([1, 2, 3]) == [1, 3]
    assert running(_repeated, kind="flat_map").run([1, 0, 2]) == [1, 2, 2]
    assert running(_with_key, lambda x: x % 2, True).run([4, 5]) == [(0, 4), (1, 5)]


def test_a_narrow_outbox_loses_nothing(running: Any) -> None:
    assert running(_repeated, kind="flat_map", room=1).run([3, 1, 2]) == [3, 3, 3, 1, 2, 2]


def _until(released: threading.Event) -> Any:
    """A coroutine function that gives its item back once it may."""

    async def slow(service: Any, item: int) -> int:
        while not released.is_set():
            await asyncio.sleep(0.001)
        return item

    return slow


def test_no_call_waits_while_the_loop_waits(running: Any) -> None:
    released = threading.Event()
    each = running(_until(released))
    inbox = Inbox()
    inbox.fill([1])
    each.call(each.processor.process, 0, inbox)  # it returns, though the coroutine waits for what comes after
    assert each.processor.next_call is None
    released.set()
    assert each.run([2]) == [1, 2]
    assert each.processor.next_call == math.inf


def test_a_watermark_waits_for_the_calls_before_it(running: Any) -> None:
    released = threading.Event()
    each = running(_until(released))
    inbox = Inbox()
    inbox.fill([1])
    each.call(each.processor.process, 0, inbox)
    assert each.call(each.processor.try_process_watermark, Watermark(7))
    inbox.fill([2])
    each.call(each.processor.process, 0, inbox)  # the watermark holds nothing up
    assert each.call(each.processor.try_process_watermark, Watermark(8))
    assert each.call(each.processor.try_process_watermark, Watermark(9))
    assert each.output == []
    released.set()
    assert each.run([3]) == [1, Watermark(7), 2, Watermark(9), 3]


def test_without_order_nothing_leaves_behind_a_watermark_that_came_before_it(running: Any) -> None:
    released = {1: threading.Event(), 2: threading.Event()}

    async def slow(service: Any, item: int) -> int:
        while not released[item].is_set():
            await asyncio.sleep(0.001)
        return item

    each = running(slow, None, False, 4, False)
    inbox = Inbox()
    inbox.fill([1])
    each.call(each.processor.process, 0, inbox)
    each.call(each.processor.try_process_watermark, Watermark(7))
    inbox.fill([2])
    each.call(each.processor.process, 0, inbox)
    released[2].set()
    each.until_output(1)
    assert each.output == [2]
    released[1].set()
    each.until_output(3)
    assert each.output == [2, 1, Watermark(7)]


async def _timed_lengths(service: Any, item: str) -> list[int]:
    return [len(item)] * len(item)


async def _timed_length(service: Any, item: str) -> int | None:
    return len(item) or None


@pytest.mark.parametrize("in_order", [True, False])
def test_timed_items_give_their_times_to_results(in_order: bool) -> None:
    items = [(5, "a"), (6, ""), Watermark(6), (7, "ccc"), Watermark(8)]

    def check(kind: str, fn: Any, expected: list[Any]) -> None:
        supplier = using_service_async(kind, ServiceFactory(dict), fn, preserve_order=in_order, timed=True)
        verify_processor(supplier).inputs(items).without_progress_check().any_order().expect(expected)

    check("map", _timed_length, [(5, 1), Watermark(6), (7, 3), Watermark(8)])
    check("filter", _timed_length, [(5, "a"), Watermark(6), (7, "ccc"), Watermark(8)])
    check("flat_map", _timed_lengths, [(5, 1), Watermark(6), (7, 3), (7, 3), (7, 3), Watermark(8)])


def test_after_a_restore_a_watermark_waits_for_the_calls_that_are_made_again(running: Any) -> None:
    released = threading.Event()
    each = running(_until(released))
    inbox = Inbox()
    inbox.fill([1, 2])
    each.call(each.processor.process, 0, inbox)
    each.call(each.processor.try_process_watermark, Watermark(7))
    entries = each.save()
    other = running(_until(released), None, False, 1)
    other.restore(entries)
    released.set()
    assert other.run([3]) == [1, 2, Watermark(7), 3]


def test_an_exception_is_raised_with_the_users_frames(running: Any) -> None:
    async def broken(service: Any, item: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"no {item}")

    with pytest.raises(ValueError, match="no 7") as caught:
        running(broken).run([7])
    assert caught.traceback[-1].name == "broken"


def test_a_function_that_is_no_coroutine_function_is_told_so(running: Any) -> None:
    with pytest.raises(TypeError, match="vertex 'v': expected a coroutine function, but the function returned int"):
        running(lambda service, item: 5).run([1])


def test_closing_cancels_what_is_under_way_and_closes_service_and_loop() -> None:
    events: list[str] = []

    async def create(context: ProcessorContext) -> str:
        await asyncio.sleep(0)
        events.append(f"made in {context.vertex_name}")
        return "service"

    async def destroy(service: str) -> None:
        await asyncio.sleep(0)
        events.append(f"closed {service}")

    async def endless(service: str, item: int) -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            events.append(f"cancelled {item}")
        return item

    each = Running(endless, factory=ServiceFactory(create, destroy))
    inbox = Inbox()
    inbox.fill([1, 2])
    each.call(each.processor.process, 0, inbox)
    loop = each.processor.holder.loop
    each.processor.close()
    each.processor.close()
    assert events[0] == "made in v"
    assert sorted(events[1:3]) == ["cancelled 1", "cancelled 2"]
    assert events[3:] == ["closed service"]
    assert loop.is_closed()


def test_a_client_that_is_closed_by_a_coroutine_is_closed() -> None:
    events: list[str] = []

    class Client:
        async def aclose(self) -> None:
            await asyncio.sleep(0)
            events.append("closed")

    each = Running(_none_or_double, factory=ServiceFactory(Client))
    assert each.run([1]) == [2]
    each.processor.close()
    assert events == ["closed"]


def test_processors_of_a_process_share_loop_and_service() -> None:
    made: list[int] = []
    supplier = using_service_async("map", ServiceFactory(lambda: made.append(1) or made), _none_or_double)
    first, second = supplier.get(2)
    for processor in (first, second):
        processor.init(Outbox([8]), ProcessorContext())
    assert made == [1]
    assert first.holder is second.holder
    first.close()
    assert not second.holder.loop.is_closed()
    second.close()


def test_a_service_that_cannot_be_made_leaves_no_loop_behind() -> None:
    async def create() -> None:
        raise OSError("no connection")

    (processor,) = using_service_async("map", ServiceFactory(create), _none_or_double).get(1)
    with pytest.raises(OSError, match="no connection"):
        processor.init(Outbox([8]), ProcessorContext())
    processor.close()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ProcessorError, match="got 'sort'"):
        using_service_async("sort", ServiceFactory(dict), _is_odd)
    with pytest.raises(ProcessorError, match="max_concurrent_ops must be at least 1, got 0"):
        using_service_async("map", ServiceFactory(dict), _is_odd, max_concurrent_ops=0)
    with pytest.raises(ProcessorError, match="is_cooperative"):
        using_service_async("map", ServiceFactory(dict, is_cooperative=False), _is_odd)


async def _in_a_while(service: Any, item: int) -> int:
    for _ in range(20):
        await asyncio.sleep(0)
    return item * 10


@pytest.mark.parametrize("preserve_order", [True, False])
def test_a_watermark_behind_calls_that_are_under_way_goes_on_when_they_have_ended(preserve_order: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [1, 2, Watermark(5), 3, Watermark(9)]), 1)
    supplier = using_service_async("map", ServiceFactory(dict), _in_a_while, preserve_order=preserve_order)
    calls = dag.new_vertex("calls", supplier, 1)
    dag.edge(between(source, calls)).edge(between(calls, dag.new_vertex("sink", Collect, 1)))
    out = [item for _, _, item in LocalRun(dag, 1).run().grid.get_list("out")]
    assert out == [10, 20, Watermark(5), 30, Watermark(9)]


@pytest.mark.parametrize("in_order", [True, False])
def test_calls_that_end_at_once_are_followed_by_others_in_the_same_callback(
    running: Any, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    monkeypatch.setattr("shmjet.processors.general.async_services.monotonic_ns", lambda: 0)

    async def double(_: Any, item: int) -> int:
        return item * 2

    one_by_one = running(double, None, False, 1, in_order)
    inbox = Inbox()
    inbox.fill(list(range(100)))
    one_by_one.call(one_by_one.processor.process, 0, inbox)
    assert not inbox
    assert one_by_one.run([]) == [2 * item for item in range(100)]


def test_a_callback_with_calls_that_end_at_once_lasts_a_millisecond(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1 << 60, 100_000))
    monkeypatch.setattr("shmjet.processors.general.async_services.monotonic_ns", lambda: next(now))

    async def same(_: Any, item: int) -> int:
        return item

    one_by_one = running(same, None, False, 1)
    inbox = Inbox()
    inbox.fill(list(range(100)))
    one_by_one.call(one_by_one.processor.process, 0, inbox)
    assert 80 < len(inbox) < 99


# -- snapshots ---------------------------------------------------------------------------------------------------------


async def doubled(_: Any, item: int) -> int:
    await asyncio.sleep(0)
    return 2 * item


async def repeated(_: Any, item: int) -> list[int]:
    await asyncio.sleep(0)
    return [item] * item


@pytest.mark.parametrize("in_order", [True, False])
def test_all_modes_of_snapshots_are_passed(in_order: bool) -> None:
    factory = ServiceFactory(dict)
    mapping = using_service_async("map", factory, doubled, preserve_order=in_order)
    check = verify_processor(mapping).without_progress_check().inputs([1, 2, 3, 4, 5])
    (check if in_order else check.any_order()).expect([2, 4, 6, 8, 10])
    expanding = using_service_async("flat_map", factory, repeated, preserve_order=in_order)
    check = verify_processor(expanding).without_progress_check().inputs([1, 2, 3])
    (check if in_order else check.any_order()).expect([1, 2, 2, 3, 3, 3])


def test_a_snapshot_does_not_wait_for_calls_and_a_restore_makes_them_again() -> None:
    asked: list[int] = []

    async def never(_: Any, item: int) -> int:
        asked.append(item)
        if item != 1:
            await asyncio.Event().wait()
        return -item

    one = Driver(using_service_async("map", ServiceFactory(dict), never).get(1)[0])
    inbox = Inbox()
    inbox.fill([1, 2, 3, 4])
    while inbox:
        one.call(one.processor.process, 0, inbox)
    while one.output != [-1]:
        one.call(one.processor.try_process)
    entries = one.save()
    assert [item for _, item in entries] == [2, 3, 4]
    assert one.save() == entries
    one.processor.close()
    assert asked == [1, 2, 3, 4]

    another = Driver(using_service_async("map", ServiceFactory(dict), doubled, None, False, 2).get(1)[0])
    assert another.processor.next_call == math.inf
    another.restore(entries)
    assert another.processor.next_call is None
    assert [item for _, item in another.save()] == [2, 3, 4]
    assert another.feed([5]).complete() == [4, 6, 8, 10]


def test_items_of_calls_are_saved_by_the_key_of_their_edge() -> None:
    async def never(_: Any, key: str, item: str) -> None:
        await asyncio.Event().wait()

    supplier = using_service_async("map", ServiceFactory(dict), never, str.lower, True)
    one = Driver(supplier.get(1)[0])
    inbox = Inbox()
    inbox.fill(["A", "b"])
    while inbox:
        one.call(one.processor.process, 0, inbox)
    assert one.save() == [("a", "A"), ("b", "b")]
    one.processor.close()
