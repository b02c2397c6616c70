"""`WordCounter`: the native table of words, completed by what the table leaves to the interpreter. Without numpy.

The native table folds ASCII. Words with other characters are folded here, each distinct one once, by `str.lower`, so
that they are right for the Unicode of this interpreter, final sigma and all. Invalid UTF-8 becomes U+FFFD, as
`bytes.decode(errors="replace")` has it. Must not know of batches, processors or files; `text` has the face for columns.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from shmjet._native._columns import WordTable

if TYPE_CHECKING:
    from shmjet._native._columns import Column

FOLDED_AT_ONCE = 2048
"""Words folded in one step of `fold`: under a millisecond."""

BYTES_AT_ONCE = 1 << 20
"""Bytes of words in one piece, except where a single word is longer."""


class WordPiece(NamedTuple):
    """Some distinct words and how often each was met: plain bytes that cross a ring as they are.

    Attributes:
        share: of the table that they belong to.
        data: the words' UTF-8, one after the other.
        offsets: n + 1 int64, from 0 on.
        counts: n int64.
    """

    share: int
    data: bytes
    offsets: bytes
    counts: bytes

    @property
    def words(self) -> Column:
        """The words as a kernel takes them."""
        return "t", 0, len(self.counts) // 8, self.data, self.offsets, None

    def pairs(self, places: Sequence[int] | None = None) -> list[tuple[str, int]]:
        """Return (word, count) tuples: all, or those at `places`."""
        data, offsets = self.data, memoryview(self.offsets).cast("q").tolist()
        counts = memoryview(self.counts).cast("q").tolist()
        chosen = range(len(counts)) if places is None else places
        return [(data[offsets[i] : offsets[i + 1]].decode(), counts[i]) for i in chosen]


class WordCounter:
    """Counts words as `Counter(text.lower().split())` does, text being decoded with errors="replace".

    Args:
        lower: fold case; False: count words as they are.
        seed: of the hash; the author of the words should not know it. Counters with the same seed agree on shares.

    Example:
        >>> counter = WordCounter()
        >>> counter.add_block(b"The cat, the hat", 0, 16, 16, True)
        16
        >>> counter.fold(), sorted(counter.piece(0, 10)[0].pairs())
        (True, [('cat,', 1), ('hat', 1), ('the', 2)])
    """

    __slots__ = ("_lower", "_position", "_raw", "_table", "add", "add_block", "merge")

    def __init__(self, lower: bool = True, seed: int = 0) -> None:
        self._lower = lower
        self._table = WordTable(lower, seed)
        self._raw: WordTable | None = None
        self._position = 0
        self.add = self._table.add
        """`add(column)`: count the words of each value of a text column."""
        self.add_block = self._table.add_block
        """`add_block(buffer, start, limit, stop, last)`: count words of a buffer; see `WordTable.add_block`."""
        self.merge = self._table.merge
        """`merge(column, counts)`: add counts of words that have been folded already."""

    @property
    def is_folded(self) -> bool:
        """Whether all words are folded; only then `len` and `piece` know of all."""
        return self._raw is None and not self._table.raw

    @property
    def total(self) -> int:
        """Words met in text so far."""
        return self._table.total

    def fold(self, limit: int = FOLDED_AT_ONCE) -> bool:
        """Fold up to `limit` distinct words; True when none is left."""
        if self._raw is None:
            if not self._table.raw:
                return True
            self._raw, self._position = self._table.take_raw(), 0
        data, offsets, counts, position = self._raw.export(self._position, limit, BYTES_AT_ONCE)
        folded = folded_words(data, offsets, self._lower)
        ends = array("q", accumulate(map(len, folded), initial=0))
        self._table.merge(("t", 0, len(folded), b"".join(folded), ends, None), counts)
        self._position = position
        if position < 0:
            self._raw = None
        return self.is_folded

    def __len__(self) -> int:
        return len(self._table)

    def piece(
        self, position: int, limit: int, share: int = 0, shares: int = 1, most: int | None = BYTES_AT_ONCE
    ) -> tuple[WordPiece, int]:
        """Return up to `limit` words with their counts, and the next position or -1.

        Args:
            position: 0, then what the call before returned for the same share. Nothing may be added meanwhile.
            limit: words at most.
            share, shares: only the words of this one of so many equal shares of the hashes.
            most: bytes of these words, at most, except that one word always fits; None: any number.
        """
        room = sys.maxsize if most is None else most
        data, offsets, counts, following = self._table.export(position, limit, room, share, shares)
        return WordPiece(share, data, offsets, counts), following


def folded_words(data: bytes, offsets: bytes | array[int], lower: bool) -> list[bytes]:
    """Return UTF-8 words decoded (invalid bytes: U+FFFD), in lower case if asked for, and encoded again.

    Example:
        >>> import array
        >>> [word.decode() for word in folded_words("ÉΟΔΟΣ".encode(), array.array("q", [0, 2, 10]), lower=True)]
        ['é', 'οδος']
    """
    places = pairwise(memoryview(offsets).cast("B").cast("q").tolist())
    words = [data[a:b].decode("utf-8", "replace") for a, b in places]
    return [word.lower().encode() for word in words] if lower else [word.encode() for word in words]
