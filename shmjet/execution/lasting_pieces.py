"""Pieces of a processor's state that did not change: the next snapshot refers to them where they are.

A processor names parts of its state by tokens that stand for their content. What the last valid snapshot has under a
token is not written again. Files live as long as a manifest names a piece in them, so a file of which less than half is
still in use is not referred to any more: what is left of it is written anew. Must not know tasklets.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from shmjet.snapshots.manifest import Piece


class LastingPieces:
    """What one snapshot has of the lasting state of one processor.

    Args:
        pieces: by token.
        written: bytes that the processor has written into each of their files, also those not in use any more.

    Example:
        >>> first = LastingPieces({"a": [Piece(0, "1.chunk", 16, 90, 0, 1)]}, {"1.chunk": 200})
        >>> first.of("a"), first.of("b")
        (None, None)
    """

    def __init__(self, pieces: Mapping[Hashable, Sequence[Piece]], written: Mapping[str, int]) -> None:
        self._pieces = dict(pieces)
        in_use = dict.fromkeys(written, 0)
        for found in self._pieces.values():
            for piece in found:
                in_use[piece.file] += piece.size
        self._written = {file: written[file] for file, size in in_use.items() if size}
        self._sparse = {file for file, size in in_use.items() if 2 * size < written[file]}

    def of(self, token: Hashable) -> Sequence[Piece] | None:
        """Return the pieces under a token; None where there are none, or where they should be written anew."""
        found = self._pieces.get(token)
        return None if found is None or any(piece.file in self._sparse for piece in found) else found

    def written(self, file: str) -> int:
        """Return how many bytes the processor has written into a file."""
        return self._written.get(file, 0)


NOTHING = LastingPieces({}, {})
