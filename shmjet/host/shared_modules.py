"""The modules that the environment has workers share: their fork server imports them once, before it forks any."""

from __future__ import annotations

import os

_NAME = "SHMJET_PRELOAD"


def shared_modules() -> list[str] | None:
    """Return the modules that the environment names; None where it says nothing."""
    named = os.environ.get(_NAME)
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]
