"""Functions on a column of text: split it into words, lower-case it, count its words.

Each function gives exactly what the method of `str` of the same name gives for every value, on Unicode as a whole, and
runs at the speed of memory on ASCII (`shmjet/_native/columns/text_scan.h`). Invalid UTF-8 never fails: splitting leaves
its bytes in their words, lower-casing and counting make them U+FFFD, as `bytes.decode(errors="replace")` does. Must not
know of processors or jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import text_lower, text_split, text_split_size
from shmjet.columns.words import WordCounter, WordPiece
from shmjet.data.batch import Batch, stored_column
from shmjet.data.column_descriptors import descriptor
from shmjet.data.errors import BatchError
from shmjet.data.nullable import Nullable
from shmjet.data.text import Mask, Text

_NEWLINE: Final = 10

ROWS_AT_ONCE: Final = 16384
"""Rows of a batch of `WordCounts`, unless the caller says otherwise."""


def split(text: Text | Nullable, validity: Mask | None = None) -> tuple[Text, npt.NDArray[np.int64]]:
    """Split every value on white space, as `str.split()` does.

    Args:
        text: n values of text; nulls have no words.
        validity: False for further nulls.

    Returns:
        All words in order, and for each the row it comes from (so `Batch.take` of it repeats other columns).

    Raises:
        BatchError: the column holds bytes, or is not a `Text`.

    Example:
        >>> words, rows = split(Text.of(["to be", "", " or not"]))
        >>> words.tolist(), rows.tolist()
        (['to', 'be', 'or', 'not'], [0, 0, 2, 2])
    """
    column = descriptor(*_checked("split", text, validity))
    count, size = text_split_size(column)
    data = np.empty(size, np.uint8)
    offsets = np.zeros(count + 1, np.int64)
    rows = np.empty(count, np.int64)
    text_split(column, data, offsets[1:], rows)
    return Text.trusted(offsets, data), rows


@overload
def lower(text: Text) -> Text: ...
@overload
def lower(text: Nullable) -> Nullable: ...
def lower(text: Text | Nullable) -> Text | Nullable:
    """Return every value in lower case, as `str.lower()` gives it.

    Args:
        text: n values of text.

    Returns:
        n values; some may be longer or shorter than they were. Nulls stay.

    Raises:
        BatchError: the column holds bytes, or is not a `Text`.

    Example:
        >>> lower(Text.of(["Rome", "ΟΔΟΣ", "İZMİR"])).tolist()
        ['rome', 'οδος', 'i̇zmi̇r']
    """
    values, valid = _checked("lower", text)
    lowered = _lower(values)
    return lowered if valid is None else Nullable.trusted(lowered, valid)


def _lower(text: Text) -> Text:
    first = int(text.offsets[0])
    data = np.empty(int(text.offsets[-1]) - first, np.uint8)
    other = np.empty(len(text), np.bool_)
    offsets = text.offsets - first
    if not text_lower(descriptor(text), data, other):
        return Text.trusted(offsets, data)
    return cased_at(Text.trusted(offsets, data), np.flatnonzero(other), text, str.lower)


def cased_at(done: Text, rows: npt.NDArray[Any], text: Text, case: Callable[[str], str]) -> Text:
    """Return a column with some values from another one, in upper or lower case; all of them in one call.

    Args:
        done: n values.
        rows: numbers of rows, in ascending order.
        text: n values, of which those in these rows are taken.
        case: `str.lower` or `str.upper`.

    Example:
        >>> cased_at(Text.of(["a", "?"]), np.array([1]), Text.of(["a", "ß"]), str.upper).tolist()
        ['a', 'SS']
    """
    chosen = text.take(rows)
    first, last = int(chosen.offsets[0]), int(chosen.offsets[-1])
    lengths = np.diff(chosen.offsets) + 1
    ends = np.cumsum(lengths)
    is_text = np.ones(last - first + len(rows), np.bool_)
    is_text[ends - 1] = False
    joined = np.full(len(is_text), _NEWLINE, np.uint8)
    joined[is_text] = chosen.data[first:last]
    # Case looks at neighbours (a final sigma), and the end of a line is to them what the end of a value is.
    made = np.frombuffer(case(joined.tobytes().decode("utf-8", "replace")).encode(), np.uint8)
    breaks = np.flatnonzero(made == _NEWLINE)
    if len(breaks) != len(rows):  # some values have ends of lines in them
        values = [chosen.data[a:b].tobytes().decode("utf-8", "replace") for a, b in pairwise(chosen.offsets.tolist())]
        return with_values_at(done, rows, [case(value) for value in values])
    offsets = np.zeros(len(rows) + 1, np.int64)
    offsets[1:] = breaks - np.arange(len(rows))
    order = np.arange(len(done))
    order[rows] = len(done) + np.arange(len(rows))
    return Text.concat([done, Text.trusted(offsets, made[made != _NEWLINE])]).take(order)


def with_values_at(text: Text, rows: npt.NDArray[Any], values: list[str]) -> Text:
    """Return the column with other values in some rows.

    Args:
        text: n values.
        rows: numbers of rows, in ascending order.
        values: what comes there, one for each.

    Example:
        >>> with_values_at(Text.of(["a", "b", "c"]), np.array([1]), ["other"]).tolist()
        ['a', 'other', 'c']
    """
    encoded = [value.encode() for value in values]
    offsets = text.offsets
    pieces: list[Any] = []
    done = int(offsets[0])
    for value, start, end in zip(encoded, offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True):
        pieces += text.data[done:start], value
        done = end
    pieces.append(text.data[done : int(offsets[-1])])
    lengths = np.diff(offsets)
    lengths[rows] = np.fromiter(map(len, encoded), np.int64, len(encoded))
    fresh = np.zeros(len(offsets), np.int64)
    np.cumsum(lengths, out=fresh[1:])
    return Text.trusted(fresh, np.frombuffer(b"".join(pieces), np.uint8))


def count_words(text: Text | Nullable, validity: Mask | None = None, *, lower: bool = True) -> Batch:
    """Count the words of all values.

    Args:
        text: any number of values; nulls have no words.
        validity: False for further nulls.
        lower: fold case before counting.

    Returns:
        A batch with the columns `word` (distinct) and `count` (int64), in no order.

    Raises:
        BatchError: the column holds bytes, or is not a `Text`.

    Example:
        >>> batch = count_words(Text.of(["The cat", "the hat"]))
        >>> dict(batch.tuples())["the"]
        2
    """
    counts = WordCounts(lower=lower)
    counts.add(text, validity)
    return counts.batch(0, max(1, len(counts)), None)[0]


class WordCounts:
    """Counts words, a column at a time.

    Words are what `value.lower().split()` gives. A word that is not all ASCII is folded when the counts are first asked
    for, once and not each time it occurs. `len` is the number of distinct words.

    Args:
        lower: fold case.
        seed: of the hash; by default this process's own, so that no one can choose words that collide.

    Example:
        >>> counts = WordCounts()
        >>> counts.add(Text.of(["to be or", "not to be"]))
        >>> len(counts), int(counts.batch(0, 10)[0]["count"].sum())
        (4, 6)
    """

    def __init__(self, *, lower: bool = True, seed: int | None = None) -> None:
        self._counter = WordCounter(lower, hash("shmjet") & (2**63 - 1) if seed is None else seed)

    def add(self, text: Text | Nullable, validity: Mask | None = None) -> None:
        """Count the words of each value; nulls have none. Takes about 2 ns a byte, so cut what is very long."""
        self._counter.add(descriptor(*_checked("add", text, validity)))

    def merge(self, batch: Batch, word: str = "word", count: str = "count") -> None:
        """Add the counts of a batch that `batch` of such an object gave. Words are taken as they are, nulls left out.

        Args:
            batch: a text column of words, and one of counts of an integer dtype.
            word, count: names of these columns.

        Raises:
            BatchError: the columns are missing or of another kind, or a count is null.
            OverflowError: a count gets larger than 64 bits.
        """
        merge_batch(self._counter, batch, word, count)

    def fold(self, limit: int = 2048) -> bool:
        """Fold up to `limit` distinct words that are not ASCII; True when none is left.

        `len` and `batch` do that themselves; a processor that must not take long calls it until it is True before.
        """
        return self._counter.fold(limit)

    def batch(self, position: int = 0, limit: int = ROWS_AT_ONCE, most: int | None = None) -> tuple[Batch, int]:
        """Return some of the words and their counts.

        Args:
            position: 0, then what the call before returned; nothing may be added meanwhile.
            limit: rows at most.
            most: bytes of words, at most (one word always fits); None: as many as the rows have.

        Returns:
            A batch with the columns `word` and `count` (int64), and the next position, -1 at the end.
        """
        self._fold_all()
        piece, following = self._counter.piece(position, limit, most=most)
        return as_batch(piece), following

    def __len__(self) -> int:
        self._fold_all()
        return len(self._counter)

    def _fold_all(self) -> None:
        while not self._counter.fold():
            pass


def as_batch(piece: WordPiece) -> Batch:
    """Return a piece of counts as a batch with the columns `word` and `count`; nothing is copied."""
    words = Text.trusted(np.frombuffer(piece.offsets, np.int64), np.frombuffer(piece.data, np.uint8))
    return Batch.trusted({"word": words, "count": np.frombuffer(piece.counts, np.int64)}, {}, len(words))


def merge_batch(counter: WordCounter, batch: Batch, word: str = "word", count: str = "count") -> None:
    """Add the counts of a batch to a counter; see `WordCounts.merge`."""
    (words, named), (counts, counted) = stored_column(batch, word), stored_column(batch, count)
    if not isinstance(words, Text) or words.is_bytes:
        raise BatchError(f"merge: column {word!r} must hold text, got {batch.schema[word]}")
    if isinstance(counts, Text) or counts.dtype.kind not in "iu" or counts.dtype == np.uint64:
        raise BatchError(f"merge: column {count!r} must hold integers up to int64, got {batch.schema[count]}")
    if counted is not None and not counted.all():
        raise BatchError(f"merge: column {count!r} has nulls; fill them or leave their rows out")
    counter.merge(descriptor(words, named), np.ascontiguousarray(counts, np.int64))


def _checked(function: str, text: Text | Nullable, validity: Mask | None = None) -> tuple[Text, Mask | None]:
    values: Any = text
    if isinstance(text, Nullable):
        values, valid = text.parts()
        validity = valid if validity is None else valid & validity
    if not isinstance(values, Text):
        raise BatchError(f"{function}: a column of text (Text) is needed, got {type(values).__name__}")
    if values.is_bytes:
        raise BatchError(f"{function}: the column holds bytes; Text(column.offsets, column.data) reads them as UTF-8")
    return values, validity
