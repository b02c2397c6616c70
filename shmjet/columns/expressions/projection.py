"""`Projection` and `Selection`: expressions applied to batches, block by block.

Blocks are so small that what steps give stays in a core's cache. Both are descriptions that pickle; the steps are made
where they are first applied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet.columns.expressions.number_program import NumberProgram
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.row_chooser import RowChooser
from shmjet.columns.expressions.vector import Vector
from shmjet.columns.schemas import Kind, nulls
from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.errors import BatchError, no_column
from shmjet.data.nullable import Nullable
from shmjet.data.schema_heads import known_columns
from shmjet.data.text import Mask

BLOCK_ROWS: Final = 16_384
"""Rows that are computed at once: a few columns of them fit into a core's second cache."""


Input: TypeAlias = tuple[Values, Mask | None, bool]
"""Values and mask of a column, and whether it is of nulls of no type."""


class Projection:
    """Columns that expressions compute of those of a batch.

    Args:
        outputs: name → expression.
        keep: the batch's columns stay, and these are added or put in place of those of the same name; otherwise only
            these are in the result.

    Raises:
        BatchError: an option of a function cannot be.

    Example:
        >>> from shmjet import Batch, column
        >>> Projection({"half": column("n") / 2}, keep=True).apply(Batch({"n": [1, 2]})).to_dict()
        {'n': [1, 2], 'half': [0.5, 1.0]}
    """

    def __init__(self, outputs: Mapping[str, Expression], keep: bool) -> None:
        self.outputs = dict(outputs)
        self.keep = keep
        self._program = Program([each for each in self.outputs.values() if not isinstance(each, ColumnKey)])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, in the order in which they are written."""
        return tuple(dict.fromkeys(name for each in self.outputs.values() for name in each.names))

    def apply(self, batch: Batch) -> Batch:
        """Return the batch of the results.

        Raises:
            BatchError: a column is missing, types do not go together, or a value leaves its type.
        """
        return self._put_together(batch.names, batch, batch.num_rows, computed_columns(self._program, batch))

    def apply_to_rows(self, batch: Batch, chooser: RowChooser) -> Batch:
        """Return the batch of the results of some rows; what is not in it is not gathered.

        Raises:
            BatchError: as `apply`.
        """
        for name, each in self.outputs.items():
            if isinstance(each, ColumnKey):
                _named(batch, each.names[0], name)
        inputs = columns_of(self._program.names, batch)
        plain = self._program.numbers.run(inputs, batch.num_rows, chooser.mask, chooser.rows) if inputs else None
        if plain is None:
            return self.apply(chooser.batch(batch, None if self.keep else self.names))
        passed = {each.names[0] for each in self.outputs.values() if isinstance(each, ColumnKey)}
        if self.keep:
            passed.update(name for name in batch.names if name not in self.outputs)
        stay = chooser.batch(batch, passed)
        return self._put_together(batch.names, stay, chooser.rows, plain)

    def _put_together(
        self, names: Sequence[str], batch: Batch, rows: int, results: Iterable[tuple[Values, Mask | None]]
    ) -> Batch:
        """Return the results and the columns of a batch that stay, these in the order of `names`."""
        computed = iter(results)
        columns, validity = batch.parts()
        values: dict[str, Any] = {name: columns.get(name) for name in names} if self.keep else {}
        masks: dict[str, Mask] = dict(validity) if self.keep else {}
        for name, expression in self.outputs.items():
            if isinstance(expression, ColumnKey):
                column, mask = columns[_named(batch, expression.names[0], name)], validity.get(expression.names[0])
            else:
                column, mask = next(computed)
            values[name] = column
            masks.pop(name, None)
            if mask is not None:
                masks[name] = mask
        return Batch.trusted(values, masks, rows)

    def schema(self, schema: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the types of the results, of the types of a batch's columns.

        Raises:
            BatchError: a column is missing, or types do not go together.
        """
        return dict(self.apply(Batch.trusted({name: nulls(kind, 0) for name, kind in schema.items()}, {}, 0)).schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return Projection, (self.outputs, self.keep)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={expression!r}" for name, expression in self.outputs.items())
        return f"{'with_columns' if self.keep else 'select'}({shown})"


class Selection:
    """The rows of a batch in which an expression is true; null leaves out.

    Args:
        expression: of bools.

    Raises:
        BatchError: an option of a function cannot be.

    Example:
        >>> from shmjet import Batch, column
        >>> Selection(column("n") > 1).apply(Batch({"n": [1, None, 2]})).to_dict()
        {'n': [2]}
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._program = Program([expression])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, in the order in which they are written."""
        return self.expression.names

    def mask(self, batch: Batch) -> Mask:
        """Return the rows in which the expression is true.

        Raises:
            BatchError: it is not of bools, a column is missing, types do not go together, or a value leaves its type.
        """
        ((values, valid),) = computed_columns(self._program, batch)
        if valid is not None and not valid.any() and values.dtype == np.float64:
            return valid  # nulls of no type
        if not isinstance(values, np.ndarray) or values.dtype != np.bool_:
            raise BatchError(f"filter() takes an expression of bools, {self.expression!r} is of {values.dtype}")
        return values if valid is None else values & valid

    @functools.cached_property
    def in_register(self) -> NumberProgram:
        """The expression for columns of plain numbers, as what chooses the rows of a block."""
        return self._program.in_registers()

    def apply(self, batch: Batch) -> Batch:
        """Return the rows in which the expression is true.

        Raises:
            BatchError: as `mask`.
        """
        chooser = self.chooser(batch)
        return batch if chooser.rows == batch.num_rows else chooser.batch(batch)

    def chooser(self, batch: Batch) -> RowChooser:
        """Return what chooses the rows in which the expression is true.

        Raises:
            BatchError: as `mask`.
        """
        mask = self.mask(batch)
        return RowChooser(mask, int(np.count_nonzero(mask)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.expression,)

    def __repr__(self) -> str:
        return f"filter({self.expression!r})"


def evaluate(expression: Expression, batch: Batch) -> Any:
    """Return what an expression gives: an array or a `Text`, or a `Nullable` where there are nulls.

    Raises:
        BatchError: a column is missing, types do not go together, or a value leaves its type.

    Example:
        >>> from shmjet import Batch, column
        >>> evaluate(column("n") * 2, Batch({"n": [1, 2]}))
        array([2, 4])
    """
    ((values, valid),) = computed_columns(Program([expression]), batch)
    return values if valid is None or valid.all() else Nullable.trusted(values, valid)


def _present(batch: Batch, name: str) -> str:
    if name not in batch:
        raise no_column(name, batch.names)
    return name


def _named(batch: Batch, name: str, output: str) -> str:
    """Return the name of a column that becomes one of another name, or perhaps was meant as a text."""
    if name not in batch and name != output:
        raise BatchError(f"{no_column(name, batch.names)}; a text for all rows is {output}=literal({name!r})")
    return _present(batch, name)


def columns_of(names: Iterable[str], batch: Batch) -> dict[str, Input]:
    """Return columns of a batch as a program takes them.

    Raises:
        BatchError: one is missing.
    """
    columns, validity = batch.parts()
    inputs: dict[str, Input] = {}
    for name in names:
        values, mask = columns[_present(batch, name)], validity.get(name)
        if mask is not None and mask.all():
            mask = None
        untyped = mask is not None and values.dtype == np.float64 and not mask.any()
        inputs[name] = values, mask, untyped
    return inputs


def plain_columns(program: Program, batch: Batch) -> list[tuple[Values, Mask | None]] | None:
    """Return what each expression of a program gives in a batch, if it is one of plain numbers; else None.

    Raises:
        BatchError: a column is missing.
    """
    return program.numbers.run(columns_of(program.names, batch), batch.num_rows)


def computed_columns(program: Program, batch: Batch, block_rows: int = BLOCK_ROWS) -> list[tuple[Values, Mask | None]]:
    """Return what each expression of a program gives in a batch."""
    inputs, rows = columns_of(program.names, batch), batch.num_rows
    if not rows:
        return _of_no_rows(program, inputs, batch)
    plain = program.numbers.run(inputs, rows)
    if plain is not None:
        return plain
    if rows <= block_rows + block_rows // 2:
        return [_finished(each, rows) for each in program.run(_block(inputs, 0, rows), rows)]
    results: list[JoinedBlocks] = []
    for start in range(0, rows, block_rows):
        stop = min(start + block_rows, rows)
        try:
            vectors = program.run(_block(inputs, start, stop), stop - start)
        except BatchError:
            if start:  # the row that a message names is that of the batch
                program.run(_block(inputs, 0, rows), rows)
            raise
        results = results or [JoinedBlocks(rows) for _ in vectors]
        for result, vector in zip(results, vectors, strict=True):
            result.add(vector, start, stop)
    return [result.finished() for result in results]


def _of_no_rows(program: Program, inputs: dict[str, Input], batch: Batch) -> list[tuple[Values, Mask | None]]:
    """Return results without rows. A column of float64 may be of nulls of no type whose rows are gone."""
    try:
        vectors = program.run(_block(inputs, 0, 0), 0)
    except BatchError:
        known = known_columns(batch)
        doubtful = {name for name, (values, _, _) in inputs.items() if values.dtype == np.float64} - known
        if not doubtful:
            raise
        for name in doubtful:
            inputs[name] = inputs[name][0], None, True
        vectors = program.run(_block(inputs, 0, 0), 0)
    return [_finished(each, 0) for each in vectors]


def _block(inputs: Mapping[str, Input], start: int, stop: int) -> dict[str, Vector]:
    return {
        name: Vector(values[start:stop], None if mask is None else mask[start:stop], is_untyped=untyped)
        for name, (values, mask, untyped) in inputs.items()
    }


def _finished(vector: Vector, rows: int) -> tuple[Values, Mask | None]:
    return _read_only(vector.column(rows)), None if vector.valid is None else _read_only(vector.valid)


class JoinedBlocks:
    """The result of an expression, put together of blocks.

    Args:
        rows: of all blocks.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._array: Any = None
        self._pieces: list[Any] = []
        self._valid: Mask | None = None

    def add(self, vector: Vector, start: int, stop: int) -> None:
        """Take the rows `start` to `stop`, which come after the earlier ones."""
        column = vector.column(stop - start)
        if isinstance(column, np.ndarray):
            if self._array is None:
                self._array = np.empty(self._rows, column.dtype)
            if self._array.dtype != column.dtype:  # nulls of no type, in some blocks
                self._array = self._array.astype(np.result_type(self._array, column))
            self._array[start:stop] = column
        else:
            self._pieces.append(column)
        if vector.valid is not None:
            if self._valid is None:
                self._valid = np.ones(self._rows, np.bool_)
            self._valid[start:stop] = vector.valid

    def finished(self) -> tuple[Values, Mask | None]:
        """Return the column and its mask."""
        column = type(self._pieces[0]).concat(self._pieces) if self._pieces else self._array
        return _read_only(column), None if self._valid is None else _read_only(self._valid)


def _read_only(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)
        if values.flags.writeable:
            values.flags.writeable = False
    return values
