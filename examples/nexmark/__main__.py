"""Run queries of NEXMark over a span of event time and print how fast that was.

PYTHONPATH=examples python -m nexmark [--columns] [--span 2] [NUMBER ...]
"""

from __future__ import annotations

import argparse
import time

from nexmark import columns, queries
from nexmark.answers import answer
from nexmark.events import STREAMS, Load
from nexmark.replay import Replay
from shmjet import Pipeline, new_instance


def main() -> None:
    """Print the last results of each query."""
    parser = argparse.ArgumentParser(prog="nexmark", description="Run queries of NEXMark.")
    parser.add_argument("--columns", action="store_true", help="on batches of columns")
    parser.add_argument("--span", type=float, default=2.0, help="seconds of event time")
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--keys", type=int, default=1_000, help="auctions, sellers or people")
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    parser.add_argument("--slide", type=float, default=0.1, help="seconds")
    parser.add_argument("numbers", type=int, nargs="*", metavar="NUMBER")
    options = parser.parse_args()
    known = columns.QUERIES if options.columns else queries.QUERIES
    load = Load(options.rate, options.keys, round(options.window * 1000), round(options.slide * 1000))
    span_ms = round(options.span * 1000)
    with new_instance() as jet:
        for number in options.numbers or known:
            if number not in known:
                parser.error(f"there is no query {number}{' on columns' if options.columns else ''}")
            events = sum(Replay(Pipeline(), span_ms).count(stream(load)) for stream in STREAMS[number])
            start = time.perf_counter()
            found = answer(jet, number, load, span_ms, in_columns=options.columns)
            print(f"query {number}: {events:,} events, {time.perf_counter() - start:.3f} s, {len(found):,} results")
            for row in found[-3:]:
                print(f"    {row!s:.100}")


if __name__ == "__main__":
    main()
