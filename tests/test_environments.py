"""Everything starts and works in odd environments, several oddities at once; `stress/environments.py` has them all."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

import pytest

from tests.environments import Setting, as_user, block_signals, gone_folder, ignore_signals, limit, run, works_nowhere

CLOSED = Setting("no descriptors 0 to 2", closed=(0, 1, 2))
NOWHERE = Setting("nowhere", gone_folder)
MIXES = {
    "a daemon": [
        CLOSED,
        Setting("signals blocked", block_signals),
        NOWHERE,
        Setting("no variables", variables=dict.fromkeys(("HOME", "LANG", "LC_ALL", "TZ", "TERM", "USER"))),
    ],
    "a strict shell": [
        Setting("only input closed", closed=(0,)),
        Setting("signals ignored", ignore_signals),
        Setting("plain locale", variables={"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        Setting("odd zone", variables={"TZ": "Nowhere/Else", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}),
        Setting("warnings are errors", variables={"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2"}),
        Setting("few descriptors", limit(resource.RLIMIT_NOFILE, 64)),
        Setting("little address space", limit(resource.RLIMIT_AS, 2 << 30)),
    ],
}


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_everything_works(mix: list[Setting]) -> None:
    if NOWHERE in mix and not works_nowhere():
        mix = [setting for setting in mix if setting is not NOWHERE]
    said, written = run(mix)
    assert said == "fine", f"{said}\nwritten: {written}"


@pytest.mark.skipif(os.geteuid() != 0, reason="limits of processes do not hold for root, who can become another user")
def test_a_user_who_may_have_no_more_processes_is_told_which_limit_that_is() -> None:
    uid = 4_000_000 + os.getpid()  # a user who has no process yet
    said, written = run([Setting("one user", limit(resource.RLIMIT_NPROC, 3), wrapper=as_user(uid))])
    assert re.match(r"ShmjetError: .*RLIMIT_NPROC 3\): raise RLIMIT_NPROC \(`ulimit -u`\)", said), f"{said} {written}"
    assert "Traceback" not in written


def test_a_path_that_is_no_text_here_leads_to_modules_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "ünïcödé"
    folder.mkdir()
    (folder / "beside_us.py").write_text("def twice(x):\n    return 2 * x\n")
    program = """
        import beside_us
        from shmjet import JetConfig, Pipeline, new_instance, sinks, sources

        def main():
            with new_instance(JetConfig(cores=1)) as jet:
                p = Pipeline()
                p.read_from(sources.items([1, 2])).map(beside_us.twice).write_to(sinks.list("out"))
                jet.new_job(p).run(60)
                assert list(jet.get_list("out")) == [2, 4]
    """
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(folder)}
    said, written = run([Setting("a path of bytes", variables=dict(plain))], program=program)
    assert said == "fine", f"{said}\nwritten: {written}"
