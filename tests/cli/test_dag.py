"""`shmjet dag`: finds the DAG that a script would submit, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shmjet

BUILD = """
import sys
import shmjet
from shmjet import DAG, between, processors

def build(name):
    dag = DAG()
    numbers = dag.new_vertex(name, processors.read_items([1, 2]))
    dag.edge(between(numbers, dag.new_vertex("writer", processors.write_list("out"))))
    return dag
"""

SUBMIT = (
    BUILD
    + """
if __name__ == "__main__":
    with shmjet.new_instance() as jet:
        jet.get_map("rates")["EUR"] = 1.0
        jet.get_list("seen").append("x")
        assert jet.get_map("rates")["EUR"] == 1.0
        try:
            jet.new_job(build(sys.argv[1])).run()
        except Exception:
            print("swallowed")
        print("must not get here")
"""
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def test_the_first_job_of_the_script_is_drawn_and_not_run(shmjet: Shmjet, script: Path) -> None:
    script.write_text(SUBMIT)
    answer = shmjet("dag", script, "primes")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("digraph")
    assert '"primes" -> "writer"' in answer.stdout
    assert "must not get here" not in answer.stdout


@pytest.mark.parametrize("before", [True, False])
def test_the_suffix_decides_the_format(shmjet: Shmjet, script: Path, tmp_path: Path, before: bool) -> None:
    script.write_text(SUBMIT)
    for name, beginning in (("out.svg", "<"), ("out.dot", "digraph")):
        option = ["-o", tmp_path / name]
        answer = shmjet("dag", *option, script, "primes") if before else shmjet("dag", script, "primes", *option)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        text = (tmp_path / name).read_text()
        assert text.startswith(beginning)
        assert "primes" in text


def test_behind_two_dashes_options_are_the_scripts(shmjet: Shmjet, script: Path) -> None:
    script.write_text(BUILD + "dag = build('-'.join(sys.argv[1:]).replace('--', ''))\n")
    answer = shmjet("dag", script, "--", "-o", "x")
    assert answer.returncode == 0
    assert '"-o-x"' in answer.stdout


def test_a_dag_among_the_globals_will_do(shmjet: Shmjet, script: Path) -> None:
    script.write_text(BUILD + "dag = build('left')\n")
    answer = shmjet("dag", script)
    assert answer.returncode == 0
    assert '"left" -> "writer"' in answer.stdout


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("x = 1\n", 2, "no DAG in"),
        ("raise SystemExit(0)\n", 2, "before it submitted a job"),
        ("1 / 0\n", 1, "ZeroDivisionError"),
        ("import shmjet\nshmjet.new_instance().new_job('text')\n", 2, "is not a DAG: str"),
    ],
)
def test_a_script_without_a_dag_is_told_so(shmjet: Shmjet, script: Path, program: str, status: int, text: str) -> None:
    script.write_text(program)
    answer = shmjet("dag", script)
    assert answer.returncode == status
    assert text in answer.stderr
    assert answer.stdout == ""


def test_another_suffix_is_refused_before_the_script_runs(shmjet: Shmjet, script: Path) -> None:
    script.write_text("print('ran')\n")
    answer = shmjet("dag", script, "-o", "out.png")
    assert answer.returncode == 2
    assert answer.stderr == "shmjet: out.png: the name must end in .svg or .dot\n"
    assert answer.stdout == ""


def test_a_place_that_cannot_be_written_is_named(shmjet: Shmjet, script: Path) -> None:
    script.write_text(SUBMIT)
    answer = shmjet("dag", script, "primes", "-o", "/nonexistent/out.svg")
    assert answer.returncode == 2
    assert answer.stderr == "shmjet: cannot write /nonexistent/out.svg: No such file or directory\n"
