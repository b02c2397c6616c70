"""The changes of a map, as they are read: one after the other, in the order of each partition.

`JournalReader` asks the logs of all environments what is new, and keeps how far it has come in each partition.
`Journal` makes it an iterator that waits, `Listener` a thread that calls a function.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.grid.blobs import BlobVanishedError
from shmjet.grid.changes import ADDED, REMOVED, UPDATED, Event
from shmjet.grid.entries import EntryCodec
from shmjet.grid.errors import GridError
from shmjet.grid.log import Piece

Position = tuple[int, dict[int, int]]
"""Of one log: the incarnation of the map there, 0 if it was not there, and the next sequence by partition."""

_KINDS = {ADDED: "added", UPDATED: "updated", REMOVED: "removed"}
STARTS = ("oldest", "latest")
_PIECES_AT_ONCE = 8
"""Pieces of a log that may be read at once without any event that is new."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.0005, 0.02
_LONGEST_WAIT_AFAR = 0.1

logger = logging.getLogger("shmjet.grid")


class MapEvent(NamedTuple):
    """One change of a map.

    Args:
        kind: "added", "updated", "removed", or "lost": the reader was overtaken, and events are missing.
        key: of the entry; None of lost events.
        old: its value before, None where it was added.
        new: its value now, None where it was removed.
        partition: of the key.
        sequence: its place among the events of the partition, from 0; of "lost" the first that is missing.
        lost: how many are missing; 0 but for "lost".

    Example:
        >>> MapEvent("added", "a", None, 1, 7, 0).new
        1
    """

    kind: str
    key: Any
    old: Any
    new: Any
    partition: int
    sequence: int
    lost: int = 0


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
        self.has_more = False
        self.waiting: list[_Waiting] = []
        self.seen: int | None = None
        """The last write after which there was nothing new."""

    @property
    def is_still(self) -> bool:
        """Whether there is certainly nothing new."""
        return self.seen is not None and self.log.last_write() == self.seen

    def hand_out(self, until: int | None) -> list[_Waiting]:
        """Return what waits, up to a moment."""
        count = len(self.waiting) if until is None else bisect_right(self.waiting, until, key=_moment)
        out, self.waiting = self.waiting[:count], self.waiting[count:]
        for _, event in out:
            self.handed[event.partition] = event.sequence + (event.lost or 1)
        return out


_Waiting = tuple[int, MapEvent]
_moment: Any = itemgetter(0)


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
        places = self._places.values()
        for place in places:
            for _ in range(_PIECES_AT_ONCE):
                if place.waiting or (place.is_still and not place.has_more):
                    break
                self._read(place)
        until = min((place.waiting[-1][0] for place in places if place.has_more and place.waiting), default=None)
        out = [waiting for place in places if place.waiting for waiting in place.hand_out(until)]
        out.sort(key=_moment)
        return [event for _, event in out]

    def _read(self, place: _Place) -> None:
        piece = place.log.read_log(place.number)
        self._check(place, piece)
        events = [Event.unpack(data) for data in piece.events]
        moment = events[0].moment if events else 0
        for partition, oldest in sorted(piece.sequences.items()):
            expected = place.read.get(partition, 0)
            if oldest > expected:
                lost = MapEvent("lost", None, None, None, partition, expected, oldest - expected)
                place.waiting.append((moment, lost))
                place.read[partition] = oldest
        events = [event for event in events if event.sequence >= place.read.get(event.partition, 0)]
        place.waiting += zip([event.moment for event in events], self._decoded(events), strict=True)
        place.read.update((event.partition, event.sequence + 1) for event in events)
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

    def _decoded(self, events: list[Event]) -> list[MapEvent]:
        try:
            pairs: Iterator[Any] = iter(self._codec.pairs([part for event in events for part in event[4:] if part]))
        except BlobVanishedError:
            return [self._decoded_alone(event) for event in events]
        return [_event(event, pairs) for event in events]

    def _decoded_alone(self, event: Event) -> MapEvent:
        """Return an event; a lost one where it names a file that has gone with it meanwhile."""
        try:
            return _event(event, iter(self._codec.pairs([part for part in event[4:] if part])))
        except BlobVanishedError:
            return MapEvent("lost", None, None, None, event.partition, event.sequence, 1)


def _event(event: Event, pairs: Iterator[Any]) -> MapEvent:
    kind, partition, sequence = event[:3]
    key = old = new = None
    if event.old:
        key, old = next(pairs)
    if event.new:
        key, new = next(pairs)
    return MapEvent(_KINDS[kind], key, old, new, partition, sequence)


class Journal(Iterator[MapEvent]):
    """The endless iterator of `IMap.journal`: waits where there is nothing new.

    Args:
        reader: reads.
        is_far: each look costs a round trip.
    """

    def __init__(self, reader: JournalReader, *, is_far: bool) -> None:
        self._reader = reader
        self._waits = Waits(is_far=is_far)
        self._events: deque[MapEvent] = deque()
        self._stopped = threading.Event()

    def __next__(self) -> MapEvent:
        while not self._events:
            if self._stopped.is_set():
                raise StopIteration
            self._events.extend(self._reader.read())
            if not self._events:
                self._stopped.wait(self._waits.next())
        self._waits.begin()
        return self._events.popleft()

    def close(self) -> None:
        """End the iteration, also while another thread waits in it."""
        self._stopped.set()
        self._events.clear()


class Waits:
    """How long to wait until the next look, longer and longer.

    Args:
        is_far: each look costs a round trip.
    """

    def __init__(self, *, is_far: bool) -> None:
        self._longest = _LONGEST_WAIT_AFAR if is_far else _LONGEST_WAIT
        self.begin()

    def begin(self) -> None:
        """Note that there was something."""
        self._wait = _SHORTEST_WAIT

    def next(self) -> float:
        """Return seconds, after a look that found nothing."""
        wait, self._wait = self._wait, min(self._longest, 2 * self._wait)
        return wait


class Listeners:
    """The listeners of one store in this process: they end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Listener, None] = {}

    def add(self, listener: Listener) -> None:
        """Start a listener."""
        with self._lock:
            self._running[listener] = None
        listener.start(self._ended)

    def close(self) -> None:
        """End all of them, and wait for that."""
        with self._lock:
            running = list(self._running)
        for listener in running:
            listener.remove()

    def _ended(self, listener: Listener) -> None:
        with self._lock:
            self._running.pop(listener, None)


class Listener:
    """Calls a function with each event, in a thread of its own.

    Args:
        label: how messages call the map.
        reader: reads.
        fn: the function.
        wanted: says whether an event is for it.
        is_far: each look costs a round trip.
    """

    def __init__(
        self,
        label: str,
        reader: JournalReader,
        fn: Callable[[MapEvent], object],
        wanted: Callable[[MapEvent], bool],
        *,
        is_far: bool,
    ) -> None:
        self._label = label
        self._reader = reader
        self._fn = fn
        self._wanted = wanted
        self._waits = Waits(is_far=is_far)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ended: Callable[[Listener], None]) -> None:
        """Begin; `ended` is called when it is over."""
        self._thread = threading.Thread(target=self._run, args=(ended,), name="shmjet-listener", daemon=True)
        self._thread.start()

    def remove(self) -> None:
        """End it. When this returns, the function is not called any more, unless it is what calls this."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, ended: Callable[[Listener], None]) -> None:
        try:
            while not self._stopped.is_set():
                events = self._reader.read()
                self._tell(events)
                if events:
                    self._waits.begin()
                else:
                    self._stopped.wait(self._waits.next())
        except (GridError, MemberLostError) as error:
            if not self._stopped.is_set():
                logger.warning("a listener of %s has ended: %s", self._label, error)
        except ShmjetError as error:  # the instance is being shut down
            logger.debug("a listener of %s has ended: %s", self._label, error)
        finally:
            ended(self)

    def _tell(self, events: Iterable[MapEvent]) -> None:
        for event in filter(self._wanted, events):
            if self._stopped.is_set():
                return
            with _logged(self._label):
                self._fn(event)


@contextlib.contextmanager
def _logged(label: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("a listener of %s has raised an error, and goes on with the next event", label)
