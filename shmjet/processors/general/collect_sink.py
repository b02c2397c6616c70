"""The processor of `collect()`: it writes results into a file that the client reads, see `collect`.

Must not know: what the client does with them.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from shmjet._native import index_of_special
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.errors import ProcessorError
from shmjet.ipc import unix_sockets
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.remote_results import RemoteFrameWriter, list_of, name_of
from shmjet.processors.general.result_frames import LENGTH, begin_stream, commit_streams
from shmjet.processors.general.spill_files import SpillErrors, spill_file, spill_folder
from shmjet.processors.general.state_keys import own_key
from shmjet.ring import pickling

if TYPE_CHECKING:
    from shmjet.data.batch import Batch


class CollectProcessor(BulkProcessor):
    """Writes what it gets where the client finds it.

    Under EXACTLY_ONCE the client reads a file up to where it has been committed. What is to be committed in phase two,
    a file's id and length, is the state; a processor that is restored commits it again. Results that travel through a
    list of the cluster come at least once.

    Args:
        address: of the client's socket.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._file: IO[bytes] | None = None
        self._socket: socket.socket | None = None
        self._remote: RemoteFrameWriter | None = None
        self._folder = ""
        self._id: bytes | None = None  # of a file that is committed
        self._end = 0
        self._uncommitted: dict[bytes, int] = {}
        self._empty = EmptyBatches()
        self.next_call = math.inf

    def start(self, context: ProcessorContext) -> None:
        """Make the file and hand it to the client."""
        self._folder = spill_folder(context.job_config.spill_folder)
        self._file = spill_file(self._folder, "collect()")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix_sockets.connect(self._socket, self._address)
            socket.send_fds(self._socket, [b"f"], [self._file.fileno()])
        except OSError as error:
            frames = list_of(context.grid, self._address)
            if frames is not None:
                bell = context.grid.open_observable(name_of(self._address))  # type: ignore[union-attr]
                self._remote = RemoteFrameWriter(frames, bell, policy_in(context).result_delay_ns / 1e9)
                return
            raise ProcessorError(
                f"vertex {context.vertex_name!r}: no client collects its results ({error}); a job with collect() is "
                "executed by the process that made it, which keeps running until the job has ended"
            ) from error
        self._socket.setblocking(False)
        if context.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE:
            self._id = os.urandom(16)
            self._write(begin_stream(self._id))

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list; batches without rows wait, see `EmptyBatches`."""
        items = self._empty.taken_from(items)
        if items:
            self._put(items)

    def _put(self, items: list[Any]) -> None:
        assert self._file is not None
        parts = pickled(items)
        size = sum(memoryview(part).nbytes for part in parts)
        if self._remote is not None:
            self._remote.write([LENGTH.pack(size), *parts])
            self.next_call = math.inf if self._remote.send_if_due() else self._remote.patience
            return
        self._write([LENGTH.pack(size), *parts])
        self._notify()

    def try_process(self) -> bool:
        """Send what waits for more to go with it."""
        if self._remote is not None:
            self.next_call = math.inf if self._remote.send_if_due() else self._remote.patience
        return True

    def finish(self) -> bool:
        """Send what is left."""
        empty = self._empty.rest()
        if empty:
            self._put(empty)
        if self._remote is not None:
            self._remote.send()
        return True

    def close(self) -> None:
        """Let go of both; the client sees the socket's end. What is left after an error is sent first."""
        if self._remote is not None:
            with contextlib.suppress(Exception):
                self._remote.send()
            self._remote.close()
        for opened in (self._socket, self._file):
            if opened is not None:
                opened.close()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return what phase two commits; what waits is written, as a restored processor does not know of it."""
        empty = self._empty.rest()
        if empty:
            self._put(empty)
        if self._id is not None:
            self._uncommitted[self._id] = self._end
        key = own_key(self.context)
        return [(key, pair) for pair in self._uncommitted.items()]

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Let the client read what the snapshot has."""
        if success and self._uncommitted and self._file is not None:
            self._write(commit_streams(self._uncommitted))
            self._uncommitted = {}
            self._notify()
        return True

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take what was to be committed."""
        self._uncommitted.update(pair for _, pair in entries)

    def finish_snapshot_restore(self) -> bool:
        """Commit what the snapshot has, in case that its processor did not come to it."""
        return self.snapshot_commit_finish(True)

    def _write(self, parts: Sequence[Any]) -> None:
        assert self._file is not None
        left = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        with SpillErrors(self._folder, "collect()", "write results"):
            while left:
                written = os.writev(self._file.fileno(), left[:512])
                self._end += written
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if written:
                    left[0] = left[0][written:]

    def _notify(self) -> None:
        assert self._socket is not None
        try:
            self._socket.send(b".")
        except BlockingIOError:
            pass  # it has bytes enough to wake up for
        except OSError:
            pass  # it does not want more; the job goes on, as other sinks may matter


class EmptyBatches:
    """Keeps batches without rows back until the end, and those of a schema of which rows have come for good.

    They tell the columns of a result that has no rows, and each of many processors may tell them.
    """

    def __init__(self) -> None:
        self._waiting: dict[Any, Columnar] = {}
        self._told: set[Any] = set()

    def taken_from(self, items: list[Any]) -> list[Any]:
        """Return items without the batches that wait."""
        if index_of_special(items, 0, Columnar) < 0:
            return items
        kept = []
        for item in items:
            if isinstance(item, Columnar):
                batch = cast("Batch", item)
                schema = tuple(batch.schema.items())
                if not batch.num_rows:
                    self._waiting.setdefault(schema, batch)
                    continue
                self._told.add(schema)
            kept.append(item)
        return kept

    def rest(self) -> list[Any]:
        """Return the batches without rows of which no others have come, each once."""
        waiting = [batch for schema, batch in self._waiting.items() if schema not in self._told]
        self._told.update(self._waiting)
        self._waiting = {}
        return waiting


def pickled(items: list[Any]) -> Sequence[Any]:
    """Pickle a list; an error names the type of the item that cannot be pickled, not that of the list."""
    try:
        return pickling.dumps(items)
    except pickling.ItemEncodingError:
        for item in items:
            pickling.dumps(item)
        raise
