"""`shmjet doctor`: each check says ok, warning or error, with a remedy when it is not ok."""

from __future__ import annotations

import json

import pytest

from shmjet.cli import doctor
from shmjet.cli.doctor import State
from shmjet.cli.host import Quota
from tests.cli.conftest import Shmjet

GIB = 1 << 30

FINE = [
    doctor.check_platform("Linux", "x86_64", (3, 11, 7)),
    doctor.check_extension(),
    doctor.check_cores(8, 8),
    doctor.check_quota(Quota(2, None, None), 8),
    doctor.check_quota(Quota(None, None, None), 8),
    doctor.check_quota(Quota(2, 8.0, None), 8),
    doctor.check_memory(64 * GIB, 32 * GIB, Quota(2, None, None)),
    doctor.check_numa({0: {0, 1}, 1: {2, 3}}, {2, 3}),
    doctor.check_numa({}, {0}),
    doctor.check_shm((32 * GIB, 31 * GIB)),
    doctor.check_files(1024, 4096, 8),
    doctor.check_files(-1, -1, 8),
    doctor.check_processes(30000, 30000, 8),
    doctor.check_locked_memory(65536),
    doctor.check_java(("17.0.15", 17)),
    doctor.check_spark("4.3.0"),
    doctor.check_threads({"OMP_NUM_THREADS": "8"}),
]

POOR = [
    (doctor.check_platform("Darwin", "arm64", (3, 12, 0)), State.ERROR, "Darwin", "virtual machine"),
    (doctor.check_platform("Linux", "x86_64", (3, 10, 1)), State.ERROR, "3.10.1", "3.11"),
    (doctor.check_platform("Linux", "riscv64", (3, 12, 0)), State.WARNING, "riscv64", "make test"),
    (doctor.check_cores(8, 1), State.WARNING, "1 of 8", "parallel"),
    (doctor.check_quota(Quota(2, 1.5, None), 8), State.WARNING, "1.5 CPUs for 8", "SHMJET_CORES=1"),
    (doctor.check_memory(64 * GIB, 32 * GIB, Quota(2, None, 1 << 28)), State.WARNING, "256 MiB", "--memory"),
    (doctor.check_numa({0: {0, 1}, 1: {2}}, {0, 1, 2}), State.WARNING, "2 nodes", "--cpunodebind=0"),
    (doctor.check_shm(None), State.WARNING, "missing", "--shm-size"),
    (doctor.check_shm((64 << 20, 60 << 20)), State.WARNING, "60 MiB of 64 MiB", "--shm-size"),
    (doctor.check_shm((64 << 20, 1 << 20)), State.WARNING, "too little", "--shm-size"),
    (doctor.check_files(512, 4096, 8), State.WARNING, "512", "ulimit -n 1024"),
    (doctor.check_files(64, 4096, 200), State.ERROR, "64", "ulimit -n 1600"),
    (doctor.check_processes(100, 100, 8), State.WARNING, "100", "ulimit -u"),
    (doctor.check_java(None), State.WARNING, "not found", "extra `spark`"),
    (doctor.check_java(("1.8.0_401", 1)), State.WARNING, "1.8.0_401", "Java 17"),
    (doctor.check_spark(None), State.WARNING, "not installed", "shmjet[spark]"),
]


@pytest.mark.parametrize("finding", FINE, ids=lambda finding: finding.name)
def test_what_is_fine_needs_no_remedy(finding: doctor.Finding) -> None:
    assert (finding.state, finding.remedy) == (State.OK, "")


@pytest.mark.parametrize(("finding", "state", "text", "remedy"), POOR, ids=[found[0].name for found in POOR])
def test_what_is_poor_comes_with_a_remedy(finding: doctor.Finding, state: State, text: str, remedy: str) -> None:
    assert finding.state == state
    assert text in finding.text
    assert remedy in finding.remedy


def test_an_error_makes_the_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = doctor.Finding("cores", State.ERROR, "none", "buy some")
    monkeypatch.setattr(doctor, "findings", lambda: iter([bad]))
    assert doctor.examine() == 1
    out = capsys.readouterr().out
    assert "error" in out
    assert "buy some" in out


def test_the_machine_of_the_tests_has_every_finding_as_json(shmjet: Shmjet) -> None:
    answer = shmjet("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert answer.returncode == 0, answer.stdout
    assert {"platform", "extension", "cores", "cpu quota", "numa", "/dev/shm", "RLIMIT_NOFILE", "java", "spark"} <= set(
        found
    )
    assert all(finding["remedy"] for finding in found.values() if finding["state"] != "ok")


def test_for_a_person_there_is_a_line_for_each_finding(shmjet: Shmjet) -> None:
    answer = shmjet("doctor")
    assert answer.returncode == 0
    assert "RLIMIT_NOFILE" in answer.stdout
    assert "\x1b" not in answer.stdout
