"""The base of all stages: a handle of one node of a pipeline, with a name and a parallelism.

Must not know what stages do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from shmjet.core.checks import check_int
from shmjet.data.errors import PlanError
from shmjet.pipeline.pipeline import Pipeline

S_ = TypeVar("S_", bound="Stage")


@dataclass(frozen=True, repr=False)
class Stage:
    """A handle of a node of a pipeline.

    Args:
        pipeline: which it belongs to.
        node_id: its place there.
    """

    pipeline: Pipeline
    node_id: int

    @property
    def name(self) -> str:
        """The stage's name, from which its vertices have theirs."""
        return self.pipeline.nodes[self.node_id].name

    def set_name(self: S_, name: str) -> S_:
        """Name the stage, for drawings, metrics and messages; a name that is taken gets a number.

        Raises:
            PlanError: the name is not a str, or it is empty.
        """
        if not isinstance(name, str) or not name:
            raise PlanError(f"stage {self.name!r}: set_name() takes a non-empty text, got {name!r}")
        self.pipeline._change(self.node_id, name=name, is_named=True)
        return self

    def set_local_parallelism(self: S_, count: int) -> S_:
        """Set the number of processors that do this stage's work on each member.

        Args:
            count: at least 1; -1 leaves it to the planner.

        Raises:
            PlanError: it is not an int, or it is 0 or below -1.
        """
        check_int(f"stage {self.name!r}: local parallelism", count, PlanError)
        if count == 0 or count < -1:
            raise PlanError(
                f"stage {self.name!r}: local parallelism must be at least 1, or -1 (the planner's choice), got {count}"
            )
        self.pipeline._change(self.node_id, parallelism=count)
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class SinkStage(Stage):
    """The end of a branch: a sink, or a table that items are sent to."""
