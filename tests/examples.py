"""How many examples hypothesis draws: some dozens in each run, always the same; many others where it explores."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

EXPLORES = "SHMJET_RANDOM_EXAMPLES" in os.environ
"""Whether this run looks for examples that no run has had yet. Others pass or fail by what the code is, not by chance.
"""

USUAL = 100
"""Examples of a test that names no number, where it explores."""

_FEW = 25


def drawn(most: int) -> int:
    """Return how many examples this run draws of a test that draws `most` where it explores."""
    return most if EXPLORES else max(min(most, _FEW), most // 4)


def examples(most: int, **others: Any) -> settings:
    """Return settings for a test that draws up to so many examples.

    Args:
        most: drawn where the run explores; in each other run it is a quarter of them, but 25 at least.
        others: of hypothesis.
    """
    return settings(max_examples=drawn(most), **others)
