"""Word count: the most frequent words of text files.

python examples/word_count.py [FILE, FOLDER or GLOB...]
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from operator import itemgetter

from shmjet import JetConfig, Pipeline, aggregate_ops, new_instance, sinks, sources

WORD = re.compile(r"\w+")
TEXT = os.path.join(os.path.dirname(os.__file__), "*.py")
"""The modules of Python's standard library: some 400,000 words that are wherever Python is."""


def words_of(line: str) -> list[str]:
    """Return the words of a line."""
    return WORD.findall(line.lower())


def main(paths: Sequence[str] = (TEXT,), count: int = 20, config: JetConfig | None = None) -> list[tuple[str, int]]:
    """Return the most frequent words and how often each occurs, the most frequent first."""
    most_frequent: sinks.Results[list[tuple[str, int]]] = sinks.collect()
    p = Pipeline()
    (
        p.read_from(sources.files(paths))
        .flat_map(words_of)
        .grouping_key(lambda word: word)
        .aggregate(aggregate_ops.counting())
        .aggregate(aggregate_ops.top_n(count, key=itemgetter(1)))
        .write_to(most_frequent)
    )
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(p).run()
        (found,) = most_frequent
    return found


if __name__ == "__main__":
    for word, number in main(sys.argv[1:] or (TEXT,)):
        print(f"{number:8} {word}")
