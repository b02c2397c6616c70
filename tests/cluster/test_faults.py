"""What fails, fails at once, with an error that names it, and leaves the instance working."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

import shmjet
from shmjet import (
    DAG,
    JetConfig,
    JetInstance,
    JobConfig,
    JobFailedError,
    MemberLostError,
    Processor,
    WorkerLostError,
    processors,
)
from shmjet.cluster.client.backend import LocalEndpoint
from shmjet.grid import Grid, GridError
from shmjet.grid.environment import Environment


def divide(x: int) -> float:
    return 1 / (x - 50)


class Unpicklable(Exception):
    def __init__(self, text: str, lock: object) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Holder:
    """An item that no pickler takes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_function_that_raises_is_shown_with_its_file_line_and_source(
    jet: JetInstance, mapping: Callable[..., DAG]
) -> None:
    with pytest.raises(JobFailedError) as failure:
        jet.new_job(mapping(divide)).run(60)
    text = str(failure.value)
    line = divide.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}, in divide\n    return 1 / (x - 50)\n' in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert len(text.splitlines()) <= 25
    assert f'File "{shmjet.__path__[0]}{os.sep}' not in text
    assert isinstance(failure.value.cause, ZeroDivisionError)
    assert failure.value.__cause__ is failure.value.cause
    assert (failure.value.vertex, failure.value.member) == ("map", "local")
    assert failure.value.processor_index in (0, 1)


def test_deep_recursion_and_long_messages_stay_within_25_lines(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    def deep(x: int) -> int:
        if x == 400:
            raise ValueError("\n".join(["long"] * 100))
        return deep(x + 1)

    with pytest.raises(JobFailedError, match="ValueError: long") as failure:
        jet.new_job(mapping(deep)).run(60)
    assert len(str(failure.value).splitlines()) <= 25


def test_an_exception_that_cannot_be_pickled_arrives_with_its_text(
    jet: JetInstance, mapping: Callable[..., DAG]
) -> None:
    def fail(x: int) -> int:
        raise Unpicklable("what it says", 1)

    with pytest.raises(JobFailedError, match="what it says") as failure:
        jet.new_job(mapping(fail)).run(60)
    assert "Unpicklable: what it says" in str(failure.value.cause)


def test_an_item_that_cannot_be_pickled_is_named_with_its_vertex(jet: JetInstance, out: str) -> None:
    dag = DAG()
    source = dag.new_vertex("locks", shmjet.processors.generate(lambda i, n: [Holder()]), 2)
    sink = dag.new_vertex("sink", shmjet.processors.noop(), 2)
    dag.edge(shmjet.between(source, sink).broadcast())
    with pytest.raises(JobFailedError, match="Holder") as failure:
        jet.new_job(dag).run(60)
    assert failure.value.vertex == "locks"
    assert "must be picklable" in str(failure.value)


def test_code_that_cannot_be_sent_is_refused_by_new_job_naming_the_vertex(
    jet: JetInstance, mapping: Callable[..., DAG]
) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="vertex 'map' cannot be sent to the workers"):
        jet.new_job(mapping(lambda x: lock))


def test_a_killed_worker_fails_its_job_and_the_next_one_works(
    jet: JetInstance, mapping: Callable[..., DAG], eventually: Callable[..., None], out: str
) -> None:
    class Forever(Processor):
        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("forever", Forever)
    execution = jet.new_job(dag).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    eventually(lambda: execution.metrics().vertices["forever"].processors[1].calls > 0)
    victim = jet.cluster.members[0].workers[1]
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=rf"worker 1 \(pid {victim}\) was killed by SIGKILL.*'forever'") as lost:
        execution.result(60)
    assert (lost.value.pid, lost.value.signal, lost.value.vertices) == (victim, signal.SIGKILL, ("forever",))
    jet.new_job(mapping(lambda x: x + 1)).run(60)
    assert sorted(jet.get_list(out)) == list(range(1, 101))
    assert victim not in jet.cluster.members[0].workers


def test_a_lost_worker_fails_its_job_even_where_the_store_cannot_be_opened(eventually: Callable[..., None]) -> None:
    class Forever(Processor):
        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("forever", Forever)
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        execution = jet.new_job(dag).execute()
        eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
        shutil.rmtree(jet.folder / "grid")
        victim = jet.cluster.members[0].workers[1]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="was killed by SIGKILL"):
            execution.result(60)


def test_a_worker_that_exits_by_itself_is_a_lost_worker(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    with pytest.raises(WorkerLostError, match=r"exited with status 7") as lost:
        jet.new_job(mapping(lambda x: os._exit(7), parallelism=1)).run(60)
    assert lost.value.signal is None
    jet.new_job(mapping(lambda x: x)).run(60)


def test_code_that_closes_all_descriptors_is_named_as_the_reason(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    def close_all(x: int) -> int:
        os.closerange(3, 256)
        return x

    with pytest.raises(WorkerLostError, match="by its member, because it has closed its socket to the member") as lost:
        jet.new_job(mapping(close_all)).run(60)
    assert "out-of-memory" not in str(lost.value)
    assert lost.value.signal == signal.SIGKILL
    jet.new_job(mapping(lambda x: x)).run(60)


def test_a_killed_carrier_fails_its_job(jet: JetInstance, eventually: Callable[..., None]) -> None:
    class Blocking(Processor):
        is_cooperative = False

        def complete(self) -> bool:
            os.kill(os.getpid(), signal.SIGKILL)
            return True

    dag = DAG()
    dag.new_vertex("blocking", Blocking, 1)
    with pytest.raises(WorkerLostError, match=r"carrier \(pid \d+\) was killed by SIGKILL.*'blocking'"):
        jet.new_job(dag).run(60)


def test_cancel_ends_a_function_that_never_returns(
    jet: JetInstance, mapping: Callable[..., DAG], eventually: Callable[..., None]
) -> None:
    def stuck(x: int) -> int:
        while True:
            pass

    workers = jet.cluster.members[0].workers
    execution = jet.new_job(mapping(stuck, range(10), 1)).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    eventually(lambda: execution.metrics().vertices["items"].emitted_count > 0)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    assert jet.cluster.members[0].workers == workers, "a signal was enough, no worker had to be killed"
    jet.new_job(mapping(lambda x: x)).run(60)


def test_a_function_that_swallows_the_interruption_costs_its_worker_and_the_neighbour_is_told_why(
    jet: JetInstance, mapping: Callable[..., DAG], eventually: Callable[..., None]
) -> None:
    def stubborn(x: int) -> int:
        while True:
            try:
                never_comes_back()
            except BaseException:
                continue

    class Forever(Processor):
        def complete(self) -> bool:
            return False

    neighbour = DAG()
    neighbour.new_vertex("forever", Forever)
    other = jet.new_job(neighbour, JobConfig(name="neighbour")).execute()
    eventually(lambda: other.status is shmjet.JobStatus.RUNNING)
    execution = jet.new_job(mapping(stubborn, range(10), 2), JobConfig(name="stubborn")).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    eventually(lambda: execution.metrics().vertices["items"].emitted_count > 0)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    with pytest.raises(WorkerLostError, match="because job 'stubborn' did not stop when it was told to"):
        other.result(60)
    jet.new_job(mapping(lambda x: x)).run(60)


def never_comes_back() -> None:
    """Wait until something is raised, in short calls that need no core for the seconds that it takes."""
    while True:
        time.sleep(0.001)


class Once(Processor):
    """Ends at once."""


class NeverCloses(Processor):
    """Runs until it is cancelled, and does not come back from `close`."""

    def complete(self) -> bool:
        return False

    def close(self) -> None:
        never_comes_back()


class Unclosable(shmjet.ProcessorSupplier):
    """Its `close` does not come back; a stubborn one swallows what would end it."""

    is_cooperative = True

    def __init__(self, stubborn: bool) -> None:
        self.stubborn = stubborn

    def get(self, count: int) -> list[Processor]:
        return [Once() for _ in range(count)]

    def close(self, error: BaseException | None) -> None:
        while True:
            try:
                never_comes_back()
            except BaseException:
                if not self.stubborn:
                    raise


def of_one_vertex(supplier: object) -> DAG:
    dag = DAG()
    dag.new_vertex("alone", supplier)
    return dag


def test_a_processor_that_does_not_come_back_from_close_is_interrupted_there(
    jet: JetInstance, mapping: Callable[..., DAG], eventually: Callable[..., None]
) -> None:
    workers = jet.cluster.members[0].workers
    execution = jet.new_job(of_one_vertex(NeverCloses)).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    assert jet.cluster.members[0].workers == workers, "a signal was enough, no worker had to be killed"
    jet.new_job(mapping(lambda x: x)).run(60)


@pytest.mark.slow
def test_a_supplier_that_does_not_come_back_from_close_is_interrupted_there(
    jet: JetInstance, mapping: Callable[..., DAG], out: str
) -> None:
    workers = jet.cluster.members[0].workers
    jet.new_job(of_one_vertex(Unclosable(stubborn=False))).run(60)
    jet.new_job(mapping(lambda x: x)).run(60)  # begins when the workers are free again
    assert len(jet.get_list(out)) == 100
    assert jet.cluster.members[0].workers == workers, "a signal was enough, no worker had to be killed"


def test_whoever_waits_behind_a_close_that_swallows_the_interruption_is_told_whose_it_is(
    jet: JetInstance, mapping: Callable[..., DAG], eventually: Callable[..., None]
) -> None:
    for _ in range(10):
        jet.new_job(of_one_vertex(Unclosable(stubborn=True)), JobConfig(name="unclosable")).run(60)
        waiting = jet.new_job(mapping(lambda x: x), JobConfig(name="waiting")).execute()
        cancelled = jet.new_job(mapping(lambda x: x), JobConfig(name="cancelled")).execute()
        cancelled.cancel()
        with pytest.raises(CancelledError):
            cancelled.result(60)
        with pytest.raises(WorkerLostError, match="because job 'unclosable' did not") as lost:
            waiting.result(60)
        if "did not stop when it was told to" not in str(lost.value):  # the machine stood still for seconds
            break
    assert "'unclosable' did not come back from its code while job 'cancelled' had to end" in str(lost.value)
    jet.new_job(mapping(lambda x: x)).run(60)


def exhaust(_: int) -> int:
    """Leave this worker no descriptor but its present ones."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return 0


def test_a_worker_without_a_descriptor_for_a_job_says_which_limit_it_was(mapping: Callable[..., DAG]) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        jet.new_job(of_one_vertex(processors.generate(lambda i, n: [exhaust(i)]))).run(60)
        ballast = os.urandom(4 << 20)
        large = mapping(lambda x: x + len(ballast))  # its code comes as a descriptor
        wanted = r"exited with status 1: .*it needs 1 more, and has as many open as RLIMIT_NOFILE allows \(\d+\); raise"
        with pytest.raises(WorkerLostError, match=wanted):
            jet.new_job(large).run(60)
        jet.new_job(large).run(60)


def test_user_code_without_a_descriptor_is_told_which_limit_it_was(mapping: Callable[..., DAG]) -> None:
    dag = mapping(lambda x: (exhaust(x), os.open("/dev/null", os.O_RDONLY)), range(1))
    wanted = r"RLIMIT_NOFILE allows \(\d+\); raise that limit"
    with shmjet.new_instance(JetConfig(cores=1)) as jet, pytest.raises(JobFailedError, match=wanted):
        jet.new_job(dag).run(60)


def test_a_killed_member_fails_its_jobs_and_leaves_nothing(eventually: Callable[..., None]) -> None:
    class Forever(Processor):
        def complete(self) -> bool:
            return False

    jet = shmjet.new_instance(JetConfig(cores=2))
    dag = DAG()
    dag.new_vertex("forever", Forever)
    execution = jet.new_job(dag).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    member = jet.cluster.members[0]
    os.kill(member.pid, signal.SIGKILL)
    with pytest.raises(MemberLostError, match=f"pid {member.pid}"):
        execution.result(60)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in member.workers))
    with pytest.raises(MemberLostError):
        jet.new_job(dag).execute()
    jet.shutdown()


SCRIPT = """
    import pathlib, sys
    import shmjet
    from shmjet import DAG, Processor

    running = pathlib.Path(sys.argv[1])

    class Forever(Processor):
        def complete(self):
            running.touch()
            return False

    jet = shmjet.new_instance(shmjet.JetConfig(cores=2))
    dag = DAG()
    dag.new_vertex("forever", Forever)
    execution = jet.new_job(dag).execute()
    print(jet.cluster.members[0].pid, jet.folder, flush=True)
    execution.result()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_when_the_users_process_ends_everything_goes(
    number: signal.Signals, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(tmp_path / "running")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    eventually((tmp_path / "running").exists)
    family = [psutil.Process(int(pid)), *psutil.Process(int(pid)).children(recursive=True)]
    assert len(family) >= 4
    process.send_signal(number)
    process.communicate(timeout=60)
    eventually(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family))
    eventually(lambda: not Path(folder).exists())


MAIN_SCRIPT = """
    import dataclasses
    import shmjet
    from shmjet import DAG, AbstractProcessor, between, processors

    @dataclasses.dataclass
    class Point:
        x: int

        def shifted(self):
            return Point(self.x + OFFSET)

    OFFSET = 5

    class Shift(AbstractProcessor):
        def try_process0(self, item):
            return self.try_emit(item.shifted())

    dag = DAG()
    source = dag.new_vertex("source", processors.read_items([Point(i) for i in range(1000)]), 1)
    shift = dag.new_vertex("shift", Shift)
    sink = dag.new_vertex("sink", processors.write_list("points"), 1)
    dag.edge(between(source, shift).partitioned(lambda p: p.x)).edge(between(shift, sink))
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as jet:
        jet.new_job(dag).run(60)
        points = list(jet.get_list("points"))
        assert all(type(point) is Point for point in points)
        print(sum(point.x for point in points), len(points))
"""


def test_classes_of_main_travel_as_items_and_come_back_as_themselves(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(MAIN_SCRIPT))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == [str(sum(range(1000)) + 5000), "1000"]


STOPPING_SCRIPT = """
    import os, signal
    import shmjet
    from shmjet import DAG, Processor, between, processors

    class Endless(Processor):
        def complete(self):
            self.outbox.offer(1)
            return False

    jet = shmjet.new_instance(shmjet.JetConfig(cores=2))
    dag = DAG()
    dag.edge(between(dag.new_vertex("a", Endless, 1), dag.new_vertex("b", processors.write_list("ones"), 1)))
    execution = jet.new_job(dag).execute()
    print(jet.folder, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_a_client_that_is_stopped_slows_no_job(tmp_path: Path, eventually: Callable[..., None]) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(STOPPING_SCRIPT))
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    with Grid.open(folder / "grid") as grid:
        ones = grid.get_list("ones")
        before = len(ones)
        eventually(lambda: len(ones) > before + 100)
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: not folder.exists())


def test_a_member_that_ends_as_soon_as_it_is_up_is_a_lost_member(tmp_path: Path) -> None:
    with pytest.raises(MemberLostError, match=r"the member of this instance \(pid 17\) is gone; .*No such file"):
        LocalEndpoint(tmp_path / "socket", 17).connect()
    with pytest.raises(GridError, match="a folder that is still there"):
        Environment(tmp_path / "gone" / "0", 1 << 20, memoryview(bytearray(24)).cast("Q")).open()
