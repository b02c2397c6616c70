"""The processor of `builder(...).stream()`: an endless source of a user's functions.

The functions may block, so it is not cooperative and has a process of its own. Must not know: builders. After Jet's
`ConvenientSourceP`.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic_ns, thread_time_ns, time_ns
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.processor import ProcessorContext
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.user_functions import SourceBuffer, SourceFunctions
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

LONGEST_PAUSE = 2.0
"""Seconds after which a function that brings nothing is called again at the latest."""
_SHORTEST_PAUSE = 0.0005
_PATIENCE = 32
"""A function that has brought nothing for some time is called again after one part in so many of that time."""
_BLOCKED_NS = 1_000_000
"""A call that takes so long and uses the processor for less than half of that time has waited by itself."""
_MS = 1_000_000


class BuiltStreamProcessor(TimedSource):
    """Emits what `fill_buffer` puts into the buffer, call by call, until that closes it.

    Args:
        functions: of the user.
        policy: of its event time; None: it has none.
    """

    state_kind = "a built stream"
    is_cooperative = False

    def __init__(self, functions: SourceFunctions, policy: EventTimePolicy | None) -> None:
        super().__init__(policy)
        self._functions = functions
        self._is_native = policy is not None and policy.timestamps == "native"
        self._created = False
        self._final: list[Any] | None = None
        """The state at the end, when the object has gone."""
        self._states: dict[int, Any] = {}
        self._latest = 0
        """The last timestamp that was the time at which an item came."""

    def start(self, context: ProcessorContext) -> None:
        """Create the user's object."""
        self._saves_at_end = context.snapshotting_enabled
        self._buffer: SourceBuffer[Any] = SourceBuffer()
        self._object = self._functions.create(context)
        self._created = True
        self._heard_ns = monotonic_ns()

    def read(self) -> Iterable[PartitionItems]:
        """Have the buffer filled once."""
        buffer = self._buffer
        begun, used = monotonic_ns(), thread_time_ns()
        self._functions.fill_buffer(self._object, buffer)
        self.ended = buffer.is_closed
        if not buffer:
            self.read_again = self._pause(begun, used)
            return ()
        self.read_again = 0.0
        self._heard_ns = monotonic_ns()
        native = buffer.take_timestamps(self._time_now()) if self._is_native else None
        return [PartitionItems(buffer.take(), 0, native)]

    def _time_now(self) -> int:
        """Return the time now for items without a timestamp; not below the watermark when the clock was set back."""
        passed = None if self.mapper is None else self.mapper.watermark
        self._latest = max(self._latest, time_ns() // _MS, self._latest if passed is None else passed)
        return self._latest

    def _pause(self, begun_ns: int, used_ns: int) -> float:
        """Return how long to wait after a call that has brought nothing; not at all if that has waited itself."""
        now = monotonic_ns()
        if now - begun_ns >= max(_BLOCKED_NS, 2 * (thread_time_ns() - used_ns)):
            return 0.0
        return min(max((now - self._heard_ns) / 1e9 / _PATIENCE, _SHORTEST_PAUSE), LONGEST_PAUSE)

    def complete(self) -> bool:
        """Emit what is there; at the end keep the object's state, and destroy the object."""
        if not super().complete():
            return False
        if self._final is None:
            self._final = self._created_state() if self.context.snapshotting_enabled else []
        self.close()  # here what it raises fails the job
        return True

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        """Return the object's state; at the end that which it had before it went."""
        state = self._created_state() if self._final is None else self._final
        return [(BroadcastKey(self.context.global_index), value) for value in state]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the states of all processors."""
        self._states.update((key.key, state) for key, state in entries)

    def finish_snapshot_restore(self) -> bool:
        """Give the object the states, in the order of the processors."""
        states, self._states = [state for _, state in sorted(self._states.items())], {}
        if states and self._functions.restore_snapshot is None:
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot has a state of it, but there is no "
                "restore_snapshot_fn"
            )
        if states and self._functions.restore_snapshot is not None:
            self._functions.restore_snapshot(self._object, states)
        return True

    def close(self) -> None:
        """Destroy the user's object, if that has not happened."""
        if self._created:
            self._created = False
            if self._functions.destroy is not None:
                self._functions.destroy(self._object)

    def _created_state(self) -> list[Any]:
        """Return the object's state, or nothing where no function makes one."""
        create = self._functions.create_snapshot
        return [] if create is None else [create(self._object)]
