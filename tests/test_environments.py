"""Everything starts and works in odd environments, several oddities at once; `stress/environments.py` has them all."""

from __future__ import annotations

import os
import re
import resource

import pytest

from tests.environments import Setting, as_user, block_signals, gone_folder, ignore_signals, limit, run

CLOSED = Setting("no descriptors 0 to 2", closed=(0, 1, 2))
MIXES = {
    "a daemon": [
        CLOSED,
        Setting("signals blocked", block_signals),
        Setting("nowhere", gone_folder),
        Setting("no variables", variables=dict.fromkeys(("HOME", "LANG", "LC_ALL", "TZ", "TERM", "USER"))),
    ],
    "a strict shell": [
        Setting("only input closed", closed=(0,)),
        Setting("signals ignored", ignore_signals),
        Setting("plain locale", variables={"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        Setting("odd zone", variables={"TZ": "Nowhere/Else", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}),
        Setting("warnings are errors", variables={"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2"}),
        Setting("few descriptors", limit(resource.RLIMIT_NOFILE, 64)),
    ],
}


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_everything_works(mix: list[Setting]) -> None:
    said, written = run(mix)
    assert said == "fine", f"{said}\nwritten: {written}"


@pytest.mark.skipif(os.geteuid() != 0, reason="limits of processes do not hold for root, who can become somebody else")
def test_a_user_who_may_have_no_more_processes_is_told_which_limit_that_is() -> None:
    uid = 4_000_000 + os.getpid()  # somebody who has no process yet
    said, written = run([Setting("one user", limit(resource.RLIMIT_NPROC, 3), wrapper=as_user(uid))])
    assert re.match(r"ShmjetError: .*RLIMIT_NPROC 3\): raise RLIMIT_NPROC \(`ulimit -u`\)", said), f"{said} {written}"
    assert "Traceback" not in written
