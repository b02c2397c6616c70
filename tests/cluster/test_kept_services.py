"""When a worker dies, the services in the others stay open for the next attempt, and are closed once at the end."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path

import pytest

from shmjet import (
    JetInstance,
    JobConfig,
    JobStatus,
    Pipeline,
    ProcessingGuarantee,
    RestartableError,
    ServiceFactory,
    sinks,
    sources,
)

SOON_S = 60.0
Eventually = Callable[..., None]


class Journal:
    """A file in which processes note what they do with services."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def note(self, what: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def pids(self, what: str) -> list[int]:
        return [int(line.split()[1]) for line in self._path.read_text().splitlines() if line.startswith(f"{what} ")]


class Service:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        journal.note("made")

    def close(self) -> None:
        self.journal.note("closed")


class AsyncService(Service):
    async def aclose(self) -> None:
        self.journal.note("closed")

    close = None  # type: ignore[assignment]


def using(journal: Journal, kind: str, fn: Callable[[int], int] = int) -> Pipeline:
    """Return an endless job that uses services of a kind."""
    pipeline = Pipeline()
    stage = pipeline.read_from(sources.item_stream(1000, lambda timestamp, sequence: sequence)).without_timestamps()
    if kind == "async":

        async def slow(service: AsyncService, item: int) -> int:
            return fn(item)

        used = stage.rebalance().map_using_service_async(ServiceFactory(lambda: AsyncService(journal)), slow)
    else:
        factory = ServiceFactory(lambda: Service(journal), shared=kind == "shared")
        used = stage.rebalance().map_using_service(factory, lambda service, item: fn(item))
    used.set_local_parallelism(2).write_to(sinks.noop()).set_local_parallelism(2)
    return pipeline


def guaranteed() -> JobConfig:
    return JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)


@pytest.mark.parametrize("kind", ["shared", "own", "async"])
def test_services_of_surviving_workers_are_kept_when_another_dies(
    jet: JetInstance, tmp_path: Path, eventually: Eventually, kind: str
) -> None:
    journal = Journal(tmp_path / "journal")
    job = jet.new_job(using(journal, kind), guaranteed())
    execution = job.execute()
    workers = list(jet.cluster.members[0].workers)
    eventually(lambda: set(journal.pids("made")) == set(workers))
    eventually(lambda: job.status is JobStatus.RUNNING)
    before = Counter(journal.pids("made"))
    os.kill(workers[0], signal.SIGKILL)
    eventually(lambda: len(set(journal.pids("made"))) > len(workers))
    eventually(lambda: job.status is JobStatus.RUNNING)
    job.cancel()
    wait([execution], SOON_S)
    after = Counter(journal.pids("made"))
    for pid in workers[1:]:
        assert after[pid] == before[pid] > 0, "a service was made anew in a worker that has survived"
    assert Counter(journal.pids("closed")) == after - Counter({workers[0]: before[workers[0]]})


@pytest.mark.parametrize("kind", ["shared", "own", "async"])
def test_after_an_error_that_may_be_theirs_services_are_made_anew(
    jet: JetInstance, tmp_path: Path, eventually: Eventually, kind: str
) -> None:
    journal, failed = Journal(tmp_path / "journal"), tmp_path / "failed"

    def fail_once(item: int) -> int:
        if item > 100 and not failed.exists():
            failed.touch()
            raise RestartableError("the connection is broken")
        return item

    job = jet.new_job(using(journal, kind, fail_once), guaranteed())
    execution = job.execute()
    workers = list(jet.cluster.members[0].workers)
    eventually(lambda: failed.exists() and all(n >= 2 for n in Counter(journal.pids("made")).values()))
    eventually(lambda: job.status is JobStatus.RUNNING)
    job.cancel()
    wait([execution], SOON_S)
    made = Counter(journal.pids("made"))
    assert made.keys() == set(workers)
    assert Counter(journal.pids("closed")) == made
