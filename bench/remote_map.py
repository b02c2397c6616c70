"""Maps of a Hazelcast cluster, in and out, next to the official Python client alone.

    python bench/remote_map.py [--json] [--quick] [--workers N]

remote_map_in puts entries that are given into a map, remote_map_out brings all entries of a map to this process, both
with one member of Hazelcast on this host. Each run of ours is a job from its submission to its end, its connections
included. The client alone puts the same entries in batches of the same size, and asks for all entries at once; it is
connected before.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from _harness import Bench, Options, Report, parse_options, rate

from shmjet import JetConfig, JetInstance, Pipeline, new_instance, sinks, sources
from shmjet.core.latency_policy import THROUGHPUT
from tests.hazelcast_members import HazelcastMember, free_ports, jar

BENCHES = ["remote_map_in", "remote_map_out"]
CLIENT = "hazelcast-python-client"
HEAP = "2g"


def put_by_job(jet: JetInstance, config: dict[str, Any], entries: list[tuple[str, int]]) -> None:
    """Put entries with a job."""
    p = Pipeline()
    p.read_from(sources.items(entries)).write_to(sinks.remote_map("in", config))
    jet.new_job(p).run()


def put_by_client(client: Any, entries: list[tuple[str, int]]) -> None:
    """Put entries in batches."""
    target, size = client.get_map("in").blocking(), THROUGHPUT.write_items
    for at in range(0, len(entries), size):
        target.put_all(dict(entries[at : at + size]))


def get_by_job(jet: JetInstance, config: dict[str, Any], count: int) -> None:
    """Bring all entries here with a job."""
    p, results = Pipeline(), sinks.collect()
    p.read_from(sources.remote_map("out", config)).write_to(results)
    jet.new_job(p).run()
    assert len(list(results)) == count


def get_by_client(client: Any, count: int) -> None:
    """Ask for all entries."""
    assert len(list(client.get_map("out").entry_set().result())) == count


def measure(options: Options, report: Report, member: HazelcastMember) -> None:
    """Measure what was asked for with a member that runs."""
    import hazelcast

    count = 100_000 if options.quick else 500_000
    entries = [(f"w{number:x}", number) for number in range(count)]
    client = hazelcast.HazelcastClient(**member.config)
    try:
        client.get_map("out").put_all(dict(entries)).result()
        with new_instance(JetConfig(cores=options.workers)) as jet:
            if options.wants("remote_map_in"):
                with Bench("remote_map_in", "entries/s") as bench:
                    bench.ours(lambda: rate(count, lambda: put_by_job(jet, member.config, entries)))
                    bench.peer(CLIENT, lambda: rate(count, lambda: put_by_client(client, entries)))
                    report.add(bench.measure(rounds=options.rounds))
            if options.wants("remote_map_out"):
                with Bench("remote_map_out", "entries/s") as bench:
                    bench.ours(lambda: rate(count, lambda: get_by_job(jet, member.config, count)))
                    bench.peer(CLIENT, lambda: rate(count, lambda: get_by_client(client, count)))
                    report.add(bench.measure(rounds=options.rounds))
    finally:
        client.shutdown()


def main() -> int:
    options = parse_options(__doc__, benches=BENCHES)
    report = Report(options)
    with tempfile.TemporaryDirectory(prefix="shmjet-bench-") as folder:
        try:
            jar()
            import hazelcast  # noqa: F401
        except (RuntimeError, ModuleNotFoundError) as error:
            print(f"remote_map.py: skipped: {error}", file=sys.stderr)
            return 0
        member = HazelcastMember(Path(folder), free_ports(1)[0], heap=HEAP)
        try:
            measure(options, report, member)
        finally:
            member.close()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
