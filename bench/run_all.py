"""Runs every bench of this folder, each in a process of its own, and writes the results as a Markdown page.

`--quick` passes the short form on, `--only NAME` (repeatable) picks scripts, `--output FILE` writes the page,
`--list-peers` prints the distributions that the peers need, one a line, `--list-apart` those for a folder of their own.
"""

from __future__ import annotations

import argparse
import configparser
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from _harness import default_workers, human

HERE = Path(__file__).resolve().parent

TIME_LIMIT = 1800
"""Seconds that one script may take; with `--quick` a quarter of it."""


def scripts(only: Sequence[str]) -> list[Path]:
    """The benches of this folder by name."""
    found = sorted(
        path for path in HERE.glob("*.py") if not path.name.startswith("_") and path != Path(__file__).resolve()
    )
    unknown = set(only) - {path.stem for path in found}
    if unknown:
        raise SystemExit(f"run_all: no such bench: {', '.join(sorted(unknown))}")
    return [path for path in found if not only or path.stem in only]


def run_script(script: Path, quick: bool, workers: int) -> tuple[list[dict[str, Any]], str | None]:
    """Run one script and return the objects that it printed, and what went wrong if something did."""
    command = [sys.executable, str(script), "--json", "--workers", str(workers), *(["--quick"] if quick else [])]
    limit = TIME_LIMIT // 4 if quick else TIME_LIMIT
    results: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=HERE.parent
    ) as child:
        deadline = time.monotonic() + limit
        try:
            output, _ = child.communicate(timeout=deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            child.terminate()
            output, _ = child.communicate()
            return results, f"took more than {limit} s"
    for line in output.splitlines():
        if line.startswith("{"):
            results.append(json.loads(line))
    return results, f"exit status {child.returncode}" if child.returncode else None


def rows(results: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The lines of the table: one for each peer of each bench."""
    yield "| bench | unit | shmjet | peer | peer's figure | ratio |"
    yield "|---|---|---:|---|---:|---:|"
    for result in results:
        ours = "-" if result["shmjet"] is None else human(result["shmjet"])
        start = f"| {result['bench']} | {result['unit']} | {ours} |"
        for peer, theirs in result["peers"].items():
            ratio = result["ratio"].get(peer)
            yield f"{start} {peer} | {human(theirs)} | {'-' if ratio is None else f'{ratio:.3g}'} |"
        for peer, why in result.get("skipped", {}).items():
            yield f"{start} {peer} | skipped: {why} | - |"
        if not result["peers"] and not result.get("skipped"):
            yield f"{start} - | - | - |"


def page(results: list[dict[str, Any]], failures: dict[str, str], quick: bool) -> str:
    """The whole page."""
    lines = [
        "# Results",
        "",
        f"Written by `make bench{' QUICK=1' if quick else ''}` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}:",
        f"{machine()}.",
        "",
        "Contenders run in turn and medians count. A ratio above 1 always means that shmjet is better: ours / theirs",
        "for something per second, theirs / ours for a time. What a bench measures is said at the top of its script.",
        "",
        *rows(results),
    ]
    facts = [
        f"- `{result['bench']}`: " + "; ".join(f"{name} {fact}" for name, fact in result["facts"].items())
        for result in results
        if result.get("facts")
    ]
    if facts:
        lines += ["", *facts]
    if failures:
        lines += ["", *(f"- `{name}` failed: {why}" for name, why in failures.items())]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The machine in one phrase."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    software = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{default_workers()} cores of {model}, {memory:.0f} GiB, {software}"


def peers(extra: str) -> list[str]:
    """The requirements of an extra: `bench`, or `bench_apart` for peers that need a process of their own."""
    settings = configparser.ConfigParser()
    settings.read(HERE.parent / "setup.cfg", encoding="utf-8")
    return settings["options.extras_require"][extra].split()


def main() -> int:
    """Run what was asked for; 1 when a bench failed."""
    parser = argparse.ArgumentParser(description="Run all benches and write a page of results.")
    parser.add_argument("--quick", action="store_true", help="the short form, under two minutes a script")
    parser.add_argument("--workers", type=int, default=default_workers(), help="processes or cores to use")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this script (repeatable)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the page")
    parser.add_argument("--list-peers", action="store_true", help="print the distributions that the peers need")
    parser.add_argument("--list-apart", action="store_true", help="print the peers that need a folder of their own")
    options = parser.parse_args()
    if options.list_peers or options.list_apart:
        print("\n".join(peers("bench_apart" if options.list_apart else "bench")))
        return 0
    results: list[dict[str, Any]] = []
    failures: dict[str, str] = {}
    for script in scripts(options.only):
        print(f"== {script.name}", file=sys.stderr, flush=True)
        found, failure = run_script(script, options.quick, options.workers)
        results += found
        if failure is not None:
            failures[script.stem] = failure
            print(f"{script.name}: {failure}", file=sys.stderr)
        for row in list(rows(found))[2:]:
            print(row, flush=True)
    if options.output is not None:
        options.output.write_text(page(results, failures, options.quick), encoding="utf-8")
        print(f"written: {options.output}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
