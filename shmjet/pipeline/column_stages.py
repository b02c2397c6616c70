"""The operations of stages of batches that look at one row at a time, bounded or endless.

They are methods of every stage: a batch is an item like any other, so whether the items of a stage are batches shows
when they come; rows (dicts, named tuples) are gathered into batches. Must not know how anything is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.column_arguments import checked_outputs
from shmjet.pipeline.handles import Stage
from shmjet.pipeline.stage_times import check_merged
from shmjet.processors.general.batches_and_rows import to_batches

if TYPE_CHECKING:
    from shmjet.pipeline.general import GeneralStage


class ColumnStage(Stage):
    """What every stage can do with batches of columns."""

    def select(self, /, *columns: Any, **named: Any) -> GeneralStage[Any]:
        """Make batches of these columns and no others, in this order.

        Args:
            columns: names, and expressions such as `column("price") * 2`, which keep the name of their first column.
            named: name → expression, or name of a column.

        Raises:
            BatchError: there is no column, or two have the same name; in the job: a column is missing.
            TypeError: an argument is neither a name nor an expression.

        Example:
            >>> orders.select("user", total=column("price") * column("count"))        # doctest: +SKIP
        """
        return self._then("select", t.Select(checked_outputs("select", columns, named)))

    def with_columns(self, /, *unnamed: Any, **named: Any) -> GeneralStage[Any]:
        """Add columns to batches, or put them in place of those of the same name.

        Args:
            unnamed: none; results need names.
            named: as for `select`. All of them are computed of the columns that come in.

        Raises:
            BatchError, TypeError: as `select`.

        Example:
            >>> orders.with_columns(total=column("price") * column("count"))        # doctest: +SKIP
        """
        if unnamed:
            raise TypeError(f"with_columns: results need names, with_columns(name=expression), got {unnamed[0]!r:.80}")
        return self._then("with_columns", t.With(checked_outputs("with_columns", (), named)))

    def union(self, *others: Any) -> GeneralStage[Any]:
        """Return the rows of this stage and of others, in any order; their batches have columns of the same names.

        Unlike `merge`, which takes any items as they are, it is an error if one stage has other columns.

        Raises:
            PlanError: there is no other stage, or one of another pipeline; or some of them have event time and others
                have not. BatchError: (in the job) the columns differ.

        Example:
            >>> january.union(february, march)        # doctest: +SKIP
        """
        if not others:
            raise PlanError(f"union: expected at least one stage next to {self.name!r}, got none")
        merged = [each.node_id for each in (self, *others) if isinstance(each, Stage)]
        if all(isinstance(each, Stage) and each.pipeline is self.pipeline for each in others):
            check_merged(self.pipeline.nodes, merged, "union")
        return self._then("union", t.Union(), *others)

    def to_batches(self, schema: Mapping[str, Any] | None = None) -> GeneralStage[Any]:
        """Gather rows, dicts or named tuples, into batches; batches pass as they are.

        Stages of batches do that by themselves. Say it to give the columns types that do not depend on the values.

        Args:
            schema: name → type (a numpy dtype, or `int`, `float`, `bool`, `str`, `bytes`); None: the columns of the
                first row, with types that follow from the values.

        Raises:
            BatchError: a type is none; in the job: a row lacks a column, or a value does not fit.

        Example:
            >>> lines.map(json.loads).to_batches({"user": str, "paid": float})        # doctest: +SKIP
        """
        to_batches(schema=schema)
        return self._then("to_batches", t.ToBatches(None if schema is None else dict(schema)))

    def to_rows(self) -> GeneralStage[dict[str, Any]]:
        """Make each row of batches a dict, with plain Python values and None for nulls; other items pass as they are.

        Example:
            >>> totals.to_rows().map(json.dumps)        # doctest: +SKIP
        """
        return self._then("to_rows", t.ToRows())

    def _then(self, name: str, transform: t.Transform, *others: Stage) -> GeneralStage[Any]:
        """Add a node and return its stage."""
        raise NotImplementedError
