"""What `shmjet doctor` reads from the kernel, held against made-up machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.cli.host import Quota, control_group, installed_version, numa_nodes, parse_cores, shared_memory


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "cores"), [("0-2,5\n", {0, 1, 2, 5}), ("", set()), ("7", {7}), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_kernel_lists_are_understood(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert control_group(tmp_path) == Quota(None, None, None)


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/unit\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/slice/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/slice/memory.max": "max\n",
            "sys/fs/cgroup/slice/unit/cpu.max": "max 100000\n",
            "sys/fs/cgroup/slice/unit/memory.max": "1073741824\n",
        },
    )
    assert control_group(tmp_path) == Quota(2, 1.5, 1 << 30)


def test_in_a_container_the_path_is_the_hosts_and_the_mount_is_ours(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/abc\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
        },
    )
    assert control_group(tmp_path) == Quota(2, 2.0, None)


def test_version_1_has_its_own_files_and_its_own_infinity(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/a\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert control_group(tmp_path) == Quota(1, 0.5, None)
    write(tmp_path, {"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n"})
    assert control_group(tmp_path) == Quota(1, None, None)


def test_nodes_without_cores_are_left_out(tmp_path: Path) -> None:
    nodes = "sys/devices/system/node"
    write(
        tmp_path, {f"{nodes}/node0/cpulist": "0-1\n", f"{nodes}/node1/cpulist": "2-3\n", f"{nodes}/node2/cpulist": "\n"}
    )
    assert numa_nodes(tmp_path) == {0: {0, 1}, 1: {2, 3}}


def test_shared_memory_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert shared_memory(tmp_path) is None
    (tmp_path / "dev/shm").mkdir(parents=True)
    space = shared_memory(tmp_path)
    assert space is not None
    assert space[0] >= space[1] > 0


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-distribution-at-all") is None
    assert installed_version("pytest")
