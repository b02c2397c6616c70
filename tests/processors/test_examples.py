"""The scripts in `examples/`, run as a newcomer runs them, with smaller limits; and their processors by themselves."""

from __future__ import annotations

import itertools
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shmjet.testing import verify_processor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    """Load an example without running it; its classes and functions then travel by value, as those of a script do."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def sieve(limit: int) -> list[int]:
    composite = {multiple for n in range(2, int(limit**0.5) + 1) for multiple in range(n * n, limit, n)}
    return [n for n in range(2, limit) if n not in composite]


def test_the_prime_check_is_right() -> None:
    is_prime = example("primes")["is_prime"]
    assert [n for n in range(20_000) if is_prime(n)] == sieve(20_000)
    assert [is_prime(n) for n in (15_485_863, 15_485_865, 2_147_483_647, 25_326_001, 3_215_031_749)] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_the_number_generators_of_all_members_emit_every_number_once() -> None:
    example_ = example("primes")
    meta = example_["NumberGeneratorMetaSupplier"](100)
    numbers: list[int] = []
    for supplier in meta.get(["a", "b", "c"]).values():
        for generator in supplier.get(2):
            numbers += generator.numbers
    assert sorted(numbers) == list(range(100))
    verify_processor(meta).without_snapshots().expect(list(range(100)))


def test_item_and_successor_emits_both() -> None:
    verify_processor(example("item_and_successor")["ItemAndSuccessor"]).inputs([1, 5]).expect([1, 2, 5, 6])


@pytest.mark.slow
def test_primes_finds_the_primes() -> None:
    assert example("primes")["main"](10_000) == sieve(10_000)


@pytest.mark.slow
def test_item_and_successor_runs_as_a_job() -> None:
    assert example("item_and_successor")["main"](100) == sorted(itertools.chain(range(100), range(1, 101)))


@pytest.mark.slow
def test_flat_mapping_counts_words() -> None:
    lines = ["to be, or not to be", "that is the question"] * 10
    words = Counter(word.strip(",") for line in lines for word in line.split())
    assert example("flat_mapping")["main"](lines) == words
