"""The lookup of a stream's keys in a table: the stream on edge 0, the table's entries on all other edges.

Must not know: who sends entries. All edges are partitioned by the key, and those of the entries have a lower priority
number than edge 0, so that the table is whole when the stream comes. After Samza's stream-table join, on bounded data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import KeyFn, keys_of, plain
from shmjet.core.processor import Processor
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import Supply
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import Calls, OneCallProcessor
from shmjet.processors.general.state_keys import with_one_nan


class TableCalls(Calls):
    """Calls a function with an item and the table's value for its key.

    Args:
        key_fn: key of an item.
        fn: `fn(item, value)`.
    """

    def __init__(self, key_fn: KeyFn, fn: Callable[[Any, Any], Any]) -> None:
        self._key_fn = key_fn
        self._fn = fn
        self.table: dict[Any, Any] = {}

    def one(self, item: Any, stamp: int | None) -> Any:
        """Call the function for one item."""
        return self.values([item], None)[0]

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Call the function for a list."""
        get, fn = self.table.get, self._fn
        return [fn(item, get(key)) for key, item in zip(keys_of(self._key_fn, items), items, strict=True)]


class TableJoinProcessor(OneCallProcessor[TableCalls]):
    """Keeps the last value for each key, then joins the stream with it."""

    state_kind = "join_table"

    def __init__(
        self,
        key_fn: KeyFn,
        entry_keys: tuple[KeyFn | bool, ...],
        fn: Callable[[Any, Any], Any],
        timed: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        super().__init__(TableCalls(key_fn, fn), "map", timed, on_error)
        self._entry_keys = entry_keys
        self._table = self.calls.table

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Join items of edge 0, or put those of another edge into the table."""
        if ordinal == 0:
            super().process(ordinal, inbox)
            return
        items = inbox.take()
        entry_key = self._entry_keys[ordinal - 1]
        if entry_key is False:
            try:
                self._table.update(items)
            except (TypeError, ValueError) as error:
                raise ProcessorError(
                    f"vertex {self.context.vertex_name!r}: an entry for a table must be a (key, value) pair, or "
                    f"send_to(table, key_fn) has to name its key: {error}"
                ) from error
        else:
            assert not isinstance(entry_key, bool)
            self._table.update(zip(keys_of(entry_key, items), items, strict=True))

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the table."""
        return self._table.items()

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put entries back into the table."""
        self._table.update(with_one_nan(entries))


def join_table(
    key_fn: KeyFn,
    entry_keys: Sequence[KeyFn | bool],
    fn: Callable[[Any, Any], Any],
    *,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Emit `fn(item, value)` for each item of edge 0 and the table's value for its key, None when it has none.

    Args:
        key_fn: key of an item of edge 0; None: the item itself.
        entry_keys: for each of the edges 1, 2, ... the key function of its items, or False where they are
            `(key, value)` pairs. The last value for a key counts.
        fn: a result of None drops the item.
        timed: items of edge 0 are pairs `(timestamp, item)`; functions see the item, and results are pairs with its
            timestamp. Entries are bare.
        on_error: what is done with an item of edge 0 whose function raises; None: the job fails.

    Raises:
        TypeError: a function cannot be called. ValueError: without an edge of entries.

    Example:
        >>> join = join_table(lambda view: view["user"], [False], lambda view, name: (view["page"], name))
        >>> # dag.edge(from_(names).to(join_vertex, 1).partitioned(itemgetter(0)).priority(-1))
    """
    if not entry_keys:
        raise ValueError("join_table: expected at least one edge of entries, got none")
    if not callable(fn):
        raise TypeError(f"join_table: expected a function of item and value, got {type(fn).__name__}: {fn!r}")
    checked = tuple(key if isinstance(key, bool) else plain(key) for key in entry_keys)
    return Supply(TableJoinProcessor, plain(key_fn), checked, fn, timed, on_error)
