"""What a newcomer meets first: building, installing, and the words that say what is missing."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def told(
    command: Sequence[str | Path], folder: Path, status: int = 0, unset: Sequence[str] = (), **environment: str
) -> str:
    """Return what a command prints; fail unless it ends with `status`."""
    given = {name: value for name, value in {**os.environ, **environment}.items() if name not in unset}
    answer = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == status, answer.stdout
    return answer.stdout


def compiler_that(folder: Path, *lines: str) -> str:
    program = folder / "its-cc"
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("command", ["bdist_wheel", "build_ext", "editable_wheel"])
def test_a_build_without_a_compiler_says_so_in_one_line(tmp_path: Path, command: str) -> None:
    text = told([sys.executable, ROOT / "setup.py", command], tmp_path, 1, CC="absent-cc -pthread")
    assert text == (
        "shmjet cannot be built here: no C compiler 'absent-cc'; "
        "install one (e.g. apt-get install build-essential) or name it by CC=...\n"
    )


def test_a_build_without_any_compiler_on_the_path_says_so(tmp_path: Path) -> None:
    text = told([sys.executable, ROOT / "setup.py", "bdist_wheel"], tmp_path, 1, ["CC"], PATH=str(tmp_path))
    assert re.fullmatch(r"shmjet cannot be built here: no C compiler '\S+'; install one .*\n", text)


def test_a_compiler_without_headers_is_quoted_in_a_few_lines(tmp_path: Path) -> None:
    broken = compiler_that(tmp_path, *(f"echo 'trial.c: error {n}' >&2" for n in range(100)), "exit 3")
    text = told([sys.executable, ROOT / "setup.py", "bdist_wheel"], tmp_path, 1, CC=broken)
    assert text.startswith(
        f"shmjet cannot be built here: {broken} cannot compile a file that includes Python.h (exit 3)"
    )
    assert len(text.splitlines()) == 5


def test_what_needs_no_compiler_does_not_ask_for_one(tmp_path: Path) -> None:
    assert told([sys.executable, ROOT / "setup.py", "--version"], ROOT, CC="absent-cc").endswith("0.1.0\n")


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A source tree, in a folder of a name that is hard to quote, in which nothing has been built."""
    root = tmp_path / 'it\'s a "tree" ü'
    shutil.copytree(ROOT / "shmjet", root / "shmjet", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return root


def test_a_source_tree_that_was_not_built_says_how_to_build_it(unbuilt: Path) -> None:
    (unbuilt / "setup.py").touch()
    text = told([sys.executable, "-c", "from shmjet import DAG"], unbuilt, 1)
    assert text.endswith(
        f"ImportError: the C extension of shmjet in {unbuilt} is not built: "
        f"run `{sys.executable} setup.py build_ext --inplace` in {unbuilt}\n"
    )
    (unbuilt / "setup.py").unlink()
    text = told([sys.executable, "-c", "from shmjet import DAG"], unbuilt, 1)
    assert text.endswith(f"the C extension of shmjet in {unbuilt} is not built: install shmjet again\n")


def test_an_extension_of_another_version_is_told_from_none(unbuilt: Path) -> None:
    (unbuilt / "shmjet" / "_native" / "_core.py").write_text("CLAIMS_HEADER = 1\n")
    text = told([sys.executable, "-c", "from shmjet import DAG"], unbuilt, 1)
    assert f"the C extension of shmjet in {unbuilt} is not that of this version (cannot import name" in text
    assert text.endswith("install shmjet again\n")


def test_on_the_command_line_that_is_one_line(unbuilt: Path) -> None:
    text = told([sys.executable, "-m", "shmjet", "wordcount", ROOT / "README.md"], unbuilt, 1)
    assert text == f"shmjet: the C extension of shmjet in {unbuilt} is not built: install shmjet again\n"


def test_a_checkout_whose_path_is_not_ascii_is_found_in_every_locale(tmp_path: Path) -> None:
    checkout = tmp_path / "für alle"
    (checkout / "shmjet").mkdir(parents=True)
    (checkout / "shmjet" / "__init__.py").write_text("print('here')\n")
    shutil.copy(ROOT / "Makefile", checkout)
    told([sys.executable, "-m", "venv", "--without-pip", ".venv"], checkout)
    [packages] = checkout.glob(".venv/lib/python*/site-packages")
    path = packages / "__editable__.shmjet-0.1.0.pth"  # as setuptools writes it
    path.write_text(f"{checkout}\n", encoding="utf-8")
    told(["make", "--silent", ".relative-path", f"PYTHON={sys.executable}"], checkout, unset=["MAKEFLAGS"], LC_ALL="C")
    python = checkout / ".venv" / "bin" / "python"
    assert told([python, "-c", "import shmjet"], tmp_path, unset=["PYTHONPATH"], LC_ALL="C") == "here\n"


def test_an_environment_keeps_the_python_that_it_was_made_with(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.99;; esac\n')
    python.chmod(0o755)
    make = ["make", "--dry-run", "--always-make", "install", f"VENV={tmp_path}"]
    unset = ["MAKEFLAGS", "PYTHON"]
    assert f"touch {tmp_path}/.installed-3.99\n" in told(make, ROOT, unset=unset)
    python.write_text("#!/bin/sh\nexit 1\n")  # its interpreter was removed, or is too old
    assert ".installed-3.99" not in told(make, ROOT, unset=unset)


def test_the_demo_installs_the_package_and_nothing_else() -> None:
    whole = told(["make", "--dry-run", "--always-make", "demo", "VENV=/nowhere"], ROOT, unset=["MAKEFLAGS"])
    found = re.findall(r"-m pip install (.*)", whole)
    assert len(found) == 2
    assert found[0].endswith("'pip>=23.1' 'setuptools>=70.1' wheel")
    assert found[1].split()[-2:] == ["--editable", "."]


def test_ci_runs_in_a_folder_with_the_name_of_the_package(tmp_path: Path) -> None:
    checkout, scratch = tmp_path / "any other name", tmp_path / "scratch"
    (checkout / ".ci").mkdir(parents=True)
    scratch.mkdir()
    shutil.copy(ROOT / ".ci" / "run", checkout / ".ci")
    (checkout / "Makefile").write_text("setup:\n\t@echo made in '$(CURDIR)' with *; exit 7\n")
    (checkout / "new file").touch()
    run = ["bash", checkout / ".ci" / "run"]
    text = told(run, tmp_path, 2, TMPDIR=str(scratch))
    assert "this is not a git checkout" in text
    assert re.search(rf"made in {scratch}/\S+/shmjet with Makefile new file\n", text)
    for command in (["init", "--quiet"], ["add", "--all"]):
        told(["git", "-c", "safe.directory=*", *command], checkout)
    text = told(run, tmp_path, 2, TMPDIR=str(scratch))
    assert "tested with what is not committed: 3 changed or new files" in text
    (checkout / "new file").unlink()
    assert re.search(rf"made in {scratch}/\S+/shmjet with Makefile\n", told(run, tmp_path, 2, TMPDIR=str(scratch)))
    assert list(scratch.iterdir()) == []
    named = checkout.rename(tmp_path / "shmjet")
    text = told(["bash", named / ".ci" / "run"], tmp_path, 2, TMPDIR=str(scratch))
    assert f"made in {named} with Makefile\n" in text
    assert "a copy of" not in text


SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def packages_of(extra: str) -> set[str]:
    return set(re.findall(r"^[\w-]+", SETUP["options.extras_require"][extra], re.M))


TEXTS = [
    *(ROOT / "shmjet").rglob("*.py"),
    *(ROOT / "examples").glob("*.py"),
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *ROOT.glob("*.md"),
]


def test_what_is_to_be_installed_is_what_an_index_has() -> None:
    """shmjet itself is on no index, so no text may send users there for one of its extras."""
    known = {name for extra in SETUP["options.extras_require"] for name in packages_of(extra)}
    found: set[str] = set()
    for path in TEXTS:
        text = path.read_text()
        assert "shmjet[" not in text, path
        for command in re.findall(r"pip install ((?:[\w.{}-]+|'[^']*')(?: [\w-]+)*)", text):
            for word in command.split():
                if not word.startswith(("-", ".", "{")):
                    assert word.strip("'.,").split(">")[0] in known, f"{path}: pip install {command}"
                    found.add(word)
    assert {"pyspark", "uvicorn", "lz4", "zeroconf", "fsspec", "zstandard"} <= found


def test_commands_that_install_for_a_part_name_all_that_it_needs() -> None:
    for path, extra in (("docs/console.md", "console"), ("docs/guides/embedding.md", "pool")):
        (line,) = re.findall(r"pip install ([\w -]+)", (ROOT / path).read_text())
        assert set(line.split()) == packages_of(extra)
