"""Progress of jobs: what sources say of how far they are, and what `run(progress=True)` shows."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import DAG, JetInstance, JobConfig, ProcessingGuarantee, between, processors

ROOT = Path(__file__).resolve().parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work_of(jet: JetInstance, source: Any, parallelism: int = -1) -> tuple[int, int, str]:
    """Run a source to its end; return what its processors say they have done, of how much, and of what."""
    dag = DAG()
    dag.edge(between(dag.new_vertex("source", source, parallelism), dag.new_vertex("sink", processors.noop())))
    job = jet.new_job(dag)
    job.run(60)
    found = job.metrics().vertices["source"].processors
    return sum(p.work_done for p in found), sum(p.work_total for p in found), found[0].work_unit


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sources_know_how_far_they_are(jet: JetInstance, out: str, tmp_path: Path, parallelism: int) -> None:
    (tmp_path / "a.txt").write_text("one two\n" * 10_000)
    (tmp_path / "b.txt").write_text("three\n")
    np.save(tmp_path / "c.npy", np.arange(5000))
    jet.get_map(out).update({i: i for i in range(700)})
    jet.get_list(out).extend(range(2500))
    for source, total, unit in [
        (processors.read_items(range(1234)), 1234, "items"),
        (processors.read_files(tmp_path / "*.txt"), 80_006, "bytes"),
        (processors.read_npy(tmp_path / "c.npy"), 5000, "items"),
        (processors.read_map(out), 700, "items"),
        (processors.read_list(out), 2500, "items"),
    ]:
        assert work_of(jet, source, parallelism) == (total, total, unit)


def test_a_source_that_is_peeked_at_still_tells(jet: JetInstance) -> None:
    assert work_of(jet, processors.peek_output(processors.read_items([1, 2])))[:2] == (2, 2)


def test_a_generator_does_not_know(jet: JetInstance) -> None:
    assert work_of(jet, processors.generate(lambda index, count: range(10)))[:2] == (0, 0)


def test_run_shows_progress_on_a_terminal_only(
    jet: JetInstance, mapping: Callable[..., DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jet.new_job(mapping(lambda x: x), JobConfig(name="shown [job]"))
    for stream, is_drawn in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        job.run(30, progress=True)
        assert ("shown [job]" in stream.getvalue()) is is_drawn
        assert ("waited for" in stream.getvalue()) is is_drawn


def test_run_with_progress_raises_what_run_raises(
    jet: JetInstance, mapping: Callable[..., DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(Exception, match="ZeroDivisionError"):
        jet.new_job(mapping(lambda x: x // 0)).run(30, progress=True)
    dag = DAG()
    endless = dag.new_vertex("endless", processors.generate(lambda index, count: iter(int, 1)), 1)
    dag.edge(between(endless, dag.new_vertex("sink", processors.noop())))
    job = jet.new_job(dag)
    with pytest.raises(TimeoutError):
        job.run(0.3, progress=True)


def test_a_job_is_a_picture_with_counts(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    job = jet.new_job(mapping(lambda x: x, range(1500)))
    assert "1.5k" not in (job._repr_svg_() or "")
    job.run(60)
    picture = job._repr_svg_()
    assert picture is not None
    assert "1.5k in, 1.5k out" in picture
    assert job.config.processing_guarantee is ProcessingGuarantee.NONE


@pytest.mark.slow
def test_the_command_shows_it_for_every_job_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import shmjet\n"
        "from shmjet import DAG, JetConfig, JobConfig, between, processors\n"
        "with shmjet.new_instance(JetConfig(cores=1)) as jet:\n"
        "    dag = DAG()\n"
        "    items = dag.new_vertex('items', processors.read_items(range(10)))\n"
        "    dag.edge(between(items, dag.new_vertex('sink', processors.noop())))\n"
        "    jet.new_job(dag, JobConfig(name='theirs')).run()\n"
    )
    ours, terminal = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "shmjet", "run", "--progress", str(script)]
    with subprocess.Popen(command, env=environment, stderr=terminal, stdin=subprocess.DEVNULL) as child:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end of a terminal has been closed
            pass
        os.close(ours)
        assert child.wait(60) == 0
    assert b"theirs" in shown
    assert b"10 items of 10 items (100%)" in shown
