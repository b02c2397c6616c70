"""A billion items from one process to another through a ring lane: every one arrives once, in order, as it was.

The items are ints of all widths that the codec knows, in chunks that both sides make from the seed. The sender pushes
them whole, in pieces, or one by one, and rests now and then, so that both sides sleep, the ring is full and empty, and
its producer does with and without fences. The receiver compares every list with what it should be; at the end count and
checksum of both sides have to agree.

Usage: stress/checksum.py [--items N] [--seed S] [--ci]     (--ci: 50 million items, a few seconds)
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator

from _stress import Options, Tally, watch

from shmjet._native import DOORBELL_SIZE, RING_HEADER, Codec, Doorbell, Poller, RingConsumer, RingProducer, ring_format
from shmjet.data.marks import DONE
from shmjet.ring.arena import Arena
from shmjet.ring.lane import RingLaneReader, RingLaneWriter

ITEMS, CI_ITEMS = 10**9, 5 * 10**7
RING_AT = 4096
CAPACITY, QUEUE_SIZE = 1 << 18, 1 << 14
CHUNK, CHUNKS = 4096, 64
SECOND = 1_000_000_000
SPIN_NS = 20_000
WIDTHS = (7, 8, 15, 16, 31, 32, 62, 63)
"""Bits of the ints of a chunk; negative ones, too."""
SINGLES = 1 << 10
REST_S = 0.0005
HANG_S = 240.0
"""Seconds for which no item may arrive."""


def chunks_of(seed: int) -> list[list[int]]:
    """The chunks that items are taken from, the same on both sides."""
    rng = random.Random(seed)
    return [[rng.getrandbits(bits) - (1 << bits >> 1) for _ in range(CHUNK)] for bits in WIDTHS * (CHUNKS // 8)]


def stream(seed: int, items: int) -> Iterator[list[int]]:
    """The chunks in the order in which they are sent, `items` in all; the last one may be cut."""
    chunks, rng = chunks_of(seed), random.Random(seed + 1)
    while items:
        chunk = chunks[rng.randrange(CHUNKS)]
        yield chunk if items >= CHUNK else chunk[:items]
        items -= min(items, CHUNK)


class Side:
    """One process' end of the lane: its own doorbell, and the other side's."""

    def __init__(self, arena: Arena, own: int) -> None:
        bells = [Doorbell(arena.memory, side * DOORBELL_SIZE) for side in range(2)]
        self.bell, self.other, self.memory = bells[own], bells[1 - own], arena.memory

    def wait(self, poller: Poller) -> None:
        """Sleep until there are items, or room."""
        self.bell.wait([poller], 0, SPIN_NS, SECOND)


def send(arena: Arena, seed: int, items: int, report: int) -> None:
    """Push the stream, then DONE; count and checksum go to the pipe."""
    side = Side(arena, 0)
    writer = RingLaneWriter(RingProducer(side.memory, RING_AT, side.other), Codec())
    poller, rng = Poller([], [writer.producer]), random.Random(seed + 2)
    count = checksum = 0
    for chunk in stream(seed, items):
        manner = rng.randrange(1000)
        if manner == 0:
            time.sleep(REST_S)
        piece = 1 if manner < 2 else rng.randrange(1, CHUNK) if manner < 200 else CHUNK
        position = 0
        while position < len(chunk):
            part = chunk[position : position + piece] if piece < CHUNK else chunk
            sent = 0
            while sent < len(part):
                accepted = writer.push(part, sent)
                sent += accepted
                if not accepted:
                    side.wait(poller)
            position += len(part)
            if piece == 1 and position > SINGLES:
                piece = CHUNK - position
        count += len(chunk)
        checksum += sum(chunk)
    while not writer.push_mark(DONE):
        side.wait(poller)
    os.write(report, f"{count} {checksum}".encode())


def receive(arena: Arena, seed: int, items: int, tally: Tally) -> tuple[int, int]:
    """Pull to the end; returns count and checksum of what came."""
    side = Side(arena, 1)
    reader = RingLaneReader(RingConsumer(side.memory, RING_AT, side.other), Codec())
    poller, expected = Poller([reader.consumer], []), stream(seed, items)
    chunk: list[int] = []
    position = count = checksum = 0
    watch(HANG_S)
    watched = 0
    while (got := reader.pull()) is not DONE:
        if got is None:
            side.wait(poller)
            continue
        assert isinstance(got, list)
        checksum += sum(got)
        start = 0
        while start < len(got):
            if position == len(chunk):
                chunk, position = next(expected, []), 0
                if not tally.check(chunk, f"more came than the {items} items that were sent"):
                    return count, checksum
            size = min(len(got) - start, len(chunk) - position)
            if not tally.check(
                got[start : start + size] == chunk[position : position + size], f"wrong items after {count + start}"
            ):
                return count, checksum
            start += size
            position += size
        count += len(got)
        if count - watched > 10**7:
            watch(HANG_S)
            watched = count
    return count, checksum


def main() -> int:
    """Fork the sender, receive here, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, help=f"how many (default {ITEMS:,}, with --ci {CI_ITEMS:,})")
    parser.add_argument("--seed", type=int, help="of the random numbers (default: a new one, which is printed)")
    parser.add_argument("--ci", action="store_true", help="the short form")
    found = parser.parse_args()
    items = found.items if found.items is not None else CI_ITEMS if found.ci else ITEMS
    seed = secrets.randbelow(1 << 31) if found.seed is None else found.seed
    tally = Tally("checksum", Options(items, seed, found.ci, (), False))
    with Arena.create(RING_AT + RING_HEADER + CAPACITY, label="stress") as arena:
        ring_format(arena.memory, RING_AT, CAPACITY, QUEUE_SIZE)
        reports, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                send(arena, seed, items, report)
                status = 0
            finally:
                os._exit(status)
        os.close(report)
        start = time.monotonic()
        try:
            came = receive(arena, seed, items, tally)
            sent = () if tally.complaints else tuple(map(int, os.read(reports, 100).split()))
        finally:
            os.kill(pid, signal.SIGKILL)  # dead or not: it is still ours to wait for
            os.waitpid(pid, 0)
    seconds = time.monotonic() - start
    tally.check(came[0] == items, f"{came[0]} items came of {items}")
    tally.check(came == sent, f"count and checksum are {came}, but {sent} were sent")
    tally.done = came[0]
    tally.notes.append(f"checksum {came[1]:x}, {came[0] / seconds / 1e6:.1f} M items/s")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
