"""Fixtures of all tests: above all, one asserts that a test leaves nothing behind.

Every test is compared with what was there before it: child processes (and theirs), threads, file descriptors, names in
/dev/shm and temporary files. Whatever is new has a few seconds to go away, then it fails the test. A test that uses a
fixture of module, class or session scope (an instance shared by a module, say) is checked with its module instead,
because such a fixture may open things lazily.

The check costs well under a millisecond when nothing is left.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import EXPLORES, USUAL, drawn
from tests.waiting import until

# How long an example takes, or its making, says how busy the machine is.
settings.register_profile(
    "shmjet",
    max_examples=drawn(USUAL),
    deadline=None,
    derandomize=not EXPLORES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shmjet")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what runs behind `&`, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SHMJET_LONGEST_SILENCE", "30")  # nothing proves how soon a machine that stands still goes on
os.environ.setdefault("SHMJET_RESTART_PAUSE", "0")  # ten attempts fail in no time

# Each test process has loaded numpy, which few jobs of tests use: loading it in each member takes a third of its start.
os.environ.setdefault("SHMJET_PRELOAD", "")

GRACE = 60.0
"""Seconds that a child, a thread or a file may take to go away after its test."""

FOREIGN: set[str] = set()
"""Names in /dev/shm that others have been seen to hold: to look through all processes takes long."""

EXEMPT: set[int] = set()
"""Pids of processes that a fixture of the whole session owns, a JVM say; what they and their children do is theirs, and
so are the TCP connections of this process, by which it talks to them."""

SHM = Path("/dev/shm")
TESTS = Path(__file__).resolve().parent
SPARK = "tests/spark/"


@dataclass(frozen=True)
class Belongings:
    """What this process owns at one moment."""

    processes: frozenset[int]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    shm_names: frozenset[str]
    temporary_files: frozenset[str]

    @classmethod
    def now(cls) -> Belongings:
        return cls(
            processes=frozenset(_descendants(os.getpid())) - {_resource_tracker_pid()},
            threads=frozenset(threading.enumerate()),
            descriptors=frozenset(_descriptors()),
            shm_names=frozenset(_names(SHM)),
            temporary_files=frozenset(_names(Path(tempfile.gettempdir()))),
        )

    def new_since(self, before: Belongings) -> list[str]:
        """Return a line for each thing that `before` did not have."""
        return [
            *(f"process {pid}: {_command(pid)}" for pid in sorted(self.processes - before.processes)),
            *(f"thread {thread.name}" for thread in self.threads - before.threads if thread.is_alive()),
            *(f"file descriptor {fd}: {target}" for fd, target in sorted(self.descriptors - before.descriptors)),
            *(f"/dev/shm/{name}" for name in sorted(self.shm_names - before.shm_names) if not _is_foreign(SHM / name)),
            *(f"temporary file {name}" for name in sorted(self.temporary_files - before.temporary_files)),
        ]


@dataclass
class Before:
    """What there was before the next test, where that is known from the end of the last one."""

    belongings: Belongings | None


def leftovers(before: Belongings, grace: float = GRACE) -> list[str]:
    """Return what is new since `before` and does not go away within `grace` seconds."""
    return _settled(before, grace)[0]


def _settled(before: Belongings, grace: float = GRACE) -> tuple[list[str], Belongings]:
    """Return what is new since `before` and stays, and what there is then."""
    now = Belongings.now()
    found = now.new_since(before)
    deadline = time.monotonic() + grace
    pause, tries = 0.001, 0
    while found and time.monotonic() < deadline:
        if tries % 4 == 0:  # most of what is left ends by itself, and the collector takes longer than a pause
            gc.collect()
        tries += 1
        threading.Event().wait(pause)
        pause = min(2 * pause, 0.1)
        now = Belongings.now()
        found = now.new_since(before)
    return found, now


def pytest_configure(config: pytest.Config) -> None:
    """Let processes that tests start find a `pytest` that costs nothing to import; a process with tests must not."""
    gc.disable()  # until all is collected: nearly all of it stays, and to look through it took a third of the time
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        places = [str(TESTS / "started"), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal files out to processes, as `--dist loadfile` does, but all of Spark's to one: each process has a JVM."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneForSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _dealt_with(nodeid)

    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    return OneForSpark(config, log)


def _dealt_with(nodeid: str) -> str:
    """Return the file of a test, or the folder whose tests go to one process together."""
    return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest where files are dealt out, so that the last ones to end are short.

    How long a file takes is guessed by its tests: one with the mark `slow` counts as 20 others.
    """
    if not hasattr(config, "workerinput"):
        return
    lengths: Counter[str] = Counter()
    for item in items:
        lengths[_dealt_with(item.nodeid)] += 20 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -lengths[_dealt_with(item.nodeid)])


def pytest_collection_finish() -> None:
    gc.freeze()  # with its little garbage: to look for that took a sixth of the time of collecting
    gc.enable()


def _freeze() -> None:
    """Let the garbage collector leave out what stays to the end anyway: modules, tests, caches.

    `leftovers` calls it after many tests, and to look through all of that took longer than most of them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the run a temporary folder of its own, so that what appears there is ours."""
    folder = str(tmp_path_factory.mktemp("tmp", numbered=False))
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    yield
    tempfile.tempdir = before[1]
    if before[0] is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before[0]


@pytest.fixture(scope="module", autouse=True)
def _module_leaves_nothing_behind(
    request: pytest.FixtureRequest, _temporary_folder_of_this_run: None
) -> Iterator[Before]:
    failures = request.session.testsfailed
    before = Belongings.now()
    yield Before(before)
    found = leftovers(before) if request.session.testsfailed == failures else []
    _freeze()
    if found:
        pytest.fail(f"the tests of {request.path.name} left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest, _module_leaves_nothing_behind: Before) -> Iterator[None]:
    start = _module_leaves_nothing_behind
    if _shares_a_fixture(request):
        start.belongings = None
        yield
        return
    failures = request.session.testsfailed
    before, start.belongings = start.belongings or Belongings.now(), None
    yield
    # What a failed test holds is kept by its traceback, so it says nothing.
    if request.session.testsfailed == failures:
        found, start.belongings = _settled(before)
        if found:
            pytest.fail("this test left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """`eventually(predicate)` waits until the predicate is true, for at most a minute."""

    return until


def _shares_a_fixture(request: pytest.FixtureRequest) -> bool:
    """Whether the test uses a fixture of ours that outlives it."""
    definitions = request.node._fixtureinfo.name2fixturedefs  # noqa: SLF001  # pytest has no public name
    return any(
        definition.scope != "function"
        for name, found in definitions.items()
        if not name.startswith("_")
        for definition in found[-1:]
        if _is_ours(definition.func.__code__.co_filename)
    )


@functools.cache
def _is_ours(file: str) -> bool:
    return TESTS in Path(file).parents


def _descendants(pid: int) -> Iterator[int]:
    """Yield the children of `pid`, theirs, and so on; the dead ones count only while they are ours to reap."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        for child in map(int, _read(f"/proc/{pid}/task/{task}/children").split()):
            if child in EXEMPT:
                continue
            if pid == os.getpid() or not _is_zombie(child):
                yield child
                yield from _descendants(child)


def _is_zombie(pid: int) -> bool:
    state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return not state or state[0] == b"Z"


def _read(path: str) -> bytes:
    """Return what a file of /proc says, nothing if it has gone; `open` takes several times as long."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    except OSError:
        return b""
    finally:
        os.close(file)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or "dead, but not waited for"
    except OSError:
        return "just gone"


def _descriptors() -> Iterator[tuple[int, str]]:
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
        if EXEMPT and target.startswith("socket:") and _is_tcp(int(name)):
            continue
        if int(name) != tracker and not target.startswith("/proc/"):
            yield int(name), target


def _is_tcp(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as copy:
            return copy.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:
        return False


def _resource_tracker_pid() -> int | None:
    return getattr(resource_tracker._resource_tracker, "_pid", None)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_foreign(path: Path) -> bool:
    """Whether a process that is not ours holds `path` (or something in it): then another run made it."""
    if path.name in FOREIGN:
        return True
    if _is_held_elsewhere(path):
        FOREIGN.add(path.name)
        return True
    return False


def _is_held_elsewhere(path: Path) -> bool:
    ours = {os.getpid(), *_descendants(os.getpid())}
    if not path.name.startswith("shmjet"):
        return True
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in ours:
            continue
        try:
            targets = [os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
        except OSError:
            continue
        if any(target == str(path) or target.startswith(f"{path}/") for target in targets):
            return True
    return False
