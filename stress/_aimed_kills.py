"""A step that kills a process in the middle of a snapshot's phase: exactly there, as no clock could aim.

The step passes items on. It is armed by a file, `aim(folder, phase)`: the first of its processors that comes to that
phase takes the file away and kills (-9) the process that the file names, by default its own. So one shot is fired.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PHASES = ("save", "prepare", "commit", "restore", "restored")
"""Phase one (saving, preparing), phase two, restoring the entries, and the end of that."""


def aim(folder: Path, phase: str, pid: int | None = None) -> None:
    """Let the next processor that comes to this phase kill a process, by default its own."""
    loaded = folder / f"loading-{phase}"
    loaded.write_text("" if pid is None else str(pid))
    loaded.rename(folder / f"aim-{phase}")


def aim_away(folder: Path, phase: str) -> None:
    """Take a shot back that has not been fired."""
    (folder / f"aim-{phase}").unlink(missing_ok=True)


def hits(folder: Path, phase: str) -> int:
    """Return how often a process has been killed in this phase."""
    return len(list(folder.glob(f"aim-{phase}.*")))


def aimed_step(folder: Path, *, cooperative: bool) -> Any:
    """Return a supplier for `custom_transform`.

    Args:
        folder: where the arming files lie.
        cooperative: False: the step runs in a process of its own, a carrier.
    """
    import os
    import signal

    from shmjet import BroadcastKey, Processor

    place = str(folder)

    class Aimed(Processor):
        is_cooperative = cooperative

        def process(self, ordinal: int, inbox: Any) -> None:
            while inbox and self.outbox.offer(inbox.peek()):
                inbox.remove()

        def save_to_snapshot(self) -> bool:
            self._come_to("save")
            return self.outbox.offer_to_snapshot(BroadcastKey(self.context.global_index), 0)

        def snapshot_commit_prepare(self) -> bool:
            self._come_to("prepare")
            return True

        def snapshot_commit_finish(self, success: bool) -> bool:
            self._come_to("commit")
            return True

        def restore_from_snapshot(self, inbox: Any) -> None:
            self._come_to("restore")
            inbox.clear()

        def finish_snapshot_restore(self) -> bool:
            self._come_to("restored")
            return True

        def _come_to(self, phase: str) -> None:
            mine = f"{place}/aim-{phase}.{os.getpid()}-{self.context.global_index}"
            try:
                os.rename(f"{place}/aim-{phase}", mine)
            except OSError:
                return
            with open(mine) as file:
                pid = int(file.read() or os.getpid())
            os.kill(pid, signal.SIGKILL)

    return Aimed
