"""Hazelcast Jet as a process of its own: built by Maven, told what to do line by line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from _harness import PeerSkipped

SOURCE = Path(__file__).resolve().parent / "peers" / "hazelcast"
OUTPUT = Path(__file__).resolve().parent / "data" / "hazelcast"
BUILD_S = 300
HEAP = "4g"
OPENED = (
    "--add-modules=java.se",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
)
"""What Hazelcast asks for at its start."""


def build() -> None:
    """Compile the program and fetch Hazelcast, unless that is done.

    Raises:
        PeerSkipped: there is no Java or no Maven, or Maven fails.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerSkipped(f"no {program}")
    built = OUTPUT / "built"
    files = [path for path in SOURCE.rglob("*") if path.is_file()]
    if built.exists() and built.stat().st_mtime > max(path.stat().st_mtime for path in files):
        return
    command = ["mvn", "-q", "-B", f"-Doutput={OUTPUT}", "package"]
    try:
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerSkipped(f"Maven took more than {BUILD_S} s") from None
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise PeerSkipped(f"Maven: {' '.join(errors[:1])[:200] or done.returncode}")
    built.touch()


class Hazelcast:
    """A member that runs; made by `member`.

    Args:
        process: its Java.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: str, number: int, load: Any, length_ms: int) -> tuple[Any, list[Any]]:
        """Have it do something with a query; return what it says at the end, and the rows before.

        Args:
            command: "answers", "replay", "generate" or "latency"; `Main.java` says what they are.
            number: of the query.
            load: parameters, as `nexmark.events.Load`.
            length_ms: of the run.
        """
        assert self._process.stdin is not None
        words = command, number, load.rate, load.keys, load.window_ms, load.slide_ms, length_ms
        print(*words, file=self._process.stdin, flush=True)
        return self.answer()

    def next_snapshot(self) -> float:
        """Have it take a snapshot, of the program "snapshots"; return the seconds that it took."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return float(self.answer()[0])

    def start_job(self, members: int, keys: int, value_bytes: int, folder: Path) -> None:
        """Have it start the job of the program "recovery" when there are so many members."""
        assert self._process.stdin is not None
        print(members, keys, value_bytes, folder, file=self._process.stdin, flush=True)
        self.answer()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used, all threads included."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def answer(self) -> tuple[Any, list[Any]]:
        """Return what it says."""
        assert self._process.stdout is not None
        rows: list[Any] = []
        for line in self._process.stdout:
            said = json.loads(line)
            if isinstance(said, dict):
                return said["done"], rows
            rows.append(said)
        raise PeerSkipped(f"Hazelcast has ended with status {self._process.wait()}")


@contextmanager
def member(cores: Collection[int], program: str = "nexmark", *more: int, heap: str = HEAP) -> Iterator[Hazelcast]:
    """Start a member with a cooperative thread for each of some cores, on these cores; it ends with the `with`.

    Args:
        cores: to run on.
        program: the package of its `Main`.
        more: arguments after the number of threads.
        heap: as Java's options have it.

    Raises:
        PeerSkipped: as `build`.
    """
    build()
    path = f"{OUTPUT / 'classes'}:{OUTPUT / 'lib'}/*"
    command = [
        "java",
        f"-Xmx{heap}",
        f"-Xms{heap}",
        *OPENED,
        "-cp",
        path,
        f"shmjet.{program}.Main",
        *map(str, (len(cores), *more)),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=partial(os.sched_setaffinity, 0, cores),
    )
    try:
        found = Hazelcast(process)
        found.answer()
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
