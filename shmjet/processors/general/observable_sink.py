"""The sink of `sinks.observable`: it sends items to the member, which keeps the last ones for observers.

Must not know: who observes, and how many items are kept. After Jet's `WriteObservableP`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import NO_STATE, ProcessorContext, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.collect_sink import pickled

_FEW = 2
"""As long as fewer writes are unconfirmed, items do not wait for others."""
_MOST_UNCONFIRMED = 8
"""Writes that may be under way; then the processor waits, so that a slow member slows the job down."""
_LONGEST = 512 << 20
"""Bytes that one write may have."""


class WriteObservableProcessor(BulkProcessor):
    """Sends items at once while the member keeps up, else together: as many and as late as the latency policy allows.

    Args:
        name: of the observable.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._buffer: list[Any] = []
        self._due = 0.0
        self._writer: Any = None
        self.next_call = math.inf

    def start(self, context: ProcessorContext) -> None:
        """Connect to the member."""
        policy = policy_in(context)
        self._delay_s, self._most = policy.write_delay_ns / 1e9, policy.write_items
        opening = getattr(context.grid, "open_observable", None)
        if opening is None:
            raise ProcessorError(
                f"vertex {context.vertex_name!r}: there are no observables where it runs; use sinks.collect()"
            )
        self._writer = opening(self._name)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Take all items, and send them if the member keeps up."""
        if not self._buffer:
            self._due = monotonic() + self._delay_s
        self._buffer += inbox.take()
        self._send_if_due()

    def try_process(self) -> bool:
        """Send what has waited long enough."""
        self._send_if_due()
        return True

    def save_to_snapshot(self) -> bool:
        """Send what came before the barrier."""
        self._send()
        self._writer.wait()
        return True

    def finish(self) -> bool:
        """Send the rest, and wait until the member has all: observers are told of the end after that."""
        return self.save_to_snapshot()

    def close(self) -> None:
        """Send what is left after an error, too, and disconnect."""
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._send()
                self._writer.wait()
            self._writer.close()

    def _send_if_due(self) -> None:
        if self._buffer:
            is_due = len(self._buffer) >= self._most or monotonic() >= self._due
            if is_due or self._writer.unconfirmed < _FEW:
                self._send()
        self.next_call = max(0.0, self._due - monotonic()) if self._buffer else math.inf

    def _send(self) -> None:
        items, self._buffer = self._buffer, []
        for at in range(0, len(items), self._most):
            piece = items[at : at + self._most]
            data = b"".join(pickled(piece))
            if len(data) > _LONGEST:
                raise ProcessorError(
                    f"observable {self._name!r}: {len(piece)} items have {len(data)} bytes, more than {_LONGEST}; use "
                    "sinks.collect(), or send less of each"
                )
            self._writer.wait(_MOST_UNCONFIRMED)
            self._writer.write(len(piece), data)


class WriteObservableSupplier(ProcessorMetaSupplier):
    """Makes the processors; the client and the coordinator read from it which observable a job writes to.

    Args:
        observable: its name.
    """

    preferred_local_parallelism = 1
    is_cooperative = True
    state_kind = NO_STATE

    def __init__(self, observable: str) -> None:
        self.observable = observable

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return a supplier that is the same everywhere."""
        return dict.fromkeys(addresses, ProcessorSupplier.of(Supply(WriteObservableProcessor, self.observable)))
