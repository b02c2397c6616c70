"""Reads the logs of a map: what is new in all environments, in the order of each partition, and how far it has come.

Loads numpy, so it is imported where a journal is read and not by all who have maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from shmjet.data.errors import MemberLostError
from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.changes import ADDED, EVENT, REMOVED, UPDATED
from shmjet.grid.entries import EntryCodec, without_collector
from shmjet.grid.errors import GridError
from shmjet.grid.log import Piece
from shmjet.grid.map_event import MapEvent, Position

Moments = np.ndarray[Any, np.dtype[np.uint64]]
"""When events were written, by the clock of their store."""
_NO_MOMENTS: Moments = np.zeros(0, np.uint64)

_partition_of = attrgetter("partition")
_KINDS = {ADDED: "added", UPDATED: "updated", REMOVED: "removed"}
_PIECES_AT_ONCE = 8
"""Pieces of a log that may be read at once without any event that is new."""


class Log(Protocol):
    """A map's log in one environment, here or elsewhere."""

    def read_log(self, number: int | None) -> Piece:
        """Return events from a number on, or the end of the log for None."""

    def last_write(self) -> int | None:
        """Return the number of the last write to the environment; None where that costs as much as to read."""


class _Place:
    """How far a log has been read, and what of that has not been handed out."""

    def __init__(self, log: Log, position: Position) -> None:
        self.log = log
        self.incarnation, self.handed = position[0], dict(position[1])
        self.read = dict(self.handed)
        self.number = 0
        self.is_behind = bool(self.read)
        """Whether events may come that have been handed out by another reader."""
        self.has_more = False
        self.events: list[MapEvent] = []
        self.moments = _NO_MOMENTS
        """Of `events`, which wait."""
        self.seen: int | None = None
        """The last write after which there was nothing new."""

    @property
    def is_still(self) -> bool:
        """Whether there is certainly nothing new."""
        return self.seen is not None and self.log.last_write() == self.seen

    def hand_out(self, until: int | None) -> tuple[list[MapEvent], Moments]:
        """Return what waits, up to a moment, and the moments."""
        events, moments = self.events, self.moments
        if until is None or moments[-1] <= until:
            self.events, self.moments, self.handed = [], _NO_MOMENTS, dict(self.read)
            return events, moments
        count = int(np.searchsorted(moments, until, "right"))
        self.events, self.moments = events[count:], moments[count:]
        some = events[:count]
        for partition, last in dict(zip(map(_partition_of, some), some, strict=True)).items():
            self.handed[partition] = last.sequence + (last.lost or 1)
        return some, moments[:count]


class _Heads(NamedTuple):
    """What events begin with, in columns."""

    kinds: list[int]
    partitions: list[int]
    sequences: list[int]
    moments: Moments
    lengths: list[int]
    """Bytes of the entries as they were before; empty where all are 0."""

    @classmethod
    def of(cls, events: list[bytes]) -> _Heads:
        """Take them from stored events."""
        heads = np.frombuffer(b"".join([event[:_HEAD] for event in events]), _HEADS)
        kinds, partitions, sequences = (heads[name].tolist() for name in ("kind", "partition", "sequence"))
        lengths = heads["length"]
        moments = heads["moment"].astype(np.uint64)
        return cls(kinds, partitions, sequences, moments, lengths.tolist() if lengths.any() else [])


class JournalReader:
    """Reads the changes of a map; for one thread.

    Events of one partition come in their order, and those of others in the order of their moments, as far as they have
    been written when the reader looks.

    Args:
        label: how errors call the map.
        logs: those of its logs that are read, by environment.
        codec: turns entries into keys and values.
        start: "oldest": from the first event on, and what is gone of it is told as lost; "latest": from now on.
        positions: where another reader of the same logs has come to, which is stronger than `start`.
    """

    def __init__(
        self,
        label: str,
        logs: Mapping[int, Log],
        codec: EntryCodec,
        start: str = "oldest",
        positions: Mapping[int, Position] | None = None,
    ) -> None:
        self._label = label
        self._codec = codec
        self._store = 0
        known = positions or {}
        self._places = {index: _Place(log, known.get(index, (0, {}))) for index, log in logs.items()}
        for index, place in self._places.items():
            if start == "latest" and index not in known:
                end = place.log.read_log(None)
                place.incarnation, place.number = end.incarnation, end.number
                place.handed, place.read = dict(end.sequences), dict(end.sequences)

    @property
    def positions(self) -> dict[int, Position]:
        """What has been handed out of each log."""
        return {index: (place.incarnation, dict(place.handed)) for index, place in self._places.items()}

    def read(self) -> list[MapEvent]:
        """Return what is new, some thousand events at most; nothing when there is nothing.

        Raises:
            GridError: the map was destroyed; MemberLostError: the member that had it was lost.
        """
        with without_collector():
            return self._read_all()

    def _read_all(self) -> list[MapEvent]:
        places = self._places.values()
        for place in places:
            for _ in range(_PIECES_AT_ONCE):
                if place.events or (place.is_still and not place.has_more):
                    break
                self._read(place)
        until = min((place.moments[-1] for place in places if place.has_more and place.events), default=None)
        handed = [place.hand_out(until) for place in places if place.events]
        if len(handed) == 1:
            return handed[0][0]
        if not handed:
            return []
        events = [event for some, _ in handed for event in some]
        moments = np.concatenate([some for _, some in handed])
        if bool((moments[:-1] <= moments[1:]).all()):
            return events
        return list(map(events.__getitem__, np.argsort(moments, kind="stable").tolist()))

    def _read(self, place: _Place) -> None:
        piece = place.log.read_log(place.number)
        self._check(place, piece)
        events = piece.events
        heads = _Heads.of(events)
        moment = heads.moments[:1] if events else np.zeros(1, np.uint64)
        for partition, oldest in sorted(piece.sequences.items()):
            expected = place.read.get(partition, 0)
            if oldest > expected:
                lost = MapEvent("lost", None, None, None, partition, expected, oldest - expected)
                place.events.append(lost)
                place.moments = np.concatenate([place.moments, moment])
                place.read[partition] = oldest
        if place.is_behind:
            known = place.read
            events = [
                event
                for event, partition, sequence in zip(events, heads.partitions, heads.sequences, strict=True)
                if known.get(partition, 0) <= sequence
            ]
            heads = _Heads.of(events)
            place.is_behind = piece.has_more
        if events:
            place.events += self._decoded(heads, events)
            place.moments = np.concatenate([place.moments, heads.moments])
            last = dict(zip(heads.partitions, heads.sequences, strict=True))
            place.read.update((partition, sequence + 1) for partition, sequence in last.items())
        place.number = piece.number + len(piece.events)
        place.has_more = piece.has_more
        place.seen = None if piece.has_more else piece.transaction

    def _check(self, place: _Place, piece: Piece) -> None:
        if self._store and piece.store != self._store:
            raise MemberLostError(f"the member that had the journal of {self._label} was lost, and the rest of it")
        self._store = piece.store
        if place.incarnation and piece.incarnation != place.incarnation:
            raise GridError(f"{self._label} was destroyed while its journal was read; what came after is another one")
        place.incarnation = piece.incarnation

    def _decoded(self, heads: _Heads, events: list[bytes]) -> list[MapEvent]:
        """Return events of which the heads have been read; no Python function runs for each."""
        kinds, partitions, sequences, _, lengths = heads
        try:
            if not lengths:
                added, values = self._codec.columns(events, _HEAD)
                fields = (repeat("added"), added, repeat(None), values, partitions, sequences, repeat(0))
                return list(map(tuple.__new__, repeat(MapEvent), zip(*fields, strict=False)))
            before = self._pairs([event[_HEAD : _HEAD + length] for event, length in zip(events, lengths, strict=True)])
            after = self._pairs([event[_HEAD + length :] for event, length in zip(events, lengths, strict=True)])
        except BlobVanishedError:
            if len(events) > 1:
                return [self._decoded(_Heads.of([event]), [event])[0] for event in events]
            return [MapEvent("lost", None, None, None, partitions[0], sequences[0], 1)]
        old_keys, old_values = zip(*before, strict=True)
        new_keys, new_values = zip(*after, strict=True)
        keys = tuple(new if old is None else old for old, new in zip(old_keys, new_keys, strict=True))
        named = map(_KINDS.__getitem__, kinds)
        changed = (named, keys, old_values, new_values, partitions, sequences, repeat(0))
        return list(map(tuple.__new__, repeat(MapEvent), zip(*changed, strict=False)))

    def _pairs(self, stored: list[bytes]) -> list[tuple[Any, Any]]:
        """Return the key and value of stored entries, and a pair of None for an empty one."""
        pairs = self._codec.pairs(list(filter(None, stored)))
        if len(pairs) == len(stored):
            return pairs
        some = iter(pairs)
        return [next(some) if entry else _NOTHING for entry in stored]


_HEAD = EVENT.size
_HEADS = np.dtype([("kind", "u1"), ("partition", ">u2"), ("sequence", ">u8"), ("moment", ">u8"), ("length", ">u4")])
"""`EVENT`, for numpy."""
_NOTHING = (None, None)
