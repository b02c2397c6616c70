"""Memory that is left: by the host and by all control groups above, version 1 and 2, read from made-up machines."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shmjet.host.memory_limits import available_memory, memory_groups, process_memory
from tests.machines import write

GIB = 1 << 30
HOST = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {8 * GIB >> 10} kB\nSwapFree: {GIB >> 10} kB\n"}


def test_without_groups_the_host_counts(tmp_path: Path) -> None:
    write(tmp_path, HOST)
    assert memory_groups(tmp_path) == (0, [])
    assert available_memory(tmp_path) == 9 * GIB
    assert available_memory(tmp_path, swap=False) == 8 * GIB
    assert available_memory(tmp_path / "nothing") == 1 << 62


def version_2(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, {**HOST, "proc/self/cgroup": "0::/slice/unit\n", "sys/fs/cgroup/cgroup.controllers": "memory\n"})
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})


def test_of_nested_groups_of_version_2_the_one_with_the_least_left_counts(tmp_path: Path) -> None:
    version_2(
        tmp_path,
        {
            "slice/memory.max": f"{4 * GIB}\n",
            "slice/memory.current": f"{3 * GIB}\n",
            "slice/memory.stat": f"anon 5\ninactive_file {GIB // 4}\nactive_file {GIB // 4}\nfile {2 * GIB}\n",
            "slice/memory.swap.max": "0\n",
            "slice/unit/memory.max": f"{2 * GIB}\n",
            "slice/unit/memory.current": "0\n",
        },
    )
    assert available_memory(tmp_path) == available_memory(tmp_path, swap=False) == 3 * GIB // 2
    write(tmp_path, {"sys/fs/cgroup/slice/unit/memory.high": f"{GIB}\n"})
    assert available_memory(tmp_path, swap=False) == GIB
    assert available_memory(tmp_path) == 3 * GIB // 2  # swap of its own, up to what the group above leaves


def test_swap_of_version_2_is_what_host_and_group_leave(tmp_path: Path) -> None:
    version_2(
        tmp_path,
        {
            "slice/unit/memory.max": f"{GIB}\n",
            "slice/unit/memory.current": f"{GIB}\n",
            "slice/unit/memory.swap.max": f"{GIB // 2}\n",
            "slice/unit/memory.swap.current": f"{GIB // 4}\n",
        },
    )
    assert available_memory(tmp_path, swap=False) == 0
    assert available_memory(tmp_path) == GIB // 4
    write(tmp_path, {"sys/fs/cgroup/slice/unit/memory.swap.max": "max\n"})
    assert available_memory(tmp_path) == GIB


def test_groups_of_version_1_limit_memory_and_memory_with_swap(tmp_path: Path) -> None:
    write(tmp_path, {**HOST, "proc/self/cgroup": "4:cpu:/\n3:memory:/a/b\n0::/\n"})
    group = "sys/fs/cgroup/memory/a"
    endless = "9223372036854771712\n"
    write(
        tmp_path,
        {
            f"{group}/b/memory.limit_in_bytes": endless,
            f"{group}/b/memory.usage_in_bytes": "1\n",
            f"{group}/memory.limit_in_bytes": f"{2 * GIB}\n",
            f"{group}/memory.usage_in_bytes": f"{GIB}\n",
            f"{group}/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB // 2}\ntotal_active_file 0\n",
        },
    )
    assert memory_groups(tmp_path)[0] == 1
    assert available_memory(tmp_path, swap=False) == 3 * GIB // 2
    assert available_memory(tmp_path) == 5 * GIB // 2
    write(tmp_path, {f"{group}/memory.memsw.limit_in_bytes": endless, f"{group}/memory.memsw.usage_in_bytes": "1\n"})
    assert available_memory(tmp_path) == 5 * GIB // 2
    write(tmp_path, {f"{group}/memory.memsw.limit_in_bytes": f"{2 * GIB}\n"})
    write(tmp_path, {f"{group}/memory.memsw.usage_in_bytes": f"{GIB}\n"})
    assert available_memory(tmp_path) == 3 * GIB // 2


def test_in_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    version_2(tmp_path, {"memory.max": f"{GIB}\n", "memory.current": "0\n"})
    write(tmp_path, {"proc/self/cgroup": "0::/docker/abc\n"})
    assert available_memory(tmp_path, swap=False) == GIB


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_process_has_limits_of_its_own(limit: str) -> None:
    program = (
        "import resource; from shmjet.host.memory_limits import process_memory\n"
        f"resource.setrlimit(resource.{limit}, (1 << 30, 1 << 30)); print(process_memory())"
    )
    found = int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert GIB // 2 < found < GIB or found < available_memory()
    assert found < GIB
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 1 << 30
    assert process_memory() > 0
