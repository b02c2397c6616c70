"""What an item costs in the ready-made processors, in nanoseconds, beside the bare Python that does the same.

A driver plays the engine: it fills the inbox with batches, calls the processor and empties the outbox. So the figures
hold the processor and the outbox, and no lanes, processes or waiting. Peers are the loops one would write by hand.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from _harness import Bench, Report, elapsed, parse_options

from shmjet import processors
from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox

BATCH = 1024
CASES = [
    *("map", "filter", "flat_map_split", "count_by_key", "combine_by_key", "distinct", "sort"),
    *("group_and_collect", "read_files_lines"),
]
BENCHES = [f"processors_{case}" for case in CASES]


def drive(supplier: Callable[[], Any], batches: list[list[Any]]) -> int:
    """Run one processor over batches; return how many items it emitted."""
    processor, inbox, outbox = supplier(), Inbox(), Outbox([2048])
    processor.init(outbox, ProcessorContext())
    emitted = 0

    def call(callback: Callable[..., Any], *args: Any) -> Any:
        nonlocal emitted
        outbox.begin_callback()
        result = callback(*args)
        emitted += len(outbox.buckets[0])
        outbox.buckets[0] = []  # as the engine does; it may be a list that the processor has given
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


def nanoseconds(items: int, run: Callable[[], Any]) -> float:
    """What one run takes per item."""
    return 1e9 * elapsed(run) / items


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    count = 200_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        for case, items, ours, theirs, peer in cases(count, folder):
            name = f"processors_{case}"
            if options.wants(name):
                with Bench(name, "ns/item") as bench:
                    bench.ours(lambda items=items, ours=ours: nanoseconds(items, ours()))  # type: ignore[misc]
                    bench.peer(peer, lambda items=items, theirs=theirs: nanoseconds(items, theirs))  # type: ignore[misc]
                    report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
