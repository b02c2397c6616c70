"""Batches as one table: one type for each column, whatever the types of the single batches.

What `promotion` does for streams that end in an operator, this does for tables that leave shmjet. Must not know where
batches come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from shmjet.columns.promotion import as_kinds, check_same_names, common_kind
from shmjet.data.batch import Batch
from shmjet.data.column_types import Kind
from shmjet.data.schema_heads import known_columns

_ROWS: Final = 1 << 16
"""Rows that become a batch together."""


def as_table(batches: Iterable[Batch]) -> tuple[dict[str, Kind], list[Batch]]:
    """Return the common schema of batches, and the batches with rows converted to it.

    A column that is null in all rows of a batch takes the type that others give it.

    Raises:
        BatchError: the batches have different columns, or types with none in common.

    Example:
        >>> schema, parts = as_table([Batch({"a": [1, None]}), Batch({"a": [0.5]})])
        >>> schema, [part.to_dict() for part in parts]
        ({'a': dtype('float64')}, [{'a': [1.0, None]}, {'a': [0.5]}])
    """
    given = list(batches)
    if not given:
        return {}, []
    first = given[0].schema
    kinds: dict[str, list[Kind]] = {name: [] for name in first}
    for batch in given:
        schema = batch.schema
        check_same_names(first, schema)
        for name in known_columns(batch):
            if schema[name] not in kinds[name]:
                kinds[name].append(schema[name])
    common = {name: common_kind(name, found or [first[name]]) for name, found in kinds.items()}
    return common, [as_kinds(batch, common) for batch in given if batch.num_rows]


def as_batches(items: Iterable[Any], where: str) -> Iterator[Batch]:
    """Give batches as they are, and rows (dicts, named tuples) as batches.

    Args:
        items: batches, rows, or both.
        where: they come from, for the message.

    Raises:
        TypeError: an item is neither.
        BatchError: the values of a column are of no common kind.
    """
    rows: list[Mapping[str, Any]] = []
    for item in items:
        if isinstance(item, Batch):
            yield from _of_rows(rows)
            rows = []
            yield item
            continue
        if isinstance(item, Mapping):
            rows.append(item)
        elif isinstance(item, tuple) and hasattr(item, "_asdict"):
            rows.append(item._asdict())
        else:
            raise TypeError(
                f"{where}: a table is made of batches, dicts or named tuples, found {type(item).__name__} {item!r:.80}"
            )
    yield from _of_rows(rows)


def _of_rows(rows: list[Mapping[str, Any]]) -> Iterator[Batch]:
    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        yield Batch.from_rows(some)
