"""Batches without types, and back: what kernels get that move rows and do not look at values.

`lowered` takes the types off: each column is then an array or a `Text`. `raised` puts them on again. A kernel that
looks at values must not use it: a stored decimal counts units of its last digit.
"""

from __future__ import annotations

from collections.abc import Mapping

from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import ColumnType
from shmjet.data.typed_column import TypedColumn


def lowered(batch: Batch) -> tuple[Batch, dict[str, ColumnType]]:
    """Return a batch with the physical values of its columns, and the types of columns that have one.

    Example:
        >>> import decimal
        >>> physical, types = lowered(Batch({"price": [decimal.Decimal("1.50")]}))
        >>> physical["price"].tolist(), types, raised(physical, types)["price"].to_list()
        ([150], {'price': decimal(18, 2)}, [Decimal('1.50')])
    """
    columns, masks = batch.parts()
    types = {name: column.dtype for name, column in columns.items() if isinstance(column, TypedColumn)}
    if not types:
        return batch, {}
    physical: dict[str, Values] = {
        name: column.stored if isinstance(column, TypedColumn) else column for name, column in columns.items()
    }
    return Batch.trusted(physical, masks, batch.num_rows), types


def raised(batch: Batch, types: Mapping[str, ColumnType]) -> Batch:
    """Return a batch with types over the physical values of its columns.

    Args:
        batch: its columns are of the kinds that the types store.
        types: by name of the column; other columns stay as they are. Names that the batch lacks do not count.
    """
    if not types:
        return batch
    columns, masks = batch.parts()
    typed: dict[str, Values] = {
        name: TypedColumn.trusted(types[name], column)  # type: ignore[arg-type]
        if name in types
        else column
        for name, column in columns.items()
    }
    return Batch.trusted(typed, masks, batch.num_rows)


def column_types(batch: Batch) -> dict[str, ColumnType]:
    """Return the types of the columns that have one, by name."""
    columns = batch.parts()[0]
    return {name: column.dtype for name, column in columns.items() if isinstance(column, TypedColumn)}
