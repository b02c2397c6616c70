"""What all stress scripts share: options, bounds in time, percentiles, and looking for what was left behind.

A script does something `--count` times with random numbers from `--seed`, prints one line of summary and exits with
1 when anything hung, was left behind or took longer than its target. Every process that a script starts carries a mark
in its environment, so that orphans are found after any process adopts them. As root a script runs with its own
/dev/shm, so that what others have there does not matter and a single name left behind is seen.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import faulthandler
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MARK = "SHMJET_STRESS_MARK"
"""The environment variable by which a script knows its processes."""

SHM = Path("/dev/shm")
HANG_S = 120.0
"""Seconds after which something that should take a fraction of one counts as hanging, on a busy machine, too."""
_SHOWN_AGAIN = 5

QUIET_START_S = 0.02
"""Seconds that an interpreter without any modules takes to start and end on a quiet machine."""

_PRIVATE = "SHMJET_STRESS_PRIVATE_SHM"
_PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass(frozen=True)
class Options:
    """The command line that every stress script understands."""

    count: int
    seed: int
    ci: bool
    only: tuple[str, ...]
    verbose: bool

    @property
    def slack(self) -> float:
        """By how much targets are relaxed: 5 on a shared machine (`--ci` or CI=true), else 1."""
        return 5.0 if self.ci or os.environ.get("CI", "").lower() in ("1", "true") else 1.0

    def wants(self, part: str) -> bool:
        """Whether a part of the script was asked for (all are, unless `--only` named some)."""
        return not self.only or part in self.only

    def say(self, text: str) -> None:
        """Print a line of progress when asked to."""
        if self.verbose:
            print(text, flush=True)


CI_SEED: Final = 2026


def parse_options(doc: str | None, *, count: int, ci: int, parts: Sequence[str] = ()) -> Options:
    """Parse `[--count N] [--seed S] [--ci] [--only PART] [--verbose]`.

    Args:
        doc: the script's docstring; its first line describes it.
        count: how often by default.
        ci: how often with `--ci`.
        parts: names for `--only`.
    """
    parser = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0])
    parser.add_argument("--count", type=int, help=f"how often (default {count}, with --ci {ci})")
    parser.add_argument(
        "--seed", type=int, help="of the random numbers (default: a new one, which is printed; --ci has one of its own)"
    )
    parser.add_argument("--ci", action="store_true", help="the short form, with at least five times the time")
    parser.add_argument("--only", action="append", default=[], choices=list(parts), help="this part (repeatable)")
    parser.add_argument("--verbose", action="store_true", help="print a line for each run")
    found = parser.parse_args()
    seed = found.seed
    if seed is None:  # a change is judged by the same numbers each time; the long forms look for new faults
        seed = CI_SEED if found.ci else secrets.randbelow(1 << 31)
    times = found.count if found.count is not None else (ci if found.ci else count)
    return Options(times, seed, found.ci, tuple(found.only), found.verbose)


def private_shm() -> bool:
    """Run the script again with an empty /dev/shm of its own, where this user may; False where not."""
    if not os.environ.get(_PRIVATE) and can_unshare():
        arguments = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=50% tmpfs /dev/shm && exec "$0" "$@"']
        os.execvpe("unshare", [*arguments, sys.executable, *sys.argv], {**os.environ, _PRIVATE: "1"})
    return bool(os.environ.get(_PRIVATE))


def can_unshare() -> bool:
    """Whether this user may mount a /dev/shm for itself."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm"]
    return subprocess.run(command, capture_output=True, timeout=HANG_S, check=False).returncode == 0


def mark_processes() -> str:
    """Give this process and all that it will start a mark, adopt their orphans, and return the mark.

    /proc shows the environment that a process was executed with, so this process itself does not carry it.
    """
    mark = os.environ[MARK] = secrets.token_hex(8)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return mark


def marked(mark: str) -> Iterator[int]:
    """Yield the pids of living processes with this mark."""
    needle = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            if needle in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0") and not is_zombie(int(entry)):
                yield int(entry)
        except OSError:
            continue


def is_zombie(pid: int) -> bool:
    """Whether a process is dead; True when it is gone altogether."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def name_of(pid: int) -> str:
    """The name that a process has given itself; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def names() -> set[str]:
    """What is in /dev/shm of shmjet's."""
    return {name for name in os.listdir(SHM) if name.startswith("shmjet")}


def wait_until(predicate: Callable[[], object], timeout: float = HANG_S, pause: float = 0.002) -> bool:
    """Wait for something; False when it has not come about within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def reap() -> None:
    """Collect orphans that this process has adopted and that are dead."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def all_gone(mark: str, timeout: float = HANG_S) -> bool:
    """Wait for the end of all processes with this mark; False when some are left after `timeout` seconds."""

    def gone() -> bool:
        reap()
        return not any(marked(mark))

    return wait_until(gone, timeout, 0.01)


def slowness() -> float:
    """How many times longer a process takes to start and end now than on a quiet machine: 1 to 10."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return min(max((time.perf_counter() - begun) / QUIET_START_S, 1.0), 10.0)


class Standstills(threading.Thread):
    """Notes when the machine stood still: a thread that wants to run ten times a second did not."""

    PAUSE_S = 0.1

    def __init__(self) -> None:
        super().__init__(name="standstills", daemon=True)
        self._found: list[tuple[float, float]] = []  # when the thread ran again, and how late
        self.start()

    def run(self) -> None:
        """Look at the clock for ever."""
        before = time.perf_counter()
        while True:
            time.sleep(self.PAUSE_S)
            now = time.perf_counter()
            if (late := now - before - self.PAUSE_S) > self.PAUSE_S:
                self._found.append((now, late))
            before = now

    def within(self, seconds: float) -> float:
        """For how many of the last seconds the machine stood still."""
        since = time.perf_counter() - seconds
        return sum(min(late, now - since) for now, late in self._found if now > since)


class Times:
    """Seconds that one kind of event took, and the target for their 95th percentile.

    With a slack above 1 the target is that of a busy machine: so many times as much, or twice the usual slowness after
    an event; and seconds in which nothing ran do not count.
    """

    def __init__(self, what: str, target: float, slack: float = 1.0) -> None:
        self.what = what
        self.values: list[float] = []
        self._target = target
        self._slowness: list[float] = []
        self._slack = slack
        self._standstills = Standstills() if slack > 1 else None

    @property
    def target(self) -> float:
        """Seconds that 95 of 100 events may take."""
        return self._target * max(self._slack, 2 * statistics.median(self._slowness or [0.0]))

    def add(self, seconds: float) -> None:
        """Note an event that has just ended."""
        if self._standstills is not None:
            seconds -= self._standstills.within(seconds)
            self._slowness.append(slowness())
        self.values.append(seconds)

    def percentile(self, share: float) -> float:
        """The smallest value that at least this share of all does not exceed."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

    @property
    def missed(self) -> bool:
        """Whether the 95th percentile is above the target."""
        return bool(self.values) and self.percentile(0.95) > self.target

    def __str__(self) -> str:
        if not self.values:
            return f"{self.what}: none"
        numbers = (self.percentile(0.5), self.percentile(0.95), max(self.values))
        p50, p95, most = (f"{1000 * seconds:.0f}" for seconds in numbers)
        verdict = f"{'MISSED ' if self.missed else ''}target {1000 * self.target:.0f}, n {len(self.values)}"
        return f"{self.what}: p50 {p50} p95 {p95} max {most} ms ({verdict})"


class Tally:
    """What a script found: complaints, times, and the exit status that follows from them."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.complaints: list[str] = []
        self.times: list[Times] = []
        self.done = 0
        self.notes: list[str] = []
        self._start = time.monotonic()
        faulthandler.enable()
        print(f"{name}: count {options.count}, seed {options.seed}", flush=True)

    def timing(self, what: str, target: float) -> Times:
        """Return a list of times with its target on a quiet machine, relaxed where the machine is shared."""
        times = Times(what, target, self.options.slack)
        self.times.append(times)
        return times

    def complain(self, text: str) -> None:
        """Note and print what went wrong."""
        self.complaints.append(text)
        print(f"{self.name}: WRONG: {text}", flush=True)

    def check(self, good: object, text: str) -> bool:
        """Complain unless `good`; returns whether it was."""
        if not good:
            self.complain(text)
        return bool(good)

    def finish(self) -> int:
        """Print the summary, with complaints once more as a log may be cut to its end, and return the exit status."""
        for text in self.complaints[:_SHOWN_AGAIN]:
            print(f"{self.name}: WRONG: {text}")
        parts = [f"{self.done} done", f"{len(self.complaints)} wrong", *self.notes, *map(str, self.times)]
        print(f"{self.name}: {'; '.join(parts)}; {time.monotonic() - self._start:.0f} s; seed {self.options.seed}")
        return 1 if self.complaints or any(times.missed for times in self.times) else 0


def watch(seconds: float) -> None:
    """End this process with the tracebacks of all its threads if it is not called again within `seconds`."""
    faulthandler.dump_traceback_later(seconds, exit=True)
