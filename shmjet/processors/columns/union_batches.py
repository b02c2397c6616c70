"""The union of several inputs of batches, and the check that all of them have columns of the same names.

A processor may see batches of some inputs only, so each tells one checking processor the columns that it has seen.
Must not know how batches are shared between processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.errors import BatchError
from shmjet.processors.general.base import BulkProcessor, Supply, require_batches

if TYPE_CHECKING:
    from shmjet.data.batch import Batch
    from shmjet.data.schema_heads import SchemaHeads


class UnionProcessor(BulkProcessor):
    """Hands batches on; on its last outbound edge it tells the columns of each input, once.

    After a restart they are told again, which does no harm, so there is nothing to save.

    Args:
        names: of the columns, in the order in which all batches give them; empty: that of input 0, once it is seen.
    """

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._first = names

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`; results go to all edges but the last."""
        from shmjet.data.schema_heads import SchemaHeads

        self._heads: dict[int, SchemaHeads] = {}
        self._new_heads = SchemaHeads
        self._telling: list[tuple[int, Batch]] = []
        self._last = outbox.bucket_count - 1
        self.main = tuple(range(self._last))
        super().init(outbox, context)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Hand on what there is room for."""
        self._tell()
        room = self.outbox.room(self.main)
        if not room:
            return
        items = inbox.take(room)
        require_batches("union", items)
        heads = self._heads.setdefault(ordinal, self._new_heads())
        for place, batch in enumerate(items):
            head = heads.before(batch)
            if head is not None:
                self._telling.append((ordinal, head))
                if not self._first and not ordinal:
                    self._first = batch.names
            if self._first and batch.names != self._first and set(batch.names) == set(self._first):
                items[place] = batch.select(*self._first)
        self.outbox.give(items, self.main)
        self._tell()

    def _tell(self) -> bool:
        """Send what is to be told as far as there is room; True when nothing is left."""
        while self._telling and self.outbox.room(self._last):
            self.outbox.offer(self._telling.pop(0), self._last)
        return not self._telling

    def complete(self) -> bool:
        """Tell what is left."""
        return self._tell() and super().complete()

    def save_to_snapshot(self) -> bool:
        """Tell what is left; there is nothing to save."""
        return self._tell() and super().save_to_snapshot()


class UnionCheckProcessor(BulkProcessor):
    """Compares the columns of all inputs of a union.

    Args:
        name: of the stage.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def start(self, context: ProcessorContext) -> None:
        """Begin without columns."""
        from shmjet.columns.stream_kinds import StreamKinds

        self._kinds = StreamKinds()
        self._names: dict[int, tuple[str, ...]] = {}

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Take what is told of inputs.

        Raises:
            BatchError: two inputs have other columns, or such as no column holds together.
        """
        for place, head in items:
            for other, names in self._names.items():
                more = [name for name in head.names if name not in names]
                less = [name for name in names if name not in head.names]
                if more or less:
                    here, there = (place, other) if more else (other, place)
                    which = f"which input {there} has not" if here != there else "which other batches of it have not"
                    raise BatchError(
                        f"{self._name}: input {here} has a column {(more or less)[0]!r}, {which}; "
                        "select the same columns on all inputs"
                    )
            self._names[place] = head.names
            try:
                self._kinds.add(head)
            except BatchError as error:
                raise BatchError(f"{self._name}: the inputs do not go together: {error}") from None


def union_batches(names: Sequence[str] = ()) -> Callable[[], Processor]:
    """Hand on the batches of all edges; the last outbound edge goes to `check_union`, on one processor.

    Args:
        names: of the columns of input 0, so that all batches have their order. Empty: not known before there are
            batches; a processor then goes by the first one of input 0, and leaves those as they are that come before.

    Example:
        >>> union = dag.new_vertex("union", union_batches())              # doctest: +SKIP
        >>> check = dag.new_vertex("check", check_union("union"), 1)      # doctest: +SKIP
        >>> dag.edge(from_(union, 1).to(check).all_to_one())              # doctest: +SKIP
    """
    return Supply(UnionProcessor, tuple(names))


def check_union(name: str) -> Callable[[], Processor]:
    """Compare the columns of the inputs of a union.

    Args:
        name: of the stage, for the message.

    Raises:
        BatchError: (in the job) two inputs have other columns.

    Example:
        >>> check = dag.new_vertex("check", check_union("union"), 1)      # doctest: +SKIP
    """
    return Supply(UnionCheckProcessor, name)
