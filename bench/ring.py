"""Messages and lists of items from one process to another: shmjet's ring against queues, pipes, sockets and memcpy.

Every run forks a child that sends; the parent receives and counts. Both are pinned to cores of their own where there
are two. One by one means one call for each message on the sending side; all receivers take what their library hands
out.

* ring_64B, ring_64B_batched: `bytes` of 64, one by one and in lists of 256.
* ring_16K, ring_256K: buffers, copied into the ring and out again to a warm buffer, against one copy of the same bytes
  into a buffer of the ring's size within one process.
* codec_ints, codec_tuples: lists of 256 ints, or (word, count) pairs, against pickle 5 through the same ring.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from _harness import Bench, Options, Report, parse_options
from _rings import Ring, transfer

from shmjet._native import Codec

BENCHES = ["ring_64B", "ring_64B_batched", "ring_16K", "ring_256K", "codec_ints", "codec_tuples"]
MESSAGE = bytes(range(64))
RAW = 9
"""A record kind of the bench's own: the payload is handed out as it is."""
fork = multiprocessing.get_context("fork")


def items_through(
    ring: Ring, chunk: list[Any], per_push: int, count: int, take: Callable[[list[Any]], object] = len
) -> float:
    """Send `count` items as columns, `per_push` of `chunk` at a time; `take` gets every list that arrives."""
    ring.reset()

    def send() -> None:
        producer, wait = ring.producer()
        push, codec = producer.push, Codec()
        if per_push == 1:
            for _ in range(count):
                while not push(codec, chunk, 0, 1):
                    wait()
            return
        left = count
        while left:
            position, stop = 0, min(per_push, left)
            while position < stop:
                accepted = push(codec, chunk, position, stop)
                position += accepted
                if not accepted:
                    wait()
            left -= stop

    def receive() -> None:
        consumer, wait = ring.consumer()
        pull, codec, left = consumer.pull, Codec(), count
        while left:
            got: Any = pull(codec, 256)
            if got is None:
                wait()
            else:
                take(got)
                left -= len(got)

    return transfer(send, receive, count)


def take_each(messages: list[Any]) -> None:
    """Take every message in hand, as the peers' receivers do."""
    for _ in messages:
        pass


def records_through(
    ring: Ring,
    encode: Callable[[], bytes | memoryview],
    decode: Callable[[memoryview], object],
    records: int,
    each: float,
) -> float:
    """Send records that `encode` makes and `decode` reads; `each` things a record."""
    ring.reset()

    def send() -> None:
        producer, wait = ring.producer()
        for _ in range(records):
            payload = [encode()]
            while not producer.push_bytes(RAW, 0, 0, 1, payload):
                wait()

    def receive() -> None:
        consumer, wait = ring.consumer()
        codec, left = Codec(), records
        while left:
            got: Any = consumer.pull(codec)
            if got is None:
                wait()
                continue
            payload = got[4]
            decode(payload)
            payload.release()
            consumer.release()
            left -= 1

    return transfer(send, receive, records * each)


# -- peers for small messages ------------------------------------------------------------------------------------------


def through_queue(count: int) -> float:
    queue = fork.Queue()

    def send() -> None:
        for _ in range(count):
            queue.put(MESSAGE)
        queue.close()
        queue.join_thread()

    try:
        return transfer(send, lambda: [queue.get() for _ in range(count)], count)
    finally:
        queue.close()
        queue.join_thread()


def through_pipe(count: int) -> float:
    reader, writer = fork.Pipe(duplex=False)

    def send() -> None:
        for _ in range(count):
            writer.send(MESSAGE)

    with reader, writer:
        return transfer(send, lambda: [reader.recv() for _ in range(count)], count)


def through_faster_fifo(count: int) -> float:
    import faster_fifo  # type: ignore[import-not-found, import-untyped, unused-ignore]

    queue = faster_fifo.Queue(max_size_bytes=1 << 20)

    def receive() -> None:
        left = count
        while left:
            left -= len(queue.get_many(timeout=10))

    return transfer(lambda: [queue.put(MESSAGE, timeout=10) for _ in range(count)], receive, count)


def through_pyzmq(count: int) -> float:
    import zmq

    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/socket"

        def send() -> None:
            socket = zmq.Context().socket(zmq.PUSH)
            socket.connect(address)
            for _ in range(count):
                socket.send(MESSAGE)
            socket.close()

        def receive() -> None:
            context = zmq.Context()
            socket = context.socket(zmq.PULL)
            socket.bind(address)
            for _ in range(count):
                socket.recv()
            socket.close()
            context.term()

        return transfer(send, receive, count)


# -- benches -------------------------------------------------------------------------------------------------------


def small_messages(options: Options, name: str) -> Bench:
    scale = 1 if options.quick else 4
    bench = Bench(name, "msg/s")
    ring = bench.resources.enter_context(Ring(1 << 18, 1 << 12))
    per_push = 256 if name.endswith("batched") else 1
    chunk = [bytes(MESSAGE) for _ in range(per_push)]
    bench.ours(
        lambda: items_through(ring, chunk, per_push, (2_000_000 if per_push > 1 else 1_000_000) * scale, take_each)
    )
    bench.peer("multiprocessing.Queue", lambda: through_queue(30_000 * scale))
    bench.peer("multiprocessing.Pipe", lambda: through_pipe(100_000 * scale))
    bench.peer("faster-fifo", lambda: through_faster_fifo(100_000 * scale), needs="faster_fifo")
    bench.peer("pyzmq", lambda: through_pyzmq(100_000 * scale), needs="zmq")
    return bench


def large_messages(options: Options, name: str, size: int) -> Bench:
    capacity = 1 << 22
    total = (2 if options.quick else 8) << 30
    bench = Bench(name, "B/s")
    ring = bench.resources.enter_context(Ring(capacity, 1 << 12))
    source, target = memoryview(bytearray(os.urandom(size))), memoryview(bytearray(size))
    area = memoryview(bytearray(capacity))

    def copy_out(payload: memoryview) -> None:
        target[:] = payload

    def memcpy() -> float:
        slots = [area[at : at + size] for at in range(0, capacity, size)]
        start = time.perf_counter()
        for _ in range(total // capacity):
            for slot in slots:
                slot[:] = source
        return total / (time.perf_counter() - start)

    bench.ours(lambda: records_through(ring, lambda: source, copy_out, total // size, size))
    bench.peer("memcpy", memcpy)
    return bench


def codec(options: Options, name: str) -> Bench:
    choose = random.Random(5)
    if name == "codec_ints":
        chunk: list[Any] = [choose.randrange(10**9) for _ in range(256)]
    else:
        chunk = [(f"word{choose.randrange(5000)}", choose.randrange(1000)) for _ in range(256)]
    lists = (4_000_000 if options.quick else 16_000_000) // 256
    bench = Bench(name, "items/s")
    ring = bench.resources.enter_context(Ring(1 << 18, 1 << 12))
    bench.ours(lambda: items_through(ring, chunk, 256, lists * 256))
    bench.peer(
        "pickle5", lambda: records_through(ring, lambda: pickle.dumps(chunk, 5), pickle.loads, lists, len(chunk))
    )
    return bench


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    makers: dict[str, Callable[[], Bench]] = {
        "ring_64B": lambda: small_messages(options, "ring_64B"),
        "ring_64B_batched": lambda: small_messages(options, "ring_64B_batched"),
        "ring_16K": lambda: large_messages(options, "ring_16K", 16 << 10),
        "ring_256K": lambda: large_messages(options, "ring_256K", 256 << 10),
        "codec_ints": lambda: codec(options, "codec_ints"),
        "codec_tuples": lambda: codec(options, "codec_tuples"),
    }
    for name, make in makers.items():
        if options.wants(name):
            with make() as bench:
                report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
