"""Maps of a cluster: writes with a backup, lookups, and partitions that move, next to Hazelcast and Redis.

    python bench/grid_cluster.py [--json] [--quick]

All members are on this host, two of each kind with one backup unless something else is said, and clients talk to them
by TCP. Targets: those of the ratios are given with each result.

grid_cluster_put_all, entries/s: `put_all` of text to int, without a backup, and with Hazelcast's client.
grid_cluster_local_get, us: the median of a lookup by the process of a member, of keys that lie there.
grid_cluster_remote_get, us: the median of a lookup by a client, of any key; one request at a time.
grid_cluster_put, us: the median of a `put` by a client, of any key.
grid_cluster_move_60KB, MB/s: a second member gets its copy of all; peer: the same bytes by a socket.
grid_cluster_move_100B, MB/s: the same; peer: `put_all` of the same entries where no network is.
grid_cluster_p99, us: the 99th percentile of a client's `put` while a third member gets its part, and at rest.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from _grid_peers import Members, hazelcast_client, redis_client, send_by_sockets
from _harness import Bench, Options, PeerSkipped, Report, elapsed, parse_options, rate

import shmjet
from shmjet.core.keys import partition_id

HAZELCAST = "hazelcast-python-client"
LOOKUPS = 1000
KEYS = 10_000


def pairs_of(count: int) -> dict[str, int]:
    """Return entries of text to int."""
    return {f"w{number:x}": number for number in range(count)}


def median_us(calls: Callable[[Any], object], keys: Sequence[Any]) -> float:
    """Return the median of the microseconds that a call with each key takes."""
    return statistics.median(times_us(calls, keys))


def times_us(calls: Callable[[Any], object], keys: Sequence[Any]) -> list[float]:
    """Return the microseconds that a call with each key takes."""
    clock, found = time.perf_counter, []
    for key in keys:
        begin = clock()
        calls(key)
        found.append(1e6 * (clock() - begin))
    return found


def add_hazelcast(bench: Bench, options: Options, run: Callable[[Any], float], fill: dict[str, int]) -> None:
    """Add Hazelcast as a peer, with a map `m` that has some entries."""
    if not options.wants_peer(HAZELCAST):
        return
    try:
        there = hazelcast_client(bench.resources).get_map("m").blocking()
    except PeerSkipped as reason:
        bench.skip(HAZELCAST, str(reason))
        return
    there.put_all(fill)
    bench.peer(HAZELCAST, lambda: run(there))


def put_all(bench: Bench, options: Options) -> None:
    """Put many entries at once."""
    bench.facts["target"] = f"ratio >= 0.6 to the same without a backup, 10 to {HAZELCAST}"
    pairs = pairs_of(50_000 if options.quick else 200_000)
    bench.facts["entries"] = len(pairs)
    for name, backups in (("shmjet", 1), ("without a backup", 0)):
        there = Members(bench.resources, 2, backups).client.get_map("m")

        def run(there: Any = there) -> float:
            there.clear()
            return rate(len(pairs), lambda: there.put_all(pairs))

        (bench.ours(run) if name == "shmjet" else bench.peer(name, run))
    some = dict(list(pairs.items())[:20_000])

    def by_hazelcast(there: Any) -> float:
        there.clear()
        return rate(len(some), lambda: there.put_all(some))

    add_hazelcast(bench, options, by_hazelcast, {})


def some_keys(pairs: dict[str, int], count: int = LOOKUPS) -> list[str]:
    """Return keys in no order."""
    return random.Random(3).sample(list(pairs), count)


def local_get(bench: Bench, options: Options) -> None:
    """Look keys up where they are."""
    bench.facts["target"] = f"ratio >= 20 to {HAZELCAST}"
    pairs = pairs_of(KEYS)
    here = Members(bench.resources, 2, 1).instances[0].get_map("m")
    here.put_all(pairs)
    own = set(here.local_partitions)
    keys = [key for key in some_keys(pairs, 4 * LOOKUPS) if partition_id(key) in own][:LOOKUPS]
    bench.ours(lambda: median_us(here.get, keys))
    add_hazelcast(bench, options, lambda there: median_us(there.get, keys), pairs)


def remote_get(bench: Bench, options: Options) -> None:
    """Look keys up from elsewhere."""
    bench.facts["target"] = "ratio >= 0.5 to redis"
    pairs = pairs_of(KEYS)
    there = Members(bench.resources, 2, 1).client.get_map("m")
    there.put_all(pairs)
    keys = some_keys(pairs)
    bench.ours(lambda: median_us(there.get, keys))
    add_hazelcast(bench, options, lambda other: median_us(other.get, keys), pairs)
    if options.wants_peer("redis"):
        try:
            server = redis_client(bench.resources)
        except PeerSkipped as reason:
            bench.skip("redis", str(reason))
        else:
            server.mset(pairs)
            bench.peer("redis", lambda: median_us(server.get, keys))


def put(bench: Bench, options: Options) -> None:
    """Put one entry after the other."""
    bench.facts["target"] = f"at most 500 us, and ratio >= 2 to {HAZELCAST}"
    pairs = pairs_of(KEYS)
    members = Members(bench.resources, 2, 1)
    there, here = members.client.get_map("m"), members.instances[0].get_map("m")
    there.put_all(pairs)
    keys = some_keys(pairs)
    bench.ours(lambda: median_us(lambda key: there.put(key, 1), keys))
    own = set(here.local_partitions)
    bench.peer(
        "by a member's process, keys of its own",
        lambda: median_us(lambda key: here.put(key, 1), [key for key in keys if partition_id(key) in own]),
    )
    add_hazelcast(bench, options, lambda other: median_us(lambda key: other.put(key, 1), keys), pairs)


def move(bench: Bench, options: Options, size: int) -> None:
    """Have a second member get a copy of all."""
    whole = 30 << 20 if options.quick else 120 << 20
    if size < 1000:
        whole //= 6
    entries = {number: os.urandom(size) for number in range(whole // size)}
    members = Members(bench.resources, 1, 1)
    members.instances[0].get_map("m").put_all(entries)
    bench.facts["MB"] = round(whole / 1e6)

    def run() -> float:
        begun = threading.Event()
        seconds: list[float] = []

        def watch() -> None:
            cluster = members.instances[0].cluster
            while len(cluster.members) < 2:
                time.sleep(0.001)
            begin = time.perf_counter()
            begun.set()
            while not (cluster.is_safe and len(cluster.members) == 2):
                time.sleep(0.001)
            seconds.append(time.perf_counter() - begin)

        watcher = threading.Thread(target=watch)
        watcher.start()
        members.add()
        watcher.join()
        members.settle()
        members.remove()
        return whole / 1e6 / seconds[0]

    bench.ours(run)
    if size > 1000:
        bench.facts["target"] = "ratio >= 0.3 to a bare socket"
        bench.peer("bare socket", lambda: whole / 1e6 / send_by_sockets(whole))
    else:
        bench.facts["target"] = "ratio >= 0.7 to a local put_all"
        alone = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=1))).get_map("m")

        def put_here() -> float:
            alone.clear()
            return whole / 1e6 / elapsed(lambda: alone.put_all(entries))

        bench.peer("local put_all", put_here)


def p99(bench: Bench, options: Options) -> None:
    """Put while partitions move, and while they do not."""
    bench.facts["target"] = "ratio >= 0.2 to the same at rest"
    members = Members(bench.resources, 2, 1)
    entries = {number: os.urandom(1000) for number in range(10_000 if options.quick else 50_000)}
    there = members.client.get_map("m")
    there.put_all(entries)
    keys = list(entries)
    value = os.urandom(1000)

    def write(done: Callable[[], bool]) -> float:
        chance, found = random.Random(5), list[float]()
        while not done() or len(found) < 100:
            found += times_us(lambda key: there.put(key, value), [chance.choice(keys)])
        return statistics.quantiles(found, n=100)[98]

    def moving() -> float:
        settled, come = threading.Event(), threading.Event()

        def join() -> None:
            members.add()
            members.settle()
            settled.set()

        def watch() -> None:
            while len(members.instances[0].cluster.members) < 3:
                time.sleep(0.001)
            come.set()

        threads = [threading.Thread(target=join), threading.Thread(target=watch)]
        for thread in threads:
            thread.start()
        come.wait()
        found = write(settled.is_set)
        for thread in threads:
            thread.join()
        members.remove()
        return found

    bench.ours(moving)
    end = 1.0 if options.quick else 3.0

    def at_rest() -> float:
        until = time.perf_counter() + end
        return write(lambda: time.perf_counter() >= until)

    bench.peer("at rest", at_rest)


BENCHES: dict[str, tuple[str, Callable[[Bench, Options], None]]] = {
    "grid_cluster_put_all": ("entries/s", put_all),
    "grid_cluster_local_get": ("us", local_get),
    "grid_cluster_remote_get": ("us", remote_get),
    "grid_cluster_put": ("us", put),
    "grid_cluster_move_60KB": ("MB/s", lambda bench, options: move(bench, options, 60_000)),
    "grid_cluster_move_100B": ("MB/s", lambda bench, options: move(bench, options, 100)),
    "grid_cluster_p99": ("us", p99),
}


def main() -> int:
    options = parse_options(__doc__, benches=list(BENCHES))
    report = Report(options)
    for name, (unit, prepare) in BENCHES.items():
        if options.wants(name):
            with Bench(name, unit) as bench:
                prepare(bench, options)
                report.add(bench.measure(rounds=3))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
