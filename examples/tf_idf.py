"""TF-IDF: what each text of a folder is about, by the words that are frequent in it and rare in the others.

The weight of a word in a text is `tf * log(N / df)`: how often the word occurs there, and the logarithm of the number
of all texts over the number of texts with the word.

    python examples/tf_idf.py [FOLDER or GLOB...]
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from shmjet import JetConfig, Pipeline, aggregate_ops, new_instance, on_keys, sinks, sources

WORD = re.compile(r"[a-z]{3,}")
DOCS = str(Path(__file__).resolve().parents[1] / "docs" / "**" / "*.md")

Use = tuple[tuple[str, str], int]
"""((path, word), how often it occurs there)"""


def words_of(line: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (path, word) for each word of a (path, line)."""
    path, text = line
    for word in WORD.findall(text.lower()):
        yield path, word


def word_of(use: Use) -> str:
    """Return the word of a use."""
    return use[0][1]


def weighted(use: Use, texts_with_word: tuple[str, int], texts: int) -> tuple[str, str, float]:
    """Return (path, word, weight)."""
    (path, word), tf = use
    return path, word, tf * math.log(texts / texts_with_word[1])


def main(
    paths: Sequence[str] = (DOCS,), count: int = 5, config: JetConfig | None = None
) -> dict[str, list[tuple[str, float]]]:
    """Return the words of the greatest weight by path, with their weights."""
    subjects: sinks.Results[tuple[str, list[tuple[str, str, float]]]] = sinks.collect()
    p = Pipeline()
    lines = p.read_from(sources.files(paths, with_path=True))
    uses = lines.flat_map(words_of).grouping_key(lambda pair: pair).aggregate(aggregate_ops.counting())
    texts_with_word = uses.grouping_key(word_of).aggregate(aggregate_ops.counting())
    texts = uses.map(lambda use: use[0][0]).distinct().aggregate(aggregate_ops.counting())
    (
        uses.hash_join(
            texts_with_word,
            on_keys(word_of, itemgetter(0)),
            texts,
            on_keys(lambda use: 0, lambda number: 0),
            weighted,
        )
        .grouping_key(itemgetter(0))
        .aggregate(aggregate_ops.top_n(count, key=itemgetter(2, 1)))
        .write_to(subjects)
    )
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(p).run()
        return {path: [(word, weight) for _, word, weight in found] for path, found in subjects}


if __name__ == "__main__":
    for path, words in sorted(main(sys.argv[1:] or (DOCS,)).items()):
        print(f"{path}: {', '.join(word for word, _ in words)}")
