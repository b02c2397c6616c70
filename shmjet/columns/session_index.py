"""Which sessions of each key are open: intervals that do not overlap, found and joined for many keys at once.

The sessions of a key are a chain, from the last to the first one. What comes is looked up from its end, so that rows in
about the order of time see one or two sessions, however many are open. Must not know rows, nor what is aggregated.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NONE: Final = -1
_ROOM: Final = 1024
_WIDEST: Final = 1 << 62


class Placed(NamedTuple):
    """Where intervals have gone."""

    slots: Ints
    """The session of each interval."""
    joined: Ints
    """Sessions that have become part of others, and are there no more."""
    into: Ints
    """These others, of each of `joined`."""
    fresh: Ints
    """Sessions that are new."""


class SessionIndex:
    """Sessions by slot, a number that is given to another session when one is gone.

    Example:
        >>> index = SessionIndex()
        >>> index.place(np.array([0, 0]), np.array([10, 40]), np.array([20, 50])).slots
        array([0, 1])
        >>> index.place(np.array([0]), np.array([15]), np.array([45]))
        Placed(slots=array([0]), joined=array([1]), into=array([0]), fresh=array([], dtype=int64))
        >>> index.starts[0].item(), index.ends[0].item(), len(index)
        (10, 50, 1)
    """

    def __init__(self) -> None:
        self.keys, self.starts, self.ends, self._older = (np.zeros(0, np.int64) for _ in range(4))
        self.is_open = np.zeros(0, np.bool_)
        self._free = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        """By key its last session."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """A number above all slots."""
        return len(self.keys)

    def open_slots(self) -> Ints:
        """Return the slots of all sessions."""
        return np.flatnonzero(self.is_open)

    def place(self, keys: Ints, starts: Ints, ends: Ints) -> Placed:
        """Have intervals be in sessions: in new ones, in open sessions that they overlap, or join.

        Args:
            keys: small numbers, ascending.
            starts: ascending in each key.
            ends: behind the starts. An interval that begins where another ends does not overlap it.
        """
        more = int(keys[-1]) + 1 - len(self._last) if len(keys) else 0
        if more > 0:
            self._last = np.concatenate([self._last, np.full(max(more, len(self._last)), _NONE)])
        is_first = np.ones(len(keys), np.bool_)
        is_first[1:] = keys[1:] != keys[:-1]
        firsts = np.flatnonzero(is_first)
        slots, of_key, tails = self._chains(keys[firsts], starts[firsts])
        numbers = np.cumsum(is_first) - 1
        given = len(keys)
        if len(slots):
            numbers = np.concatenate([numbers, of_key])
            starts = np.concatenate([starts, self.starts[slots]])
            ends = np.concatenate([ends, self.ends[slots]])
            order = np.lexsort((starts, numbers))
            numbers, starts, ends = numbers[order], starts[order], ends[order]
        else:
            order = np.arange(given)
        begins = _begins(numbers, starts, ends)
        heads = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        # who is there already: the first session of each group stays, and the others join it
        is_old = order >= given
        olds = np.flatnonzero(is_old)
        mine = np.full(len(heads), _NONE)
        mine[group[olds][::-1]] = slots[order[olds] - given][::-1]
        fresh = np.flatnonzero(mine < 0)
        mine[fresh] = self._allocated(len(fresh))
        stays = mine[group]
        placed = np.empty(given, np.int64)
        placed[order[~is_old]] = stays[~is_old]
        old_slots, into = slots[order[olds] - given], stays[olds]
        goes = old_slots != into
        joined = old_slots[goes]
        self.is_open[joined] = False
        self._free = np.concatenate([self._free, joined])
        self.is_open[mine] = True
        self._count += len(fresh) - len(joined)
        group_keys = keys[firsts][numbers[heads]]
        self.keys[mine] = group_keys
        self.starts[mine] = starts[heads]
        self.ends[mine] = np.maximum.reduceat(ends, heads) if len(heads) else ends
        self._link(mine, numbers[heads], group_keys, tails)
        return Placed(placed, joined, into[goes], mine[fresh])

    def _chains(self, keys: Ints, lows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the sessions of keys that end after a time, the place of their key, and for each key what is older."""
        tails = np.full(len(keys), _NONE)
        places, current = np.arange(len(keys)), self._last[keys]
        before = np.full(len(keys), np.iinfo(np.int64).max)
        found: list[Ints] = []
        of_key: list[Ints] = []
        while len(places):
            # a session that is gone ends the chain, even if its slot has a new one: what was older is gone, too
            known = current >= 0
            if known.any():
                known &= self.is_open[current] & (self.keys[current] == keys[places]) & (self.starts[current] < before)
            places, current = places[known], current[known]
            is_past = self.ends[current] <= lows[places]
            tails[places[is_past]] = current[is_past]
            places, current = places[~is_past], current[~is_past]
            if not len(places):
                break
            found.append(current)
            of_key.append(places)
            before, current = self.starts[current], self._older[current]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), tails
        return np.concatenate(found), np.concatenate(of_key), tails

    def _link(self, slots: Ints, numbers: Ints, keys: Ints, tails: Ints) -> None:
        """Chain sessions, by key and in ascending order, to older sessions."""
        if not len(slots):
            return
        is_first = np.ones(len(slots), np.bool_)
        is_first[1:] = numbers[1:] != numbers[:-1]
        older = np.empty(len(slots), np.int64)
        older[1:] = slots[:-1]
        older[is_first] = tails
        self._older[slots] = older
        is_last = np.append(is_first[1:], True)
        self._last[keys[is_last]] = slots[is_last]

    def _allocated(self, count: int) -> Ints:
        if len(self._free) < count:
            old = self.room
            room = max(_ROOM, 2 * old, old + count)
            for name in ("keys", "starts", "ends", "_older", "is_open"):
                values = getattr(self, name)
                setattr(self, name, np.concatenate([values, np.zeros(room - old, values.dtype)]))
            self._free = np.concatenate([np.arange(room - 1, old - 1, -1), self._free])
        taken = self._free[len(self._free) - count :][::-1]
        self._free = self._free[: len(self._free) - count]
        return taken

    def close(self, below: int | None) -> tuple[Ints, int | None]:
        """Let the sessions go that end before a time, or all.

        Returns:
            their slots, by end; what is known of them holds until the next call of `place`. And the least end of
            the sessions that are left, None for none.
        """
        slots = self.open_slots()
        ends = self.ends[slots]
        gone = slots if below is None else slots[ends < below]
        left = ends[:0] if below is None else ends[ends >= below]
        gone = gone[np.argsort(self.ends[gone], kind="stable")]
        self.is_open[gone] = False
        self._free = np.concatenate([self._free, gone])
        self._count -= len(gone)
        return gone, int(left.min()) if len(left) else None

    def renumber(self, kept: Ints) -> None:
        """Give keys other numbers: each key the place that it has in an array; sessions of other keys are gone."""
        places = np.zeros(len(self._last), np.int64)
        places[kept] = np.arange(len(kept))
        slots = self.open_slots()
        self.keys[slots] = places[self.keys[slots]]
        self._last = self._last[kept]


def _begins(numbers: Ints, starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Tell which intervals, in the order of their keys' numbers and of their starts, overlap none of those before."""
    begins = np.ones(len(starts), np.bool_)
    if len(starts) < 2:
        return begins
    low = int(starts.min())
    width = int(ends.max()) - low + 1
    shifts: Any = numbers
    above: Any = starts
    until: Any = ends
    if (int(numbers[-1]) + 1) * width >= _WIDEST:  # times that are too far apart are counted in Python's integers
        shifts, above, until = (values.astype(object) for values in (numbers, starts, ends))
    shifts = shifts * width
    reach = np.maximum.accumulate(until - low + shifts)
    begins[1:] = (above - low + shifts)[1:] >= reach[:-1]
    return begins
