"""`shmjet doctor`: each check says ok, warning or error, with a remedy when it is not ok."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from shmjet import ConfigError
from shmjet.cli import checks, doctor
from shmjet.cli.checks import State
from shmjet.host.control_groups import Limits
from shmjet.host.placement import place
from shmjet.host.topology import Topology
from tests.cli.conftest import Shmjet
from tests.machines import four_nodes, machine, two_sockets, write

GIB = 1 << 30


def one_node(cores: int, limits: Limits | None = None) -> Topology:
    allowed = range(cores)
    return Topology({0: tuple(allowed)}, {core: (core,) for core in allowed}, frozenset(allowed), limits or Limits(2))


def two_nodes(limits: Limits | None = None, allowed: Iterable[int] = range(8)) -> Topology:
    pairs = {core: (core & 3, core & 3 | 4) for core in range(8)}
    nodes = {0: (0, 1, 4, 5), 1: (2, 3, 6, 7), 2: ()}
    return Topology(nodes, pairs, frozenset(allowed), limits or Limits(2), {0: GIB, 2: 8 * GIB})


SPREAD = place(8, two_nodes())

FINE = [
    checks.check_platform("Linux", "x86_64", (3, 11, 7)),
    checks.check_extension(),
    checks.check_cores(set(range(8)), set(range(8)), set(range(8))),
    checks.check_smt(one_node(8)),
    checks.check_smt(two_nodes()),
    checks.check_cpuset(one_node(8)),
    checks.check_cpuset(two_nodes(Limits(2, nodes=frozenset({0, 1})))),
    checks.check_quota(one_node(8)),
    checks.check_quota(one_node(8, Limits())),
    checks.check_quota(one_node(8, Limits(2, 8.0))),
    checks.check_memory(64 * GIB, 32 * GIB, Limits(2)),
    checks.check_numa(one_node(2), place(None, one_node(2))),
    checks.check_numa(two_nodes(allowed={2, 3}), place(None, two_nodes(allowed={2, 3}))),
    checks.check_workers(place(None, one_node(8))),
    checks.check_workers(place(7, one_node(8)), 8),
    checks.check_workers(place(None, one_node(8, Limits(2, 2.0)))),
    checks.check_shm((32 * GIB, 31 * GIB)),
    checks.check_shm((32 * GIB, 31 * GIB), Limits(2, None, 4 * GIB)),
    checks.check_replicas(8 * GIB, 1),
    checks.check_process_limit(Limits(2), 8),
    checks.check_process_limit(Limits(2, processes=4000), 8),
    checks.check_clock("tsc"),
    checks.check_clock(""),
    checks.check_files(1024, 4096, 8),
    checks.check_files(-1, -1, 8),
    checks.check_processes(30000, 30000, 8),
    checks.check_locked_memory(65536),
    checks.check_java(("17.0.15", 17)),
    checks.check_spark("4.3.0"),
    checks.check_threads({"OMP_NUM_THREADS": "8"}, 8, 8),
    checks.check_threads({"SHMJET_BLAS_THREADS": "4"}, 2, 8),
]

POOR = [
    (checks.check_platform("Darwin", "arm64", (3, 12, 0)), State.ERROR, "Darwin", "virtual machine"),
    (checks.check_platform("Linux", "x86_64", (3, 10, 1)), State.ERROR, "3.10.1", "3.11"),
    (checks.check_platform("Linux", "riscv64", (3, 12, 0)), State.WARNING, "riscv64", "make test"),
    (checks.check_cores({3}, set(range(8)), set(range(7))), State.WARNING, "1 usable: 3;", "parallel"),
    (
        checks.check_cpuset(two_nodes(Limits(1, nodes=frozenset({2})), {0, 1})),
        State.WARNING,
        "memory of NUMA node 2 (control groups version 1): all memory is on another node",
        "--cpuset-mems=0",
    ),
    (checks.check_quota(one_node(8, Limits(2, 1.5))), State.WARNING, "1.5 CPUs for 8", "--cpus"),
    (checks.check_memory(64 * GIB, 32 * GIB, Limits(2, None, 1 << 28)), State.WARNING, "256 MiB", "--memory"),
    (
        checks.check_numa(two_nodes(), place(None, two_nodes())),
        State.WARNING,
        "node 0: cores 0-1,4-5, 1 GiB free; node 1: cores 2-3,6-7, no memory; node 2: no cores, 8 GiB free. A member "
        "uses node 0",
        "SHMJET_CORES=8",
    ),
    (checks.check_numa(two_nodes(), SPREAD), State.WARNING, "A member uses node 0-1", "cores=None"),
    (checks.check_numa(two_nodes(), ConfigError("core 9")), State.WARNING, "node 0", "fix"),
    (checks.check_workers(ConfigError("core 9 is not there")), State.ERROR, "core 9 is not there", "may use"),
    (
        checks.check_workers(place(3, one_node(2))),
        State.WARNING,
        "3: worker 0-1 on core 0-1, worker 2",
        "SHMJET_CORES=2",
    ),
    (checks.check_shm(None), State.WARNING, "missing", "--shm-size"),
    (checks.check_shm((64 << 20, 60 << 20)), State.WARNING, "60 MiB of 64 MiB", "--shm-size"),
    (checks.check_shm((64 << 20, 1 << 20)), State.WARNING, "too little", "--shm-size"),
    (checks.check_replicas(2 * GIB, 2), State.WARNING, "of 2 GiB for maps and lists, 682.7 MiB", "backup_count"),
    (checks.check_files(512, 4096, 8), State.WARNING, "512", "ulimit -n 1024"),
    (checks.check_files(64, 4096, 200), State.ERROR, "64", "ulimit -n 1600"),
    (checks.check_processes(100, 100, 8), State.WARNING, "100", "ulimit -u"),
    (checks.check_process_limit(Limits(2, processes=100), 8), State.WARNING, "100 processes", "--pids-limit 1024"),
    (checks.check_process_limit(Limits(1, processes=100), 64), State.ERROR, "version 1", "--pids-limit"),
    (checks.check_clock("hpet"), State.WARNING, "hpet: each look", "tsc"),
    (checks.check_java(None), State.WARNING, "not found: only needed for Spark", "install Java"),
    (checks.check_java(("1.8.0_401", 1)), State.WARNING, "1.8.0_401", "Java 17"),
    (checks.check_spark(None), State.WARNING, "not found: only needed for", "pip install pyspark"),
    (checks.check_threads({"SHMJET_BLAS_THREADS": "4"}, 8, 8), State.WARNING, "32 threads on 8 cores", "unset"),
    (checks.check_threads({"SHMJET_BLAS_THREADS": "many"}, 8, 8), State.ERROR, "many", "number"),
]


@pytest.mark.parametrize("finding", FINE, ids=lambda finding: finding.name)
def test_what_is_fine_needs_no_remedy(finding: checks.Finding) -> None:
    assert (finding.state, finding.remedy) == (State.OK, "")


@pytest.mark.parametrize(("finding", "state", "text", "remedy"), POOR, ids=[found[0].name for found in POOR])
def test_what_is_poor_comes_with_a_remedy(finding: checks.Finding, state: State, text: str, remedy: str) -> None:
    assert finding.state == state
    assert text in finding.text
    assert remedy in finding.remedy


def test_an_error_makes_the_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = checks.Finding("cores", State.ERROR, "none", "buy some")
    monkeypatch.setattr(doctor, "findings", lambda: iter([bad]))
    assert doctor.examine() == 1
    out = capsys.readouterr().out
    assert "error" in out
    assert "buy some" in out


def on(root: Path, allowed: Iterable[int]) -> dict[str, checks.Finding]:
    """What the doctor says of a made-up machine."""
    return {finding.name: finding for finding in doctor.findings(root, allowed)}


def test_two_sockets_are_shown_with_the_node_that_a_member_would_use(tmp_path: Path) -> None:
    found = on(two_sockets(tmp_path), range(16))
    assert found["cores"].text == "16 usable: 0-15"
    assert found["smt"].text.startswith("16 hardware threads on 8 physical cores")
    assert "node 0: cores 0-3,8-11, 1000 MiB free; node 1: cores 4-7,12-15" in found["numa"].text
    assert found["numa"].text.endswith("A member uses node 0")
    assert found["workers"].text == "8: worker 0-3 on core 0-3, worker 4-7 on core 8-11"


def test_what_the_environment_asks_for_is_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_sockets(tmp_path)
    monkeypatch.setenv("SHMJET_CORES", "10")
    assert on(tmp_path, range(16))["numa"].text.endswith("A member uses node 0-1")
    assert on(tmp_path, range(16))["workers"].text.endswith("worker 8-9 on core 4-5")
    monkeypatch.setenv("SHMJET_CORES", "2,99")
    found = on(tmp_path, range(16))
    assert (found["workers"].state, found["numa"].state) == (State.ERROR, State.WARNING)
    assert "core 99" in found["workers"].text
    monkeypatch.setenv("SHMJET_CORES", "many")
    assert on(tmp_path, range(16))["workers"].state == State.ERROR


def test_a_member_of_a_cluster_is_told_what_its_backups_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_sockets(tmp_path)
    assert "backups" not in on(tmp_path, range(16))
    monkeypatch.setenv("SHMJET_BIND", "127.0.0.1:0")
    monkeypatch.setenv("SHMJET_SECRET", "a secret of these tests")
    monkeypatch.setenv("SHMJET_BACKUP_COUNT", "2")
    assert on(tmp_path, range(16))["backups"].text.startswith("2 of each partition on other members: of ")


def test_offline_cores_foreign_cores_and_memory_only_nodes_are_shown(tmp_path: Path) -> None:
    found = on(four_nodes(tmp_path), [0, 1, 4, 6])
    assert found["cores"].text == "4 usable: 0-1,4,6; outside this process's CPU affinity or cpuset: 2-3,7; offline: 5"
    assert "node 1: cores 2-3, no memory" in found["numa"].text
    assert "node 8: no cores, 62.5 GiB free" in found["numa"].text


def test_quota_and_cpuset_of_a_container_are_shown(tmp_path: Path) -> None:
    write(
        machine(tmp_path, {0: range(8)}),
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu cpuset\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-3\n",
        },
    )
    found = on(tmp_path, range(8))
    assert found["cpu quota"].text == "2.5 CPUs for 4 usable cores (control groups version 2)"
    assert found["cpuset"].text == "cores 0-3 (control groups version 2)"
    assert found["workers"].text == "3, not pinned, on cores 0-3"
    assert found["numa"].text == "one node, cores 0-7"
    assert found["/dev/shm"].state == State.WARNING


def test_the_machine_of_the_tests_has_every_finding_as_json(shmjet: Shmjet) -> None:
    answer = shmjet("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert answer.returncode == 0, answer.stdout
    assert {
        *("platform", "extension", "cores", "smt", "cpuset", "cpu quota", "numa", "workers", "memory", "/dev/shm"),
        *("RLIMIT_NOFILE", "BLAS threads", "java", "spark"),
    } <= set(found)
    assert all(finding["remedy"] for finding in found.values() if finding["state"] != "ok")


def test_for_a_person_there_is_a_line_for_each_finding(shmjet: Shmjet) -> None:
    answer = shmjet("doctor")
    assert answer.returncode == 0
    assert "RLIMIT_NOFILE" in answer.stdout
    assert "\x1b" not in answer.stdout


def test_workers_on_all_cores_are_told_how_to_leave_one_to_streams() -> None:
    assert "SHMJET_CORES=7 leaves one free" in checks.check_workers(place(None, one_node(8)), 8).text
    assert "leaves one free" not in checks.check_workers(place(7, one_node(8)), 8).text
    assert "leaves one free" not in checks.check_workers(place(1, one_node(1)), 1).text
