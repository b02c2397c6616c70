"""Members are killed or stopped and started again, one at a time: maps and lists that stay and counters are as before.

Each round starts three members, every other round with a storage, and puts entries in a map and items in a list, which
stay as they are; a client counts in another map all the time. Then members end, one at a time, kindly or by kill -9,
and start anew, sometimes to end at once and start once more. When all is safe again, map, list and counters are
compared with what must be there.

Usage: stress/one_by_one.py [--count N] [--seed S] [--ci] [--only storage|memory] [--verbose]   (--ci: half a minute)
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from _member_commands import SECRET, Cluster, Wrong
from _stress import (
    HANG_S,
    ROOT,
    Options,
    Tally,
    all_gone,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    watch,
)

sys.path.insert(0, str(ROOT))

import shmjet
from shmjet import ClientConfig, JetInstance, ShmjetError

ENTRIES, AT_ONCE, ITEMS, COUNTERS = 5000, 500, 500, 100
EVENTS, EVENTS_CI = 25, 3
"""How often a member ends in a round; what went wrong once took many events of one cluster."""
PARTS = ("storage", "memory")
NEVER = ("differs from its backup", "said to have backups", "begin anew, empty")
"""What a member logs about copies that are not what they should be."""


class Counting:
    """A client's thread that counts in a map until it is stopped, and can be held while others look."""

    def __init__(self, counts: Any, rng: random.Random) -> None:
        self.counted: Counter[int] = Counter()
        self.error: Exception | None = None
        self.lock = threading.Lock()
        self._counts, self._rng = counts, rng
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(HANG_S)

    def _count(self) -> None:
        try:
            while not self._stopped.wait(0.001):
                with self.lock:
                    key = self._rng.randrange(COUNTERS)
                    self._counts.compute(key, lambda count: (count or 0) + 1)
                    self.counted[key] += 1
        except ShmjetError as error:
            self.error = error


class Round:
    """One cluster, and what happens to it.

    Args:
        cluster: members that have been started.
        jet: a client of it.
        rng: chooses.
        options: of the script.
    """

    def __init__(self, cluster: Cluster, jet: JetInstance, rng: random.Random, options: Options) -> None:
        self.cluster, self.jet, self.rng, self.options = cluster, jet, rng, options
        self.map, self.list, self.counts = jet.get_map("stays"), jet.get_list("stays"), jet.get_map("counts")
        self.happened: list[str] = []

    def run(self, events: int) -> None:
        for first in range(0, ENTRIES, AT_ONCE):
            self.map.put_all({key: key for key in range(first, first + AT_ONCE)})
        self.list.extend(range(ITEMS))
        self.cluster.settle(self.jet)
        counting = Counting(self.counts, random.Random(self.rng.random()))
        try:
            for _ in range(events):
                self.happen()
                if counting.error is not None:
                    raise Wrong(f"counting failed: {counting.error!r}")
                self.compare(counting)
        finally:
            counting.stop()

    def happen(self) -> None:
        """End one member, and start it again."""
        rng, cluster = self.rng, self.cluster
        member = rng.choice(cluster.members)
        for _ in range(2 if rng.random() < 0.2 else 1):  # the same one twice is one loss at a time, too
            kindly = rng.random() < 0.4
            member.end(kindly=kindly)
            self.happened.append(f"{cluster.members.index(member)} {'stopped' if kindly else 'killed'}")
            threading.Event().wait(rng.choice([0.0, 0.0, 0.2, 1.0]))
            cluster.start(ROOT, [member])
        cluster.settle(self.jet)
        self.options.say(self.happened[-1])

    def compare(self, counting: Counting) -> None:
        """Compare all that there is with what must be there."""
        wrong = []
        for way, found in (("items", dict(self.map.items())), ("get_all", self.map.get_all(range(ENTRIES)))):
            missing = sorted(set(range(ENTRIES)) - found.keys())
            odd = [(key, value) for key, value in found.items() if key != value]
            if missing or odd:
                wrong.append(f"{way}: {len(missing)} entries are missing, as {missing[:5]}; odd are {odd[:5]}")
        if len(self.map) != ENTRIES:
            wrong.append(f"the size of the map is {len(self.map)}")
        if (items := list(self.list)) != list(range(ITEMS)):
            wrong.append(f"the list has {len(items)} items, as {items[:5]}")
        with counting.lock:
            counts = dict(self.counts.items())
            triples = [(key, counts.get(key), right) for key, right in counting.counted.items()]
        if differing := [one for one in triples if one[1] != one[2]]:
            wrong.append(f"counters, their values and what is right: {differing[:5]}")
        logs = self.cluster.logs()
        wrong += [f"a member says {text!r}" for text in NEVER if text in logs]
        if wrong:
            raise Wrong("; ".join([*wrong, f"the table: {self.table()}"]))

    def table(self) -> str:
        """Return how many partitions lie on which members."""
        return str(Counter(tuple(row) for row in self.jet.cluster.partition_table()))


def one_round(number: int, options: Options) -> list[str]:
    """Run one round by its seed, and return what happened. Raises Wrong with that and the logs of the members."""
    seed = options.seed + number
    wanted = [part for part in PARTS if options.wants(part)]
    part = wanted[seed % len(wanted)]
    options.say(f"seed {seed}, {part}")
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster(Path(name), stores=part == "storage")
        happened: list[str] = []
        try:
            cluster.start(ROOT, cluster.members)
            configured = ClientConfig(secret=SECRET, connect_timeout=HANG_S, timeout=HANG_S)
            with shmjet.new_client(cluster.addresses, configured) as jet:
                story = Round(cluster, jet, random.Random(seed), options)
                happened = story.happened
                story.run(EVENTS_CI if options.ci else EVENTS)
        except (ShmjetError, Wrong) as error:
            raise Wrong(f"seed {seed}, {part}: {', '.join(happened)}: {error!r}\n{cluster.logs()}") from error
        finally:
            cluster.end()
    return happened


def main() -> int:
    options = parse_options(__doc__, count=20, ci=2, parts=PARTS)
    private_shm()
    mark = mark_processes()
    tally = Tally("one_by_one", options)
    ends = 0
    for number in range(options.count):
        watch(20 * HANG_S)
        try:
            ends += len(one_round(number, options))
            tally.done += 1
        except Wrong as wrong:
            tally.complain(str(wrong))
    tally.notes.append(f"{ends} ends of members")
    tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
