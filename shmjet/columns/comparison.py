"""Comparison of outputs with batches: by their rows, not by where one batch ends and the next begins.

How a processor cuts its rows into batches depends on how it was called, so a test that runs it in several ways compares
rows. Must not know who compares.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

from shmjet.data.batch import Batch

_NAN: Final = "not a number, equal to itself"


def joined(items: Iterable[Any]) -> list[Any]:
    """Return items with neighbouring batches of the same columns and dtypes joined into one.

    Example:
        >>> len(joined([Batch({"a": [1]}), Batch({"a": [2, 3]}), "other", Batch({"b": [1]})]))
        3
    """
    result: list[Any] = []
    run: list[Batch] = []
    for item in items:
        if run and not (isinstance(item, Batch) and _schema(item) == _schema(run[0])):
            result.append(_one(run))
            run = []
        if isinstance(item, Batch):
            run.append(item)
        else:
            result.append(item)
    if run:
        result.append(_one(run))
    return result


def rows_of(items: Iterable[Any]) -> Iterator[Any]:
    """Give items with each batch replaced by its rows, in a form that equals that of equal rows of equal columns only.

    Example:
        >>> a, b = Batch({"a": [1, 2]}), Batch({"a": [2, 1]})
        >>> sorted(rows_of([a])) == sorted(rows_of([b])), next(rows_of(["item"]))
        (True, 'item')
    """
    for item in items:
        if isinstance(item, Batch):
            schema = tuple((name, str(kind)) for name, kind in item.schema.items())
            for row in item.tuples():
                yield schema, tuple(map(_comparable, row))
        else:
            yield item


def _schema(batch: Batch) -> list[tuple[str, Any]]:
    return list(batch.schema.items())


def _one(run: list[Batch]) -> Batch:
    whole = Batch.concat(run)
    return Batch(*whole.parts())  # drops masks without nulls


def _comparable(value: Any) -> Hashable:
    return _NAN if value != value else value
