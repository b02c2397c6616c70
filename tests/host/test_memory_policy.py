"""The memory policy of a process, in processes of their own: it cannot be taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import mmap, os, sys
from pathlib import Path
from shmjet.host.memory_policy import prefer_nodes
from shmjet.ring.arena import Arena
nodes = [int(word) for word in sys.argv[1].split(",") if word]
first, second = prefer_nodes(nodes), prefer_nodes(nodes)
with Arena.create(1 << 20, label="policy") as arena:
    arena.memory[::4096] = b"x" * 256
    maps = [line for line in Path("/proc/self/numa_maps").read_text().splitlines() if "shmjet-" in line]
print(first, second, maps[0] if maps else "")
"""


def answer(nodes: str) -> list[str]:
    """What `prefer_nodes` answers at its first and second call, the policy of an arena, and its pages."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, nodes], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    return done.stdout.split()


def test_no_nodes_and_nodes_that_do_not_exist_change_nothing() -> None:
    assert answer("")[:2] == ["False", "False"]
    assert answer("1000")[:2] == ["False", "False"]


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without NUMA")
def test_pages_of_an_arena_come_from_the_node_and_a_policy_that_is_set_stays() -> None:
    first, second, _, policy, *rest = answer("0")
    if first == "False":
        pytest.skip("set_mempolicy is refused here (a container's seccomp)")
    assert second == "False"
    assert policy == "prefer:0"
    assert "N0=256" in rest


@pytest.mark.skipif(len(list(Path("/sys/devices/system/node").glob("node*/meminfo"))) < 2, reason="one node")
def test_pages_of_several_nodes_come_in_turn() -> None:
    first, _, _, policy, *_ = answer("0,1")
    assert first == "False" or policy.startswith("interleave")
