"""What an item costs in the ready-made processors, in nanoseconds, compared with the bare Python that does the same.

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
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

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


class Case(NamedTuple):
    """What one bench compares."""

    name: str
    items: int
    ready: Callable[[], Callable[[], Any]]
    """Prepares a run of shmjet's and returns it: what is done here is not timed."""
    peer: str
    by_hand: Callable[[], Any]


def fed(supplier: Callable[[], Any], items: list[Any]) -> Callable[[], Callable[[], Any]]:
    """Return what prepares a run of one processor over items."""

    def ready() -> Callable[[], Any]:
        batches = batches_of(items)  # what the engine has done before the processor is called
        return lambda: drive(supplier, batches)

    return ready


def transformations(words: list[str], lines: list[str]) -> Iterator[Case]:
    """Yield the processors that look at items one by one."""

    def same(word: str) -> str:
        return word

    def long(word: str) -> bool:
        return len(word) > 6

    def split(line: str) -> list[str]:
        return line.lower().split()

    count = len(words)
    yield Case("map", count, fed(processors.map_(same), words), "list(map())", lambda: [*map(same, words)])
    yield Case("filter", count, fed(processors.filter_(long), words), "list(filter())", lambda: [*filter(long, words)])
    splitting = fed(processors.flat_map(split), lines)
    yield Case(
        "flat_map_split", count, splitting, "chain.from_iterable", lambda: list(chain.from_iterable(map(split, lines)))
    )


def aggregations(words: list[str]) -> Iterator[Case]:
    """Yield the processors that keep something of all items."""
    count, pairs, op = len(words), [(word, 1) for word in words], processors.counting()

    def merge() -> None:
        table: dict[str, int] = {}
        for word, n in pairs:
            table[word] = table.get(word, 0) + n

    def group() -> None:
        table: dict[str, list[str]] = {}
        for word in words:
            table.setdefault(word, []).append(word)

    counting = fed(processors.accumulate_by_key(lambda word: word, op), words)
    yield Case("count_by_key", count, counting, "Counter", lambda: Counter(words))
    yield Case("combine_by_key", count, fed(processors.combine_by_key(op), pairs), "dict loop", merge)
    yield Case("distinct", count, fed(processors.distinct(), words), "dict.fromkeys", lambda: dict.fromkeys(words))
    yield Case("sort", count, fed(processors.sort(), words), "sorted", lambda: sorted(words))
    collecting = fed(processors.group_and_collect(None, list, list.append), words)
    yield Case("group_and_collect", count, collecting, "dict loop", group)


def reading(lines: list[str], folder: str) -> Case:
    """Return the source of lines, which reads a file in the folder."""
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

    return Case("read_files_lines", len(lines), lambda: read_all, "text file iterator", read_plainly)


def cases(count: int, folder: str) -> Iterator[Case]:
    """Yield all cases, of about `count` words."""
    rng = random.Random(1)
    words = [f"word{int(rng.paretovariate(0.5)) % 50_000}" for _ in range(count)]
    lines = [" ".join(words[at : at + 9]) for at in range(0, count, 9)]
    yield from transformations(words, lines)
    yield from aggregations(words)
    yield reading(lines, folder)


def nanoseconds(items: int, run: Callable[[], Any]) -> float:
    """What one run takes per item."""
    return 1e9 * elapsed(run) / items


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    count = 200_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(count, folder):
            name = f"processors_{case.name}"
            if options.wants(name):
                with Bench(name, "ns/item") as bench:
                    bench.ours(lambda case=case: nanoseconds(case.items, case.ready()))  # type: ignore[misc]
                    bench.peer(case.peer, partial(nanoseconds, case.items, case.by_hand))
                    report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
