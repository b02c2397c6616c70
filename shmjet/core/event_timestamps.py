"""The timestamps of items and of batches, in milliseconds, with errors that name the item or the row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shmjet._native import ascends
from shmjet.core.durations import LONGEST_MS, datetime_milliseconds, timestamp_of
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from shmjet.data.batch import Batch
    from shmjet.data.column import Values

_INTS = {int}


def timestamps_by(timestamp_fn: Callable[[Any], Any], items: list[Any]) -> list[int]:
    """Return the timestamps that a function gives for items; a few nanoseconds each where it returns ints.

    Raises:
        TypeError: one is not a timestamp (see `timestamp_of`); the text names the item.
        OverflowError: one is beyond 63 bits; the text names the item.
        BatchError: a column gives the timestamps, and the source made a batch where it makes items one by one.

    Example:
        >>> timestamps_by(lambda item: item["at"], [{"at": 5}, {"at": 7}])
        [5, 7]
    """
    try:
        found = list(map(timestamp_fn, items))
    except BatchError:
        if not any(isinstance(item, Columnar) for item in items):
            raise
        raise BatchError(
            "a column gives the timestamps of rows here, and the source made a Batch; use sources.batch_stream or "
            "builder(...).stream() for batches"
        ) from None
    return plain_timestamps(found, items)


def plain_timestamps(found: Sequence[Any], items: Sequence[Any]) -> list[int]:
    """Return timestamps as plain ints.

    Args:
        found: the timestamp of each item, as `timestamp_of` takes it.
        items: for errors.

    Raises:
        TypeError, OverflowError: as `timestamps_by`.
    """
    stamps: list[Any] = found if type(found) is list else list(found)
    if _are_plain(stamps):
        return stamps
    return [_timestamp(value, item) for value, item in zip(stamps, items, strict=True)]


def _are_plain(stamps: list[Any]) -> bool:
    """Say whether all are ints within bounds; where they are in order, the first and the last tell of all."""
    if not stamps:
        return True
    if type(stamps[0]) is int and ascends(stamps):
        least, most = stamps[0], stamps[-1]
    elif set(map(type, stamps)) == _INTS:
        least, most = min(stamps), max(stamps)
    else:
        return False
    return least >= -LONGEST_MS and most <= LONGEST_MS


def _timestamp(value: Any, item: Any) -> int:
    try:
        return timestamp_of(value)
    except (TypeError, OverflowError) as error:
        from shmjet.data.batch import Batch

        if isinstance(item, Batch):
            raise type(error)(f"{error}; the item is a batch, whose timestamps are in a column(name)") from None
        raise type(error)(f"{error}; the item is {item!r:.200}") from None


def column_timestamps(batch: Batch, name: str) -> npt.NDArray[np.int64]:
    """Return the timestamps of the rows of a batch.

    Args:
        batch: any.
        name: of an int64 column of milliseconds, or of one of dates or times of any unit, with a zone or without, which
            are rounded down.

    Raises:
        BatchError: there is no such column, it has another type, a null, or a timestamp beyond 63 bits.

    Example:
        >>> from shmjet import Batch
        >>> column_timestamps(Batch({"ts": [5, 7]}), "ts")
        array([5, 7])
    """
    import numpy as np  # which a job without batches does not wait for

    from shmjet.data.batch import any_column

    if name not in batch:
        raise BatchError(
            f"a batch has no column {name!r}, which holds the timestamps; it has {list(batch.names)}. Keep the column, "
            "or give the stream timestamps by another one with add_timestamps()"
        )
    values, valid = any_column(batch, name)
    if not isinstance(values, np.ndarray):
        values = _instants(values)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iM":
        raise BatchError(
            f"column {name!r} holds the timestamps, but its type is {values.dtype}; it must be an int64 of "
            "milliseconds since 1970, or of dates or times"
        )
    kind = values.dtype.kind
    missing = np.isnat(values) if kind == "M" else None
    if valid is not None:
        missing = ~valid if missing is None else missing | ~valid
    if missing is not None and missing.any():
        raise BatchError(
            f"column {name!r} holds the timestamps, but is null in row {int(missing.argmax())} of {len(batch)}; leave "
            "such rows out, or fill them in"
        )
    if kind == "M":
        try:
            return datetime_milliseconds(values)
        except OverflowError as error:
            raise BatchError(f"column {name!r}: {error}") from None
    stamps = values.astype(np.int64, copy=False)
    if len(stamps) and not -LONGEST_MS <= int(stamps.min()) <= int(stamps.max()) <= LONGEST_MS:
        raise BatchError(f"column {name!r}: a timestamp must be milliseconds since 1970 that fit 63 bits")
    return stamps


def _instants(column: Values) -> Values:
    """Return a column of times with a zone as times of UTC, and any other as it is."""
    from shmjet.data.column_types import ZonedType
    from shmjet.data.typed_column import TypedColumn

    return column.stored if isinstance(column, TypedColumn) and isinstance(column.dtype, ZonedType) else column


def with_timestamps(batch: Batch, name: str, stamps: Any) -> tuple[Batch, npt.NDArray[np.int64]]:
    """Return a batch with a column of timestamps, and these as an array.

    Args:
        batch: any.
        name: of the column, of `datetime64[ms]`; a column of that name is replaced.
        stamps: milliseconds, for each row or one for all.

    Example:
        >>> from shmjet import Batch
        >>> with_timestamps(Batch({"n": [1, 2]}), "at", 5)[0].names
        ('n', 'at')
    """
    import numpy as np  # which a job without batches does not wait for

    found = np.empty(len(batch), np.int64)
    found[:] = stamps
    return batch.with_columns({name: found.astype("datetime64[ms]")}), found
