"""The C test of the ring and the doorbell under ThreadSanitizer: 60 s in the long form, 5 s with --ci.

Usage: stress/ring_races.py [--ci] [--seconds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Compile the test with the sanitizer and run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ci", action="store_true", help="the short form")
    parser.add_argument("--seconds", type=float, help="how long")
    options = parser.parse_args()
    seconds = options.seconds or (5 if options.ci or os.environ.get("CI") == "true" else 60)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("ring_races: no C compiler; install gcc", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/test_ring"
        flags = ["-std=c11", "-O1", "-g", "-Wno-tsan", "-fsanitize=thread", "-I", str(ROOT / "shmjet" / "_native")]
        source = str(ROOT / "tests" / "native" / "test_ring.c")
        subprocess.run([compiler, *flags, "-o", program, source, "-pthread"], check=True)
        done = subprocess.run([program, str(seconds)], check=False)
    print(f"ring_races: {seconds:g} s under ThreadSanitizer: {'clean' if done.returncode == 0 else 'FAILED'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
