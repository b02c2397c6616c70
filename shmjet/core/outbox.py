"""The outbox: where a processor puts what it emits, and where backpressure begins.

One list (bucket) per outbound ordinal, drained by the engine between callbacks. A bucket refuses items above its
high-water mark or, when the engine bounds the time of a call, above the number it allows for that call. The rules for
a refused item are those of Jet's OutboxImpl, with one simplification: an item goes to all the ordinals it was offered
to, or to none, so that nothing is ever half emitted. It knows nothing of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Any, NoReturn, Protocol

from shmjet._native import index_of_special
from shmjet.data.columnar import Columnar
from shmjet.data.errors import OutboxError
from shmjet.data.marks import Watermark

DEFAULT_HIGH_WATER_MARK = 2048
"""Items a bucket takes before it refuses; also the bound per call of a processor without outbound edges."""

_MOST_BATCH_BYTES = 8 << 20
"""Batches of so many bytes in a bucket end the callback, however fast they are made."""

_ENTRIES_BETWEEN_LOOKS = 256
"""After so many entries for a snapshot the outbox looks at the clock."""
_MOST_ENTRIES = 4096
"""Entries that one call of `save_to_snapshot` may offer at most; the engine encodes them when the call has ended."""

Ordinals = int | Sequence[int]

_OPEN = 0
"""Anything may be offered."""
_PENDING = 1
"""A callback ended after a refusal: the refused item comes first now."""
_REFUSED = 2
"""An item was refused in this callback: nothing more may be offered in it."""


class LastingState(Protocol):
    """Parts of a processor's state that change as a whole, or not at all. A token stands for what such a part holds."""

    def refer(self, token: Hashable) -> bool:
        """Have what the last valid snapshot has under a token in this one, too; False where it has nothing."""

    def add_lasting(self, token: Hashable, entry: tuple[Any, Any]) -> None:
        """Save an entry of the part for which a token stands."""


class Outbox:
    """Takes items from one processor.

    Args:
        high_water_marks: items that each bucket takes before it refuses; one per outbound ordinal.

    Example:
        >>> outbox = Outbox([2])
        >>> outbox.offer("a"), outbox.offer_all(["b", "c"]), outbox.buckets
        (True, 1, [['a', 'b']])
    """

    __slots__ = (
        "_all",
        "_before",
        "_caps",
        "_entry",
        "_item",
        "_lasting",
        "_marks",
        "_ordinal",
        "_plain",
        "_plain_count",
        "_saving",
        "_sink",
        "_state",
        "buckets",
        "limit",
        "overdue",
        "saved",
    )

    buckets: list[list[Any]]
    """One list per outbound ordinal; the engine drains or replaces them. Watermarks lie among the items, in order."""

    limit: int | None
    """How many items each bucket accepts per callback, below its high-water mark; read by `begin_callback`."""

    overdue: Callable[[], bool] | None
    """Asked when the limit is reached: False lets more in, so that only what takes long is refused."""

    saved: list[tuple[Any, Any]]
    """Entries offered to a snapshot; the engine takes them away after each call of `save_to_snapshot`."""

    _lasting: LastingState | None
    """Takes parts of the state to which later snapshots refer, for the library's own processors; None: entries only."""

    def __init__(self, high_water_marks: Sequence[int]) -> None:
        self.saved = []
        self._saving = False
        self._lasting = None
        self._entry: tuple[Any, Any] | None = None
        self._marks = [int(mark) for mark in high_water_marks]
        self.buckets = [[] for _ in self._marks]
        self.limit = None
        self.overdue = None
        self._all = tuple(range(len(self._marks)))
        self._caps = list(self._marks)
        self._before = [0] * len(self._marks)
        self._sink: list[Any] = []
        self._state = _OPEN
        self._item: Any = None
        self._ordinal: Ordinals = -1
        self._plain: list[Any] | None = None
        self._plain_count = 0

    @property
    def high_water_marks(self) -> Sequence[int]:
        """Items that each bucket takes before it refuses."""
        return tuple(self._marks)

    @property
    def bucket_count(self) -> int:
        """Number of outbound ordinals; with none, items offered to all (-1) are accepted and dropped."""
        return len(self._marks)

    @property
    def has_unfinished_item(self) -> bool:
        """True while an item has been refused and not yet been offered again with success."""
        return self._state != _OPEN

    @property
    def accepted(self) -> int:
        """The most items that any bucket has taken since `begin_callback`; right until the engine drains."""
        if not self._marks:
            return len(self._sink)
        if len(self.buckets) == 1:
            return len(self.buckets[0]) - self._before[0]
        return max(len(bucket) - before for bucket, before in zip(self.buckets, self._before, strict=True))

    def begin_callback(self) -> None:
        """Note that a callback of the processor starts; for the engine, before each one."""
        if self._state == _REFUSED:
            self._state = _PENDING
        if not self._marks:
            self._sink.clear()
            return
        limit = self.limit
        for i, bucket in enumerate(self.buckets):
            size = len(bucket)
            mark = self._marks[i]
            self._before[i] = size
            self._caps[i] = mark if limit is None or size + limit > mark else size + limit

    def room(self, ordinal: Ordinals = -1) -> int:
        """Return how many items would be accepted now for an ordinal, for several, or for all (-1).

        Bulk processors make just so many and are never refused. 0 after a refusal in this callback.
        """
        if self._state == _REFUSED:
            return 0
        if ordinal == -1 and len(self._marks) == 1:
            room = self._caps[0] - len(self.buckets[0])
            return room if room > 0 else 0
        if not self._marks and ordinal == -1:
            cap = DEFAULT_HIGH_WATER_MARK if self.limit is None else self.limit
            return max(0, cap - len(self._sink))
        if isinstance(ordinal, int) and ordinal != -1:
            self._check_ordinal(ordinal)
            return max(0, self._caps[ordinal] - len(self.buckets[ordinal]))
        return max(0, min((self._caps[i] - len(self.buckets[i]) for i in self._named(ordinal)), default=1 << 62))

    def offer(self, item: Any, ordinal: Ordinals = -1) -> bool:
        """Put an item into the buckets of the given ordinals: into all of them, or into none.

        Args:
            item: anything but None.
            ordinal: -1 for all, one ordinal, or several.

        Returns:
            False when there is no room. Then leave the callback, and offer the same item to the same ordinals next.

        Raises:
            TypeError: the item is None.
            OutboxError: another item is due first, an item was refused in this callback, or there is no such ordinal.
        """
        if item is not None and self._state == _OPEN:
            buckets, caps = self.buckets, self._caps
            if ordinal == -1:
                if len(buckets) == 1:
                    bucket = buckets[0]
                    if len(bucket) < caps[0]:
                        bucket.append(item)
                        return True
                elif buckets:
                    for bucket, cap in zip(buckets, caps):  # noqa: B905
                        if len(bucket) >= cap:
                            break
                    else:
                        for bucket in buckets:
                            bucket.append(item)
                        return True
            elif type(ordinal) is int and 0 <= ordinal < len(buckets):
                bucket = buckets[ordinal]
                if len(bucket) < caps[ordinal]:
                    bucket.append(item)
                    return True
        return self._offer_slowly([item], ordinal, 0) == 1

    def offer_all(self, items: Sequence[Any], ordinal: Ordinals = -1, start: int = 0) -> int:
        """Put as many of `items[start:]` as fit, in order, into the buckets of the given ordinals.

        Costs a few nanoseconds per item that is accepted, however long the list is; so keep a long list and
        go on from the item that was refused.

        Args:
            items: a list or another sequence, without None.
            ordinal: -1 for all, one ordinal, or several.
            start: where to begin.

        Returns:
            how many were accepted. When that is fewer than there are, the next one is refused: leave the callback,
            and offer from there next.

        Raises:
            TypeError: one of the items is None; or `items` is not a sequence.
            OutboxError: as `offer`.

        Example:
            >>> outbox, items = Outbox([2, 2]), [1, 2, 3]
            >>> done = outbox.offer_all(items, [0, 1])
            >>> outbox.buckets, items[done:]
            ([[1, 2], [1, 2]], [3])
        """
        if self._state == _OPEN and start == 0 and type(items) is list:
            buckets = self.buckets
            if ordinal == -1 and len(buckets) == 1:
                i = 0
            elif type(ordinal) is int and 0 <= ordinal < len(buckets):
                i = ordinal
            else:
                return self._offer_slowly(items, ordinal, 0)
            bucket = buckets[i]
            count = len(items)
            if len(bucket) + count <= self._caps[i] and index_of_special(items, 0, NoneType) < 0:
                bucket += items
                return count
        return self._offer_slowly(items, ordinal, start)

    def begin_saving(self, lasting: LastingState | None = None) -> None:
        """Begin a call of `save_to_snapshot`, for the engine: entries are taken until the call ends.

        Args:
            lasting: takes parts of the state to which later snapshots refer; None: there are only entries.
        """
        self.begin_callback()
        self._saving = True
        self._lasting = lasting

    def end_saving(self, is_complete: bool) -> list[tuple[Any, Any]]:
        """End a call of `save_to_snapshot`, for the engine.

        Args:
            is_complete: the processor says that it has saved everything.

        Returns:
            the entries that it has offered in this call.

        Raises:
            OutboxError: it says so although an entry was refused and not offered again.
        """
        self._saving = False
        if is_complete and self._entry is not None:
            raise OutboxError(
                f"save_to_snapshot() is through, but {_short(self._entry)} was refused by the outbox and never offered "
                "again; when offer_to_snapshot() returns False, return False and offer the same entry next time"
            )
        entries, self.saved = self.saved, []
        return entries

    def offer_to_snapshot(self, key: Any, value: Any) -> bool:
        """Save one entry of the processor's state; only in `save_to_snapshot`.

        Args:
            key: picklable and, unless it is a `BroadcastKey`, of a type that a partitioned edge takes. After a restore
                the entry comes to the processor that owns the key's partition.
            value: picklable; may be None.

        Returns:
            False when there is no room. Then leave the callback with False, and offer the same entry next time.

        Raises:
            TypeError: the key is None.
            OutboxError: outside of `save_to_snapshot`, or another entry is due first.
        """
        if not self._saving:
            raise OutboxError("offer_to_snapshot() works in save_to_snapshot() only")
        if key is None:
            raise TypeError(
                "None is never the key of a saved entry; use BroadcastKey(...) for what all processors need"
            )
        self._require_order(key, value)
        if len(self.saved) >= self._entry_limit():
            self._entry = key, value
            return False
        self._entry = None
        self.saved.append((key, value))
        return True

    def offer_all_to_snapshot(self, entries: Iterator[tuple[Any, Any]], step: int = _ENTRIES_BETWEEN_LOOKS) -> bool:
        """Save entries in bulk; only in `save_to_snapshot`. Nothing is drawn that there is no room for.

        Args:
            entries: (key, value) tuples as for `offer_to_snapshot`; here a key may be None, which is a group's key.
            step: entries between two looks at the clock; few where they are large.

        Returns:
            True when the iterator has ended. False: leave the callback with False, and go on with it next time.

        Raises:
            OutboxError: as `offer_to_snapshot`.

        Example:
            >>> outbox, state = Outbox([1]), {"a": 1, "b": 2}
            >>> outbox.begin_saving()
            >>> outbox.offer_all_to_snapshot(iter(state.items())), outbox.end_saving(True)
            (True, [('a', 1), ('b', 2)])
        """
        if not self._saving:
            raise OutboxError("offer_all_to_snapshot() works in save_to_snapshot() only")
        saved = self.saved
        while (room := self._entry_limit(step) - len(saved)) > 0:
            before = len(saved)
            saved.extend(islice(entries, room))
            if len(saved) - before < room:
                return True
        return False

    def _require_order(self, key: Any, value: Any) -> None:
        """Check that an entry that was refused comes first.

        Raises:
            OutboxError: another one came.
        """
        refused = self._entry
        if refused is not None and (differs(refused[0], key) or differs(refused[1], value)):
            raise OutboxError(
                f"{_short((key, value))} was offered to the snapshot, but {_short(refused)} was refused before and "
                "comes first; after a refusal, return False and offer the same entry next time"
            )

    def _entry_limit(self, step: int = _ENTRIES_BETWEEN_LOOKS) -> int:
        """Return how many entries this call of `save_to_snapshot` may have offered until the next look at the clock."""
        count = len(self.saved)
        at_look = count and not count % step
        if at_look and (count >= _MOST_ENTRIES or (self.overdue is not None and self.overdue())):
            return count
        return (count // step + 1) * step

    def give(self, items: list[Any], ordinal: Ordinals = -1) -> int:
        """Put `items` in as `offer_all` does, and return how many fitted into the buckets of `ordinal`.

        The list is the outbox' own from now on, if all of it was accepted.

        An empty bucket takes the list itself, so nothing is copied.
        """
        buckets = self.buckets
        if (
            self._state == _OPEN
            and len(buckets) == 1
            and not buckets[0]
            and ordinal in (-1, 0)
            and len(items) <= self._caps[0]
            and index_of_special(items, 0, Watermark) < 0
        ):
            buckets[0] = self._plain = items
            self._plain_count = len(items)
            return self._plain_count
        return self.offer_all(items, ordinal)

    def _is_plain(self, bucket: list[Any]) -> bool:
        """Say, to the tasklet, whether a bucket that it drains now is known to have no watermark."""
        plain, self._plain = self._plain, None
        return bucket is plain and len(bucket) == self._plain_count

    def _offer_slowly(self, items: Sequence[Any], ordinal: Ordinals, start: int) -> int:
        """As `offer_all`, for every case: several buckets, no room, a refusal before."""
        total = len(items) - start
        if total <= 0:
            return 0
        if not isinstance(ordinal, int):  # perhaps an iterator, or a list that changes before the next attempt
            ordinal = tuple(dict.fromkeys(ordinal))
        if self._state != _OPEN:
            self._check_state(items[start], ordinal)
        count = min(self.room(ordinal), total)
        if count < total and self._stretch(ordinal, total):
            count = min(self.room(ordinal), total)
        if count:
            chunk = items if count == len(items) else items[start : start + count]
            if chunk.__class__ is not list:
                chunk = list(chunk)
            if index_of_special(chunk, 0, NoneType) >= 0:
                self._refuse_none()
            for i in self._named(ordinal):
                self.buckets[i].extend(chunk)
            if not self._marks:
                self._sink.extend(chunk)
            self._state = _OPEN
            self._item = None
        if count < total:
            item = items[start + count]
            if item is None:
                self._refuse_none()
            self._state = _REFUSED
            self._item = item
            self._ordinal = ordinal
        return count

    def _stretch(self, ordinal: Ordinals, wanted: int) -> bool:
        """Raise the limit of this callback, up to the high-water marks, while it is not overdue; True if it was."""
        if self.limit is None or self.overdue is None or self.overdue() or any(map(_is_heavy, self.buckets)):
            return False
        stretched = False
        while self.room(ordinal) < wanted and self._caps != self._marks:
            self._caps = [min(mark, 2 * cap + 16) for mark, cap in zip(self._marks, self._caps, strict=True)]
            stretched = True
        return stretched

    def require_finished(self, callback: str) -> None:
        """Check, for the engine, that no refused item was forgotten.

        Args:
            callback: which one claims to be through, for the message.

        Raises:
            OutboxError: an item was refused and not offered again.
        """
        if self._state != _OPEN:
            raise OutboxError(
                f"{callback} is through, but {_short(self._item)} was refused by the outbox and never offered again; "
                "when offer() returns False, return from the callback and offer the same item next time"
            )

    def _named(self, ordinal: Ordinals) -> Sequence[int]:
        if isinstance(ordinal, int):
            if ordinal == -1:
                return self._all
            self._check_ordinal(ordinal)
            return (ordinal,)
        for i in ordinal:
            self._check_ordinal(i)
        return ordinal

    def _check_ordinal(self, ordinal: int) -> None:
        if not 0 <= ordinal < len(self._marks):
            known = f"0..{len(self._marks) - 1}" if self._marks else "none: the vertex has no outbound edge"
            raise OutboxError(f"there is no outbound ordinal {ordinal!r} (there are {known}); -1 means all")

    def _check_state(self, item: Any, ordinal: Ordinals) -> None:
        if item is None:
            self._refuse_none()
        if self._state == _REFUSED:
            raise OutboxError(
                f"{_short(item)} was offered after {_short(self._item)} had been refused in the same callback; "
                "when offer() returns False, return from the callback and offer the same item next time"
            )
        if differs(self._item, item):
            raise OutboxError(
                f"{_short(item)} was offered, but {_short(self._item)} was refused before and comes first"
            )
        if self._ordinals(ordinal) != self._ordinals(self._ordinal):
            raise OutboxError(
                f"{_short(item)} was refused for ordinal {self._ordinal!r} and is now offered to {ordinal!r}; "
                "offer it to the same ordinals"
            )

    def _ordinals(self, ordinal: Ordinals) -> list[int]:
        return sorted(set(self._named(ordinal)))

    def _refuse_none(self) -> NoReturn:
        raise TypeError("None is never an item: it cannot be offered to an outbox; leave it out, or wrap it in a tuple")


def _is_heavy(bucket: list[Any]) -> bool:
    """Say whether the batches in a bucket are as much as should wait in memory."""
    if not bucket or not isinstance(bucket[-1], Columnar):
        return False
    return sum(item.nbytes for item in bucket if isinstance(item, Columnar)) >= _MOST_BATCH_BYTES


def differs(refused: Any, offered: Any) -> bool:
    """Say whether an item is certainly another one than the one refused before.

    A processor may compute an item afresh for each attempt. So equal values count as the same, and so does what
    cannot be told apart: NaN, arrays, and two objects of a class that compares by identity.
    """
    if refused is offered:
        return False
    kind = type(refused)
    if kind is not type(offered):
        return True
    if kind in (tuple, list):
        return len(refused) != len(offered) or any(map(differs, refused, offered))
    if kind is dict:
        return list(refused) != list(offered) or any(map(differs, refused.values(), offered.values()))
    if getattr(kind, "__eq__", None) is object.__eq__:
        return False
    try:
        return bool(refused == refused) and not bool(refused == offered)
    except Exception:
        return False


def _short(item: Any) -> str:
    try:
        text = repr(item)
    except Exception:
        text = f"<{type(item).__name__}>"
    return f"item {text if len(text) <= 80 else text[:79] + '…'}"
