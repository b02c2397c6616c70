from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from shmjet import Batch, processors
from shmjet.core.processor import Processor, ProcessorSupplier
from shmjet.core.saving import saves_at_end
from shmjet.testing import verify_processor

from .driving import Driver, processors_of
from .restoring import Stage


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shmjet")


def test_logger_logs_items_and_emits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(processors_of(processors.logger(repr, lambda x: x != "b"))[0])
    assert driver.feed(["a", "b", "100%"]).complete() == []
    assert messages(caplog) == ["'a'", "'100%'"]


def test_noop_takes_everything() -> None:
    verify_processor(processors.noop()).inputs([1, 2, 3]).expect([])


def test_peeking_at_the_input_logs_each_item_once(caplog: pytest.LogCaptureFixture) -> None:
    class OneAtATime(Processor):
        def process(self, ordinal, inbox):  # type: ignore[no-untyped-def]
            if self.outbox.offer(inbox.peek()):
                inbox.remove()

    driver = Driver(processors_of(processors.peek_input(OneAtATime))[0], room=1)
    assert driver.feed("ab").feed("c", ordinal=1).complete() == ["a", "b", "c"]
    assert messages(caplog) == [
        "Input from ordinal 0: a",
        "Input from ordinal 0: b",
        "Input from ordinal 1: c",
    ]


def test_peeking_at_the_output_logs_each_item_once(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(processors_of(processors.peek_output(processors.flat_map(lambda n: range(n)), hex))[0], room=2)
    assert driver.feed([3, 1]).complete() == [0, 1, 2, 0]
    assert messages(caplog) == [f"Output to ordinal 0: {hex(n)}" for n in (0, 1, 2, 0)]


def test_peeking_at_snapshots_logs_each_entry(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(processors_of(processors.peek_snapshot(processors.distinct()))[0])
    assert sorted(driver.feed("abc").save()) == [("a", None), ("b", None), ("c", None)]
    assert sorted(messages(caplog)) == [f"Snapshot entry: {(letter, None)}" for letter in "abc"]
    assert driver.complete() == ["a", "b", "c"]
    assert saves_at_end(processors_of(processors.peek_snapshot(Final))[0])


class Known:
    """An engine that has everything in the snapshot before."""

    def refer(self, token: Hashable) -> bool:
        return True

    def add_lasting(self, token: Hashable, entry: tuple[Any, Any]) -> None:
        raise AssertionError("it is known")


@pytest.mark.parametrize(("wrap", "logged"), [(processors.peek_snapshot, 1), (lambda supplier: supplier, 0)])
def test_peeking_at_snapshots_logs_what_did_not_change(
    caplog: pytest.LogCaptureFixture, wrap: Callable[[Any], Any], logged: int
) -> None:
    stage = Stage(wrap(processors.hash_join_batches("k")))
    stage.feed(0, [Batch({"k": [1, 2], "name": ["a", "b"]})], 1)
    stage.end_edge(1)
    (processor,), (outbox,) = stage.processors, stage.outboxes
    outbox.begin_saving(Known())
    assert processor.save_to_snapshot()
    # what tells the columns, and two rows
    assert sum("name" in repr(entry) for entry in outbox.end_saving(True)) == 3 * logged
    assert sum("Batch" in message for message in messages(caplog)) == 3 * logged


class Final(Processor):
    _saves_at_end = True


def test_peeking_changes_nothing() -> None:
    verify_processor(processors.peek_snapshot(processors.distinct())).inputs("aab").expect(["a", "b"])
    verify_processor(processors.peek_input(processors.map(str.upper))).inputs("ab").expect(["A", "B"])
    verify_processor(processors.peek_output(processors.sort())).inputs([2, 1]).expect([1, 2])


def test_suppliers_of_every_level_can_be_peeked_at() -> None:
    class Supplier(ProcessorSupplier):
        def get(self, count: int) -> list[Processor]:
            return [processors.map(str.lower)() for _ in range(count)]

    for supplier in (Supplier(), processors.read_items("ab"), processors.noop()):
        assert len(processors_of(processors.peek_output(supplier), 3)) == 3
    assert processors.peek_input(processors.read_items("ab")).preferred_local_parallelism == 1
    assert processors.peek_input(processors.noop()).is_cooperative
    assert processors.peek_input(processors.write_socket("h", 1)).is_cooperative is False


def test_a_processor_that_is_peeked_at_says_itself_when_it_is_called_and_whether_it_moves() -> None:
    class Resting(Processor):
        next_call = math.inf
        movable = False

        def try_process(self) -> bool:
            return True

        def process(self, ordinal, inbox):  # type: ignore[no-untyped-def]
            inbox.clear()
            self.next_call = 0.5

    driver = Driver(processors_of(processors.peek_input(Resting))[0])
    assert (driver.processor.next_call, driver.processor.movable) == (math.inf, False)
    driver.feed([1])
    assert driver.processor.next_call == 0.5
