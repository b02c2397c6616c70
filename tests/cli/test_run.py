"""`shmjet run`: a script runs as it would under python, and failures read well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Shmjet, press_ctrl_c, started


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def test_a_script_sees_its_name_its_arguments_and_its_neighbours(shmjet: Shmjet, script: Path) -> None:
    script.with_name("neighbour.py").write_text("value = 42\n")
    script.write_text(
        "import sys, neighbour\n"
        "class Point: pass\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], __file__, neighbour.value, Point.__module__, sys.modules['__main__'].Point is Point)\n"
    )
    answer = shmjet("run", script, "--help", "-o", "x")
    assert answer.stderr == ""
    assert answer.stdout == f"['--help', '-o', 'x'] {script} 42 __main__ True\n"
    assert answer.returncode == 0


@pytest.mark.parametrize(
    ("line", "status"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(7)", 7), ("sys.exit('no luck')", 1), ("raise ValueError(3)", 1)],
)
def test_the_exit_status_is_the_scripts(shmjet: Shmjet, script: Path, line: str, status: int) -> None:
    script.write_text(f"import sys\n{line}\n")
    assert shmjet("run", script).returncode == status


def test_a_traceback_begins_at_the_script(shmjet: Shmjet, script: Path) -> None:
    script.write_text("def fail():\n    raise ValueError('three')\nfail()\n")
    answer = shmjet("run", script)
    lines = answer.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{script}", line 3, in <module>'
    assert lines[-1] == "ValueError: three"


def test_a_syntax_error_shows_the_line_and_nothing_of_ours(shmjet: Shmjet, script: Path) -> None:
    script.write_text("x = = 1\n")
    answer = shmjet("run", script)
    assert answer.returncode == 1
    assert "x = = 1" in answer.stderr
    assert "SyntaxError" in answer.stderr
    assert "cli/script.py" not in answer.stderr


def test_a_missing_script_is_wrong_usage(shmjet: Shmjet, script: Path) -> None:
    answer = shmjet("run", script)
    assert (answer.returncode, answer.stderr) == (2, f"shmjet: no such script: {script}\n")


def test_a_failed_job_is_reported_without_the_clients_frames(shmjet: Shmjet, script: Path) -> None:
    script.write_text(
        "from shmjet import JobFailedError\n"
        "raise JobFailedError('vertex \"map\", processor 0: ZeroDivisionError: division by zero')\n"
    )
    answer = shmjet("run", script)
    assert answer.returncode == 1
    assert answer.stderr == 'shmjet: vertex "map", processor 0: ZeroDivisionError: division by zero\n'


@pytest.mark.parametrize("thread", ["", "threading.Thread(target=threading.Event().wait).start()\n"])
def test_ctrl_c_is_status_130_and_one_line_even_when_a_thread_does_not_end(
    environment: dict[str, str], script: Path, thread: str
) -> None:
    script.write_text(f"import threading\n{thread}print('ready', flush=True)\nthreading.Event().wait(60)\n")
    with started(environment, "run", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        press_ctrl_c(child)
        _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, "shmjet: interrupted\n")


def test_ctrl_c_while_source_text_runs_is_status_130_and_one_line(shmjet: Shmjet, script: Path) -> None:
    """Python would end such a process by SIGINT. Imports run source text: `dataclass` writes its methods."""
    script.write_text("import shmjet.host.terminal_text\nexec('raise KeyboardInterrupt')\n")
    answer = shmjet("run", script)
    assert (answer.returncode, answer.stderr) == (130, "shmjet: interrupted\n")


PIPELINE = """\
import shmjet
from shmjet.aggregate_ops import counting
from shmjet.pipeline import Pipeline, SinkDef, SourceDef
from shmjet.processors import read_items, write_map

p = Pipeline()
words = p.read_from(SourceDef("words", read_items("a b a".split())))
words.grouping_key(lambda word: word).aggregate(counting()).write_to(SinkDef("map", write_map("counts")))
if __name__ == "__main__":
    with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:
        jet.new_job(p).run(timeout=60)
        print(sorted(jet.get_map("counts").items()))
"""


@pytest.mark.slow
def test_a_script_that_builds_a_pipeline_runs_it(shmjet: Shmjet, script: Path) -> None:
    script.write_text(PIPELINE)
    answer = shmjet("run", script)
    assert answer.stderr == ""
    assert answer.stdout == "[('a', 2), ('b', 1)]\n"


def test_the_dag_of_a_pipeline_is_drawn_like_one_made_by_hand(shmjet: Shmjet, script: Path) -> None:
    script.write_text(PIPELINE)
    answer = shmjet("dag", script)
    assert '"aggregate_by_key-accumulate" -> "aggregate_by_key-combine"' in answer.stdout
