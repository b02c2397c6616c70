"""The stack is grown once, as far as it may be."""

from __future__ import annotations

import subprocess
import sys

import pytest

GROWS = """
import resource
from shmjet._native import grow_stack

{limit}
print(grow_stack({size}), grow_stack({size}))
"""


@pytest.mark.parametrize(
    ("limit", "size", "grows"),
    [
        ("", 1 << 20, True),
        ("", 1 << 50, False),
        ("resource.setrlimit(resource.RLIMIT_STACK, (2 << 20, -1))", 1 << 20, False),
        ("resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1))", 1 << 20, False),
    ],
    ids=["room", "too large", "a small limit", "no address space"],
)
def test_a_stack_grows_where_there_is_room(limit: str, size: int, grows: bool) -> None:
    program = GROWS.format(limit=limit, size=size)
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [str(grows)] * 2
