"""Limits of control groups, version 1 and 2, read from made-up machines and from a real group where one can be made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shmjet.host.control_groups import Limits, control_group
from tests.machines import write


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert control_group(tmp_path) == Limits(None, None, None, None, None)


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/unit\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/slice/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/slice/memory.max": "max\n",
            "sys/fs/cgroup/slice/cpuset.cpus.effective": "2-5\n",
            "sys/fs/cgroup/slice/cpuset.mems.effective": "1\n",
            "sys/fs/cgroup/slice/unit/cpu.max": "max 100000\n",
            "sys/fs/cgroup/slice/unit/memory.max": "1073741824\n",
            "sys/fs/cgroup/slice/unit/cpuset.cpus.effective": "\n",
            "sys/fs/cgroup/slice/pids.max": "500\n",
            "sys/fs/cgroup/slice/unit/pids.max": "max\n",
        },
    )
    assert control_group(tmp_path) == Limits(2, 1.5, 1 << 30, frozenset({2, 3, 4, 5}), frozenset({1}), 500)


def test_in_a_container_the_path_is_the_hosts_and_the_mount_is_ours(tmp_path: Path) -> None:
    for path in ("/docker/abc", "/../../other"):
        write(
            tmp_path,
            {
                "proc/self/cgroup": f"0::{path}\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu\n",
                "sys/fs/cgroup/cpu.max": "200000 100000\n",
            },
        )
        assert control_group(tmp_path) == Limits(2, 2.0)


def test_version_1_has_its_own_files_and_its_own_infinity(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpuset:/a\n4:cpu,cpuacct:/a\n3:memory:/a\n2:pids:/a\n1:name=systemd:/\n",
            "sys/fs/cgroup/pids/a/pids.max": "99\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpuset/a/cpuset.cpus": "0,2\n",
            "sys/fs/cgroup/cpuset/a/cpuset.mems": "0-1\n",
        },
    )
    assert control_group(tmp_path) == Limits(1, 0.5, None, frozenset({0, 2}), frozenset({0, 1}), 99)
    write(
        tmp_path,
        {
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576\n",
            "sys/fs/cgroup/cpuset/a/cpuset.effective_cpus": "2\n",
        },
    )
    assert control_group(tmp_path) == Limits(1, None, 1 << 20, frozenset({2}), frozenset({0, 1}), 99)


def test_this_process_has_limits_that_can_be_read() -> None:
    limits = control_group()
    assert limits.cpus is None or limits.cpus > 0
    assert limits.cores is None or limits.cores


REAL = """
import json, os, subprocess, sys
root, code = sys.argv[1:]
mount = f"{root}/sys/fs/cgroup"
os.makedirs(mount)
os.symlink("/proc", f"{root}/proc")
subprocess.run(["mount", "-t", "cgroup2", "none", mount], check=True)
group = f"{mount}/shmjet-test-{os.getpid()}"
set_ = {}
os.mkdir(group)
try:
    for controller, name, value in (("cpu", "cpu.max", "50000 100000"), ("memory", "memory.max", str(1 << 30)),
                                    ("pids", "pids.max", "777")):
        try:
            with open(f"{mount}/cgroup.subtree_control", "w") as file:
                file.write(f"+{controller}")
            with open(f"{group}/{name}", "w") as file:
                file.write(value)
            set_[controller] = value
        except OSError:
            pass  # version 1 has it, or this is not the uppermost group
    enter = f"import os; open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\\n"
    found = subprocess.run([sys.executable, "-c", enter + code, root], check=True, stdout=subprocess.PIPE).stdout
finally:
    os.rmdir(group)
print(json.dumps([set_, json.loads(found)]))
"""
READ = """
import json, sys
from shmjet.host.control_groups import control_group
limits = control_group(sys.argv[1])
print(json.dumps([limits.version, limits.cpus, limits.memory, limits.processes]))
"""


def test_a_real_group_of_version_2_is_read(tmp_path: Path) -> None:
    try:
        done = subprocess.run(
            ["unshare", "--mount", sys.executable, "-c", REAL, tmp_path / "root", READ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "unshare failed" in done.stderr or "'mount'" in done.stderr or "Errno 13" in done.stderr:
        pytest.skip(f"no control groups of version 2 can be mounted: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    limited, (version, cpus, memory, processes) = json.loads(done.stdout)
    assert version == 2
    for controller, found, wanted in (("cpu", cpus, 0.5), ("memory", memory, 1 << 30), ("pids", processes, 777)):
        if controller in limited:
            assert found is not None
            assert found <= wanted  # a group above may be tighter
