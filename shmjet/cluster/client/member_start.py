"""The wait for a member to come up, and the report of what held it up."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from shmjet.core import ShmjetError
from shmjet.data import errors
from shmjet.data.decoders import from_json
from shmjet.host.stacks import answers

if TYPE_CHECKING:
    from shmjet.cluster.settings import Started

START_S = 60.0
"""How long a member may take for one thing on its way up."""
_STACKS_S = 1.0
"""How long a member that is late may take to write where it is."""
_OUTERMOST = " in <module>\n"
"""The end of the stack of a main thread."""
_MOST_SAID = 2000
"""Characters of what a member has written that an error quotes."""


class MemberStart:
    """A member that comes up.

    Args:
        process: it.
        reader: what it says of itself, `Starting` and in the end `Started` or `StartFailed`, a line each.
        early: its standard error until its own code runs, and where it writes its stacks.
    """

    def __init__(self, process: subprocess.Popen[bytes], reader: int, early: int) -> None:
        self._process = process
        self._reader = reader
        self._early = early
        self._doing = "starting the interpreter and importing shmjet"

    def wait(self) -> Started:
        """Wait until it serves.

        Raises:
            ShmjetError: it did not come up; the text says what it was doing, and what it has written.
        """
        from shmjet.cluster.settings import Started, StartFailed, Starting

        begun = since = time.monotonic()
        left = b""
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        while True:
            ready = poller.poll(max(0.0, 1000 * (since + START_S - time.monotonic())))
            if not ready:
                raise ShmjetError(self._late(time.monotonic() - begun, time.monotonic() - since))
            chunk = os.read(self._reader, 65536)
            if not chunk:
                raise ShmjetError(self._ended())
            *lines, left = (left + chunk).split(b"\n")
            for line in lines:
                answer = _decode(line)
                if isinstance(answer, Starting):
                    self._doing, since = answer.doing, time.monotonic()
                elif isinstance(answer, StartFailed):
                    kind = getattr(errors, answer.error, ShmjetError)
                    raise kind(f"the member could not start: {answer.text}")
                else:
                    assert isinstance(answer, Started)
                    self._pass_on()
                    return answer

    def _late(self, whole: float, seconds: float) -> str:
        pid = self._process.pid
        text = (
            f"the member process (pid {pid}) did not come up within {whole:.0f} s; for the last {seconds:.0f} s it "
            f"was {self._doing}{_state_of(pid)}{_children_of(pid)}"
        )
        said = self._said()
        stacks = self._stacks()
        return text + "".join(f". It has written:\n{part}" for part in (said, stacks) if part)

    def _stacks(self) -> str:
        """Have the member write its stacks, and return them, the innermost calls first; empty when it does not."""
        if not answers(self._process.pid):
            return ""
        begin = os.fstat(self._early).st_size
        os.kill(self._process.pid, signal.SIGUSR2)
        deadline = time.monotonic() + _STACKS_S
        found = ""
        while len(found) < _MOST_SAID and not found.endswith(_OUTERMOST) and time.monotonic() < deadline:
            time.sleep(0.01)
            found = os.pread(self._early, _MOST_SAID, begin).decode(errors="replace")
        return found.strip()

    def _ended(self) -> str:
        status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        said = self._said()
        text = f"the member process {how} before it was up, while it was {self._doing}"
        return text + (f"; it has written:\n{said}" if said else "; what it had to say is on standard error")

    def _said(self) -> str:
        """Return the end of what it has written, as far as that went into the file."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._early).st_size
            return os.pread(self._early, _MOST_SAID, max(0, size - _MOST_SAID)).decode(errors="replace").strip()
        return ""

    def _pass_on(self) -> None:
        """Let what it has written, warnings for example, reach the standard error that it was meant for."""
        size = os.fstat(self._early).st_size
        if size:
            with contextlib.suppress(OSError):
                os.write(2, os.pread(self._early, size, 0))

    def close(self) -> None:
        """Let go of pipe and file."""
        os.close(self._reader)
        os.close(self._early)


def _decode(line: bytes) -> object:

    from shmjet.cluster.settings import StartAnswer

    return from_json(line, StartAnswer)


def _state_of(pid: int) -> str:
    """Say how the kernel sees a process that should have come up by now; empty where it does not tell."""
    try:
        parts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    ticks = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    had = f"it has had {ticks:.1f} s of CPU time, and the load of the host is {os.getloadavg()[0]:.1f}"
    return f" (state {parts[0].decode()}{_place_of(pid)}; {had})"


def _place_of(pid: int) -> str:
    """Say where in the kernel a process waits; empty where it does not, or the kernel does not tell."""
    with contextlib.suppress(OSError):
        waits = Path(f"/proc/{pid}/wchan").read_text().strip()
        if waits.strip("0"):
            return f", in {waits}"
    return ""


def _children_of(pid: int) -> str:
    """List the processes of a member with their states: it may wait for one of them. Empty where it has none."""
    import psutil  # takes 10 ms to import

    with contextlib.suppress(psutil.Error, OSError):
        found = [
            f"{child.name()} (pid {child.pid}, {child.status()}{_place_of(child.pid)})"
            for child in psutil.Process(pid).children(recursive=True)
        ]
        if found:
            return f". Its processes: {', '.join(found)}"
    return ""
