"""How many examples and seeds a run tries: some of each, always the same; many others where it explores."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

EXPLORES = "SHMJET_RANDOM_EXAMPLES" in os.environ
"""Whether this run looks for examples that no run has had yet. Others pass or fail by what the code is, not by chance.
"""

USUAL = 100
"""Examples of a test that names no number, where it explores."""

_FEW, _FEW_SEEDS = 15, 3


def drawn(most: int) -> int:
    """Return how many examples this run draws of a test that draws `most` where it explores."""
    return most if EXPLORES else max(min(most, _FEW), most // 4)


def examples(most: int, **others: Any) -> settings:
    """Return settings for a test that draws up to so many examples.

    Args:
        most: drawn where the run explores; in each other run it is a quarter of them, but 15 at least.
        others: of hypothesis.
    """
    return settings(max_examples=drawn(most), **others)


def seeds(most: int) -> range:
    """Return the seeds of a random test: all where the run explores, a third of them, but three at least, elsewhere.

    `stress/` has the same generators with as many seeds as one likes.
    """
    return range(most if EXPLORES else max(min(most, _FEW_SEEDS), most // 3))
