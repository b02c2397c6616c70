"""The progress bar: what it says, and how busy it says that workers are."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from shmjet.cli.progress import BusyShares, ProgressBar, busy_text
from shmjet.cli.wordcount import Reading
from shmjet.execution.metrics import Metrics, WorkerMetrics


def worker(index: int, busy_ns: int, idle_ns: int) -> WorkerMetrics:
    return WorkerMetrics(index, 100 + index, index, 0.5, busy_ns, idle_ns, 3)


def test_shares_are_of_the_time_since_the_last_look() -> None:
    shares = BusyShares()
    assert shares.since_last([worker(0, 50, 50)]) == [0.5]
    assert shares.since_last([worker(0, 150, 50)]) == [1.0]
    assert shares.since_last([worker(0, 150, 150)]) == [0.0]


def test_without_news_the_share_since_start_is_shown() -> None:
    shares = BusyShares()
    shares.since_last([worker(0, 10, 10)])
    assert shares.since_last([worker(0, 10, 10)]) == [0.5]


@pytest.mark.parametrize(
    ("shares", "text"), [([], "busy "), ([0.25, 1.0], "busy 25% 100%"), ([0.0] * 8 + [1.0], "busy [        █]")]
)
def test_many_workers_take_a_character_each(shares: list[float], text: str) -> None:
    assert busy_text(shares) == text


def test_the_line_has_files_megabytes_and_words_per_second() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with ProgressBar(2_000_000, console) as bar:
        bar.show(Reading(3, 1_000_000, 0), Metrics({}, [], [worker(0, 1, 1)]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "3 files  1.0 of 2.0 MB  0.00 M words/s  busy 50%" in shown
