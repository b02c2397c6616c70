"""A job that loses a worker, is suspended and resumed, and has each item once in all that it writes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import shmjet
from shmjet import JobConfig, JobStateError, JobStatus, Pipeline, ProcessingGuarantee, sinks, sources

COUNT = 60_000


def slowly(line: str) -> int:
    return sum(map(int, [line] * 40)) // 40


def committed(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if not path.name.startswith(".")]


def test_each_item_is_written_once_through_a_kill_and_a_suspension(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    (tmp_path / "in").write_text("".join(f"{n}\n" for n in range(COUNT)))
    p = Pipeline()
    numbers = p.read_from(sources.files(tmp_path / "in")).map(slowly)
    numbers.write_to(sinks.files(tmp_path / "out"))
    numbers.write_to(sinks.list("once"))
    numbers.map(lambda n: (n % 7, 1)).write_to(sinks.map("counts", merge_fn=lambda old, new: old + new))
    guarantee = ProcessingGuarantee.EXACTLY_ONCE
    job = jet.new_job(p, JobConfig(name="once", processing_guarantee=guarantee, snapshot_interval=0.02))
    execution = job.execute()
    eventually(lambda: execution.done() or committed(tmp_path / "out"))
    os.kill(jet.cluster.members[0].workers[0], signal.SIGKILL)
    before = len(committed(tmp_path / "out"))
    eventually(lambda: execution.done() or len(committed(tmp_path / "out")) > before)
    with contextlib.suppress(JobStateError):  # it may have ended meanwhile
        job.suspend()
        eventually(lambda: execution.done() or job.status is JobStatus.SUSPENDED)
        job.resume()
    execution.result(60)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []
    written = [int(line) for path in committed(tmp_path / "out") for line in path.read_text().split()]
    assert sorted(written) == list(range(COUNT))
    assert sorted(jet.get_list("once")) == list(range(COUNT))
    assert dict(jet.get_map("counts").items()) == Counter(n % 7 for n in range(COUNT))
