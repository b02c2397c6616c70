"""Answer queries of TPC-H.

    PYTHONPATH=examples python -m tpch [--scale 0.1] [NUMBER ...]

The tables are made by `tpchgen-cli` (`pip install tpchgen-cli`) in a temporary folder, or kept in `--folder`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from shmjet import new_instance
from tpch.answers import QUERIES, answer
from tpch.tables import MONEY, generate


def main() -> None:
    """Print the answers."""
    parser = argparse.ArgumentParser(description="Answer queries of TPC-H in stages of columns.")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--folder", type=Path, help="has the tables, or gets them")
    parser.add_argument("--money", default=MONEY, help='type of amounts, "float64" or a decimal')
    parser.add_argument("numbers", type=int, nargs="*", default=list(QUERIES), metavar="NUMBER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, new_instance() as jet:
        folder = generate(options.folder or Path(temporary), options.scale)
        for number in options.numbers or QUERIES:
            start = time.perf_counter()
            found = answer(jet, number, folder, options.scale, options.money)
            print(f"query {number}: {time.perf_counter() - start:.3f} s\n{found}\n")


if __name__ == "__main__":
    main()
