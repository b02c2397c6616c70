"""Random edges between the processors of two real members: each item comes as often, and where, as its edge says.

A source and a consumer with 1 to 8 processors on each member are joined by one or two edges of any routing and reach,
with priorities, buffered and ordered edges, lanes of two items, packets of a kilobyte, and consumers that take three
items a call. Every item arrives as often as the routing says, on the member and the processor that it names, and in
order on each lane.

Usage: stress/member_dags.py [--count N] [--seed S] [--ci]     (--ci: under half a minute)
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _stress import Tally, parse_options, private_shm, watch

from shmjet import DAG, ClientConfig, EdgeConfig, JetConfig, between, from_, new_client, new_instance, processors
from shmjet.core import Edge, Inbox, Outbox, Processor, ProcessorContext

ITEMS = 200
"""Of each source."""
KEYS = 17
JOB_S = 240.0
MEMBERS = 2


class Numbers(Processor):
    """Emits (number, own index, text) to all its edges; some texts are larger than a ring."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        self.outbox, self.context, self.at = outbox, context, 0

    def complete(self) -> bool:
        while self.at < ITEMS:
            number = self.at * self.context.total_parallelism + self.context.global_index
            text = "x" * (number % 7 * 20_000) if number % 50 == 3 else str(number)
            if not self.outbox.offer((number, self.context.global_index, text)):
                return False
            self.at += 1
        return True


class Got(Processor):
    """Emits (ordinal, member, local index, global index, sequence, number, source) of each item."""

    def __init__(self, most: int) -> None:
        self.most, self.sequence = most, 0

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        self.outbox, self.context = outbox, context

    def process(self, ordinal: int, inbox: Inbox) -> None:
        at = (self.context.member_index, self.context.local_index, self.context.global_index)
        for _ in range(self.most):
            item = inbox.peek()
            if item is None or not self.outbox.offer((ordinal, *at, self.sequence, item[0], item[1])):
                return
            self.sequence += 1
            inbox.remove()


ROUTES: dict[str, Callable[[Edge], Edge]] = {
    "unicast": lambda edge: edge.unicast(),
    "isolated": lambda edge: edge.isolated(),
    "partitioned": lambda edge: edge.partitioned(lambda item: item[0] % KEYS),
    "partitioned by hand": lambda edge: edge.partitioned(lambda item: item[0] % KEYS, lambda key, count: key % count),
    "broadcast": lambda edge: edge.broadcast(),
    "all_to_one": lambda edge: edge.all_to_one("key"),
    "fanout": lambda edge: edge.fanout(),
}
AIMED = ("partitioned", "partitioned by hand", "all_to_one")
"""Routings that `distribute_to` takes."""


@dataclass(frozen=True)
class Case:
    """Two vertices and what joins them."""

    route: str
    reach: str
    target: int
    sources: int
    consumers: int
    edges: int
    priority: int
    ordered: bool
    buffered: bool
    lanes: str
    most: int

    @classmethod
    def of(cls, seed: int) -> Case:
        rng = random.Random(f"members {seed}")
        route = rng.choice(list(ROUTES))
        reach = rng.choice(["local", "distributed", *(["distribute_to"] if route in AIMED else [])])
        edges, priority = rng.choice([1, 2]), rng.choice([0, 0, -1, 1])
        lanes = rng.choice(["default", "narrow", "small packets"])
        waits_for_the_other = edges == 2 and lanes == "narrow"  # a fork and join needs a buffer
        return cls(
            route,
            "local" if route == "isolated" else reach,
            rng.randrange(MEMBERS),
            rng.choice([1, 2, 3, 5]),
            rng.choice([1, 2, 3, 4, 8]),
            edges,
            priority,
            rng.random() < 0.3,
            waits_for_the_other or rng.random() < 0.3,
            lanes,
            rng.choice([3, 1 << 30]),
        )

    def dag(self, addresses: list[str]) -> DAG:
        dag, most = DAG(), self.most
        source = dag.new_vertex("source", Numbers, local_parallelism=self.sources)
        consumer = dag.new_vertex("consumer", lambda: Got(most), local_parallelism=self.consumers)
        for ordinal in range(self.edges):
            edge = ROUTES[self.route](from_(source, ordinal).to(consumer, ordinal))
            if self.reach == "distributed":
                edge = edge.distributed()
            elif self.reach == "distribute_to":
                edge = edge.distribute_to(addresses[self.target])
            if self.ordered:
                edge = edge.ordered(lambda item: item[0])
            if self.buffered:
                edge = edge.buffered()
            if self.priority and not ordinal:
                edge = edge.priority(self.priority)
            if self.lanes == "narrow":
                edge = edge.configure(EdgeConfig(high_water_mark=4, queue_size=2))
            elif self.lanes == "small packets":
                edge = edge.configure(EdgeConfig(packet_size_limit=1024, receive_window_multiplier=1))
            dag.edge(edge)
        dag.edge(between(consumer, dag.new_vertex("write", processors.write_list("got"), local_parallelism=1)))
        return dag

    @property
    def copies(self) -> int:
        """How often each item comes on an edge."""
        members = MEMBERS if self.reach == "distributed" else 1
        return {"broadcast": self.consumers * members, "fanout": members}.get(self.route, 1)

    def problems(self, got: list[Any]) -> list[str]:
        wrong = [text for ordinal in range(self.edges) for text in self._of_edge([g for g in got if g[0] == ordinal])]
        if self.edges == 2 and self.priority:
            first = 0 if self.priority < 0 else 1
            last_of_first: dict[int, int] = {}
            for ordinal, _, _, index, sequence, *_ in got:
                if ordinal == first:
                    last_of_first[index] = max(sequence, last_of_first.get(index, -1))
            if any(g[0] != first and g[4] < last_of_first.get(g[3], -1) for g in got):
                wrong.append("an edge of a lower priority was read before the other one had ended")
        return wrong

    def _of_edge(self, got: list[Any]) -> list[str]:
        wrong = []
        counts = Counter(g[5] for g in got)
        numbers = range(ITEMS * self.sources * MEMBERS)
        if counts != dict.fromkeys(numbers, self.copies):
            odd = [(number, counts[number]) for number in numbers if counts[number] != self.copies]
            wrong.append(f"{len(got)} items, each should come {self.copies} times: {len(odd)} do not, {odd[:3]}")
        if self.reach == "local" and any(source // self.sources != member for _, member, *_, source in got):
            wrong.append("an item left its member")
        if self.reach == "distribute_to" and len({member for _, member, *_ in got}) > 1:
            wrong.append("distribute_to reached two members")
        owners = defaultdict(set)
        for _, member, _, index, _, number, _ in got:
            key = 0 if self.route == "all_to_one" else number % KEYS
            owners[key, member if self.reach == "local" else 0].add(index)
        if self.route in AIMED and any(len(each) > 1 for each in owners.values()):
            wrong.append("a key has two processors")
        lanes = defaultdict(list)
        for _, _, _, index, sequence, number, source in got:
            lanes[index, -1 if self.ordered else source].append((sequence, number))
        if any(
            [number for _, number in sorted(lane)] != sorted(number for _, number in lane) for lane in lanes.values()
        ):
            wrong.append("items came out of order")
        return wrong


def main() -> int:
    options = parse_options(__doc__, count=600, ci=40)
    private_shm()
    tally = Tally("member_dags", options)
    secret = "a secret of this script"
    with new_instance(JetConfig(cores=2, bind="127.0.0.1:0", secret=secret)) as first:
        known = [member.address for member in first.cluster.members]
        with (
            new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=secret, members=known)) as second,
            new_client(known, ClientConfig(secret=secret)) as jet,
        ):
            addresses = [member.address for member in second.cluster.members]
            for seed in range(options.seed, options.seed + options.count):
                watch(2 * JOB_S)
                case = Case.of(seed)
                jet.get_list("got").clear()
                try:
                    jet.new_job(case.dag(addresses)).run(JOB_S)
                    wrong = case.problems(list(jet.get_list("got")))
                except Exception as error:
                    wrong = [f"{type(error).__name__}: {error}"]
                for text in wrong:
                    tally.complain(f"--seed {seed} --count 1: {case}: {text}")
                tally.done += 1
                options.say(f"{seed}: {case}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
