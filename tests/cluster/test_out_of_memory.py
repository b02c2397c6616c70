"""A process that has no address space left fails its job, says why, and lives on."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from shmjet import DAG, AbstractProcessor, JetInstance, JobFailedError, WorkerLostError
from shmjet.host.memory_reserve import hold_reserve

kept: list[bytes] = []
"""What a job leaves in its worker."""


class NotCooperative(AbstractProcessor):
    is_cooperative = False


class NotPicklable:
    """A function that cannot be pickled for want of memory."""

    def __call__(self, item: object) -> object:
        return item

    def __reduce__(self) -> str:
        raise MemoryError("no memory to pickle it")


def use_the_reserve(item: int) -> int:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    while hold_reserve():
        kept.append(bytes(1000))
    return item


def fail_without_memory(item: int) -> int:
    use_the_reserve(item)
    raise SystemError("error return without exception set")


def forget(item: int) -> int:
    kept.clear()
    return item


@pytest.fixture
def with_limits(jet: JetInstance, mapping: Callable[..., DAG]) -> Iterator[None]:
    """For jobs that leave their workers without memory: gives it back, and holds that these live on."""
    workers = jet.cluster.members[0].workers
    yield
    for pid in workers:
        lift(pid)
    jet.new_job(mapping(forget)).run(60)
    assert jet.cluster.members[0].workers == workers


@contextmanager
def without_address_space(pid: int) -> Iterator[None]:
    """Let a process have no more than it has now."""
    used = psutil.Process(pid).memory_info().vms
    resource.prlimit(pid, resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        lift(pid)


def lift(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.usefixtures("with_limits")
def test_a_worker_whose_reserve_is_used_fails_its_job_and_lives_on(
    jet: JetInstance, mapping: Callable[..., DAG]
) -> None:
    with pytest.raises(JobFailedError, match=r"MiB of address space are left: see RLIMIT_AS \(`ulimit -v`\)"):
        jet.new_job(mapping(use_the_reserve)).run(60)


@pytest.mark.usefixtures("with_limits")
def test_what_python_makes_of_a_lack_of_memory_is_named_a_lack_of_memory(
    jet: JetInstance, mapping: Callable[..., DAG]
) -> None:
    with pytest.raises(JobFailedError, match=r"MemoryError: less than 4 MiB of address space are left"):
        jet.new_job(mapping(fail_without_memory)).run(60)


def test_a_carrier_that_cannot_map_its_memory_says_so(jet: JetInstance) -> None:
    dag = DAG()
    dag.new_vertex("alone", NotCooperative, 1)
    server = psutil.Process(jet.cluster.members[0].workers[0]).ppid()
    with without_address_space(server), pytest.raises(WorkerLostError, match=r"cannot be mapped: .*RLIMIT_AS"):
        jet.new_job(dag).run(60)
    jet.new_job(dag).run(60)


def test_code_that_finds_no_memory_to_be_pickled_is_not_blamed(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    with pytest.raises(MemoryError, match="no memory to pickle it"):
        jet.new_job(mapping(NotPicklable()))
