"""`file_watcher` in a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import JobConfig, JobFailedError, JobStatus, Pipeline, ProcessingGuarantee, sinks, sources


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_suspended_job_reads_each_line_once(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    log = tmp_path / "log"
    append(log, "before\n")
    config = JobConfig(name="logs", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05)
    p = Pipeline()
    p.read_from(sources.file_watcher(tmp_path)).without_timestamps().write_to(sinks.list("lines"))
    job = jet.new_job(p, config)
    execution = job.execute()
    found = jet.get_list("lines")
    eventually(lambda: job.status is JobStatus.RUNNING)
    expected = []
    for number in range(3):
        append(log, f"line {number}\n")
        expected.append(f"line {number}")
        eventually(lambda: list(found) == expected)
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
        append(log, f"meanwhile {number}\n")
        expected.append(f"meanwhile {number}")
        log.rename(tmp_path / f"log.{number}")
        job.resume()
        eventually(lambda: list(found) == expected)
    assert "file_watcher" in p.explain(config)
    execution.cancel()


def test_a_folder_that_is_not_there_fails_the_job(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    p = Pipeline()
    p.read_from(sources.file_watcher(tmp_path / "no")).without_timestamps().write_to(sinks.noop())
    with pytest.raises(JobFailedError, match="there is no folder") as caught:
        jet.new_job(p).run(60)
    assert caught.value.vertex is not None
    assert caught.value.vertex.startswith("file_watcher")


@pytest.mark.parametrize("format", ["json", "csv"])
def test_batches_of_lines_are_made_by_to_batches(tmp_path: Path, format: Any) -> None:  # noqa: A002
    with pytest.raises(TypeError, match=r"to_batches\(\) for batches"):
        sources.file_watcher(tmp_path, format=format, as_=shmjet.Batch)
