"""The entry and the class because of which a piece cannot be read are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shmjet._native import Codec
from shmjet.snapshots.chunk import ChunkReader, ChunkWriter, UnreadableEntryError

BODY = """
class Kept:
    pass

class Total:
    def __init__(self, n):
        self.n = n

class Slotted:
    __slots__ = ("n",)

class Counts(dict):
    pass

def made(n):
    return Made(n)

class Made:
    def __init__(self, n):
        self.n = n
    def __reduce__(self):
        return made, (self.n,)
"""


@pytest.fixture
def old() -> Iterator[ModuleType]:
    """A module of the user's, as it was."""
    module = ModuleType("users_module")
    exec(BODY, vars(module))
    sys.modules["users_module"] = module
    yield module
    del sys.modules["users_module"]


def refusal(folder: Path, entries: list[tuple[Any, Any]], old: ModuleType, **changes: Any) -> str:
    """Save entries, change the module (None: what is called so is gone), and return why they cannot be read back."""
    writer = ChunkWriter(folder / "1.chunk", Codec())
    piece = writer.write(entries, 0)
    writer.close()
    assert piece is not None
    for name, value in changes.items():
        if value is None:
            delattr(old, name)
        else:
            setattr(old, name, value)
    reader = ChunkReader(folder, Codec())
    try:
        with pytest.raises(UnreadableEntryError) as caught:
            reader.entries(piece)
    finally:
        reader.close()
    return str(caught.value)


@pytest.mark.parametrize("depth", ["bare", "nested", "attribute"])
def test_an_entry_whose_class_is_gone_is_named(tmp_path: Path, old: ModuleType, depth: str) -> None:
    value = old.Total(1)
    if depth == "nested":
        value = {"all": [(1, {value})]}
    elif depth == "attribute":
        kept = old.Kept()
        kept.total = value
        value = kept
    text = refusal(tmp_path, [("a", old.Kept()), ("b", value), ("c", old.Total(2))], old, Total=None)
    assert text.startswith("the entry of key 'b' needs users_module.Total: AttributeError: ")


def test_a_key_whose_class_is_gone_is_named(tmp_path: Path, old: ModuleType) -> None:
    assert " needs users_module.Total: " in refusal(tmp_path, [(old.Total(1), 1)], old, Total=None)


def test_a_module_that_is_gone_is_named(tmp_path: Path, old: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    piece = writer.write([("a", old.Total(1))], 0)
    writer.close()
    assert piece is not None
    monkeypatch.setitem(sys.modules, "users_module", None)
    with pytest.raises(UnreadableEntryError, match=r"key 'a' needs users_module\.Total: ModuleNotFoundError"):
        ChunkReader(tmp_path, Codec()).entries(piece)


def test_a_class_that_refuses_its_old_state_is_named(tmp_path: Path, old: ModuleType) -> None:
    def refuse(self: Any, state: Any) -> None:
        raise ValueError(f"no field {sorted(state)}")

    changed = type("Total", (), {"__setstate__": refuse, "__module__": "users_module"})
    text = refusal(tmp_path, [("a", old.Kept()), ("b", [old.Total(1)])], old, Total=changed)
    assert text == "the entry of key 'b' needs users_module.Total: ValueError: no field ['n']"


def test_a_class_of_another_kind_is_named(tmp_path: Path, old: ModuleType) -> None:
    changed = type("Counts", (), {"__module__": "users_module"})
    text = refusal(tmp_path, [("a", 1), ("b", old.Counts(x=1))], old, Counts=changed)
    assert text.startswith("the entry of key 'b' needs users_module.Counts: TypeError: ")


def test_a_function_that_makes_an_object_and_raises_is_named(tmp_path: Path, old: ModuleType) -> None:
    def refuse(n: int) -> None:
        raise KeyError(n)

    text = refusal(tmp_path, [("a", old.Made(5))], old, made=refuse)
    assert text == "the entry of key 'a' needs users_module.made: KeyError: 5"


def test_a_class_of_the_job_that_refuses_what_another_version_has_saved_is_named(tmp_path: Path) -> None:
    def version(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "a_script"}
        exec(f"class Total:\n    def __init__(self):\n        self.n = 1\n{text}", names)
        return names["Total"]

    refusing = version("    def __setstate__(self, state):\n        raise ValueError('no n any more')\n")
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    piece = writer.write([("a", (1, 2)), ("b", {"x": version("")()})], 0)
    writer.close()
    assert piece is not None
    reader = ChunkReader(tmp_path, Codec(), {("a_script", "Total"): refusing})
    with pytest.raises(UnreadableEntryError, match=r"key 'b' needs a_script\.Total: ValueError: no n any more"):
        reader.entries(piece)
    reader.close()
