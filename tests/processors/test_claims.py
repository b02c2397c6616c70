from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shmjet.processors.general.claims import ClaimCounter, Claims

CLAIM = """
import sys
from shmjet.processors.general.claims import Claims
claims = Claims(sys.argv[1])
print(*(claims.next() for _ in range(int(sys.argv[2]))))
claims.close()
"""


def test_every_number_goes_to_one_claimer_only_across_processes() -> None:
    counter = ClaimCounter()
    command = [sys.executable, "-c", CLAIM, counter.address, "2000"]
    claimers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [claimer.communicate(timeout=60)[0] for claimer in claimers]
    counter.close()
    numbers = [int(number) for output in outputs for number in output.split()]
    assert sorted(numbers) == list(range(6000))


def test_a_counter_leaves_nothing_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    counter = ClaimCounter()
    claims = Claims(counter.address)
    assert claims.next() == 0
    for each in (claims, counter, claims, counter):
        each.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_claiming_from_a_counter_that_is_gone_is_an_error() -> None:
    counter = ClaimCounter()
    counter.close()
    with pytest.raises(OSError, match="fd"):
        Claims(counter.address)


def test_a_later_attempt_counts_from_the_beginning() -> None:
    counter = ClaimCounter()
    first, second = Claims(counter.address, 7), Claims(counter.address, 8)
    assert [first.next(), first.next(), second.next(), second.next()] == [0, 1, 0, 1]
    for each in (first, second, counter):
        each.close()
