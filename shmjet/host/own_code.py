"""Programs for fresh interpreters that need the code of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).resolve().parents[2])


def program(code: str) -> str:
    """Return a program that runs some code, with this package imported from where this process has it.

    Its folder is on `sys.path` for that import only: what else lies there must not stand before modules of users.

    Args:
        code: what to run; finds `sys` imported.

    Example:
        >>> program("print(1)").endswith("print(1)")
        True
    """
    return f"import sys; sys.path.insert(0, {_ROOT!r}); import shmjet; del sys.path[0]\n{code}"
