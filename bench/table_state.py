"""Saving and restoring a group-by's table, compared with pickling a dict of the same state, in ns a group.

python -m bench.table_state [--groups 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np

from shmjet import Batch
from shmjet.columns import count, sum_
from shmjet.columns.group_export import RestoredGroups, slices
from shmjet.columns.groups import Groups


def table_of(keys: Batch) -> Groups:
    """Return a table of these keys with a sum and a count."""
    groups = Groups(["k"], {"total": sum_("v"), "n": count()})
    for at in range(0, keys.num_rows, 1 << 16):
        groups.add(keys[at : at + (1 << 16)])
    return groups


def exported(groups: Groups) -> list[bytes]:
    """Return the pickled pieces of a table."""
    return [pickle.dumps(tuple(piece), 5) for piece in slices(groups)]


def restored(saved: list[bytes]) -> Groups:
    """Return the table of pickled pieces."""
    groups = Groups(["k"], {"total": sum_("v"), "n": count()})
    merging = RestoredGroups(groups)
    for piece in saved:
        states, positions = pickle.loads(piece)
        merging.merge(states, positions, are_new=True)
    merging.finish()
    return groups


def timed(work: Callable[[], object], groups: int) -> tuple[float, object]:
    """Return the nanoseconds a group that a call took, and what it returned."""
    started = process_time()
    result = work()
    return (process_time() - started) * 1e9 / groups, result


def measure(name: str, keys: Batch, rounds: int) -> None:
    """Print the best of some rounds for both ways."""
    groups = keys.num_rows
    table = table_of(keys)
    state = dict(zip(keys.values("k"), zip(keys.values("v"), [1] * groups, strict=True), strict=True))
    best = [float("inf")] * 4
    size = 0
    for _ in range(rounds):
        save, saved = timed(lambda: exported(table), groups)
        assert isinstance(saved, list)
        load, other = timed(partial(restored, saved), groups)
        assert isinstance(other, Groups)
        assert len(other) == groups
        dump, data = timed(lambda: pickle.dumps(state, 5), groups)
        assert isinstance(data, bytes)
        read, _ = timed(partial(pickle.loads, data), groups)
        size = sum(map(len, saved))
        best = [min(pair) for pair in zip(best, (save, load, dump, read), strict=True)]
    print(
        f"{name:10} table: export {best[0]:6.1f} ns, restore {best[1]:6.1f} ns, {size / groups:5.1f} bytes a group | "
        f"dict: pickle {best[2]:6.1f} ns, unpickle {best[3]:6.1f} ns"
    )


def main() -> None:
    """Measure keys of integers and of text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    numbers = rng.permutation(options.groups) * 7
    values = rng.integers(0, 1000, options.groups)
    measure("integers", Batch({"k": numbers, "v": values}), options.rounds)
    measure("text", Batch({"k": [f"customer-{number}" for number in numbers], "v": values}), options.rounds)


if __name__ == "__main__":
    main()
