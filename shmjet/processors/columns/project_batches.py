"""Projections and filters of batches, several in one processor: a batch goes through all of them at once.

Expressions are computed by `shmjet.columns.expressions`. A result without rows
keeps its columns. Must not know what comes before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shmjet.core.latency_policy import may_be_saved
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.processors.columns.empty_results import EmptyResults
from shmjet.processors.general.base import ExpandingProcessor, Supply, require_batches

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

Steps = tuple[tuple[str, Any], ...]
"""`("select", outputs)`, `("with", outputs)`: names and expressions; `("where", condition)`; `("only", names)`."""


class ProjectBatchesProcessor(ExpandingProcessor):
    """Emits what the steps make of each batch."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def start(self, context: ProcessorContext) -> None:
        """Compile the steps."""
        from shmjet.columns.projections import compiled

        self._apply = compiled(self._steps)
        self._empty = EmptyResults(at_once=may_be_saved(context))

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return the results for all batches, each made when it is drawn."""
        require_batches("select, with_columns and filter", items)
        return self._results(items)

    def _results(self, items: list[Batch]) -> Iterator[Batch]:
        for batch in items:
            result = self._empty.passing(self._apply(batch))
            if result is not None:
                yield result

    def results(self) -> Iterator[Batch]:
        """Return what tells the columns of results of which no row is left."""
        return self._empty.rest()


def project_batches(steps: Sequence[tuple[str, Any]]) -> Callable[[], Processor]:
    """Emit of each batch what some steps make of it.

    Args:
        steps: `("select", outputs)`: these columns and no others; `("with", outputs)`: these columns added, or in place
            of those of the same name; `("where", expression)`: the rows for which it is true; `("only", names)`: no
            columns but these, as far as they are there. `outputs` are pairs of a name and an expression, which is
            computed of the columns that come into the step.

    Raises:
        BatchError: (in the job) a column is missing, or an expression cannot be computed; an item is not a batch.

    Example:
        >>> from shmjet import Batch, column
        >>> from shmjet.testing import verify_processor
        >>> swapped = project_batches([("select", [("a", column("b")), ("b", column("a"))])])
        >>> verify_processor(swapped).inputs([Batch({"a": [1], "b": [2]})]).expect([Batch({"a": [2], "b": [1]})])
    """
    return Supply(ProjectBatchesProcessor, tuple((kind, given) for kind, given in steps))


def steps_of(supplier: object) -> Steps | None:
    """Return the steps of a supplier that `project_batches` gave; None for any other."""
    if isinstance(supplier, Supply) and supplier.processor is ProjectBatchesProcessor:
        steps: Steps = supplier.args[0]
        return steps
    return None
