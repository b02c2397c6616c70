"""Suppliers and meta-suppliers that are slow of speech, fail, or look at what the job brought along."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    DAG,
    JetInstance,
    JobConfig,
    JobFailedError,
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    between,
    processors,
)


class Journal:
    """A file that all processes write lines into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def note(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text + "\n")

    def lines(self, count: int) -> Counter[str]:
        """Return the lines once there are so many: suppliers are closed after the client knows of the end."""
        deadline = time.monotonic() + 60
        while len(found := self.path.read_text().splitlines()) < count and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        return Counter(found)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


class Noted(Processor):
    """Notes that it was closed; says only when asked whether it is cooperative."""

    def __init__(self, journal: Journal, cooperative: bool = True) -> None:
        self.journal = journal
        self.is_cooperative = cooperative

    def complete(self) -> bool:
        self.journal.note("complete")
        return True

    def close(self) -> None:
        self.journal.note("close")


class Supplying(ProcessorSupplier):
    def __init__(self, journal: Journal, fails: str = "") -> None:
        self.journal = journal
        self.fails = fails

    def init(self, context: Any) -> None:
        self.journal.note("s.init")
        if self.fails == "init":
            raise ValueError("init fails")

    def get(self, count: int) -> list[Processor]:
        self.journal.note(f"s.get {count}")
        if self.fails == "get":
            raise ValueError("get fails")
        return [Noted(self.journal) for _ in range(count)]

    def close(self, error: BaseException | None) -> None:
        self.journal.note(f"s.close {error}")


def test_a_processor_that_was_asked_whether_it_is_cooperative_is_one_of_the_jobs(
    jet: JetInstance, journal: Journal
) -> None:
    dag = DAG()
    dag.new_vertex("lambda", lambda: Noted(journal), 4)
    jet.new_job(dag).run(60)
    assert journal.lines(8) == {"complete": 4, "close": 4}


class Opening(Processor):
    """Blocks, as only an instance can tell; its `close` needs what its `init` has opened."""

    def __init__(self, journal: Journal, fails: bool = False) -> None:
        self.journal = journal
        self.fails = fails

    @property
    def is_cooperative(self) -> bool:  # type: ignore[override]
        return False

    def init(self, outbox: Any, context: Any) -> None:
        super().init(outbox, context)
        self.opened = "closed"
        if self.fails:
            raise ValueError("init fails")

    def close(self) -> None:
        self.journal.note(self.opened)


class OpeningSupplier(ProcessorSupplier):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def get(self, count: int) -> list[Processor]:
        return [Opening(self.journal) for _ in range(count)]

    def close(self, error: BaseException | None) -> None:
        self.journal.note("s.close")
        raise ValueError("close fails")


def test_a_blocking_processor_that_was_only_asked_is_not_closed(jet: JetInstance, journal: Journal) -> None:
    dag = DAG()
    dag.new_vertex("factory", lambda: Opening(journal), 3)
    jet.new_job(dag).run(60)
    assert journal.lines(3) == {"closed": 3}


def test_a_supplier_that_was_only_asked_and_fails_to_close_does_not_fail_the_job(
    jet: JetInstance, journal: Journal
) -> None:
    dag = DAG()
    dag.new_vertex("supplier", OpeningSupplier(journal), 2)
    jet.new_job(dag).run(60)
    assert journal.lines(5) == {"closed": 2, "s.close": 3}


def test_processors_are_closed_if_and_only_if_they_were_initialised(jet: JetInstance, journal: Journal) -> None:
    class Missing(ProcessorSupplier):
        is_cooperative = True

        def get(self, count: int) -> list[Processor]:
            raise ValueError("get fails")

    dag = DAG()
    first = dag.new_vertex("first", processors.map(str), 2)
    dag.edge(between(dag.new_vertex("noted", lambda: Unbegun(journal), 2), first))
    dag.edge(between(first, dag.new_vertex("missing", Missing(), 2)))
    with pytest.raises(JobFailedError, match="get fails"):
        jet.new_job(dag).run(60)
    dag = DAG()
    dag.new_vertex("fails", lambda: Opening(journal, fails=True), 2)
    with pytest.raises(JobFailedError, match="init fails"):
        jet.new_job(dag).run(60)
    assert set(journal.lines(1)) == {"closed"}


class Unbegun(Processor):
    """Notes that it was closed, which it should not be without `init`."""

    is_cooperative = True

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def close(self) -> None:
        self.journal.note("closed without init")


def test_a_supplier_is_initialised_once_in_each_worker(jet: JetInstance, journal: Journal) -> None:
    dag = DAG()
    dag.new_vertex("v", Supplying(journal), 4)
    jet.new_job(dag).run(60)
    wanted = {"s.init": 2, "s.get 4": 2, "complete": 4, "close": 4, "s.close None": 2}
    assert journal.lines(14) == wanted


@pytest.mark.parametrize("fails", ["init", "get"])
def test_a_supplier_is_closed_though_it_failed(jet: JetInstance, journal: Journal, fails: str) -> None:
    class Meta(ProcessorMetaSupplier):
        def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
            return dict.fromkeys(addresses, Supplying(journal, fails))

        def close(self, error: BaseException | None) -> None:
            journal.note(f"m.close {error}")

    dag = DAG()
    dag.new_vertex("v", Meta(), 1)
    with pytest.raises(JobFailedError, match=f"in vertex 'v'[^:]*: ValueError(.|\n)*{fails} fails"):
        jet.new_job(dag).run(60)
    wanted = {"s.init": 1, f"s.close {fails} fails": 1, f"m.close {fails} fails": 1}
    assert journal.lines(4 if fails == "get" else 3) == (wanted | {"s.get 1": 1} if fails == "get" else wanted)


def test_a_meta_supplier_that_forgets_a_member_is_told_which(jet: JetInstance) -> None:
    class Forgets(ProcessorMetaSupplier):
        def __init__(self, given: Any) -> None:
            self.given = given

        def get(self, addresses: Sequence[str]) -> Any:
            return self.given

    address = jet.cluster.members[0].address
    for given, said in (({}, f"must give a ProcessorSupplier for {address!r}, got None"), (None, "got None")):
        dag = DAG()
        dag.new_vertex("v", Forgets(given), 1)
        with pytest.raises(JobFailedError, match=re.escape(said)):
            jet.new_job(dag).run(60)


def test_suppliers_of_all_levels_can_read_attached_files(jet: JetInstance, out: str, tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("attached")

    class Reads(ProcessorSupplier):
        def __init__(self, before: str = "") -> None:
            self.said = before

        def init(self, context: Any) -> None:
            self.said += " " + context.attached_file("words").read_text()

        def get(self, count: int) -> Any:
            said = self.said
            return ProcessorSupplier.of(processors.generate(lambda *_: [said])).get(count)

    class Meta(ProcessorMetaSupplier):
        def init(self, context: Any) -> None:
            self.said = context.attached_file("words").read_text()

        def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
            return dict.fromkeys(addresses, Reads(self.said))

    dag = DAG()
    dag.edge(between(dag.new_vertex("v", Meta(), 1), dag.new_vertex("sink", processors.write_list(out))))
    jet.new_job(dag, JobConfig().attach_file(file)).run(60)
    assert list(jet.get_list(out)) == ["attached attached"]
