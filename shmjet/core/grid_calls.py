"""What processors ask of maps and lists, which users do not see: writes that a restart repeats, and journals.

Each function works on what `DataGrid` gives: on the maps and lists of the grid and on their stand-ins in
`shmjet.testing`. Must not know how they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def put_once(given: Any, values: Mapping[Any, Any], marker: bytes, mark: int) -> None:
    """Put entries into a map, and remove those whose value is None, unless that is done.

    Args:
        given: the map.
        values: at most a few thousand.
        marker: of the writer, which has one write under way at most.
        mark: of this write: higher than that of the one before. A write with a mark that is not does nothing.
    """
    given._put_once(values, marker, mark)


def extend_once(given: Any, items: list[Any], marker: bytes, mark: int) -> bool:
    """Add items to a list, unless that is done; return False when it was done before. Arguments as in `put_once`."""
    return bool(given._extend_once(items, marker, mark))


def journal_reader(
    given: Any, start: str, share: tuple[int, int] = (0, 1), positions: Mapping[int, Any] | None = None
) -> Any:
    """Return what reads the journal of a map, see `MapJournal.reader`.

    Args:
        given: the map.
        start: "oldest" or "latest".
        share: (index, count): which part of the journal, of how many.
        positions: from where to go on, as a reader had them.

    Raises:
        ConfigError: the map has no journal.
    """
    return given._journal_reader(start, share, positions)
