"""Jobs that stand still until a test lets them go on, so that they can be looked at."""

from __future__ import annotations

from pathlib import Path

from shmjet import DAG, Inbox, Processor, ProcessorContext, between
from shmjet.core import Outbox


class Endless(Processor):
    """Emits numbers as long as a file is there."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self._next = 0

    def complete(self) -> bool:
        self._next += self.outbox.offer_all(list(range(self._next, self._next + 64)))
        return not self._gate.exists()

    def progress(self) -> tuple[int, int]:
        return self._next, 1_000_000


class Reluctant(Processor):
    """Takes nothing as long as a file is there, then everything; it says so when it begins."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        context.logger.info("waiting for %s to go", self._gate.name)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        if not self._gate.exists():
            inbox.clear()


def held_dag(gate: Path) -> DAG:
    """source -> sink, with the edge full until the file goes."""
    gate.touch()
    dag = DAG()
    source = dag.new_vertex("source", lambda: Endless(gate), 1)
    return dag.edge(between(source, dag.new_vertex("sink", lambda: Reluctant(gate), 1)))
