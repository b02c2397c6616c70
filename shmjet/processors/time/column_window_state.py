"""The state of windows on columns in snapshots: partial states by frame and key, in pieces by partition, and back.

Each piece has the next window of its processor. Where the processors of a vertex had come to different windows (idle
inputs make watermarks differ), all go on from the least one, and a window that a key has had is not emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.processor import ProcessorContext
from shmjet.processors.columns.groups_state import GroupsState
from shmjet.processors.time.first_stage import NEXT_WINDOW
from shmjet.processors.time.window_processor import NEVER

if TYPE_CHECKING:
    from shmjet.columns.frame_groups import FrameGroups
    from shmjet.columns.typed_groups import TypedGroups
    from shmjet.data.batch import Batch
    from shmjet.processors.time.grouped_windows import Grouped


def entries_of(
    frames: FrameGroups,
    keys: tuple[str, ...],
    following: int,
    context: ProcessorContext,
    emitted: RestoredWindows | None = None,
) -> Iterator[tuple[Any, Any] | None]:
    """Give the entries of frames, step by step; nothing may be added meanwhile.

    Args:
        frames: what is saved.
        keys: the key columns.
        following: the next window.
        context: of the processor.
        emitted: which keys have had later windows, if any.
    """
    yield NEXT_WINDOW, following
    if emitted is not None:
        yield BroadcastKey((EMITTED, context.global_index)), emitted.following
    groups = frames.empty_table()
    yield from frames.gather(groups)
    for entry in GroupsState(groups, keys, context).entries(0):
        yield None if entry is None else (entry[0], (entry[1], following))


EMITTED = "emitted"
"""Under a `BroadcastKey` (this, index): by key the next window, where that is a later one."""


class RestoredWindows:
    """What comes back of entries.

    Args:
        groups: an empty table.
        grouped: what is computed.
        context: of the processor.
    """

    def __init__(self, groups: TypedGroups, grouped: Grouped, context: ProcessorContext) -> None:
        self.groups = groups
        """All frames."""
        self.least = NEVER
        """The least of the next windows that were saved."""
        self.emitted_to = NEVER
        """The greatest of the next windows of keys, where that is not the least one."""
        self._has_next = False
        self._grouped = grouped
        self._state = GroupsState(groups, grouped.keys, context)
        self.following: dict[Any, int] = {}
        """By key the next window, where that is not the least one."""
        self._had: list[dict[Any, int]] = []
        self._pieces: list[tuple[int, int, int]] = []
        """Next window, first and last position of the groups of each piece."""

    def take(self, key: Any, value: Any) -> None:
        """Take one entry of `entries_of` of any processor.

        Raises:
            ProcessorError: its groups may belong to other processors. BatchError: they are those of other columns.
        """
        if key == NEXT_WINDOW:
            self.least = min(self.least, value) if self._has_next else value
            self._has_next = True
            return
        if isinstance(key, BroadcastKey) and isinstance(key.key, tuple) and key.key[0] == EMITTED:
            self._had.append(value)
            return
        entry, following = value
        before = len(self.groups)
        self._state.restore(key, self._cut_anew(entry))
        if len(self.groups) > before:
            self._pieces.append((following, before, len(self.groups)))

    def settled(self, following: int) -> bool:
        """Note which keys have had windows from one on; return whether there are any. Called when all is restored."""
        pieces, self._pieces = self._pieces, []
        for had, start, stop in pieces:
            if had > following:
                self.emitted_to = max(self.emitted_to, had)
                for key in self._keys_of(self.groups.key_columns(start, stop - start)):
                    self.following[key] = max(had, self.following.get(key, NEVER))
        for had_by_key in self._had:
            for key, had in had_by_key.items():
                if had > following:
                    self.emitted_to = max(self.emitted_to, had)
                    self.following[key] = max(had, self.following.get(key, NEVER))
        return bool(self.following)

    def _cut_anew(self, entry: Any) -> Any:
        """Return an entry with its frames as they are cut now: the slide may be another one."""
        from shmjet.columns.frame_groups import frames_of
        from shmjet.columns.frame_tables import FRAME
        from shmjet.data.batch import Batch

        if not isinstance(entry, tuple):
            return entry
        *form, states, positions = entry
        columns, masks = states.parts()
        ends: Any = columns[FRAME]
        if len(ends):
            ends, _ = frames_of(ends - 1, self._grouped.policy)
        made = {**columns, FRAME: ends}
        return (*form, Batch.trusted(made, dict(masks), states.num_rows), positions)

    def _keys_of(self, batch: Batch) -> list[Any]:
        keys = self._grouped.keys
        rows = batch.select(*keys).tuples() if keys else [()] * batch.num_rows
        return [tuple("\0nan" if value != value else value for value in row) for row in rows]

    def unemitted(self, found: Batch, ends: Any) -> Batch:
        """Return the results of the keys for which their windows have not been emitted.

        Args:
            found: results.
            ends: of the window of each row, or of that of all rows.
        """
        import numpy as np

        following = [self.following.get(key, NEVER) for key in self._keys_of(found)]
        return found.filter(np.array(following, np.int64) <= ends)
