"""The simplest flat-mapping processor: for each number it emits the number and its successor.

The flat mapper is a field, because the place where an iteration was suspended stays in it while other processors of
the same worker have their turn.

    python examples/item_and_successor.py [COUNT]
"""

from __future__ import annotations

import sys

from shmjet import DAG, AbstractProcessor, JetConfig, between, new_instance, processors


class ItemAndSuccessor(AbstractProcessor):
    """Emits each item and the item plus one."""

    def __init__(self) -> None:
        self.mapper = self.flat_mapper(lambda item: (item, item + 1))

    def try_process0(self, item: int) -> bool:
        return self.mapper.try_process(item)


def main(count: int = 1000, config: JetConfig | None = None) -> list[int]:
    """Run the job over the numbers below `count` and return its output, sorted."""
    dag = DAG()
    source = dag.new_vertex("numbers", processors.read_items(range(count)))
    both = dag.new_vertex("item-and-successor", ItemAndSuccessor)
    sink = dag.new_vertex("writer", processors.write_list("results"))
    dag.edge(between(source, both)).edge(between(both, sink))
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(dag).run()
        return sorted(jet.get_list("results"))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    results = main(count)
    print(f"{len(results)} items, from {results[:6]} to {results[-2:]}" if results else "no items")
