"""Results of a job with EXACTLY_ONCE reach the client once, whatever is lost between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any

import pytest

from shmjet import JobConfig, ProcessingGuarantee
from shmjet.processors.general.collect import CollectSupplier, ResultSpool
from tests.processors.driving import Driver, processors_of


class Collecting:
    """A client, and the processors of one execution's attempts."""

    def __init__(self, guarantee: ProcessingGuarantee) -> None:
        self.spool = ResultSpool()
        self.supplier = CollectSupplier(self.spool)
        self.execution: Future[None] = Future()
        self.supplier.on_client(self.execution)
        self._config = JobConfig(processing_guarantee=guarantee)
        self._made: list[Driver] = []

    def attempt(self, entries: list[Any] | None = None) -> Driver:
        """Begin an attempt: the processor before is lost."""
        self.close()
        (processor,) = processors_of(self.supplier)
        driver = Driver(processor, config=self._config)
        self._made.append(driver)
        return driver if entries is None else driver.restore(entries)

    def close(self) -> None:
        """Lose the processor."""
        while self._made:
            self._made.pop().processor.close()

    def results(self) -> list[Any]:
        """End the execution and return what the client reads."""
        self.close()
        self.execution.set_result(None)
        assert self.spool.run is not None
        return list(self.spool.run)


def commit(driver: Driver, success: bool = True) -> None:
    driver.save()
    driver.until_true(driver.processor.snapshot_commit_prepare)
    driver.until_true(driver.processor.snapshot_commit_finish, success)


@pytest.fixture
def collecting() -> Iterator[Collecting]:
    made = Collecting(ProcessingGuarantee.EXACTLY_ONCE)
    yield made
    made.close()
    if not made.execution.done():
        made.execution.cancel()
    made.spool.run.close()


def test_what_comes_after_the_last_snapshot_is_not_read(collecting: Collecting) -> None:
    one = collecting.attempt()
    entries = one.feed([1, 2]).save()
    one.until_true(one.processor.snapshot_commit_finish, True)
    one.feed([3])
    another = collecting.attempt(entries).feed([3, 4])
    commit(another)
    assert collecting.results() == [1, 2, 3, 4]


def test_results_come_with_each_snapshot_while_the_job_runs(collecting: Collecting) -> None:
    one = collecting.attempt().feed([1, 2])
    commit(one)
    assert collecting.spool.run is not None
    assert list(islice(collecting.spool.run, 2)) == [1, 2]
    commit(one.feed([3]))
    assert list(islice(collecting.spool.run, 3)) == [1, 2, 3]


def test_a_processor_that_is_lost_between_the_phases_is_committed_by_the_next(collecting: Collecting) -> None:
    entries = collecting.attempt().feed([1, 2]).save()
    again = collecting.attempt(entries).feed([3]).save()  # and lost once more
    third = collecting.attempt(again).feed([4])
    commit(third)
    assert collecting.results() == [1, 2, 3, 4]


def test_a_failed_snapshot_drops_nothing(collecting: Collecting) -> None:
    one = collecting.attempt().feed([1])
    commit(one, success=False)
    commit(one.feed([2]))
    assert collecting.results() == [1, 2]


def test_an_older_snapshot_takes_back_what_was_never_committed(collecting: Collecting) -> None:
    one = collecting.attempt().feed([1])
    entries = one.save()
    one.until_true(one.processor.snapshot_commit_finish, True)
    one.feed(["never"]).save()  # this snapshot fails with its process
    commit(collecting.attempt(entries).feed([2]))
    assert collecting.results() == [1, 2]


@pytest.mark.parametrize("guarantee", [ProcessingGuarantee.NONE, ProcessingGuarantee.AT_LEAST_ONCE])
def test_without_exactly_once_all_is_read_at_once(guarantee: ProcessingGuarantee) -> None:
    collecting = Collecting(guarantee)
    one = collecting.attempt().feed([1, 2])
    assert collecting.spool.run is not None
    assert list(islice(collecting.spool.run, 2)) == [1, 2]
    assert one.save() == []
    assert collecting.results() == [1, 2]
    collecting.spool.clear()
