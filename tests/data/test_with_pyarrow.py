"""The tests of `with_pyarrow.py`, in a process of its own: nothing of shmjet may need pyarrow or pandas.

`make test` installs both into a folder (`PACKAGES`) that only that process has on its path. It runs once, and each of
its tests is a test here.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

PACKAGES = Path(sys.prefix) / "test-apart"
SCRIPT = Path(__file__).with_name("with_pyarrow.py")
NAMES = [
    each.name
    for each in ast.parse(SCRIPT.read_text(encoding="utf-8")).body
    if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What went wrong in each test of the other process."""
    if not all((PACKAGES / name).is_dir() for name in ("pandas", "pyarrow")):
        pytest.skip(f"pandas and pyarrow are not in {PACKAGES} (`make test` installs them)")
    folder = tmp_path_factory.mktemp("with_pyarrow")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(SCRIPT)]
    ran = subprocess.run(
        [*command, f"--basetemp={folder / 'tmp'}", f"--junit-xml={folder / 'outcomes.xml'}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])},
        cwd=SCRIPT.parents[2],
        capture_output=True,
        text=True,
    )
    if not (folder / "outcomes.xml").exists():
        pytest.fail(f"the process with pyarrow ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}", pytrace=False)
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(folder / "outcomes.xml").iter("testcase"):
        lines = found.setdefault(case.attrib["name"].partition("[")[0], [])
        lines += [each.text or each.attrib["message"] for each in case if each.tag in ("failure", "error", "skipped")]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_with_pyarrow(outcomes: dict[str, list[str]], name: str) -> None:
    assert name in outcomes, f"{name} has not been run; the process has run {', '.join(outcomes) or 'nothing'}"
    if outcomes[name]:
        pytest.fail("\n".join(outcomes[name]), pytrace=False)
