"""Reads the logs of a map: what is new in all environments, in the order of each partition, and how far it has come.

Loads numpy, so it is imported where a journal is read and not by all who have maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from shmjet._native import journal_events, journal_parts
from shmjet.data.errors import MemberLostError
from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.changes import ADDED, REMOVED, UPDATED, Event
from shmjet.grid.entries import EntryCodec, without_collector
from shmjet.grid.errors import GridError
from shmjet.grid.log import Piece
from shmjet.grid.map_event import MapEvent, Position

Moments = np.ndarray[Any, np.dtype[np.uint64]]
"""When events were written, by the clock of their store."""
_NO_MOMENTS: Moments = np.zeros(0, np.uint64)

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
        self.incarnation, self.read = position[0], dict(position[1])
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

    @property
    def position(self) -> Position:
        """What has been handed out: all that was read but what waits."""
        handed = dict(self.read)
        for event in reversed(self.events):
            handed[event.partition] = event.sequence
        return self.incarnation, handed

    def has_read(self, data: bytes) -> bool:
        """Say whether a stored event is before the next one of its partition."""
        event = Event.unpack(data)
        return event.sequence < self.read.get(event.partition, 0)

    def add_lost(self, partition: int, first: int, following: int, moment: int) -> None:
        """Note that events of a partition are gone, from one on up to another."""
        self.events.append(MapEvent("lost", None, None, None, partition, first, following - first))
        self.moments = np.append(self.moments, np.uint64(moment))
        self.read[partition] = following

    def add(self, events: list[MapEvent], moments: Moments, following: Mapping[int, int]) -> None:
        """Take events that have been read, and the sequences that follow them by partition."""
        self.events += events
        self.moments = np.concatenate([self.moments, moments]) if len(self.moments) else moments
        self.read.update(following)

    def hand_out(self, until: int | None) -> tuple[list[MapEvent], Moments]:
        """Return what waits, up to a moment, and the moments."""
        events, moments = self.events, self.moments
        if until is None or moments[-1] <= until:
            self.events, self.moments = [], _NO_MOMENTS
            return events, moments
        count = int(np.searchsorted(moments, until, "right"))
        if not count:
            return [], _NO_MOMENTS
        self.events, self.moments = events[count:], moments[count:]
        return events[:count], moments[:count]


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
        unreadable: takes what unpickling an event raised, which is told as lost then; None: `read` raises it.
    """

    def __init__(
        self,
        label: str,
        logs: Mapping[int, Log],
        codec: EntryCodec,
        start: str = "oldest",
        positions: Mapping[int, Position] | None = None,
        unreadable: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._label = label
        self._unreadable = unreadable
        self._codec = codec
        self._store = 0
        known = positions or {}
        self._places = {index: _Place(log, known.get(index, (0, {}))) for index, log in logs.items()}
        for index, place in self._places.items():
            if start == "latest" and index not in known:
                end = place.log.read_log(None)
                place.incarnation, place.number = end.incarnation, end.number
                place.read = dict(end.sequences)

    @property
    def positions(self) -> dict[int, Position]:
        """What has been handed out of each log."""
        return {index: place.position for index, place in self._places.items()}

    def read(self) -> list[MapEvent]:
        """Return what is new, some thousand events at most; nothing when there is nothing.

        Raises:
            GridError: the map was destroyed; MemberLostError: the member that had it was lost. What unpickling a key or
            value raises, where `unreadable` does not take it: the next call begins with the same events.
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
        handed = [some for place in places if place.events and (some := place.hand_out(until))[0]]
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
        for partition, oldest in sorted(piece.sequences.items()):
            expected = place.read.get(partition, 0)
            if oldest > expected:
                place.add_lost(partition, expected, oldest, Event.unpack(events[0]).moment if events else 0)
        if place.is_behind:
            events = [data for data in events if not place.has_read(data)]
            place.is_behind = piece.has_more
        if events:
            packed, moments, following = journal_parts(events)
            place.add(self._decoded(events, packed), np.frombuffer(moments, np.uint64), following)
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

    def _decoded(self, events: list[bytes], packed: bytes) -> list[MapEvent]:
        """Return events whose entries have been packed; no Python function runs for each."""
        try:
            return journal_events(MapEvent, _KINDS, events, self._codec.parts(packed))
        except (Exception, SystemExit) as error:
            is_vanished = isinstance(error, BlobVanishedError)
            if not is_vanished and self._unreadable is None:
                raise
            if len(events) > 1:
                return [self._decoded([event], journal_parts([event])[0])[0] for event in events]
            if not is_vanished and self._unreadable is not None:
                self._unreadable(error)
            event = Event.unpack(events[0])
            return [MapEvent("lost", None, None, None, event.partition, event.sequence, 1)]


_NAMES = {ADDED: "added", UPDATED: "updated", REMOVED: "removed"}
_KINDS = tuple(_NAMES.get(kind, "") for kind in range(max(_NAMES) + 1))
"""What events are called, by the numbers of their kinds."""
