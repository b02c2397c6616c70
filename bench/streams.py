"""Counts by key in tumbling and sliding windows, in Python functions, against Bytewax.

`tumbling`, `sliding`: 1,000 keys, windows of a second, sliding by a tenth of it; target: 5 times the events a second of
Bytewax, which runs as one process and as one for each worker; the better one counts.
`tumbling_few_keys`, `tumbling_many_keys`, `sliding_many_keys`: 10 and 100,000 keys.
`tumbling_disorder`: events come up to a second late.

Events have timestamps of their own and come as fast as they are taken; the time is that of a whole run, from the first
event to the last result. All contenders have to count the same.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, measure_each

FOLDER = Path(__file__).resolve().parent
CHUNK_MS = 100
SOON_S = 600


@dataclass(frozen=True)
class Load:
    """What is counted.

    Args:
        events: how many, in all.
        keys: of the events.
        slide_ms: of the windows, whose size is a second.
        per_ms: events in each millisecond of event time.
        lag_ms: by so much less than this are events late.
    """

    events: int
    keys: int = 1_000
    slide_ms: int = 1_000
    per_ms: int = 100
    lag_ms: int = 0


LOADS = {
    "tumbling": Load(1_000_000),
    "sliding": Load(1_000_000, slide_ms=100),
    "tumbling_few_keys": Load(1_000_000, keys=10),
    "tumbling_many_keys": Load(1_000_000, keys=100_000),
    "sliding_many_keys": Load(1_000_000, keys=100_000, slide_ms=100),
    "tumbling_disorder": Load(1_000_000, lag_ms=1_000),
}


def chunks(load: Load, part: int, parts: int) -> Iterator[list[tuple[int, str]]]:
    """The events of one source partition: `(timestamp, key)`, as lists."""
    keys, per_ms, lag = load.keys, load.per_ms, load.lag_ms or 1
    for first in range(0, load.events // per_ms, CHUNK_MS):
        yield [
            (max(0, ms - ms * 7919 % lag), str(n % keys))
            for ms in range(first, first + CHUNK_MS)
            for n in range(ms * per_ms + part, (ms + 1) * per_ms, parts)
        ]


def ours(jet: Any, load: Load, workers: int) -> float:
    """Events a second of shmjet."""
    from shmjet import Pipeline, aggregate_ops, sinks, sliding, sources

    parts = workers

    def fill(events: Any, buffer: Any) -> None:
        made = next(events, None)
        if made is None:
            buffer.close()
        else:
            buffer.add_all(made)

    source = (
        sources.builder("events", lambda context: chunks(load, context.global_index, context.total_parallelism))
        .fill_buffer_fn(fill)
        .distributed(parts)
        .stream()
    )
    p = Pipeline()
    (
        p.read_from(source)
        .with_timestamps(lambda event: event[0], allowed_lag=load.lag_ms / 1000)
        .grouping_key(lambda event: event[1])
        .window(sliding(1, load.slide_ms / 1000))
        .aggregate(aggregate_ops.counting())
        .map(lambda found: found.result)
        .rebalance()
        .write_to(sinks.noop())
    )
    begin = time.perf_counter()
    jet.new_job(p).run(SOON_S)
    return load.events / (time.perf_counter() - begin)


def bytewax(load: Load, processes: int, parts: int) -> float:
    """Events a second of Bytewax."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder)
        settings = {
            "EVENTS": load.events,
            "KEYS": load.keys,
            "PER_MS": load.per_ms,
            "SIZE_MS": 1_000,
            "SLIDE_MS": load.slide_ms,
            "LAG_MS": load.lag_ms,
            "PARTS": parts,
            "NOTES": folder,
            "PYTHONPATH": f"{FOLDER}:{os.environ.get('PYTHONPATH', '')}",
        }
        command = [sys.executable, "-m", "bytewax.run", "_bytewax_windows:flow"]
        addresses = ";".join(f"127.0.0.1:{free_port()}" for _ in range(processes))
        children = [
            subprocess.Popen(
                command if processes == 1 else [*command, "-i", str(number), "-a", addresses],
                env={**os.environ, **{name: str(value) for name, value in settings.items()}},
                stderr=subprocess.PIPE,
            )
            for number in range(processes)
        ]
        for child in children:
            _, said = child.communicate(timeout=SOON_S)
            if child.returncode:
                raise PeerSkipped(f"bytewax: {said[-300:].decode()}")
        began = min(found(notes, "began"))
        check(load, int(sum(found(notes, "total"))))
        return load.events / (max(found(notes, "ended")) - began)


def found(notes: Path, name: str) -> list[float]:
    """The values that the processes have noted under a name."""
    return [json.loads(path.read_text()) for path in notes.glob(f"{name}-*")]


def check(load: Load, total: int) -> None:
    """Raise when not every event was counted in every window that it is in."""
    expected = load.events * (1_000 // load.slide_ms)
    if total != expected:
        raise AssertionError(f"{total} events were counted, not {expected}")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def windows(bench: Bench, options: Options, load: Load) -> None:
    """Prepare one row."""
    import shmjet
    from shmjet import Pipeline, aggregate_ops, sinks, sliding, sources  # noqa: F401  # as programs do, before they start

    if options.quick:
        load = Load(load.events // 4, load.keys, load.slide_ms, load.per_ms, load.lag_ms)
    jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
    bench.facts = {"workers": options.workers, "events": load.events, "keys": load.keys, "slide": load.slide_ms}
    bench.ours(lambda: ours(jet, load, options.workers))
    for processes in sorted({1, options.workers}):
        peer = f"bytewax, {processes} process{'es' if processes > 1 else ''}"
        if options.wants_peer(peer):
            bench.peer(peer, partial(bytewax, load, processes, options.workers), needs="bytewax")


def main() -> int:
    """Run the rows that were asked for."""
    rows = {name: ("events/s", partial(windows, load=load)) for name, load in LOADS.items()}
    return measure_each(__doc__, rows)


if __name__ == "__main__":
    sys.exit(main())
