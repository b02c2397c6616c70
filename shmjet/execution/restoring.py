"""What the processors of one process get back of a snapshot.

An entry goes to the processor that owns its key's partition now, that of a broadcast key to all of the vertex. A piece
of one partition is read by its owner only, if the vertex still has the same partitions, and a piece of one processor by
that one, if all partitions still have the same owners. If not, rows of many partitions come to all processors, each of
which takes some; the keys of all other pieces are brought to partitions anew. A processor that had ended does not run
again, unless it was one of a source that has had nothing to do, or such a one has fed it. Where a vertex has another
number of processors than before, that holds only if all of them had ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shmjet._native import Codec
from shmjet.core import ColumnKey, ProcessorError
from shmjet.core.key_functions import mapped
from shmjet.core.state_placement import OwnEntries, OwnRows
from shmjet.execution.code import EdgeCode
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.snapshot_orders import Place
from shmjet.execution.snapshot_steps import Share
from shmjet.execution.state_partitions import StatePartitions
from shmjet.ring.class_versions import ClassName
from shmjet.ring.frames import CODEC_PICKLE
from shmjet.snapshots.chunk import SCHEME_DEFAULT, SCHEME_ROWS, ChunkReader, Entry, PieceHead, UnreadableEntryError
from shmjet.snapshots.manifest import (
    BROADCAST,
    ENGINE,
    OWNED,
    Piece,
    ProcessorRecord,
    SavedVertex,
    read_manifest,
)

_CHECKED_BYTES: Final = 1 << 20
"""Pieces up to this size are read before anything runs."""


_TOGETHER_BYTES: Final = 256 << 10
"""A processor gets small pieces that it has saved together, up to about this size, as each call of it takes time."""


class Restoring:
    """A snapshot that is being restored in one process.

    Args:
        manifest: path of its manifest; the chunk files lie in the same folder.
        plan: of this member.
        edges: the code of its edges, in the plan's order.
        partitions: returns those of a vertex's state.
        codec: of this process.
        classes: of the job, by module and name, that it brings by value (`shmjet.ring.class_versions`).

    Raises:
        DamagedSnapshotError: the manifest cannot be read.
    """

    def __init__(
        self,
        manifest: str,
        plan: JobPlan,
        edges: Sequence[EdgeCode],
        partitions: Callable[[int], StatePartitions],
        codec: Codec,
        classes: Mapping[ClassName, type] | None = None,
    ) -> None:
        self._plan = plan
        self._edges = edges
        self._partitions = partitions
        self._saved = {vertex.name: vertex for vertex in read_manifest(manifest).vertices}
        self._reader = ChunkReader(Path(manifest).parent, codec, classes)
        self._mixed: dict[int, dict[int, list[list[Entry]]]] = {}
        self._known_heads: dict[Piece, PieceHead] = {}
        self._waiting: set[Place] = set()

    def expect(self, place: Place) -> None:
        """Take that a processor is to get its share: files are closed when all of these have theirs.

        A removed file would take its memory for as long as it is open here.
        """
        self._waiting.add(place)

    def _taken(self, place: Place) -> None:
        """Take that a processor has got all of its share."""
        self._waiting.discard(place)
        if not self._waiting:
            self.close()

    def share(self, place: Place) -> Share:
        """Return what one processor gets back.

        Args:
            place: of the processor, on this member.

        Raises:
            ProcessorError: some sources of a vertex had ended, others not, and nothing says what is left to read for
                the processors that it has now; or an entry cannot be unpickled.
            DamagedSnapshotError: a piece is torn, damaged or missing.
        """
        share = self._share(place)
        if share.is_finished:
            self._taken(place)
        return share

    def _share(self, place: Place) -> Share:
        v, p = place
        saved = self._saved.get(self._plan.vertices[v].name)
        if saved is None:
            self._taken(place)
            return Share(False, iter(()))
        me = self._plan.slot.index * self._plan.vertices[v].parallelism + p
        if self._is_as_before(v, saved):
            record = _record_of(saved, me)
            if record is not None and record.finished and not self._runs_again(v, saved, record):
                final = [entry for piece in record.pieces for entry in self._entries(v, piece)]
                return Share(True, iter(()), final=final, tells_rest=record.tells_rest)
        elif all(record.finished for record in saved.processors):
            tells_rest = all(record.tells_rest for record in saved.processors)
            return Share(True, iter(()), final=self._final(v, saved, me), tells_rest=tells_rest)
        elif not self._inbound(v) and any(record.finished and not record.tells_rest for record in saved.processors):
            ended = sum(record.finished for record in saved.processors)
            raise ProcessorError(
                f"vertex {saved.name!r} had {saved.parallelism} processors in the snapshot, {ended} had ended, "
                f"and has {self._total(v)} now: what is left to read is not known; start it with {saved.parallelism}"
            )
        return Share(False, self._lists(place, saved, me), self._heads(v, saved, me))

    def check(self, v: int) -> None:
        """Read some entries of a vertex, before anything runs: a class that is gone is mostly needed by all of them.

        Every process does this for all of its vertices, so a large piece is left to the processor that gets it back.

        Raises:
            ProcessorError, DamagedSnapshotError: as of `share`.
        """
        saved = self._saved.get(self._plan.vertices[v].name)
        for record in () if saved is None else saved.processors:
            piece = record.pieces[0] if record.pieces else None
            if piece and piece.size <= _CHECKED_BYTES and self._head(piece).codec == CODEC_PICKLE:
                self._entries(v, piece)
                return

    def _entries(self, v: int, piece: Piece) -> list[Entry]:
        """Return the entries of a piece of a vertex.

        Raises:
            DamagedSnapshotError: it is torn, damaged or missing.
            ProcessorError: an entry cannot be unpickled, as when its class is not there any more.
        """
        try:
            return self._reader.entries(piece)
        except UnreadableEntryError as error:
            name = self._plan.vertices[v].name
            raise ProcessorError(f"the saved state of vertex {name!r} cannot be read back: {error}") from error

    def close(self) -> None:
        """Close the files; idempotent."""
        self._reader.close()
        self._mixed.clear()
        self._known_heads.clear()

    def _head(self, piece: Piece) -> PieceHead:
        """Return the head of a piece: each processor here asks for those of all pieces of its vertex."""
        head = self._known_heads.get(piece)
        if head is None:
            head = self._known_heads[piece] = self._reader.head(piece)
        return head

    def _total(self, v: int) -> int:
        return self._plan.vertices[v].parallelism * self._plan.slot.count

    def _inbound(self, v: int) -> int:
        return self._plan.vertices[v].inbound

    def _is_as_before(self, v: int, saved: SavedVertex) -> bool:
        return saved.parallelism == self._total(v)

    # -- entries of processors ----------------------------------------------------------------------------------

    def _lists(self, place: Place, saved: SavedVertex, me: int) -> Iterator[list[Entry]]:
        """Yield the entries of one processor, a piece at a time, or several small ones of its own."""
        v, own, size = place[0], OwnEntries(), 0
        for record in saved.processors:
            ended = self._ended(v, saved, record)
            for piece in record.pieces:
                if self._is_of_rows(piece):
                    yield from self._own_rows(v, saved, record, piece, me)
                    continue
                owner = me if piece.partition == BROADCAST else self._owner(v, piece)
                if me != (record.processor if owner in ended else owner):
                    continue
                is_own = me == record.processor and piece.partition >= 0
                if own and (not is_own or size >= _TOGETHER_BYTES):
                    yield own
                    own, size = OwnEntries(), 0
                entries = self._entries(v, piece)
                if is_own:
                    own += entries
                    size += piece.size
                else:
                    yield entries
        if own:
            yield own
        yield from self._sorted_out(v, saved).pop(me, ())
        self._taken(place)

    def _is_of_rows(self, piece: Piece) -> bool:
        return piece.partition <= OWNED and self._head(piece).scheme == SCHEME_ROWS

    def _own_rows(
        self, v: int, saved: SavedVertex, record: ProcessorRecord, piece: Piece, me: int
    ) -> Iterator[list[Entry]]:
        """Yield what a processor takes of a piece with the rows of one: all, nothing, or those of its partitions."""
        now = self._partitions(v)
        if now.scheme == SCHEME_DEFAULT and self._head(piece).partition_count == now.checksum:
            if me == record.processor:
                yield self._entries(v, piece)
            return
        taken = bytes(owner == me for owner in self._owners(v, saved, record))
        if any(taken):
            yield [(OwnRows(key.number, taken), value) for key, value in self._entries(v, piece)]

    def _owner(self, v: int, piece: Piece) -> int | None:
        """Return the processor to which all of a piece belongs; None: it has to be sorted out by key."""
        if OWNED < piece.partition < 0:
            return None
        head, now = self._head(piece), self._partitions(v)
        if not head.scheme == now.scheme == SCHEME_DEFAULT:
            return None
        if piece.partition <= OWNED:
            return OWNED - piece.partition if head.partition_count == now.checksum else None
        return now.owners[piece.partition] if head.partition_count == now.count else None

    def _ended(self, v: int, saved: SavedVertex, record: ProcessorRecord) -> Collection[int]:
        """Return the processors that have ended, in whose place a processor gets back what it has saved for them."""
        if not self._is_as_before(v, saved) or record.finished:
            return ()
        return {
            other.processor for other in saved.processors if other.finished and not self._runs_again(v, saved, other)
        }

    def _runs_again(self, v: int, saved: SavedVertex, record: ProcessorRecord) -> bool:
        """Say whether a processor that had ended may have something to do now, as others of its vertex go on.

        That of a member without a part in a source has ended at once, and so has what only it feeds; the part
        may be its own now. On one member nothing moves.
        """
        if self._plan.slot.count == 1 or all(other.finished for other in saved.processors):
            return False
        if not self._inbound(v):
            return _has_had_nothing(record)
        return any(self._may_move(source) for source in self._sources(v))

    def _may_move(self, source: int) -> bool:
        """Say whether a part in a source may be another processor's than before."""
        saved = self._saved.get(self._plan.vertices[source].name)
        records = [] if saved is None else saved.processors
        ended = [record for record in records if record.finished]
        return len(ended) < len(records) and any(map(_has_had_nothing, ended))

    def _sources(self, v: int) -> set[int]:
        """Return the vertices without inbound edges from which items come to one."""
        before = {edge.source for edge in self._plan.edges if edge.destination == v}
        return set().union(*map(self._sources, before)) if before else {v}

    def _owners(self, v: int, saved: SavedVertex, record: ProcessorRecord) -> Sequence[int]:
        """Return partition -> processor for what a processor has saved: itself in place of the ended ones."""
        owners, ended = self._partitions(v).owners, self._ended(v, saved, record)
        return [record.processor if owner in ended else owner for owner in owners] if ended else owners

    def _sorted_out(self, v: int, saved: SavedVertex) -> dict[int, list[list[Entry]]]:
        """Return the entries of pieces of several partitions, for each processor of this process; read once."""
        if v in self._mixed:
            return self._mixed[v]
        found = self._mixed[v] = {}
        first = self._plan.slot.index * self._plan.vertices[v].parallelism
        here = range(first, first + self._plan.vertices[v].parallelism)
        for record in saved.processors:
            owners = self._owners(v, saved, record)
            for piece in record.pieces:
                if piece.partition in (BROADCAST, ENGINE) or self._is_of_rows(piece):
                    continue
                if self._owner(v, piece) is not None:
                    continue
                for partition, entries in enumerate(self._partitions(v).split(self._entries(v, piece))):
                    if entries is not None and owners[partition] in here:
                        found.setdefault(owners[partition], []).append(entries)
        return found

    def _final(self, v: int, saved: SavedVertex, me: int) -> list[Entry]:
        """Return the last entries that one of another number of processors keeps, all of which had ended."""
        entries: list[Entry] = [entry for entries in self._sorted_out(v, saved).pop(me, ()) for entry in entries]
        for record in saved.processors:
            for piece in record.pieces:
                if me == (0 if piece.partition == BROADCAST else self._owner(v, piece)):
                    entries += self._entries(v, piece)
        return entries

    # -- what ordered edges held --------------------------------------------------------------------------------

    def _heads(self, v: int, saved: SavedVertex, me: int) -> list[tuple[int, list[Any]]]:
        """Return the items that ordered edges held for a processor, by ordinal."""
        found: list[tuple[int, list[Any]]] = []
        for record in saved.processors:
            for piece in record.pieces:
                if piece.partition != ENGINE:
                    continue
                for (_, ordinal), items in self._entries(v, piece):
                    mine = self._share_of_head(v, saved, record.processor, me, ordinal, items)
                    if mine:
                        found.append((ordinal, mine))
        return found

    def _share_of_head(
        self, v: int, saved: SavedVertex, before: int, me: int, ordinal: int, items: list[Any]
    ) -> list[Any]:
        """Return the items of a head that are one processor's now: by key on a partitioned edge."""
        if self._is_as_before(v, saved):
            return items if before == me else []
        edges = zip(self._plan.edges, self._edges, strict=True)
        plan, code = next((e, c) for e, c in edges if e.destination == v and e.destination_ordinal == ordinal)
        if plan.routing != "partitioned" or isinstance(code.key_fn, ColumnKey):
            return items if before % self._total(v) == me else []
        partitions = StatePartitions.of_edge(self._plan, code, v)
        keys = items if code.key_fn is None else mapped(code.key_fn, items)
        split = partitions.split(list(zip(keys, range(len(items)), strict=True)))
        mine = [at for p, pairs in enumerate(split) if pairs and partitions.owners[p] == me for _, at in pairs]
        return [items[at] for at in sorted(mine)]


def _has_had_nothing(record: ProcessorRecord) -> bool:
    return record.finished and record.tells_rest and not record.pieces


def _record_of(saved: SavedVertex, processor: int) -> ProcessorRecord | None:
    return next((record for record in saved.processors if record.processor == processor), None)
