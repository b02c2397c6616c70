"""Jobs whose answers are known: words counted, rows grouped, items joined, each over an edge of any routing first."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from shmjet import DAG, Batch, EdgeConfig, JetInstance, Vertex, between, from_, processors
from shmjet.columns import count, sum_
from shmjet.processors import group_by

ROUTINGS = ("unicast", "partitioned", "broadcast", "all_to_one", "fanout")
WORDS = [f"word{number * number % 1009}" for number in range(20_000)]
KEYS, ROWS = 101, 4000
ORDERS = [(number, number % 11) for number in range(5000)]
NAMES = [(key, f"name{key}") for key in range(8)]


def copies_of(routing: str, members: int, processors_each: int) -> int:
    """Return how many processors get each item by a routing."""
    return {"broadcast": members * processors_each, "fanout": members}.get(routing, 1)


def wrong_answers(jet: JetInstance, routing: str, config: EdgeConfig | None = None) -> list[str]:
    """Run the three jobs and return which of them gave something else than one member would."""
    members = jet.cluster.members
    copies = copies_of(routing, len(members), len(members[0].workers))
    found = {"words": _words(jet, routing, config), "groups": _groups(jet, routing, config)}
    found["joined"] = _joined(jet, routing, config)
    wanted: dict[str, Any] = {
        "words": {word: copies * number for word, number in Counter(WORDS).items()},
        "groups": {
            key: (copies * 4 * sum(v for v in range(ROWS) if v % KEYS == key), copies * 4 * len(range(key, ROWS, KEYS)))
            for key in range(KEYS)
        },
        "joined": sorted(
            (number, f"name{key}" if key < len(NAMES) else "unknown") for number, key in ORDERS for _ in range(copies)
        ),
    }
    return [f"{what} by {routing} on {len(members)} members" for what in wanted if found[what] != wanted[what]]


def _first(dag: DAG, items: list[Any], routing: str, config: EdgeConfig | None) -> Vertex:
    """Read items, and let them pass once over an edge of the routing."""
    source = dag.new_vertex("items", processors.read_items(items))
    step = dag.new_vertex("step", processors.map(lambda item: item))
    edge = between(source, step)
    edge = edge.partitioned(repr) if routing == "partitioned" else getattr(edge, routing)()
    dag.edge(edge.distributed() if config is None else edge.distributed().configure(config))
    return step


def _words(jet: JetInstance, routing: str, config: EdgeConfig | None) -> Any:
    dag = DAG()
    step = _first(dag, WORDS, routing, config)
    counted = dag.new_vertex("count", processors.group_and_accumulate(lambda word: word, 0, lambda total, _: total + 1))
    dag.edge(between(step, counted).partitioned().distributed())
    dag.edge(between(counted, dag.new_vertex("sink", processors.write_map("words"))))
    words = jet.get_map("words")
    words.clear()
    jet.new_job(dag).run(240)
    return dict(words)


def _groups(jet: JetInstance, routing: str, config: EdgeConfig | None) -> Any:
    dag = DAG()
    values = np.arange(ROWS)
    step = _first(dag, [Batch({"key": values % KEYS, "v": values}) for _ in range(4)], routing, config)
    grouping = group_by("key").agg(total=sum_("v"), n=count())
    first, second = dag.new_vertex("accumulate", grouping.accumulate), dag.new_vertex("combine", grouping.combine)
    dag.edge(between(step, first)).edge(between(first, second).partitioned(grouping.key).distributed())
    dag.edge(between(second, dag.new_vertex("sink", processors.write_list("groups"))))
    groups = jet.get_list("groups")
    groups.clear()
    jet.new_job(dag).run(240)
    rows = [row for batch in groups for row in zip(*(batch[c].tolist() for c in ("key", "total", "n")), strict=True)]
    found = {key: (total, n) for key, total, n in rows}
    return found if len(found) == len(rows) else rows


def _joined(jet: JetInstance, routing: str, config: EdgeConfig | None) -> Any:
    dag = DAG()
    step = _first(dag, ORDERS, routing, config)
    names = dag.new_vertex("names", processors.read_items(NAMES))
    join = dag.new_vertex(
        "join",
        processors.hash_join(
            (lambda order: order[1], lambda name: name[0]),
            project=lambda order, name: (order[0], "unknown" if name is None else name[1]),
        ),
    )
    dag.edge(from_(step).to(join, 0).partitioned(lambda order: order[0]).distributed())
    dag.edge(from_(names).to(join, 1).broadcast().distributed().priority(-1))
    dag.edge(between(join, dag.new_vertex("sink", processors.write_list("joined"))))
    joined = jet.get_list("joined")
    joined.clear()
    jet.new_job(dag).run(240)
    return sorted(joined)
