"""The journal of a map, for its readers: an iterator, a function that is called, and a source of jobs.

`journal_reader` has what reads, `journal` what waits; here is which logs of the map are read, from where on, and which
events a listener wants. Must not know entries as they are now, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shmjet.core.map_config import MapConfig
from shmjet.data.errors import ConfigError
from shmjet.grid.entries import EntryCodec
from shmjet.grid.journal import Journal, Listener, Listeners, log_unreadable
from shmjet.grid.map_event import STARTS, MapEvent, Position

if TYPE_CHECKING:
    from shmjet.grid.journal_reader import JournalReader, Log


class MapJournal:
    """The changes of one map.

    Args:
        name: of the map.
        label: what its `repr` is.
        logs: of the map, one for each environment.
        codec: turns entries into keys and values.
        config: of the map.
        listeners: all that end together.
    """

    def __init__(
        self,
        name: str,
        label: str,
        logs: Sequence[Log],
        codec: EntryCodec,
        config: MapConfig,
        listeners: Listeners,
    ) -> None:
        self._name = name
        self._label = label
        self._logs = logs
        self._codec = codec
        self._config = config
        self._listeners = listeners

    def follow(self, start: str) -> Journal:
        """Return an iterator of the changes that waits for the next one; raises as `reader`."""
        return Journal(self.reader(start), is_far=self._is_far)

    def listen(self, fn: Callable[[MapEvent], object], key: Any) -> Callable[[], None]:
        """Call `fn` with each change from now on, of one key or (None) of all; return what ends that.

        Raises:
            TypeError: `fn` cannot be called, or `key` cannot be a key; ConfigError: the map has no journal.
        """
        if not callable(fn):
            raise TypeError(f"{self._label}: a listener must be a function, got {fn!r:.80} ({type(fn).__name__})")
        wanted = self._wanted(key)
        reader = self.reader("latest", unreadable=partial(log_unreadable, self._label))
        listener = Listener(self._label, reader, fn, wanted, is_far=self._is_far)
        self._listeners.add(listener)
        return listener.remove

    def reader(
        self,
        start: str,
        share: tuple[int, int] = (0, 1),
        positions: Mapping[int, Position] | None = None,
        unreadable: Callable[[BaseException], None] | None = None,
    ) -> JournalReader:
        """Return what reads the journal, in one thread.

        Args:
            start: "oldest" or "latest".
            share: (index, count): of the environments each one in `count`, from `index` on.
            positions, unreadable: see `JournalReader`.

        Raises:
            ConfigError: the map has no journal; ValueError: `start` is another text.
        """
        if start not in STARTS:
            raise ValueError(f'{self._label}: a journal is read from "oldest" or "latest", got {start!r}')
        if not self._config.journal_capacity:
            raise ConfigError(
                f"map {self._name!r} has no journal: give it one with JetConfig(maps={{{self._name!r}: "
                "MapConfig(journal_capacity=10_000)}), events that are kept"
            )
        from shmjet.grid.journal_reader import JournalReader

        index, count = share
        logs: dict[int, Log] = {at: self._logs[at] for at in range(index, len(self._logs), count)}
        return JournalReader(f"map {self._name!r}", logs, self._codec, start, positions, unreadable)

    def _wanted(self, key: Any) -> Callable[[MapEvent], bool]:
        if key is None:
            return lambda _: True
        partition, tail = self._codec.key(key)
        return lambda event: (
            event.partition == partition and (event.kind == "lost" or self._codec.key(event.key)[1] == tail)
        )

    @property
    def _is_far(self) -> bool:
        return self._logs[0].last_write() is None
