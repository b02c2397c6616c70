"""Modules of users that are called as parts of this package are, and copies of this package that are not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import shmjet

PACKAGE = Path(shmjet.__file__).parent
# What is installed, too, comes before modules of users.
NAMES = sorted(
    path.stem
    for path in PACKAGE.iterdir()
    if path.suffix in ("", ".py") and not path.stem.startswith("_") and find_spec(path.stem) is None
)
SCRIPT = """
import importlib, sys
import shmjet
from shmjet import Pipeline, PoolExecutor, sinks, sources

modules = [importlib.import_module(name) for name in {names!r}]
with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:
    for module in modules:
        pipeline = Pipeline()
        pipeline.read_from(sources.items([1])).map(module.name_of).write_to(sinks.list("out"))
        jet.new_job(pipeline).run(60)
    print(*jet.get_list("out"))
with PoolExecutor(1) as pool:
    print(*(pool.submit(module.name_of, 1).result(60) for module in modules))
"""
LOCATION = """
import sys
sys.path.insert(0, sys.argv[1])
import shmjet
from shmjet import Pipeline, sinks, sources

def place(item):
    import shmjet
    return shmjet.__file__

with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet:
    pipeline = Pipeline()
    pipeline.read_from(sources.items([1])).map(place).write_to(sinks.list("out"))
    jet.new_job(pipeline).run(60)
    print(*jet.get_list("out"))
"""


def output_of(*command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_found_by_workers_and_pools(tmp_path: Path) -> None:
    assert {"core", "data", "pipeline", "sources"} <= set(NAMES)
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"def name_of(item):\n    return {name!r}\n")
    script = tmp_path / "users_script.py"
    script.write_text(SCRIPT.format(names=NAMES))
    of_jobs, of_pool = output_of(script).splitlines()
    assert of_jobs.split() == of_pool.split() == NAMES


def test_a_copy_that_is_only_on_the_path_of_the_client_is_that_of_the_workers(tmp_path: Path) -> None:
    copy = tmp_path / "copied" / "shmjet"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    script = tmp_path / "users_script.py"
    script.write_text(LOCATION)
    assert output_of(script, copy.parent).split() == [str(copy / "__init__.py")]
