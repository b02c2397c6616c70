"""What Spark tasks and the client's feed say to a feed's processors, and how a task's records lie in memory.

Control goes as messages over one socket for each pair; data goes into slots of the feed's area in shared memory, or
into a file, as records: a head of 64 bytes, then a payload, then zeros up to a multiple of 64. A record's payload is a
whole frame, or, for a frame larger than a slot, a piece of one. `docs/formats/spark-feed.md` has the offsets.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, Final, NamedTuple

import msgspec

from shmjet.data.errors import BatchError

ALIGNMENT: Final = 64
_HEAD: Final = struct.Struct("<IIQQQQQQ")


class Content(enum.IntEnum):
    """What a frame is."""

    ARROW = 1
    """An Arrow record batch with offsets of 32 bits."""
    ARROW_LARGE = 2
    """The same with offsets of 64 bits."""
    BATCH = 3
    """A batch as it lies in a ring (`docs/formats/batch.md`)."""
    ITEMS = 4
    """A pickled list of items (`shmjet.ring.pickling`)."""


class Record(NamedTuple):
    """One record's head, and where its payload is.

    Args:
        content: of the frame.
        checksum: CRC-32 of the payload, 0 where it is never checked.
        number: of the record in its attempt, from 0.
        rows: of the frame; in its last piece, 0 in the others.
        length: bytes of the payload.
        total: bytes of the frame.
        at: where the payload lies in the frame.
        place: where the payload begins in memory.
    """

    content: int
    checksum: int
    number: int
    rows: int
    length: int
    total: int
    at: int
    place: int

    @property
    def is_whole(self) -> bool:
        """Whether the record is a whole frame."""
        return self.length == self.total

    @property
    def ends_frame(self) -> bool:
        """Whether a frame is complete with this record."""
        return self.at + self.length == self.total


def put_head(
    memory: Any, offset: int, content: int, checksum: int, number: int, rows: int, length: int, total: int, at: int
) -> None:
    """Write a record's head."""
    _HEAD.pack_into(memory, offset, content, checksum, number, rows, length, total, at, 0)


def padded(length: int) -> int:
    """Return the bytes that a record with a payload of `length` bytes takes."""
    return ALIGNMENT + -(-length // ALIGNMENT) * ALIGNMENT


def records(memory: Any, used: int) -> list[Record]:
    """Return the records in the first `used` bytes of a memory. Raises BatchError when there lies something else."""
    found = []
    offset = 0
    while offset < used:
        if offset + ALIGNMENT > used:
            raise BatchError(f"a Spark task's slot ends within a record's head, at {offset} of {used}")
        content, checksum, number, rows, length, total, at, _ = _HEAD.unpack_from(memory, offset)
        if offset + padded(length) > used or at + length > total:
            raise BatchError(f"a Spark task's slot holds no record at {offset} of {used}")
        found.append(Record(content, checksum, number, rows, length, total, at, offset + ALIGNMENT))
        offset += padded(length)
    return found


class Mode(enum.StrEnum):
    """When rows become visible to the job."""

    PARTITION = "partition"
    """A partition's when its first attempt is complete."""
    ROUND = "round"
    """All with the receipts of the whole Spark job."""
    STREAM = "stream"
    """At once; what a later attempt sends again is dropped."""


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The base of all messages, which inherit how they are encoded; what is `frozen`, mypy wants to be told again."""


class Hello(Message, frozen=True):
    """Task or driver: I am here. The client's feed is the `driver`; all others are Spark tasks' processes.

    A process that cannot take descriptors asks for paths in their place.
    """

    driver: bool
    by_path: bool = False


class Begin(Message, frozen=True):
    """Task: from here on I am this attempt of a partition. Not answered."""

    round: int
    partition: int
    attempt: int


class Want(Message, frozen=True):
    """Task: I need a slot. Answered by `Grant`, `Spill` or `Superseded`, as late as it has to be."""


class Filled(Message, frozen=True):
    """Task: so many bytes of a slot that was granted to me hold records now."""

    slot: int
    used: int


class End(Message, frozen=True):
    """Task: Spark has said that this is all. `spilled` are the bytes in the file. Answered by `Verdict`."""

    frames: int
    rows: int
    spilled: int


class ChooseProcessor(Message, frozen=True):
    """Task on another host, to the client: connect me to this processor. Answered by the processor's `Welcome`."""

    processor: int


class Sent(Message, frozen=True):
    """Task on another host: this belongs into a slot that was granted to me; in place of `Filled`."""

    slot: int
    data: bytes


class Spilled(Message, frozen=True):
    """Task on another host, after `Spill`: this belongs into the file."""

    data: bytes


class Abandon(Message, frozen=True):
    """Task: I have stopped, and write nowhere any more. The answer to `Superseded`; not answered itself."""


class OpenRound(Message, frozen=True):
    """Driver: a Spark job is about to start. Answered by `RoundOpened`."""

    number: int
    partitions: int
    mode: Mode


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What a Spark task returned to the driver: which attempt of a partition won, and how much it sent."""

    partition: int
    attempt: int
    frames: int
    rows: int


class CloseRound(Message, frozen=True):
    """Driver: the Spark job has ended well, with these receipts. Answered by `RoundClosed`."""

    number: int
    receipts: list[Receipt]


class GiveUpRound(Message, frozen=True):
    """Driver: the Spark job of a round failed, and will be tried again. Not answered."""

    number: int


class Failure(Message, frozen=True):
    """Driver: Spark has failed for good, and this is what it says."""

    summary: str
    details: str


class Finish(Message, frozen=True):
    """Driver: no round will follow. Not answered."""


Request = Hello | Begin | Want | Filled | End | Abandon | OpenRound | CloseRound | GiveUpRound | Failure | Finish


FromOutside = ChooseProcessor | Begin | Want | Sent | Spilled | End | Abandon
"""What tasks on other hosts say."""


class Welcome(Message, frozen=True):
    """Processor: the answer to `Hello`; the area's descriptor comes along for tasks. `processors`: how many there are.

    `path` is where a process of the same user finds the area as long as the processor lives.
    """

    processors: int
    slot_size: int
    slots: int
    path: str = ""


class Grant(Message, frozen=True):
    """Processor: this slot is the attempt's."""

    slot: int


class Spill(Message, frozen=True):
    """Processor: shared memory is full of what cannot be shown yet; write into the file that comes along.

    A task that asked for paths gets the file's path.
    """

    path: str = ""


class Superseded(Message, frozen=True):
    """Processor: stop, another attempt of this partition has won."""

    winner: Receipt


class Verdict(Message, frozen=True):
    """Processor: the answer to `End`: the attempt that has won, or in a mode in which that is open, the asking one."""

    winner: Receipt


class Refused(Message, frozen=True):
    """Processor: this attempt has no place here; the text says why."""

    text: str


class RoundOpened(Message, frozen=True):
    """Processor: tasks may come. `is_done`: no, for this round has been closed before."""

    number: int
    is_done: bool


class RoundClosed(Message, frozen=True):
    """Processor: all rows of the round count."""

    number: int


Answer = Welcome | Grant | Spill | Superseded | Verdict | Refused | RoundOpened | RoundClosed
