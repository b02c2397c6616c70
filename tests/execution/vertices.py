"""Small processors that the tests of this floor build DAGs of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.core import AbstractProcessor, Inbox, Outbox, Processor, ProcessorContext, Watermark


class Emit(Processor):
    """Emits what `make(global_index, total_parallelism)` yields to all ordinals, watermarks included."""

    def __init__(self, make: Callable[[int, int], Iterable[Any]]) -> None:
        self._make = make

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._left = iter(self._make(context.global_index, context.total_parallelism))
        self._next = next(self._left, None)

    def complete(self) -> bool:
        while self._next is not None:
            if not self.outbox.offer(self._next):
                return False
            self._next = next(self._left, None)
        return True


class Pass(AbstractProcessor):
    """Hands every item on."""

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit(item)


class Collect(Processor):
    """Appends (index, ordinal, item) to a list of the grid; watermarks as ("wm", timestamp)."""

    def __init__(self, name: str = "out") -> None:
        self._name = name

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._list = context.grid.get_list(self._name)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._list += [(self.context.local_index, ordinal, item) for item in inbox.take()]

    def try_process_watermark(self, watermark: Watermark) -> bool:
        self._list.append((self.context.local_index, -1, watermark))
        return True
