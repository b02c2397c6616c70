"""The pids that a member shows are those of its processes, and of no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shmjet import DAG, JetConfig, between, new_instance, processors
from shmjet.core import Outbox, Processor, ProcessorContext


class Blocking(Processor):
    """Writes its pid to a file, and ends when another is there."""

    is_cooperative = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        (self._folder / f"pid-{os.getpid()}").touch()

    def complete(self) -> bool:
        return (self._folder / "end").exists()


def test_members_show_the_carriers_of_running_jobs(
    tmp_path: Path, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    with new_instance(JetConfig(cores=2)) as jet:
        (member,) = jet.cluster.members
        assert len(member.workers) == 2
        assert member.keeper == member.pid
        assert member.carriers == ()
        dag = DAG()
        source = dag.new_vertex("source", lambda: Blocking(tmp_path), 2)
        dag.edge(between(source, dag.new_vertex("sink", processors.noop())))
        execution = jet.new_job(dag).execute()
        eventually(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
        (member,) = jet.cluster.members
        assert sorted(member.carriers) == sorted(int(path.name[4:]) for path in tmp_path.glob("pid-*"))
        assert not set(member.carriers) & {member.pid, *member.workers}
        (tmp_path / "end").touch()
        execution.result(60)
        eventually(lambda: jet.cluster.members[0].carriers == ())
