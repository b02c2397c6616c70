"""Checks the models exhaustively with spin: that each holds, and that each of its mutations is caught.

A model that cannot fail proves nothing: so every guard that the code relies on has a mutation without it, for which
spin must find a run that goes wrong. Exit status 0 when every verdict is the expected one, 1 when not, 2 without spin.

Usage: model/run.py [--long]
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY_MB = 12_000


@dataclass(frozen=True)
class Run:
    """One model with its settings; `holds` says what spin has to find."""

    model: str
    settings: str
    holds: bool = True


SHORT = [
    *(Run("ring", f"CAP={capacity}") for capacity in (1, 2, 3, 4)),
    *(Run("ring", f"CAP={capacity} BUFFER") for capacity in (1, 2, 3, 4)),
    Run("ring", "CAP=2 BUFFER BROKEN", holds=False),
    Run("ring", "CAP=4 BUFFER BROKEN", holds=False),
    Run("doorbell", ""),
    Run("doorbell", "MUT_TAIL", holds=False),
    Run("doorbell", "PRODUCERS=1 ITEMS=3 FENCE_FREE=1"),
    Run("doorbell", "FENCE_FREE=1 MUT_FENCE", holds=False),
    Run("doorbell", "FENCE_FREE=1 MUT_LEAVE", holds=False),
    Run("doorbell", "MUT_ORDER", holds=False),
    Run("doorbell", "MUT_CHECK", holds=False),
    Run("doorbell", "MUT_MARK", holds=False),
    Run("stealing", ""),
    Run("stealing", "CANCEL"),
    Run("stealing", "DEATH"),
    Run("stealing", "CANCEL DEATH"),
    Run("stealing", "CANCEL DEATH ENDLESS"),
    Run("stealing", "MUT_COUNT", holds=False),
    Run("stealing", "CANCEL ENDLESS MUT_CANCEL", holds=False),
    Run("job", "CANCEL"),
    Run("job", "FAILURES=1 LOSS CANCEL"),
    Run("job", "FAILURES=1 CRASH"),
    Run("job", "FAILURES=0 MUT_START", holds=False),
    Run("job", "FAILURES=0 LOSS MUT_LOST", holds=False),
    Run("job", "FAILURES=1 MUT_NEXT", holds=False),
    Run("job", "FAILURES=0 CRASH MUT_ORPHAN", holds=False),
    Run("job", "FAILURES=0 CRASH MUT_HOLD", holds=False),
    Run("job", "MEMBERS=3 FAILURES=0 CRASH MUT_EPOCH", holds=False),
    Run("job", "FAILURES=0 CANCEL MUT_CANCEL", holds=False),
    Run("job", "MUT_COMMIT", holds=False),
    Run("job", "ATTEMPTS=1 MUT_ERROR", holds=False),
    Run("snapshot", "CANCEL FAILS=1"),
    Run("snapshot", "STEALS=1 ENDLESS"),
    Run("snapshot", "LOSSES=1"),
    Run("snapshot", "PRIORITY FAILS=1 LOSSES=1"),
    Run("snapshot", "SNAPSHOTS=2 TERMINALS=1 FAILS=1"),
    Run("snapshot", "AT_LEAST_ONCE TERMINALS=1 FAILS=1"),
    Run("snapshot", "CAPTURE FAILS=1"),
    Run("snapshot", "CAPTURE STEALS=1 ENDLESS"),
    Run("snapshot", "CAPTURE LOSSES=1 TERMINALS=1"),
    Run("snapshot", "MUT_ALIGN", holds=False),
    Run("snapshot", "MUT_BEYOND", holds=False),
    Run("snapshot", "STEALS=1 MUT_REPORT", holds=False),
    Run("snapshot", "STEALS=1 ENDLESS MUT_DEPLOY", holds=False),
    Run("snapshot", "STEALS=1 MUT_HELD", holds=False),
    Run("snapshot", "STEALS=1 MUT_MOVE", holds=False),
    Run("snapshot", "MUT_FINISHED", holds=False),
    Run("snapshot", "LOSSES=1 MUT_EARLY", holds=False),
    Run("snapshot", "MUT_AT_END", holds=False),
    Run("snapshot", "MUT_END", holds=False),
    Run("snapshot", "SNAPSHOTS=2 FAILS=1 MUT_NEXT", holds=False),
    Run("snapshot", "PRIORITY MUT_PRIORITY", holds=False),
    Run("snapshot", "TERMINALS=1 MUT_TERMINAL", holds=False),
    Run("snapshot", "SNAPSHOTS=2 FAILS=1 MUT_DROP", holds=False),
    Run("snapshot", "LOSSES=1 MUT_REPEAT", holds=False),
    Run("snapshot", "CAPTURE MUT_LATE", holds=False),
    Run("snapshot", "CAPTURE MUT_CAPTURED", holds=False),
    Run("snapshot", "CAPTURE STEALS=1 MUT_MOVE", holds=False),
    Run("snapshot", "CAPTURE MUT_END", holds=False),
    Run("copies", ""),
    Run("copies", "MEMBERS=4 LOSSES=2"),
    Run("copies", "MUT_FORGET", holds=False),
    Run("copies", "LOSSES=2 MUT_FETCH", holds=False),
    Run("copies", "MUT_END", holds=False),
    Run("copies", "MUT_ALL", holds=False),
    Run("copies", "MUT_WAIT", holds=False),
    Run("moving", "VIEWS=0 ALONE"),
    Run("moving", "VIEWS=0"),
    Run("moving", "OPS=1 ALONE"),
    Run("moving", "OPS=1 FIRST=1 LOSSES=0 ALONE"),
    Run("moving", "OPS=1 VIEWS=0 STAYS FAILS=1"),
    Run("moving", "VIEWS=0 ALONE MUT_NOTE", holds=False),
    Run("moving", "VIEWS=0 ALONE MUT_LATE", holds=False),
    Run("moving", "VIEWS=0 ALONE MUT_RESULT", holds=False),
    Run("moving", "OPS=1 FIRST=1 LOSSES=0 ALONE MUT_BEGIN", holds=False),
    Run("moving", "OPS=1 ALONE MUT_ANSWER", holds=False),
    Run("moving", "OPS=1 ALONE MUT_WAIT", holds=False),
    Run("moving", "OPS=1 ALONE MUT_JOIN", holds=False),
    Run("moving", "OPS=1 ALONE MUT_SETTLE", holds=False),
    Run("moving", "OPS=1 ALONE MUT_COUNT", holds=False),
    Run("moving", "OPS=1 VIEWS=0 MUT_DRAIN", holds=False),
    Run("moving", "OPS=1 MUT_EPOCH", holds=False),
    Run("moving", "OPS=1 VIEWS=0 STALES=1 MUT_STALE", holds=False),
    Run("moving", "OPS=1 VIEWS=0 STALES=1 MUT_REOPEN", holds=False),
    Run("moving", "OPS=1 MUT_TABLE", holds=False),
    Run("moving", "OPS=1 ALONE MUT_FOLLOW", holds=False),
]
LONG = [
    Run("ring", "CAP=4 BUFFER RECORDS=8"),
    Run("doorbell", "CAP=2 ITEMS=3"),
    Run("doorbell", "CAP=1 ITEMS=3"),
    Run("doorbell", "FENCE_FREE=1"),
    Run("stealing", "CANCEL DEATH TASKLETS=5"),
    Run("job", "FAILURES=1 CRASH CANCEL"),
    Run("job", "FAILURES=1 CRASH ATTEMPTS=3"),
    Run("job", "MEMBERS=3 FAILURES=0 LOSS"),
    Run("job", "MEMBERS=3 FAILURES=0 CRASH"),
    Run("snapshot", "STEALS=1 LOSSES=1 FAILS=1 CANCEL"),
    Run("snapshot", "STEALS=2 LOSSES=1 ENDLESS"),
    Run("snapshot", "SNAPSHOTS=2 TERMINALS=1 FAILS=1 LOSSES=1"),
    Run("snapshot", "AT_LEAST_ONCE STEALS=1 LOSSES=1"),
    Run("snapshot", "CAPTURE STEALS=1 LOSSES=1 FAILS=1 CANCEL"),
    Run("copies", "MEMBERS=4 LOSSES=3 SNAPSHOTS=6"),
    Run("moving", "OPS=1"),
    Run("moving", "OPS=1 VIEWS=0 STALES=1"),
    Run("moving", "ALONE"),
]


def check(run: Run) -> tuple[bool, int, int]:
    """Return whether the model holds, the states visited and the depth reached."""
    flags = [f"-D{setting}" for setting in run.settings.split()]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["spin", *flags, "-a", str(HERE / f"{run.model}.pml")], cwd=folder, check=True, capture_output=True
        )
        compiler = ["gcc", "-O1", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"]
        subprocess.run(compiler, cwd=folder, check=True)
        done = subprocess.run(["./pan", "-m5000000"], cwd=folder, check=True, capture_output=True, text=True)
    errors = re.search(r"errors: (\d+)", done.stdout)
    states = re.search(r"([\d.e+]+) states, stored", done.stdout)
    depth = re.search(r"depth reached (\d+)", done.stdout)
    if (
        not (errors and states and depth)
        or "max search depth too small" in done.stdout
        or "out of memory" in done.stdout
    ):
        raise RuntimeError(f"{run.model} {run.settings}: the search is not complete\n{done.stdout}")
    return errors[1] == "0", int(float(states[1])), int(depth[1])


def main() -> int:
    """Run all models and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--long", action="store_true", help="larger bounds as well, some minutes")
    options = parser.parse_args()
    if shutil.which("spin") is None:
        print("model: spin is missing; install it (Debian, Ubuntu: apt-get install spin)", file=sys.stderr)
        return 2
    print(f"{'model':10}{'settings':42}{'states':>10}{'depth':>8}{'seconds':>9}  verdict")
    surprises = 0
    for run in SHORT + (LONG if options.long else []):
        start = time.monotonic()
        holds, states, depth = check(run)
        verdict = "holds" if holds else "fails"
        if holds is not run.holds:
            verdict += f", but it should {'hold' if run.holds else 'fail'}"
            surprises += 1
        seconds = time.monotonic() - start
        print(f"{run.model:10}{run.settings:42}{states:>10,}{depth:>8}{seconds:>9.1f}  {verdict}", flush=True)
    print(f"{len(SHORT)} models, {surprises} surprises" if not options.long else f"{surprises} surprises")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
