"""`frames()`: tables of other libraries, as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shmjet.core.job import ProcessingGuarantee
from shmjet.pipeline.definitions import BatchSourceDef, SourceDef
from shmjet.processors.general.base import Supply
from shmjet.processors.general.generate import ItemsProcessor

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

_ROWS: Final = 1 << 15
"""Rows of a batch: enough to make its cost small, few enough that all workers have some."""


def frames(*tables: Any) -> SourceDef[Batch]:
    """Emit the rows of tables, as batches: frames of polars or pandas, tables of pyarrow, relations of duckdb, batches.

    They are read here, through Arrow's PyCapsule interface, and share their memory with the tables where the layouts
    agree; do not change a table in place before the job has ended. Each processor emits a run of its own. A job that
    goes on from a snapshot goes on after the last batch of it.

    Args:
        tables: at least one; several have columns of the same names, and get types that hold the values of all.

    Raises:
        TypeError: there is no table.
        BatchError: one is not a table, has a column of a type that no batch holds, or other columns than the first.

    Example:
        >>> from shmjet import Batch
        >>> frames(Batch({"user": [1, 2]})).columnar
        True
    """
    # Here, because numpy is not to be loaded where there are no batches.
    from shmjet.columns.tables import as_table
    from shmjet.data.batch import Batch

    if not tables:
        raise TypeError("sources.frames: give at least one table")
    schema, parts = as_table(table if isinstance(table, Batch) else Batch.from_arrow(table) for table in tables)
    given = [part[start : start + _ROWS] for part in parts for start in range(0, part.num_rows, _ROWS)]
    if not given and schema:  # it tells the columns
        first = tables[0] if isinstance(tables[0], Batch) else Batch.from_arrow(tables[0])
        given = [first[:0]]
    supply = Supply(ItemsProcessor, tuple(given))
    return BatchSourceDef(
        "frames",
        supply,
        columnar=True,
        guarantee=ProcessingGuarantee.EXACTLY_ONCE,
        nbytes=sum(batch.nbytes for batch in given),
        column_names=tuple(schema),
    )
