"""Reading ahead for a caller that asks for value after value in the order of iteration.

`dict(map)` is the case: it makes a list of all keys and then asks for each value by itself, which would cost a key
encoding and two lookups each. So after an iteration over the keys, a map fetches pages of pairs and hands out their
values while the caller keeps to the order. What is handed out is never stale. Where this process has the store, the
environment must not have seen a commit since the page was read (see `announcements`). Elsewhere that is not known, and
values are handed out to the call alone that iterates over the keys, as `dict(map)` is one call: what it gets was there
between its beginning and its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.entries import EntryCodec
from shmjet.grid.scan import PAGE_ENTRIES
from shmjet.grid.table import Table

_KINDS = frozenset((str, int, float, bytes))
"""Keys whose equality says enough; others are looked up."""
_PATIENCE = 4
"""Pages that may turn out useless before the map stops reading ahead."""
_MAPS = frozenset(("shmjet.grid.read_ahead", "shmjet.grid.imap", "_collections_abc", "collections.abc"))
"""Modules of maps and their views."""


class _Fetched(NamedTuple):
    pairs: Iterator[tuple[Any, Any]]
    announced: memoryview
    transaction: int


class ReadAhead:
    """The pages read ahead by one map object. Threads may share it: what one fetches is at worst useless to another.

    Args:
        locate: gives the table of a key and its place there.
        codec: turns entries into pairs.
        knows_commits: whether the tables know of each commit.
    """

    def __init__(
        self, locate: Callable[[Any], tuple[Table, bytes]], codec: EntryCodec, *, knows_commits: bool = True
    ) -> None:
        self._locate = locate
        self._codec = codec
        self._call = None if knows_commits else _call_under_way()
        self._fetched: _Fetched | None = None
        self._limit = 64
        self._useless = 0

    @property
    def is_useless(self) -> bool:
        """Whether the caller has shown that it does not follow the order."""
        return self._useless >= _PATIENCE

    def get(self, key: Any, default: Any) -> Any:
        """Return the value of `key` when it is the next one in order and known to be current, or `default`."""
        if self._call is not None and self._call != _call_under_way():
            self._useless = _PATIENCE
            return default
        fetched = self._fetched
        if fetched is not None:
            pair = next(fetched.pairs, None)
            if pair is None:
                self._limit = PAGE_ENTRIES
            elif pair[0] == key and type(pair[0]) is type(key):
                if fetched.announced[0] == fetched.transaction:
                    return pair[1]
                self._useless += 1  # another process writes: looking each value up is as good
            else:
                self._useless += 1
        self._fetched = None
        if type(key) not in _KINDS or self.is_useless:
            self._useless += type(key) not in _KINDS
            return default
        return self._fetch(key, default)

    def _fetch(self, key: Any, default: Any) -> Any:
        table, tail = self._locate(key)
        page = next(table.pages(tail, limit=self._limit), None)
        if page is None or page.has_blobs or page.has_ends:
            self._useless = _PATIENCE
            return default
        try:
            pairs = iter(self._codec.pairs(page.values))
        except BlobVanishedError:
            return default
        found = next(pairs, None)
        if found is None or found[0] != key or type(found[0]) is not type(key):
            self._useless += 1
            return default
        self._fetched = _Fetched(pairs, table.announced, page.transaction)
        return found[1]


def _call_under_way() -> tuple[int, int]:
    """Return what tells the call by which a map is being used: the caller's frame, and its instruction."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _MAPS:
        frame = frame.f_back
    return id(frame), frame.f_lasti
