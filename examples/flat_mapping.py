"""Flat-mapping with ready-made processors: lines become words, and words are counted.

The words are counted in two stages: on each core where they arise, then by key, so that a word crosses to another core
once and not each time it occurs. The counts lie in a distributed map afterwards.

    python examples/flat_mapping.py [FILE...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from operator import itemgetter

from shmjet import DAG, JetConfig, between, new_instance, processors

PROVERBS = ["all that glitters is not gold", "all is well that ends well", "well begun is half done"]


def words_of(line: str) -> Iterator[str]:
    """Yield the words of a line; any iterable will do, a generator too."""
    for word in line.lower().split():
        yield word.strip(".,;:!?\"'()")


def main(lines: Iterable[str] = PROVERBS, config: JetConfig | None = None) -> dict[str, int]:
    """Run the job over lines of text and return the count of each word."""
    counting = processors.counting()
    dag = DAG()
    source = dag.new_vertex("lines", processors.read_items(lines))
    tokenizer = dag.new_vertex("words", processors.flat_map(words_of))
    accumulator = dag.new_vertex("accumulate", processors.accumulate_by_key(None, counting))
    combiner = dag.new_vertex("combine", processors.combine_by_key(counting))
    sink = dag.new_vertex("writer", processors.write_map("counts"))
    dag.edge(between(source, tokenizer))
    dag.edge(between(tokenizer, accumulator))
    dag.edge(between(accumulator, combiner).partitioned(itemgetter(0)))
    dag.edge(between(combiner, sink))
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(dag).run()
        return dict(jet.get_map("counts"))


if __name__ == "__main__":
    text = [line for path in sys.argv[1:] for line in open(path, errors="replace")]  # noqa: SIM115
    for word, count in sorted(main(text or PROVERBS).items(), key=lambda pair: (-pair[1], pair[0]))[:20]:
        print(f"{count:8} {word}")
