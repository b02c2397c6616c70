"""The scripts of `bench/` as modules."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).resolve().parents[2] / "bench"


@contextlib.contextmanager
def bench_script(name: str) -> Iterator[ModuleType]:
    """Import a script as it is found when it is run; workers find it the same way. Later tests do not see it."""
    known = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))
        for found in set(sys.modules) - known:
            if str(BENCH) in str(getattr(sys.modules[found], "__file__", None)):
                del sys.modules[found]
