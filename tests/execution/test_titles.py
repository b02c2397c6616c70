"""What `ps` shows of the processes of an instance and of a pool: what each is, and whose."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil

from shmjet import JetConfig, PoolExecutor, new_instance


def titles(pid: int) -> list[str]:
    """Return the titles of this process' descendants that shmjet has started, sorted."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            line = " ".join(child.cmdline()).strip()
        except psutil.Error:
            continue
        found.append(line)
    return sorted(line for line in found if line.startswith("shmjet: "))


def test_each_process_of_an_instance_says_what_it_is(eventually: Callable[[Callable[[], object]], None]) -> None:
    core = min(os.sched_getaffinity(0))
    with new_instance(JetConfig(cores=[core], cluster_name="mine")):
        eventually(
            lambda: (
                [line.split(" -c ")[0] for line in titles(os.getpid())]
                == [
                    "shmjet: fork server of mine",
                    "shmjet: janitor",
                    "shmjet: member of mine",
                    f"shmjet: worker 0 of mine, core {core}",
                ]
            )
        )


def test_a_pool_names_its_processes() -> None:
    with PoolExecutor(1) as pool:
        pool.submit(os.getpid).result()
        shown = titles(os.getpid())
    assert shown[0] == f"shmjet: fork server of pool {os.getpid()}"
    assert shown[1].startswith(f"shmjet: worker 0 of pool {os.getpid()}")
