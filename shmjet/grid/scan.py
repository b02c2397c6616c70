"""Reading a range of an environment page by page.

Each page has a read transaction of its own that lasts as long as LMDB needs to hand over the bytes, never while they
are decoded or the caller thinks: a reader that keeps its transaction keeps every page freed since. In return a scan
is not a snapshot. It meets every entry that is there from its start to its end exactly once, and the entries that come
or go meanwhile each at most once, also across a `clear()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import lmdb

from shmjet.data.errors import MemberLostError
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.layout import FLAGS_AT, HAS_BLOBS, HAS_ENDS, INCARNATION
from shmjet.grid.times import is_over, now

PAGE_BYTES = 1 << 20
"""A page ends behind the first step that takes it above this."""
FIRST_STEP, LAST_STEP = 32, 512
"""Entries fetched between two looks at the size; small at first, because many maps are."""
PAGE_ENTRIES = 4096


class Page(NamedTuple):
    """Some consecutive entries of a map in one environment.

    `values` are stored values in the order of their keys, `transaction` the id of the last write that they show,
    `has_blobs` whether one of the map's values may lie in a file, `has_ends` whether one may end, `store` which
    store it is of: another number when it is another member's.
    """

    values: list[bytes]
    transaction: int
    has_blobs: bool
    has_ends: bool = False
    store: int = 0


def pages(
    env: Environment, record_key: bytes, low: bytes = b"", high: bytes | None = None, *, limit: int = PAGE_ENTRIES
) -> Iterator[Page]:
    """Yield the entries whose keys lie from `low` to below `high`, behind the prefix of the map's incarnation.

    Args:
        record_key: the map's key in the catalogue; the incarnation is looked up anew for each page.
        low: where to start.
        high: where to end, None for the map's end.
        limit: a page of about that many entries is large enough.
    """
    step, last = FIRST_STEP, None
    while True:
        page, last = read_page(env, record_key, low, high, step=step, limit=limit, skip=last is not None)
        if page is not None:
            yield page
        if last is None:
            return
        low, step = last, LAST_STEP


def of_one_store(pages: Iterable[Page]) -> Iterator[Page]:
    """Pass on the pages of one scan.

    Raises:
        MemberLostError: the store that the scan began with is gone, and another one answers: the rest is lost.
    """
    store = None
    for page in pages:
        if store is None:
            store = page.store
        elif store != page.store:
            raise MemberLostError("the member that had this map or list was lost while it was read, and the rest of it")
        yield page


def read_page(
    env: Environment,
    record_key: bytes,
    low: bytes,
    high: bytes | None,
    *,
    step: int,
    limit: int,
    skip: bool,
    last_step: int = LAST_STEP,
    admit: Callable[[Transaction], None] | None = None,
) -> tuple[Page | None, bytes | None]:
    """Read one page; see `pages`.

    Args:
        step: entries fetched at first.
        skip: an entry at `low` itself has been read already.
        last_step: entries fetched between two looks at the size, at most.
        admit: looks at the transaction first, and may raise.

    Returns:
        the page, None when nothing is there, and where the next one begins, None when there is none.
    """
    with env.begin() as txn:
        if admit is not None:
            admit(txn)
        record = txn.get(record_key)
        if record is None:
            return None, None
        prefix = record[:4]
        stop = prefix + high if high is not None else _behind(prefix)
        with txn.cursor() as cursor:
            values, last = _fetch(cursor, prefix + low, skip, stop, (step, last_step), limit)
        transaction = txn.id()
    flags = record[FLAGS_AT]
    if flags & HAS_ENDS:
        moment = now()
        values = [value for value in values if not is_over(value, moment)]
    page = Page(values, transaction, flags & HAS_BLOBS != 0, flags & HAS_ENDS != 0) if values else None
    return page, None if last is None else last[4:]


def _behind(prefix: bytes) -> bytes:
    return INCARNATION.pack(INCARNATION.unpack(prefix)[0] + 1)


def _fetch(
    cursor: lmdb.Cursor[bytes], start: bytes, skip: bool, stop: bytes, steps: tuple[int, int], limit: int
) -> tuple[list[bytes], bytes | None]:
    """Return the values of a page and the key of its last entry, or None for the key when the range has ended.

    Only values are fetched as long as the last key of a step lies inside the range; the step that leaves it is
    fetched again with its keys.
    """
    if not cursor.set_range(start) or (skip and cursor.key() == start and not cursor.next()):
        return [], None
    values: list[bytes] = []
    size, inside = 0, cursor.key()
    step, last_step = steps
    follow = cursor.iternext(keys=False, values=True)
    while True:
        taken = list(islice(follow, step))
        last = cursor.key()
        if len(taken) < step or last >= stop:
            break
        values += taken
        size += sum(map(len, taken))
        if size >= PAGE_BYTES or len(values) >= limit:
            return values, last
        inside = last
        step = min(2 * step, last_step)
    cursor.set_range(inside)
    rest = cursor.iternext()
    if values:
        next(rest)
    for key, value in rest:
        if key >= stop:
            break
        values.append(value)
    return values, None
