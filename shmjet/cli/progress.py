"""The live line of `shmjet wordcount` on a terminal: files, MB, words/s, and how busy each worker is.

Pure presentation: it is handed what was read and the job's metrics, and knows nothing of instances.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from shmjet.execution.metrics import Metrics, WorkerMetrics
from shmjet.observe.table import busy_text

__all__ = ["Amount", "BusyShares", "ProgressBar", "busy_text"]


class Amount(Protocol):
    """What was read so far."""

    @property
    def files(self) -> int:
        """Files begun."""

    @property
    def bytes(self) -> int:
        """Bytes of text."""

    @property
    def words(self) -> int:
        """Words counted by the reading processors; 0 if other processors count."""


class ProgressBar:
    """A bar on standard error that disappears when it is left.

    Args:
        total: bytes to read.
        console: where to draw; standard error unless given.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[done]}"),
            console=console or Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("", total=max(total, 1), done="starting")
        self._start = time.monotonic()
        self._busy = BusyShares()
        self._total = total

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, read: Amount, metrics: Metrics) -> None:
        """Draw the present state."""
        split = metrics.vertices.get("split")
        words = split.emitted_count if split is not None else read.words
        rate = words / max(time.monotonic() - self._start, 1e-3)
        shares = self._busy.since_last(metrics.workers)
        text = (
            f"{read.files:,} files  {read.bytes / 1e6:,.1f} of {self._total / 1e6:,.1f} MB  "
            f"{rate / 1e6:.2f} M words/s  {busy_text(shares)}"
        )
        self._progress.update(self._task, completed=read.bytes, done=text)
        self._progress.refresh()


class BusyShares:
    """Turns counters of busy and idle time into shares of the time since the last look."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def since_last(self, workers: list[WorkerMetrics]) -> list[float]:
        """Return the share of time, 0 to 1, that each worker was busy since the last call."""
        shares = []
        for worker in workers:
            busy, idle = self._last.get(worker.index, (0, 0))
            self._last[worker.index] = worker.busy_ns, worker.idle_ns
            spent, rested = worker.busy_ns - busy, worker.idle_ns - idle
            shares.append(min(max(spent / (spent + rested), 0.0), 1.0) if spent + rested > 0 else worker.busy)
        return shares
