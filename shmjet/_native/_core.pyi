"""Types and contracts of the C extension. Wherever a buffer is asked for, anything with the buffer protocol will do."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from typing_extensions import Buffer

CRC32_IS_FAST: int
"""1 if `crc32` is faster than that of zlib on this processor, else 0."""
DOORBELL_SIZE: int
"""Bytes of a doorbell in shared memory."""
RECORD_HEADER: int
"""Bytes of the header before each record in a ring."""
RING_ALIGNMENT: int
"""Rings and doorbells start at addresses that are multiples of this; 128 avoids sharing lines with neighbours."""
RING_HEADER: int
"""Bytes of a ring's control block; `capacity` bytes of data follow it."""
RING_MIN_CAPACITY: int
"""Smallest capacity of a ring, in bytes."""

SLAB_UNIT: int
"""Bytes of a slab's unit; a slot is a run of units."""

CLAIMS_HEADER: int
"""Bytes before the cells of `Claims`; a cell has 8."""

class RingCorruptError(RuntimeError):
    """A word in shared memory has a value that no ring writes; the ring is lost."""

def ring_format(buffer: Buffer, offset: int, capacity: int, queue_size: int, count: int = 1, /) -> None:
    """Write a fresh control block at `offset`, and those of the rings behind it, before either end of any is opened.

    `capacity` is a power of two from 4096 to 2**31 (bytes), `queue_size` the number of items that may be in the ring at
    once; `count` is how many equal rings lie side by side. Raises ValueError when they are not, or when control blocks
    and data do not lie in the buffer.
    """

def ring_totals(buffer: Buffer, offset: int, capacity: int, count: int, /) -> tuple[int, int]:
    """Return the items in `count` equal rings side by side, and the bytes that were ever written to them: metrics.

    Raises ValueError when there are no such rings.
    """

def ring_items(header: Buffer, /) -> int:
    """Return the items published and not yet released in the ring that starts at the start of `header`: a metric."""

@final
class Codec:
    """Scratch memory and the cache of repeated strings; one for each process and not for two threads at once."""

    def __new__(cls) -> Codec: ...
    def encode(self, items: list[Any], start: int, stop: int, /) -> bytes | None:
        """Return items[start:stop] as a frame of columns, or None when they are not plain values of exact types."""

    def decode(self, payload: Buffer, count: int, /) -> list[Any]:
        """Return the `count` items of a frame of columns; ValueError when it is damaged."""

@final
class Tally:
    """Counts keys, any that a dict would take; half the time of `collections.Counter`. Keys come out in
    the order in which they were first counted.

    Raises RuntimeError when a key's `__hash__` or `__eq__` uses the Tally itself.
    """

    def __new__(cls) -> Tally: ...
    def __len__(self) -> int: ...
    def add(self, keys: Iterable[Any], /) -> None:
        """Count each key once more. Fastest for a list of str and ints."""

    def add_pairs(self, pairs: list[tuple[Any, int]], /) -> int:
        """Add counts; returns how many pairs were taken before the first that is not (key, int of 64 bits)."""

    def chunk(self, position: int, limit: int, /) -> tuple[list[tuple[Any, int]], int]:
        """Return up to `limit` (key, count) from `position` on (first 0), and the next position, -1 at the end."""

    def get(self, key: Any, default: Any = 0, /) -> Any:
        """Return the count of a key, or `default` when it has none."""

@final
class Totals:
    """A number or item for each key: its sum, mean, least or greatest value. Keys as in `Tally`.

    `kind` is "sum", "mean", "min" or "max". A value is what an accumulator is: the sum, from the int 0 on by plain
    addition in the order of the values; (sum, count); the first value than which none is less (greater); or None when
    there was none. Ints and floats are added and compared without objects, as Python does it, ints without limit.

    Raises RuntimeError when what is in it uses the table itself, and whatever arithmetic and comparisons raise.
    """

    def __new__(cls, kind: str) -> Totals: ...
    def __len__(self) -> int: ...
    def add(self, keys: Iterable[Any], values: Iterable[Any], /) -> None:
        """Put each value to its key; ValueError when there are not as many values as keys."""

    def add_pairs(self, pairs: list[tuple[Any, Any]], /) -> int:
        """Put together (key, accumulator) pairs; returns how many were taken before the first bad one."""

    def touch(self, keys: Iterable[Any], /) -> None:
        """Enter the keys that are not there, with the sum 0 or without a value."""

    def chunk(self, position: int, limit: int, /) -> tuple[list[tuple[Any, Any]], int]:
        """Return up to `limit` (key, accumulator) from `position` on (first 0), and the next one, -1 at the end."""

    def get(self, key: Any, default: Any = None, /) -> Any:
        """Return the accumulator of a key, or `default` when it has none."""

def sort_numbers(items: list[Any], keys: list[Any], reverse: bool, /) -> bool:
    """Sort a list in place by a list of as many keys, stably; `keys` stays as it is unless it is `items`.

    Returns False, and leaves all as it was, when the keys are not ints of 64 bits or floats without NaN, all alike.
    """

def sort_texts(items: list[Any], keys: list[Any], reverse: bool, /) -> bool:
    """As `sort_numbers`, by keys that are all str and ASCII."""

def ascends(keys: list[Any], /) -> bool | None:
    """Return whether a list of numbers or text ascends; None when neither `sort_numbers` nor `sort_texts` is for it."""

@final
class NumberSorter:
    """Ints of 64 bits, or floats, gathered without their objects and given back in order, as equal objects.

    Every call does work for about as many numbers as it takes or gives, or for one block of 65,536.
    """

    def __new__(cls, reverse: bool = False) -> NumberSorter: ...
    def __len__(self) -> int:
        """Numbers that have not been given back."""

    def add(self, items: list[Any], /) -> bool:
        """Take all items of a list; False, and none is taken, when one is not an int of 64 bits (or, where the first
        was a float, no float, or NaN or -0.0). Raises ValueError after `take`."""

    def take(self, limit: int, /) -> list[Any]:
        """Return the next numbers in order, about `limit` of them; none at the end."""

def add_up(start: Any, numbers: list[Any], /) -> Any:
    """Return start + numbers[0] + numbers[1] + ..., added from left to right by plain addition."""

def unify_nans(keys: list[Any], nan: Any, /) -> list[Any]:
    """Return `keys` with every NaN, inside tuples too, replaced by `nan`; the same list when there is none.

    A NaN is a float, a `Decimal` or a number of numpy. A changed tuple keeps its class.
    """

@final
class Doorbell:
    """One sleeper's word in shared memory. Raises ValueError when used after close().

    `eventfd` is the descriptor to write for an owner that sleeps in epoll, -1 for sleep on the word; it must
    stay open.
    """

    def __new__(cls, buffer: Buffer, offset: int, eventfd: int = -1) -> Doorbell: ...
    @classmethod
    def of_owner(cls, buffer: Buffer, offset: int, bells: list[Doorbell], /) -> Doorbell:
        """Return a bell that rings one of `bells`: the one whose index is then in the 32-bit word at `offset`."""

    @property
    def owner(self) -> int | None:
        """That index; None for a bell of one process. Setting it is sequentially consistent."""

    @owner.setter
    def owner(self, value: int) -> None: ...
    def ring(self) -> None:
        """Wake the owner, or keep it from falling asleep, whatever the news."""

    def post(self) -> None:
        """Count a command, then ring."""

    @property
    def commands(self) -> int:
        """Commands posted since the doorbell's memory was zeroed."""

    @property
    def sleeping(self) -> bool:
        """Whether the owner sleeps or is about to; a metric."""

    def wait(self, pollers: list[Poller], seen_commands: int, spin_ns: int, timeout_ns: int, /) -> bool:
        """Wait until a poller is ready or `commands` differs from `seen_commands`; only the owner may call it.

        Spins for `spin_ns` first, then sleeps for at most `timeout_ns` nanoseconds; other threads run only while it
        sleeps. Returns False after the timeout, and early when a signal or a bare ring() has come: look around.
        """

    def close(self) -> None:
        """Let go of the memory; idempotent."""

@final
class RingProducer:
    """The writing end of a ring. Exactly one may write at a time; positions go on where the last one left them.

    Raises ValueError when used after close(), RingCorruptError when the consumer's position is impossible.
    """

    def __new__(cls, buffer: Buffer, offset: int, consumer_bell: Doorbell | None = None) -> RingProducer: ...
    def push(self, codec: Codec, items: list[Any], start: int, stop: int, /) -> int:
        """Encode items[start:stop], or as many as fit, as one frame of columns, and ring the consumer's bell.

        Returns the number accepted; 0 when there is no room now (a wake mark is left); -1 when the items are not
        columns; -2 when the first item alone is larger than `max_record`. A frame has at most a quarter of
        `queue_size` items and is not cut to less than an eighth for want of room.
        """

    def push_bytes(self, kind: int, codec_id: int, flags: int, count: int, buffers: Sequence[Buffer], /) -> bool:
        """Write one record of `count` items gathered from contiguous buffers; False when there is no room now.

        Raises ValueError when it is larger than `max_record` or has more items than `queue_size`.
        """

    def push_mark(self, kind: int, value: int, flags: int = 0, /) -> bool:
        """Write a watermark (2), barrier (3) or done (4) with a 64-bit value; False when there is no room now."""

    def leave_mark(self, size: int, /) -> bool:
        """Ask to be woken when the reader has taken half of what is queued and there is room for `size` bytes.

        False when that is so already, as in an empty ring.
        """

    def put_run(self, data: Buffer, start: int, stop: int, /) -> tuple[int, int]:
        """Write the records in data[start:stop], which `take_run` of another ring's reader gave, as far as there is
        room.

        Returns the position of the first run that found none (a wake mark is left), and the items written. Raises
        RingCorruptError when they are not records, or this ring cannot take one: they may come from another host.
        """

    def admit(self, count: int, size: int, /) -> bool:
        """Say whether a record of `count` items and `size` bytes would fit now; leaves a wake mark when it would not.

        Raises ValueError when no record of this ring can be like that.
        """

    @property
    def reader_idle(self) -> bool:
        """Whether the ring is empty and the owner of its bell, if there is one, sleeps."""

    @property
    def max_record(self) -> int:
        """Largest payload of one record in bytes: half the ring less its header."""

    @property
    def capacity(self) -> int:
        """Bytes of data in the ring."""

    @property
    def queue_size(self) -> int:
        """Items that may be in the ring at once."""

    @property
    def free_items(self) -> int:
        """Items that may enter now."""

    @property
    def free_bytes(self) -> int:
        """Bytes not in use now; not all of them need be usable by one record."""

    @property
    def items_in(self) -> int:
        """Items ever published."""

    @property
    def blocked(self) -> bool:
        """Whether the last push was refused, so that a Poller waits for the consumer."""

    reserved: bool
    """Whether its owner keeps something back that goes first, so that a PacketReader gives him whatever comes."""

    def close(self) -> None:
        """Let go of the memory; idempotent."""

@final
class RingConsumer:
    """The reading end of a ring. While a record is held, the object itself is a buffer: the record's payload.

    Raises ValueError when used after close(), RingCorruptError when a record is impossible.
    """

    enabled: bool
    """Whether a Poller looks at this consumer; True at first."""

    def __new__(cls, buffer: Buffer, offset: int, producer_bell: Doorbell | None = None) -> RingConsumer: ...
    def pull(
        self, codec: Codec, limit: int = 0, /
    ) -> list[Any] | tuple[int, int, int] | tuple[int, int, int, None] | tuple[int, int, int, int, memoryview] | None:
        """Take the next record; None when there is none.

        A frame of columns comes back as a list of items; further such frames behind it are added as long as the list
        stays below `limit` items. A mark comes back as (kind, value, flags), the place of a
        batch as (slab, offset, bytes, None). Anything else as
        (kind, codec, flags, count, payload), to be freed with release() once no view of the payload lives.
        """

    def take_run(self, limit: int, /) -> tuple[int, int, int] | tuple[int, int, int, int] | None:
        """Take records as they lie in the ring, undecoded, to be freed with release() once they have been copied.

        Returns (offset in the buffer, bytes, items) of a run of whole records that has at most `limit` bytes, or is one
        record; (slab, offset, bytes, count) of a batch in a slab, which ends a run; None when there is nothing.
        """

    def release(self) -> None:
        """Free the record handed out as a view, if any; BufferError while a view of it lives."""

    @property
    def has_data(self) -> bool:
        """Whether pull() would return something; False once closed."""

    @property
    def capacity(self) -> int:
        """Bytes of data in the ring."""

    @property
    def queue_size(self) -> int:
        """Items that may be in the ring at once."""

    @property
    def queued_items(self) -> int:
        """Items published and not yet pulled."""

    @property
    def items_out(self) -> int:
        """Items ever pulled."""

    def close(self) -> None:
        """Let go of the memory; idempotent. BufferError while a view of a record lives."""

@final
class EdgeFlow:
    """What one edge has moved in one direction between this member and a peer; the packet kernels count into it.

    With `bounded` a PacketWriter may send while `bytes`, in blocks of 64 KiB and 32 bits with sign, is not above
    `limit`. `words` are two of 64 bits in which others read how many items and bytes there were; readers and writers
    note there what they take before others can see it.
    """

    bytes: int
    """Bytes of payload that have come or gone."""
    acked: int
    """Of the items that have come, what rings have taken."""
    items: int
    """Items that have gone, or that rings have taken."""
    limit: int
    """The block up to which a sender may go: signed, 32 bits."""
    renew_at: int
    """What `acked` has to reach for this to be put into `due`, once."""

    def __new__(cls, bounded: bool = False, words: Buffer | None = None, due: list[EdgeFlow] = ...) -> EdgeFlow: ...
    def note(self, items: int, size: int, /) -> None:
        """Add to the words."""

    def took(self, items: int, size: int, /) -> None:
        """Count what rings have taken."""

    def close(self) -> None:
        """Let go of the words and of `due`; idempotent."""

    @property
    def is_open(self) -> bool:
        """Whether another packet may be sent now."""

@final
class PacketWriter:
    """What goes to one peer, from rings and slabs straight to the socket.

    It takes as many records as the socket gets with one call, and gives them back when all have left. RingCorruptError
    when a ring or slab is damaged, RuntimeError when it is called by what it calls.
    """

    def __new__(cls) -> PacketWriter: ...
    def queue(self, packet: bytes, /) -> None:
        """Send whole packets as soon as the current one has left."""

    def queue_bulk(self, packet: bytes, /) -> None:
        """Send a whole packet when it has its turn: one behind what the lanes have at a time."""

    def add(
        self,
        execution: int,
        edge: int,
        producer: int,
        consumer: int,
        ring: RingConsumer,
        flow: EdgeFlow,
        limit: int,
        open_slot: Callable[[int, int, int], Buffer],
        pack: Callable[[Buffer], bytes | None] | None = None,
        /,
    ) -> None:
        """Take packets of `limit` bytes from a ring; `open_slot` gives the batch at slab, offset and length.

        `pack` gives a payload that is smaller, to go in place of another one with the flag that says so, or None; what
        it gets is valid during the call only.
        """

    def drop(self, execution: int, /) -> None:
        """Forget the lanes of an execution; what was taken from them and has not left is copied."""

    def flush(self, fd: int, /) -> int:
        """Send: 0 when nothing is left, 1 when there is more and it is another's turn, 2 when the socket is full."""

    def copy(self, view: Buffer, /) -> int:
        """Put what is to be sent next into memory instead; returns the bytes."""

    def clear(self) -> None:
        """Forget everything."""

    @property
    def has_output(self) -> bool:
        """Whether there is something to send that is not in rings."""

    @property
    def queued(self) -> int:
        """Bytes given to queue() that are not under way."""

    @property
    def bytes_out(self) -> int:
        """Bytes that have left."""

@final
class PacketReader:
    """Cuts what comes from one peer into packets.

    `head` makes a header of 32 bytes or raises, `place` gives memory for a batch that has this header, `deliver` gets
    header and payload; a payload that was not placed is valid during the call only. Plain runs of records go into the
    rings that were added, and only what finds no room there is delivered. What these functions raise comes through.
    """

    def __new__(
        cls,
        head: Callable[[memoryview], Any],
        deliver: Callable[[Any, memoryview], object],
        place: Callable[[Any], memoryview],
    ) -> PacketReader: ...
    def receive(self, fd: int, /) -> bool:
        """Read from a socket without waiting; False at the end of the stream."""

    def room(self) -> memoryview:
        """Return memory for the next bytes; never empty."""

    def received(self, count: int, /) -> None:
        """Take bytes that were put into room()."""

    def add(
        self, execution: int, edge: int, producer: int, consumer: int, ring: RingProducer, flow: EdgeFlow, /
    ) -> None:
        """Put runs of a lane into a ring, unless that is `reserved`."""

    def add_slab_target(
        self, execution: int, slab: SlabWriter, arena: memoryview, number: int, lane_bytes: int, /
    ) -> None:
        """Put an execution's batches into slots, as long as there are some and rings have room; `place` and `deliver`
        are asked for the others. At most two batches, or `lane_bytes`, lie before one consumer."""

    def drop(self, execution: int, /) -> None:
        """Forget the rings and the slab of an execution; a batch of it that is under way is read and forgotten."""

    def close(self) -> None:
        """Forget everything; nothing can be read then."""

    @property
    def slot(self) -> int | None:
        """Offset of the slot that a batch which is being delivered lies in; None when `place` was asked."""

    @property
    def pending(self) -> int:
        """Bytes that have come of packets that are not complete."""

    @property
    def capacity(self) -> int:
        """Bytes of the buffer."""

    @property
    def needed(self) -> int:
        """Bytes that the next packet needs in it."""

    @property
    def bytes_in(self) -> int:
        """Bytes that have come."""

@final
class LinkLoop:
    """The inner loop of a link: moves packets between rings and sockets, and sleeps in epoll.

    Args:
        epoll: a descriptor that belongs to the caller, whose own descriptors are in it, and the bell's eventfd, edge by
            edge.
        bell: on which workers ring when they fill a ring, or None.
    """

    def __new__(cls, epoll: int, bell: Doorbell | None) -> LinkLoop: ...
    def add(self, fd: int, writer: PacketWriter, reader: PacketReader, /) -> None:
        """Carry what goes and comes by a connection."""

    def remove(self, fd: int, /) -> None:
        """Leave a connection alone, before it is closed."""

    def carry(self, pollers: list[Poller], timeout_ns: int, /) -> list[tuple[int, int]]:
        """Move packets until something else is to be done, at most for `timeout_ns`.

        That is an event on a descriptor of the caller's, or the end of a connection (with mask 0): they are returned.
        Or a packet that was not for a ring, or a poller that is ready. It does not spin before it sleeps: four busy
        processes on two cores took twice as long for an item then. What readers and writers raise comes through, for
        connection `current`.
        """

    @property
    def current(self) -> int:
        """Descriptor of the connection that the last exception is about; -1 for none."""

@final
class Coalescer:
    """What may be passed on after watermarks on several inputs, by the rules of `shmjet.core.WatermarkCoalescer`.

    Watermarks are their timestamps here, 2**63 - 1 is the idle message, and None stands for nothing. Raises `error`
    where an input that has ended brings something, or a watermark does not rise. It can be pickled.
    """

    def __new__(cls, input_count: int, error: type[Exception]) -> Coalescer: ...
    def observe_event(self, index: int, /) -> None:
        """Note that an item came."""

    def observe_watermark(self, index: int, timestamp: int, /) -> int | None:
        """Note a watermark, and return what is to be passed on."""

    def input_done(self, index: int, /) -> int | None:
        """Note the end of an input, and return what is to be passed on."""

    def pending(self) -> int | None:
        """Return the idle message when it has to follow the watermark given out just before."""

    def take(
        self, consumers: list[RingConsumer], inputs: list[int], first: int, /
    ) -> tuple[list[int], int | None, bool, int]:
        """Take the watermarks at the heads of all enabled rings, until one is to be passed on.

        `inputs` are the consumers' numbers, ascending; it starts with the first that is not below `first`, and goes
        round. Returns the inputs with something else at the head, what is to be passed on (the rest has not been
        looked at then), whether anything was taken, and the input to start with next time.
        """

    def follow(self, consumer: RingConsumer, index: int, /) -> int | None:
        """Take the watermarks at the head of one ring, until one is to be passed on, which is returned."""

    @property
    def coalesced(self) -> int | None:
        """The last watermark passed on."""

    @property
    def top_observed(self) -> int | None:
        """The highest watermark seen on any input."""

    @property
    def slowest(self) -> tuple[int, int | None]:
        """The active input with the lowest watermark, -1 when none is active; and that watermark."""

    @property
    def is_idle(self) -> bool:
        """Whether the idle message was passed on, and nothing came since."""

    @property
    def is_pending(self) -> bool:
        """Whether `pending` would return the idle message."""

@final
class Poller:
    """What one tasklet waits for, scanned in C: consumers with data, and blocked producers whose mark is reached."""

    inputs: bool
    """False: look only at the producers. True at first."""

    def __new__(cls, consumers: list[RingConsumer], producers: list[RingProducer]) -> Poller: ...
    def ready(self) -> bool:
        """Say whether an enabled consumer has data or a blocked producer has reached its wake mark."""

    def ready_inputs(self) -> list[int]:
        """Return the indexes of the enabled consumers that have data, whatever `inputs` says."""

def push_marks(producers: list[RingProducer], kind: int, value: int, flags: int, /) -> list[int]:
    """Put a mark into each ring; return the indexes of those left out, which are full or reserved."""

def index_of_special(items: list[Any], start: int, special_type: type, /) -> int:
    """Return the first index from `start` on whose item is None or an instance of `special_type`, else -1."""

def name_tuples(number: int, named: type[tuple[Any, ...]], /) -> None:
    """Make lists of a class of named tuples columns for the codec, which sends the number for the class.

    `number` is from 0 to 7 and means the same class in all processes. Raises TypeError for another number or class.
    """

def cut_frames(
    items: list[Any], stamps: list[int] | None, slide: int, offset: int, lowest: int, /
) -> tuple[dict[int, list[Any]], list[Any]]:
    """Group items by the end of the frame that their timestamp is in; second, the items of frames below `lowest`.

    Without `stamps` the items are pairs `(timestamp, item)`, whose second parts are grouped. Frames end at `offset`
    plus a multiple of `slide`. Raises TypeError for a timestamp that is not an int of 64 bits.
    """

def cut_results(items: list[Any], keyed: bool, lowest: int, /) -> tuple[dict[int, list[tuple[Any, Any]]], list[Any]]:
    """Group results of frames `(start, end, key, accumulator, ...)` by their ends, as pairs of key and accumulator.

    Without keys they are `(start, end, accumulator, ...)`, and the key is None. Second, the results of frames below
    `lowest`. Raises TypeError for anything else.
    """

def keyed_results(
    kind: type[tuple[Any, ...]],
    start: int,
    end: int,
    pairs: list[tuple[Any, Any]],
    is_early: bool,
    stamp: int | None,
    /,
) -> list[Any]:
    """Return a named tuple `(start, end, key, result, is_early)` for each pair of a key and a result.

    With a `stamp` each one is in a pair `(stamp, named tuple)`.
    """

def journal_parts(events: list[bytes], /) -> tuple[bytes, bytes, dict[int, int]]:
    """Return what the events of a map's journal consist of: packed entries, moments, sequences that follow.

    The packed entries are a msgpack array of four elements for each event: the key and the value of the old entry, then
    of the new one, and nil where it has no such entry. The moments are an array of uint64. The dict has the sequence
    after the last one of each partition. Raises ValueError for other bytes.
    """

def journal_events(
    kind: type[tuple[Any, ...]], names: tuple[str, ...], events: list[bytes], parts: list[Any], /
) -> list[Any]:
    """Return a named tuple `(name, key, old, new, partition, sequence, 0)` for each event of a map's journal.

    Args:
        kind: the class of the named tuples.
        names: of the kinds of events, by their numbers.
        events: as they are stored.
        parts: what the packed entries of `journal_parts` have been decoded to.
    """

def survey_entries(
    entries: list[tuple[bytes, bytes]], mark: bytes, back: int, code: int, /
) -> tuple[list[tuple[int, int, int]], bytes | None, int, int, int, bool, bool]:
    """Return what there is to know of entries of a map, each a key (prefix, partition, more) and a stored entry.

    Args:
        entries: in any order.
        mark: bytes that are looked for in stored entries,
        back: so far before their ends.
        code: of an extension of msgpack.

    Returns:
        runs of entries of one partition, `(partition, begin, end)`; the prefix of all keys, None where they have
        several, or there are no entries; the bytes of all keys and stored entries; those of the longest key, and of the
        longest stored entry; whether one is marked; whether all are msgpack arrays of a key and a value that is no
        extension of that code with four bytes of length (False, too, where arrays are more than 15 deep).

    Raises:
        TypeError: something else is in the list, or a key has no more than prefix and partition.
    """

def move_entries(entries: list[tuple[bytes, bytes]], cut: int, prefix: bytes, /) -> list[tuple[bytes, bytes]]:
    """Return entries with `prefix` in place of the first `cut` bytes of each key.

    Raises TypeError when something else is in the list, or a key is shorter.
    """

def place_entries(
    partitions: list[int], tails: list[bytes], values: list[bytes], heads: list[bytes], /
) -> list[list[tuple[bytes, bytes]]]:
    """Return entries by partition, in their order: the partition's head and the tail are the key.

    Raises TypeError where the first three lists have different lengths, or a partition has no head.
    """

def plain_entries(
    pairs: list[Any], heads: list[bytes], most_key: int, most_value: int, /
) -> list[list[tuple[bytes, bytes]]] | None:
    """Return pairs of keys and values as entries, by partition, in their order: what `EntryCodec` makes of each.

    Args:
        pairs: tuples; keys are exact str or int, values exact str, int, float, bool or bytes.
        heads: for each partition what its keys begin with.
        most_key: bytes of what stands for a key, at most, without the head.
        most_value: bytes of a stored entry, at most.

    Returns:
        None where one of the pairs is something else, or longer, or has a number or text that msgpack does not know.
    """

def crc32(data: Buffer, value: int = 0, /) -> int:
    """Return the same as `zlib.crc32`; faster if `CRC32_IS_FAST`, else slower."""

def murmur3_32(data: Buffer, seed: int = 0, /) -> int:
    """Return MurmurHash3_x86_32, unsigned: the same as `mmh3.hash(data, seed, signed=False)`."""

def partition_of(key: Any, count: int, fallback: Callable[[Any], Buffer], /) -> int:
    """Return the partition of a key: murmur3 of its canonical bytes modulo `count` (1 to 65536).

    Exact int (64 bits), bool, float, str and bytes are converted here; `fallback(key)` gives the bytes of all others.
    """

def split(
    items: list[Any], keys: list[Any], count: int, table: Buffer, consumers: int, fallback: Callable[[Any], Buffer], /
) -> list[list[Any] | None]:
    """Deal items over consumers by the partitions of their keys; order is kept, None stands for "nothing".

    `table` holds a 16-bit consumer index for each of `count` partitions (`array('H')`).
    """

def split_entries(
    entries: list[Any],
    count: int,
    table: Buffer,
    consumers: int,
    fallback: Callable[[Any], Buffer],
    special_type: type,
    /,
) -> list[list[Any] | None] | None:
    """Deal tuples by the partitions of their first elements, as `split` does.

    Returns None, and has dealt nothing, when one of them is of `special_type` exactly, or an entry is not a tuple.
    """

def clock_ns() -> int:
    """Return CLOCK_MONOTONIC in nanoseconds."""

def grow_stack(size: int, /) -> bool:
    """Have the kernel map so many bytes of the stack below what is in use now; call it in the first thread only.

    Without that a process dies of SIGSEGV if its stack has to grow when there is no address space left (RLIMIT_AS).

    Returns:
        False if the stack may not be four times as large, or there is no address space for it; then nothing is done.
    """

def hold_reserve(size: int, /) -> bool:
    """Hold two parts of address space of so many bytes each for the moment when there is no more (RLIMIT_AS).

    From the first call on, which must come while the process has one thread and settles the size, an allocation of
    Python up to 128 KiB that finds no memory gives the first part up and is repeated. The second part is for saying
    what has happened: see `release_reserve`. Call this where it can be dealt with that memory is short.

    Returns:
        False if a part that was given up, or never held, cannot be had now.
    """

def release_reserve() -> None:
    """Give up both parts of what `hold_reserve` holds. Allocates nothing."""

def short_slice(nanoseconds: int, /) -> bool:
    """Ask the scheduler for turns of this length for this thread, which then come sooner after a wake-up.

    Returns whether it was taken. Kernels before 6.12 take it and do nothing.
    """

@final
class SlabWriter:
    """Formats a slab of `size` bytes at `offset`, and puts slots into it.

    Raises ValueError when the slab does not lie in the buffer or is too small for one unit.
    """

    units: int
    """Units of the slab."""
    usable: int
    """Units that have memory behind them; starts with 0 and may only be raised."""
    taken: int
    """Units of slots that have readers left."""

    def __new__(cls, buffer: Buffer, offset: int, size: int) -> SlabWriter: ...
    def put(self, parts: tuple[Buffer, ...], count: int, /) -> int:
        """Write the parts, each at a multiple of 64 bytes, into a new slot for `count` readers.

        Returns the slot's offset into the slab's data, or -1 when no run of free units is long enough.
        """

    def claim(self, size: int, count: int, /) -> tuple[int, int] | None:
        """Take a slot of `size` bytes for `count` readers, which the caller fills before he publishes its place.

        Returns the slot's offset into the slab's data, and where its bytes are in the buffer; None when there is no
        room.
        """

    def retain(self, offset: int, /) -> None:
        """Count one more reader of a slot."""

    def drop(self, offset: int, /) -> None:
        """Count one reader less; the slot must have one."""

    def close(self) -> None:
        """Let go of the memory; idempotent."""

@final
class SlabReader:
    """Opens a slab that its writer has formatted; ValueError when there is none."""

    live: int
    """Slots of it that have views in this process."""

    def __new__(cls, buffer: Buffer, offset: int, size: int) -> SlabReader: ...
    def take(self, offset: int, length: int, /) -> Slot | bytes:
        """Return a slot, or its copy when readers hold views of half the slab; to be called once for each reader.

        Raises RingCorruptError when no slot can lie there.
        """

@final
class Slot(Buffer):
    """A slot's memory, read-only; given back to the writer when the last view of it is gone."""

@final
class Claims:
    """Which side may have a task that is queued: one word for each task, settled by compare-and-swap.

    Opens `CLAIMS_HEADER` + 8 * `cells` bytes of zeros; tasks have numbers from 1, and fewer than `cells` live at once.
    Raises ValueError when used after close().
    """

    def __new__(cls, buffer: Buffer, offset: int, cells: int) -> Claims: ...
    def put(self, number: int, /) -> None:
        """Say that a task is queued; before it is published."""

    def put_several(self, first: int, count: int, /) -> None:
        """Do as `put` does for `count` tasks, numbered from `first`."""

    def take(self, number: int, /) -> bool:
        """Begin a task; False when it was taken back. Only the worker calls it."""

    def revoke(self, number: int, /) -> bool:
        """Take a task back; False when it has begun."""

    def done(self) -> int:
        """Say that the task begun last is over; returns the nanoseconds that it took."""

    def running(self) -> tuple[int, int]:
        """Return the number of the task that runs now, 0 for none, and when it began (CLOCK_MONOTONIC in ns)."""

    def close(self) -> None:
        """Let go of the memory; idempotent."""
