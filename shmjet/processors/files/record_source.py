"""The source that reads files of any format, packed or plain, of this host or through fsspec.

Must not know: how bytes become items (`record_reading`). Plain files of this host are cut into blocks that all
processors claim; packed and remote ones are claimed whole, the largest first. Files behind URLs are read in processes
of their own, because reading them may block for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shmjet.core.processor import MetaSupplierContext, Processor, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.processors.files.file_blocks import LARGEST_UNIT, unit_size
from shmjet.processors.files.file_reader import FileProcessor, FileReadOptions, Reader
from shmjet.processors.files.file_work import Cut, FileWork, last_changes
from shmjet.processors.files.paths import find, is_url
from shmjet.processors.files.record_reader import RecordReader, RecordReadOptions, is_stream
from shmjet.processors.general.claims import ClaimCounter

if TYPE_CHECKING:
    from shmjet.processors.csv.quote_seams import SeamTable
    from shmjet.processors.files.file_batches import Format

_OPEN_COST = 16 << 10
"""The fixed cost of a file, in bytes."""


class RecordProcessor(FileProcessor):
    """Reads the units that it claims."""

    def __init__(
        self,
        reading: RecordReadOptions,
        work: FileWork,
        claims: str | None,
        seams: str | None,
    ) -> None:
        common = FileReadOptions((), reading.encoding, reading.errors, False, False, LARGEST_UNIT, None, None)
        super().__init__(common, work, claims, seams)
        self._records = reading

    def _make_reader(self) -> Reader:
        self._plain = self._work.plain_units()
        return RecordReader(self._records, self._make_batches)

    def _batch_format(self) -> Format | None:
        return self._records.batches

    def _batch_reader(self) -> Any:
        assert isinstance(self._reader, RecordReader)
        return self._reader.batch_reader()

    def _make_batches(self, is_plain: bool) -> Reader:
        from shmjet.processors.files.file_batches import reader_of

        assert self._records.batches is not None
        return reader_of(self._records.batches, False, self._seams if is_plain else None, self._plain)


class RemoteRecordProcessor(RecordProcessor):
    """The same where reading may block for long."""

    is_cooperative = False


class RecordSupplier(ProcessorSupplier):
    """Makes the processors of one member."""

    def __init__(
        self,
        reading: RecordReadOptions,
        work: FileWork,
        claims: str | None,
        seams: str | None,
        is_remote: bool,
    ) -> None:
        self._arguments = reading, work, claims, seams
        self._make = RemoteRecordProcessor if is_remote else RecordProcessor
        self.is_cooperative = not is_remote

    def get(self, count: int) -> Sequence[Processor]:
        """Return processors that share the units."""
        return [self._make(*self._arguments) for _ in range(count)]


class RecordMetaSupplier(ProcessorMetaSupplier):
    """Finds the files and cuts them into units when an execution starts; it owns what processors share.

    Args:
        paths: files, folders, globs and URLs.
        reading: how to read.
    """

    state_kind = "read records"

    def __init__(self, paths: tuple[str, ...], reading: RecordReadOptions) -> None:
        self._paths = paths
        self._reading = reading
        self._files: list[tuple[str, int]] = []
        self._parallelism = 1
        self._saves = False
        self._counter: ClaimCounter | None = None
        self._table: SeamTable | None = None
        self._is_remote = any(map(is_url, paths))
        self.is_cooperative = not self._is_remote

    def init(self, context: MetaSupplierContext) -> None:
        """List files and sizes; infer a schema, if that is asked for.

        Raises:
            FileNotFoundError: when a path does not exist; it names it.
            BatchError: when no schema can be inferred.
        """
        self._files = find(self._paths, self._reading.options)
        self._parallelism = context.total_parallelism
        self._saves = context.snapshotting_enabled
        if self._reading.batches is not None:
            from shmjet.processors.files.record_schemas import prepared

            self._reading = replace(
                self._reading, batches=prepared(self._reading.batches, self._files, self._reading.options)
            )

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return the suppliers: with claims on the only member, with fixed shares on several."""
        claims = seams = None
        has_seams = self._has_seams()
        is_raw = self._reading.format == "raw"
        whole = _largest_first([entry for entry in self._files if is_raw or is_stream(entry[0])])
        plain = [entry for entry in self._files if not (is_raw or is_stream(entry[0]))]
        total = sum(size for _, size in plain) + _OPEN_COST * len(plain)
        size = unit_size(total, self._parallelism, LARGEST_UNIT)
        changed = last_changes(path for path, _ in (*whole, *plain)) if self._saves else ()
        cut: Cut = "whole" if has_seams and len(addresses) > 1 else "bytes"  # the table is in the memory of one host
        work = FileWork(self._paths, tuple(whole), tuple(plain), cut, size, changed)
        if len(addresses) == 1:
            self._counter = ClaimCounter()
            claims = self._counter.address
            if has_seams and (self._saves or any(length > size for _, length in plain)):
                from shmjet.processors.csv.quote_seams import SeamTable

                self._table = SeamTable(len(work.plain_units()))
                seams = self._table.address
        return dict.fromkeys(addresses, RecordSupplier(self._reading, work, claims, seams, self._is_remote))

    def close(self, error: BaseException | None) -> None:
        """Free the counter and the table."""
        for shared in (self._counter, self._table):
            if shared is not None:
                shared.close()

    def _has_seams(self) -> bool:
        if self._reading.batches is None:
            return False
        from shmjet.processors.files.file_batches import has_seams

        return has_seams(self._reading.batches)


def _largest_first(files: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return files in the order in which they are claimed; those of unknown size count as the largest."""
    return sorted(files, key=lambda entry: -entry[1] if entry[1] >= 0 else float("-inf"))
