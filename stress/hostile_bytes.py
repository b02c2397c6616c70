"""Bytes that no honest peer sends, at everything that reads from the network: refused, in bounds, nothing unpickled.

Each case takes a conversation that is right and spoils it: cut anywhere, bits flipped, numbers made huge, pieces left
out, doubled or swapped, or something else put in. Parts:

* `handshake`: at a listener's handshake: it is proved only by the very bytes that prove it;
* `packets`: at the reader of packets, fed in pieces of any size, with a lane and without: packets or an error;
* `records`: at the ring into which a peer's records go, and at the codec behind it: items or an error;
* `link`: at a link's port over TCP, in one piece and slowly, unproved and behind a right handshake: each connection
  ends with one line in the log at most, and the link goes on.

`pickle.loads` must not be called by any of it, and memory must not grow by more than 16 MB in any part. With atheris
installed, `--fuzz SECONDS` lets that choose the bytes instead.

Usage: stress/hostile_bytes.py [--count N] [--seed S] [--ci] [--only PART] [--fuzz SECONDS]
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hmac
import logging
import mmap
import os
import pickle
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _stress import Options, Tally, parse_options, watch

from shmjet._native import (
    RING_HEADER,
    SLAB_UNIT,
    Codec,
    EdgeFlow,
    RingConsumer,
    RingCorruptError,
    RingProducer,
    SlabWriter,
    ring_format,
)
from shmjet.data.marks import DONE, Barrier, Watermark
from shmjet.ipc.channel import Channel
from shmjet.net import packets
from shmjet.net.compression import Lz4Compressor, is_installed
from shmjet.net.handshake import MEMBER, Answering, Dialing, HandshakeError, Identity
from shmjet.net.link import Link
from shmjet.net.messages import Event, Limits, Listen, Listening, Order, PeerUp, Secret, Setup
from shmjet.net.packets import HEADER, Header, PacketError, packet_reader
from shmjet.ring.lane import RingLaneWriter

COUNT, CI_COUNT = 1_000_000, 40_000
PARTS = ("handshake", "packets", "records", "link")
SHARES = {"handshake": 0.35, "packets": 0.4, "records": 0.25, "link": 0.004}
"""How many of the cases each part gets; those over TCP take a hundred times as long."""
MOST_GROWTH = 16 << 20
HANG_S = 240.0
SECRET = b"the secret of this run"
ALICE = Identity(MEMBER, "dev", "a" * 32, "10.0.0.1:5701", SECRET)
BOB = Identity(MEMBER, "dev", "b" * 32, "10.0.0.2:5701", SECRET)
NONCES = bytes(32), bytes([1]) * 32
PLACE = memoryview(bytearray(packets.LONGEST[packets.BATCH]))
"""Where bodies are received, one at a time: taken once, so that what malloc keeps of it does not count as growth."""
COMPRESSOR = Lz4Compressor() if is_installed() else None
HUGE = (0xFF, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x100000, 0)


def spoil(data: bytes, rng: random.Random) -> bytes:
    """Return bytes that are like these, but not the same."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        size = len(spoiled)
        if not size:
            break
        at = rng.randrange(size)
        kind = rng.randrange(7)
        if kind == 0:
            del spoiled[at:]
        elif kind == 1:
            spoiled[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            width = rng.choice((1, 2, 4))
            spoiled[at : at + width] = (rng.choice(HUGE) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 3:
            del spoiled[at : at + rng.randrange(1, 40)]
        elif kind == 4:
            spoiled[at:at] = spoiled[at : at + rng.randrange(1, 64)]
        elif kind == 5:
            spoiled[at:at] = rng.randbytes(rng.randrange(1, 64))
        else:
            spoiled[at:] = rng.randbytes(rng.randrange(1, 200))
    return bytes(spoiled)


def pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Cut bytes into a few pieces."""
    at = 0
    while at < len(data):
        step = rng.choice((1, 7, 32, 33, 500, 1 << 20))
        yield data[at : at + step]
        at += step


# -- handshake ---------------------------------------------------------------------------------------------------------


def right_handshake() -> tuple[bytes, bytes]:
    """What a dialer says to a listener whose nonce is known: greeting and proof."""
    dialing = Dialing(ALICE, NONCES[0], b"")
    hello = dialing.start()
    proof = dialing.feed(Answering(BOB, NONCES[1], b"").feed(hello))
    return hello, proof


def handshakes(count: int, rng: random.Random, tally: Tally) -> None:
    hello, proof = right_handshake()
    right = hello + proof
    for case in range(count):
        data = right[: case % len(right)] if case < len(right) else spoil(right, rng)
        answering, said = Answering(BOB, NONCES[1], b""), 0
        try:
            for piece in pieces(data, rng):
                said += len(answering.feed(piece))
        except HandshakeError:
            pass
        if answering.proved and not data.startswith(right):
            tally.complain(f"a handshake was believed that was not right: {data.hex()}")
        if said > 200:
            tally.complain(f"a stranger got {said} bytes")


# -- packets -----------------------------------------------------------------------------------------------------------


def records(rng: random.Random) -> bytes:
    """A run of records of all kinds as a lane writes them."""
    memory = memoryview(mmap.mmap(-1, RING_HEADER + (1 << 16)))
    ring_format(memory, 0, 1 << 16, 4096)
    writer = RingLaneWriter(RingProducer(memory, 0), Codec())
    items: list[list[object]] = [
        [rng.randrange(1 << 40) for _ in range(20)],
        [("word", 3), ("other", 4)],
        [1.5, 2.5],
        [{"a": 1}, {"a": 2}],
        [b"bytes", b""],
        [None, True],
        [{1, 2}, object],
    ]
    for some in rng.sample(items, 4):
        writer.push(some)
    writer.push_mark(Watermark(7))
    writer.push_mark(Barrier(3))
    writer.push([b"large" * 8000])
    writer.push_mark(DONE)
    run = RingConsumer(memory, 0).take_run(1 << 20)
    assert run is not None
    return bytes(memory[run[0] : run[0] + run[1]])


def right_packets(rng: random.Random) -> bytes:
    """A stream of packets of all kinds."""

    def packet(kind: int, body: bytes, items: int = 0, flags: int = 0) -> bytes:
        return HEADER.pack(len(body), kind, flags, 0, 1, 0, 1, items, 0) + body

    stream = [
        packet(packets.HEARTBEAT, b""),
        packet(packets.DATA, records(rng), 9),
        packet(packets.FLOW, packets.FLOW_ENTRY.pack(1, 0, 0, 800) * 3),
        packet(packets.CONTROL, rng.randbytes(100), flags=1),
        packet(packets.CONTROL, rng.randbytes(50)),
        packet(packets.BATCH, rng.randbytes(300), 1),
    ]
    if COMPRESSOR is not None:
        for kind, body in ((packets.DATA, records(rng)), (packets.BATCH, bytes(rng.randrange(600, 1 << 20)))):
            packed = COMPRESSOR.pack(memoryview(body))
            if packed is not None:
                stream.append(packet(kind, packed, 1, packets.FLAG_LZ4))
    rng.shuffle(stream)
    return b"".join(stream)


def read_packets(count: int, rng: random.Random, tally: Tally) -> None:
    streams = [right_packets(rng) for _ in range(20)]
    ring, slab_at, slab_size = 4096, 4096 + RING_HEADER + (1 << 14) + 4096, 64 << 10
    memory = memoryview(mmap.mmap(-1, slab_at + slab_size + 4096))
    guards = memory[:4096], memory[slab_at - 4096 : slab_at], memory[-4096:]
    delivered = put = slots = 0

    def deliver(header: Header, body: memoryview) -> None:
        nonlocal delivered
        delivered += 1
        rest = header.kind == packets.DATA and len(body) % 16 == 0  # what the lane's ring has not taken
        if (
            len(body) > header.length
            or (len(body) < header.length and not rest)
            or header.length > packets.LONGEST[header.kind]
        ):
            tally.complain(f"a packet of {len(body)} bytes has the header {header}")
        if header.flags & packets.FLAG_LZ4 and COMPRESSOR is not None:
            unpacked = COMPRESSOR.unpack(header.kind, body)
            if len(unpacked) > packets.LONGEST[header.kind]:
                tally.complain(f"a block became {len(unpacked)} bytes: {header}")

    for case in range(count):
        stream = streams[case % len(streams)]
        short = stream[: rng.randrange(600)] if case % 3 else stream
        data = short if case % 11 == 0 else spoil(short, rng)
        reader = packet_reader(deliver, lambda header: PLACE[: header.length])
        ring_format(memory, ring, 1 << 14, 1024)
        producer, consumer, flow = RingProducer(memory, ring), RingConsumer(memory, ring), EdgeFlow()
        slab = SlabWriter(memory, slab_at, slab_size)
        slab.usable = slab.units
        if case % 2:
            reader.add(1, 0, 0, 1, producer, flow)
        if case % 4 > 1:
            reader.add_slab_target(1, slab, memory, 0, 1 << 14)
        try:
            for piece in pieces(data, rng):
                view = memoryview(piece)
                while view:
                    room = reader.room()
                    size = min(len(room), len(view))
                    room[:size] = view[:size]
                    reader.received(size)
                    view = view[size:]
        except (PacketError, RingCorruptError):
            pass
        put += flow.acked
        reader.close()
        while (run := consumer.take_run(1 << 20)) is not None:
            if len(run) == 4:
                slots += 1
                if run[0] or run[1] % SLAB_UNIT or run[1] + run[2] > slab.units * SLAB_UNIT or run[3] > 1:
                    tally.complain(f"a batch of {run[3]} items was put at {run[:3]}")
        consumer.close()
        producer.close()
        slab.close()
    for guard in guards:
        if any(guard):
            tally.complain("something was written outside the ring of a lane and its slab")
    tally.notes.append(f"{delivered} packets delivered, {put >> 20} MiB put into rings, {slots} batches into slots")


# -- records -----------------------------------------------------------------------------------------------------------


def put_records(count: int, rng: random.Random, tally: Tally) -> None:
    runs = [records(rng) for _ in range(20)]
    memory = memoryview(mmap.mmap(-1, 4096 + RING_HEADER + (1 << 15) + 4096))
    guards = memory[:4096], memory[-4096:]
    codec = Codec()
    put = refused = undecoded = 0
    for case in range(count):
        ring_format(memory, 4096, 1 << 15, 1024)
        producer, consumer = RingProducer(memory, 4096), RingConsumer(memory, 4096)
        data = spoil(runs[case % len(runs)], rng)
        try:
            producer.put_run(data, 0, len(data))
            put += 1
        except RingCorruptError:
            refused += 1
        try:
            while consumer.has_data:
                found = consumer.pull(codec)
                if isinstance(found, tuple) and len(found) == 5:
                    found[4].release()
                    consumer.release()
        except (RingCorruptError, ValueError, UnicodeDecodeError, OverflowError, MemoryError):
            undecoded += 1
        consumer.close()
        producer.close()
    for guard in guards:
        if any(guard):
            tally.complain("something was written outside the ring")
    tally.notes.append(f"{put} runs put, {refused} refused, {undecoded} not decoded")


# -- link --------------------------------------------------------------------------------------------------------------


class Port:
    """A link in this process, its member's end, and the lines that it logs."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        limits = Limits(unproved=16, handshake_ns=20_000_000_000, message_bytes=1 << 20)
        self.link = Link(Channel(theirs, Order), Setup("b" * 32, "dev", Secret(SECRET), limits=limits), [])
        self.channel = Channel(ours, Event)
        self.channel.send(Listen("127.0.0.1:0"))
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger("shmjet.link")
        logger.propagate = False
        logger.handlers[:] = [handler]
        self.ups = 0
        self.address = ("", 0)
        while not self.address[1]:
            self.turn()

    def turn(self) -> None:
        self.link.turn(0)
        for event, _ in self.channel.poll():
            self.ups += isinstance(event, PeerUp)
            if isinstance(event, Listening):
                self.address = ("127.0.0.1", int(event.address.rpartition(":")[2]))

    def settle(self, sock: socket.socket) -> None:
        """Turn until the connection has ended on both sides, or a moment has passed with nothing to come."""
        deadline = time.monotonic() + 0.02
        while time.monotonic() < deadline:
            self.turn()
            try:
                if not sock.recv(1 << 16):
                    break
            except BlockingIOError:
                continue
            except OSError:
                break

    def close(self) -> None:
        self.link.close()
        self.channel.close()


def prove(port: Port, sock: socket.socket, number: int) -> bool:
    """Do a right handshake, as a member with a uuid of its own."""
    me = Identity(MEMBER, "dev", f"{number:032x}", "", SECRET)
    dialing = Dialing(me, os.urandom(32), b"")
    sock.sendall(dialing.start())
    deadline = time.monotonic() + HANG_S / 2
    while not dialing.done and time.monotonic() < deadline:
        port.turn()
        try:
            answer = dialing.feed(sock.recv(4096))
        except BlockingIOError:
            continue
        if answer:
            sock.sendall(answer)
    return dialing.done


def attack(count: int, rng: random.Random, tally: Tally) -> None:
    port = Port()
    hello, proof = right_handshake()
    streams = [right_packets(rng) for _ in range(5)]
    ended = 0
    for case in range(max(count, 20)):
        port.lines.clear()
        before = port.ups
        with socket.create_connection(port.address) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            proved = case % 2 == 1
            if proved and not prove(port, sock, case + 1):
                tally.complain("a right handshake was not believed")
            data = spoil(streams[case % 5], rng) if proved else spoil(hello + proof, rng)
            slowly = case % 4 > 1
            try:
                for piece in (data[at : at + 97] for at in range(0, len(data), 97)) if slowly else (data,):
                    sock.sendall(piece)
                    if slowly:
                        port.turn()
            except OSError:
                pass
            port.settle(sock)
        deadline = time.monotonic() + HANG_S / 2
        while (port.link.connections.pending or port.link.peers) and time.monotonic() < deadline:
            port.turn()
        port.turn()
        if len(port.lines) > 1:
            tally.complain(f"one connection, and {len(port.lines)} lines: {port.lines}")
        if port.ups != before + proved:
            tally.complain("a stranger was let in" if port.ups > before + proved else "a member was not let in")
        ended += bool(port.lines)
    with socket.create_connection(port.address) as sock:
        sock.setblocking(False)
        tally.check(prove(port, sock, 1 << 40), "the link does not answer any more")
    port.close()
    tally.notes.append(f"{ended} connections ended with a line")


# -- all ---------------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[int, random.Random, Tally], None]] = {
    "handshake": handshakes,
    "packets": read_packets,
    "records": put_records,
    "link": attack,
}


def resident() -> int:
    """Bytes of memory that this process has now, without what malloc only keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def fuzz(seconds: int, tally: Tally) -> int:
    """Let atheris choose the bytes."""
    try:
        import atheris
    except ImportError:
        print("hostile_bytes: atheris is not installed; run without --fuzz, or pip install atheris")
        return 2

    def one(data: bytes) -> None:
        rng = random.Random(hmac.digest(b"", data, "sha256"))
        for reader in (lambda: Answering(BOB, NONCES[1], b"").feed(data), lambda: feed_reader(data, rng)):
            with contextlib.suppress(HandshakeError, PacketError):
                reader()

    def feed_reader(data: bytes, rng: random.Random) -> None:
        reader = packet_reader(lambda *_: None, lambda header: memoryview(bytearray(header.length)))
        for piece in pieces(data, rng):
            room = reader.room()[: len(piece)]
            room[:] = piece[: len(room)]
            reader.received(len(room))

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}"], one)
    atheris.Fuzz()
    return tally.finish()


def main() -> int:
    seconds = 0
    if "--fuzz" in sys.argv:
        at = sys.argv.index("--fuzz")
        seconds = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    options: Options = parse_options(__doc__, count=COUNT, ci=CI_COUNT, parts=PARTS)
    tally = Tally("hostile_bytes", options)
    if seconds:
        return fuzz(seconds, tally)
    unpickled: list[str] = []

    def never(*_: object, **__: object) -> None:
        unpickled.append("pickle was called")
        raise RuntimeError("something was unpickled")

    rng = random.Random(options.seed)
    right_packets(rng)  # before pickling is forbidden: imports, caches
    originals = pickle.loads, pickle.load, pickle.Unpickler
    pickle.loads = pickle.load = never  # type: ignore[assignment]
    pickle.Unpickler = never  # type: ignore[assignment,misc]
    try:
        for part in PARTS:
            if not options.wants(part):
                continue
            count = int(options.count * SHARES[part])
            function = FUNCTIONS[part]
            function(count // 20 + 20, rng, tally)  # warm: what is kept for good is there
            tally.notes.clear()
            before, share = resident(), max(1, count // 20)
            for start in range(0, count, share):
                watch(HANG_S)
                function(min(share, count - start), rng, tally)
                tally.done += min(share, count - start)
            grown = resident() - before
            options.say(f"{part}: {count} cases, memory grew by {grown >> 10} KiB")
            tally.check(grown < MOST_GROWTH, f"{part}: memory grew by {grown >> 20} MiB")
    finally:
        pickle.loads, pickle.load, pickle.Unpickler = originals  # type: ignore[misc]
    tally.check(not unpickled, f"pickle was called {len(unpickled)} times")
    tally.notes.clear()
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
