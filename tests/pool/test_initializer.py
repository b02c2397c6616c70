"""What workers have before their first task: what an initializer sets, also where functions travel by value, and the
modules that the environment names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from shmjet import PoolExecutor

PATIENCE_S = 60.0

SCRIPT = """
handle, limit, settings = None, 1, {}

def connect(value):
    global handle
    handle = value

def begin(value):
    global made_there
    made_there = value
    connect(value)
    settings["value"] = value
    assert limit

def opened():
    return handle

def seen(item):
    return opened(), settings.get("value"), made_there, item

def limited(item):
    return limit, handle
"""


@pytest.fixture
def script() -> ModuleType:
    """A script whose functions cannot be imported, so that they travel by value."""
    module = ModuleType("__script__")
    exec(SCRIPT, vars(module))
    return module


@pytest.mark.parametrize("wrap", [lambda begin: begin, partial], ids=["function", "partial"])
def test_tasks_see_what_the_initializer_has_bound_and_changed(script: ModuleType, wrap: Callable[..., Any]) -> None:
    with PoolExecutor(1, initializer=wrap(script.begin), initargs=(7,)) as pool:
        assert pool.submit(script.seen, 0).result(PATIENCE_S) == (7, 7, 7, 0)
        assert list(pool.map(script.seen, [1, 2])) == [(7, 7, 7, 1), (7, 7, 7, 2)]
        assert pool.submit(partial(script.seen, 3)).result(PATIENCE_S) == (7, 7, 7, 3)
        assert list(pool.map(partial(script.seen), [4])) == [(7, 7, 7, 4)]


def test_a_global_that_the_client_binds_later_is_the_clients(script: ModuleType) -> None:
    with PoolExecutor(1, initializer=script.begin, initargs=(7,)) as pool:
        assert pool.submit(script.limited, 0).result(PATIENCE_S) == (1, 7)
        script.limit = 2
        assert pool.submit(script.limited, 0).result(PATIENCE_S) == (2, 7)
        script.handle = "mine"
        assert pool.submit(script.limited, 0).result(PATIENCE_S) == (2, "mine")


def test_functions_of_other_scripts_keep_their_globals(script: ModuleType) -> None:
    other: dict[str, Any] = {"__name__": "__other__"}
    exec("handle = 5\ndef read():\n    return handle", other)
    with PoolExecutor(1, initializer=script.begin, initargs=(7,)) as pool:
        assert pool.submit(other["read"]).result(PATIENCE_S) == 5
        assert pool.submit(abs, -1).result(PATIENCE_S) == 1


@pytest.mark.parametrize(("named", "loaded"), [(" wave,no_such_module", [True, False]), ("", [False, False])])
def test_workers_share_the_modules_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, named: str, loaded: list[bool]
) -> None:
    importlib.import_module("numpy")  # which they would share otherwise
    monkeypatch.setenv("SHMJET_PRELOAD", named)
    asked = "[name in __import__('sys').modules for name in ('wave', 'numpy')]"
    with PoolExecutor(1) as pool:
        assert pool.submit(eval, asked).result(PATIENCE_S) == loaded
