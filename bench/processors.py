"""What an item costs in the ready-made processors, in nanoseconds, beside the bare Python that does the same.

A driver plays the engine: it fills the inbox with batches, calls the processor and empties the outbox. So the figures
hold the processor and the outbox, and no lanes, processes or waiting. Peers are the loops one would write by hand.

    python bench/processors.py [--json] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from shmjet import processors
from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox

BATCH = 1024


def drive(supplier: Callable[[], Any], batches: list[list[Any]]) -> int:
    """Run one processor over batches; return how many items it emitted."""
    processor, inbox, outbox = supplier(), Inbox(), Outbox([2048])
    processor.init(outbox, ProcessorContext())
    bucket = outbox.buckets[0]
    emitted = 0

    def call(callback: Callable[..., Any], *args: Any) -> Any:
        nonlocal emitted
        outbox.begin_callback()
        result = callback(*args)
        emitted += len(bucket)
        bucket.clear()
        return result

    for batch in batches:
        while not call(processor.try_process):
            pass
        inbox.fill(batch)
        while inbox:
            call(processor.process, 0, inbox)
    while not call(processor.complete):
        pass
    processor.close()
    return emitted


def batches_of(items: list[Any]) -> list[list[Any]]:
    """Cut a list into fresh batches."""
    return [items[at : at + BATCH] for at in range(0, len(items), BATCH)]


def cases(count: int, folder: str) -> Iterator[tuple[str, int, Callable[[], Any], Callable[[], Any], str]]:
    """Yield (name, items, a function that makes shmjet's run, peer, name of the peer)."""
    rng = random.Random(1)
    words = [f"word{int(rng.paretovariate(0.5)) % 50_000}" for _ in range(count)]
    lines = [" ".join(words[at : at + 9]) for at in range(0, count, 9)]
    pairs = [(word, 1) for word in words]

    def split(line: str) -> list[str]:
        return line.lower().split()

    def succ(word: str) -> str:
        return word

    def long(word: str) -> bool:
        return len(word) > 6

    def run(supplier: Callable[[], Any], items: list[Any]) -> Callable[[], Any]:
        def ready() -> Callable[[], Any]:
            batches = batches_of(items)  # what the engine has done before the processor is called
            return lambda: drive(supplier, batches)

        return ready

    yield "map", count, run(processors.map_(succ), words), lambda: [*map(succ, words)], "list(map())"
    yield "filter", count, run(processors.filter_(long), words), lambda: [*filter(long, words)], "list(filter())"
    yield (
        "flat_map_split",
        count,
        run(processors.flat_map(split), lines),
        lambda: list(chain.from_iterable(map(split, lines))),
        "chain.from_iterable",
    )
    op = processors.counting()
    yield (
        "count_by_key",
        count,
        run(processors.accumulate_by_key(lambda word: word, op), words),
        lambda: Counter(words),
        "Counter",
    )

    def merge() -> None:
        table: dict[str, int] = {}
        for word, n in pairs:
            table[word] = table.get(word, 0) + n

    yield "combine_by_key", count, run(processors.combine_by_key(op), pairs), merge, "dict loop"
    yield "distinct", count, run(processors.distinct(), words), lambda: dict.fromkeys(words), "dict.fromkeys"
    yield "sort", count, run(processors.sort(), words), lambda: sorted(words), "sorted"

    def group() -> None:
        table: dict[str, list[str]] = {}
        for word in words:
            table.setdefault(word, []).append(word)

    yield (
        "group_and_collect",
        count,
        run(processors.group_and_collect(None, list, list.append), words),
        group,
        "dict loop",
    )
    path = os.path.join(folder, "text")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")

    def read_all() -> None:
        meta = processors.read_files(path)
        meta.init(MetaSupplierContext())
        supplier = meta.get(["here"])["here"]  # type: ignore[index]
        drive(lambda: supplier.get(1)[0], [])
        meta.close(None)

    def read_plainly() -> None:
        with open(path, encoding="utf-8", errors="replace") as file:
            for _ in file:
                pass

    yield "read_files_lines", len(lines), lambda: read_all, read_plainly, "text file iterator"


def measure(fn: Callable[[], Any]) -> float:
    """Return the nanoseconds of one run."""
    start = time.perf_counter_ns()
    fn()
    return time.perf_counter_ns() - start


def main() -> None:
    """Measure all cases and print a table, or JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=1, help="ignored: one processor is measured")
    options = parser.parse_args()
    count, rounds = (200_000, 3) if options.quick else (1_000_000, 7)
    with tempfile.TemporaryDirectory() as folder:
        for name, items, ours, theirs, peer in cases(count, folder):
            runs = [(measure(ours()), measure(theirs)) for _ in range(rounds)]
            mine, other = (statistics.median(column) / items for column in zip(*runs, strict=True))
            if options.json:
                result = {
                    "bench": f"processors_{name}",
                    "unit": "ns/item",
                    "shmjet": round(mine, 2),
                    "peers": {peer: round(other, 2)},
                    "ratio": {peer: round(other / mine, 3)},
                }
                print(json.dumps(result))
            else:
                print(f"{name:20} {mine:8.1f} ns/item   {peer:20} {other:8.1f} ns/item   ratio {other / mine:.2f}")


if __name__ == "__main__":
    main()
