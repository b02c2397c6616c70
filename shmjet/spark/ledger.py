"""The commit coordinator of a feed: which attempt of each partition counts, and when its rows may be seen.

A pure state machine: no sockets, no memory, no clock. An attempt is (round, partition, the number that Spark gives each
task attempt); attempt numbers repeat after a stage is retried, that number does not. What an attempt sends is known
here as *extents*, opaque objects that hold records; the ledger says which of them to show, to keep, or to drop.

Modes (`protocol.Mode`): PARTITION shows a partition with the first attempt that ends with the counts it sent; ROUND
shows everything with the receipts of the whole Spark job, which alone say who won when data is indeterminate; STREAM
shows records at once and drops, by number and checksum, what a later attempt sends again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shmjet.spark.errors import SparkError
from shmjet.spark.protocol import Mode, Receipt, Record

E = TypeVar("E")


@dataclass(eq=False)
class Attempt(Generic[E]):
    """What one attempt of a partition has sent so far."""

    round: int
    partition: int
    number: int
    extents: list[E] = field(default_factory=list)
    records: int = 0
    frames: int = 0
    rows: int = 0

    @property
    def receipt(self) -> Receipt:
        """What it amounts to."""
        return Receipt(self.partition, self.number, self.frames, self.rows)


@dataclass
class _Round(Generic[E]):
    number: int
    partitions: int
    mode: Mode
    winners: dict[int, Receipt] = field(default_factory=dict)
    held: dict[tuple[int, int], Attempt[E]] = field(default_factory=dict)
    shown: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """STREAM: of each partition, checksum, length and rows of the records shown so far."""


class Ledger(Generic[E]):
    """The coordinator of the partitions that one processor answers for.

    Args:
        index, count: it answers for the partitions `p` with `p % count == index`.
    """

    def __init__(self, index: int = 0, count: int = 1) -> None:
        self._index = index
        self._count = count
        self._rounds: dict[int, _Round[E]] = {}
        self.last_closed = -1
        """Number of the newest round that counts."""

    # -- rounds --------------------------------------------------------------------------------------------------

    def open_round(self, number: int, partitions: int, mode: Mode) -> bool:
        """Expect the attempts of a Spark job; False when this round has been closed before, so none must come."""
        if number <= self.last_closed:
            return False
        self._rounds[number] = _Round(number, partitions, mode)
        return True

    def is_open(self, number: int) -> bool:
        """Whether attempts of a round are expected."""
        return number in self._rounds

    def mode(self, attempt: Attempt[E]) -> Mode:
        """Return the mode of an attempt's round; ROUND for a round that is over, whose extents are to be dropped."""
        found = self._rounds.get(attempt.round)
        return Mode.ROUND if found is None else found.mode

    def close_round(self, number: int, receipts: Sequence[Receipt]) -> tuple[list[Attempt[E]], list[Attempt[E]]]:
        """Take the receipts of a Spark job that ended well.

        Returns:
            the attempts whose extents may be seen now, in the order of their partitions; and those to drop.

        Raises:
            SparkError: a partition lacks a receipt, or the receipts name an attempt that did not arrive as they say.
        """
        ended = self._rounds[number]
        named = {receipt.partition: receipt for receipt in receipts}
        mine = range(self._index, ended.partitions, self._count)
        chosen = []
        for partition in mine:
            receipt = named.get(partition)
            if receipt is None:
                raise SparkError(f"Spark's job ended without a receipt for partition {partition}")
            if ended.mode is Mode.ROUND:
                attempt = ended.held.pop((partition, receipt.attempt), None)
                if attempt is not None:
                    ended.winners[partition] = attempt.receipt
                    chosen.append(attempt)
            if ended.winners.get(partition) != receipt:
                raise SparkError(
                    f"Spark says that of partition {partition} the attempt {receipt.attempt} won, with {receipt.rows} "
                    f"rows in {receipt.frames} frames; what arrived here is {ended.winners.get(partition)}"
                )
        self.last_closed = max(self.last_closed, number)
        del self._rounds[number]
        return chosen, list(ended.held.values())

    def give_up_round(self, number: int) -> list[Attempt[E]]:
        """Forget a round that failed before anything of it was seen; returns what to drop.

        Raises:
            SparkError: something has been seen of it.
        """
        ended = self._rounds.pop(number, None)
        if ended is None:
            return []
        if ended.mode is not Mode.ROUND:
            raise SparkError(f"Spark's job of round {number} failed when some of its rows had been used already")
        return list(ended.held.values())

    # -- attempts ------------------------------------------------------------------------------------------------

    def begin(self, round_number: int, partition: int, number: int) -> Attempt[E]:
        """Take note of a new attempt.

        Raises:
            SparkError: there is no such round now.
        """
        found = self._rounds.get(round_number)
        if found is None:
            raise SparkError(
                f"the round {round_number} of Spark's data is not open (the last that counts is {self.last_closed})"
            )
        return Attempt(round_number, partition, number)

    def winner(self, attempt: Attempt[E]) -> Receipt | None:
        """Return the receipt of the attempt that has won the same partition, once one has."""
        found = self._rounds.get(attempt.round)
        return None if found is None else found.winners.get(attempt.partition)

    def add(self, attempt: Attempt[E], extent: E, records: Iterable[Record]) -> list[Record]:
        """Take an extent of records.

        Returns:
            those to be seen at once (STREAM); for other modes none, and the extent is kept with its attempt.

        Raises:
            SparkError: records are missing, or (STREAM) differ from those of an earlier attempt.
        """
        mode = self.mode(attempt)
        fresh = []
        for record in records:
            if record.number != attempt.records:
                raise SparkError(
                    f"attempt {attempt.number} of partition {attempt.partition} sent record {record.number} after "
                    f"{attempt.records} others"
                )
            attempt.records += 1
            attempt.frames += record.ends_frame
            attempt.rows += record.rows
            if mode is Mode.STREAM and self._is_new(attempt, record):
                fresh.append(record)
        if mode is not Mode.STREAM:
            attempt.extents.append(extent)
        return fresh

    def _is_new(self, attempt: Attempt[E], record: Record) -> bool:
        shown = self._rounds[attempt.round].shown.setdefault(attempt.partition, [])
        identity = (record.checksum, record.length, record.rows)
        if record.number >= len(shown):
            if attempt.partition in self._rounds[attempt.round].winners:
                raise _not_deterministic(attempt.partition, "has more rows")
            shown.append(identity)
            return True
        if shown[record.number] != identity:
            raise _not_deterministic(attempt.partition, f"differs from record {record.number} on")
        return False

    def end(self, attempt: Attempt[E], frames: int, rows: int) -> tuple[Receipt, bool]:
        """Take an attempt's word that it is complete.

        Returns:
            the receipt of the winner, and whether the attempt's extents may be seen now. When they may not, and the
            receipt is another's, they are to be dropped.

        Raises:
            SparkError: the counts are not those of what has arrived.
        """
        if (frames, rows) != (attempt.frames, attempt.rows):
            raise SparkError(
                f"attempt {attempt.number} of partition {attempt.partition} says that it sent {rows} rows in {frames} "
                f"frames; what arrived is {attempt.rows} in {attempt.frames}"
            )
        found = self._rounds[attempt.round]
        winner = found.winners.get(attempt.partition)
        if winner is not None:
            if found.mode is Mode.STREAM and (frames, rows) != (winner.frames, winner.rows):
                raise _not_deterministic(attempt.partition, f"has {rows} rows instead of {winner.rows}")
            return winner, False
        if found.mode is Mode.STREAM and attempt.records < len(found.shown.get(attempt.partition, ())):
            raise _not_deterministic(attempt.partition, "has fewer rows")
        if found.mode is Mode.ROUND:
            found.held[attempt.partition, attempt.number] = attempt
            return attempt.receipt, False
        found.winners[attempt.partition] = attempt.receipt
        return attempt.receipt, True


def _not_deterministic(partition: int, what: str) -> SparkError:
    return SparkError(
        f"spark.source(deterministic=True): when Spark computed partition {partition} again, it gave other rows (it "
        f"{what}); persist() the DataFrame (or checkpoint() it) and pass the result, or leave deterministic=True out"
    )
