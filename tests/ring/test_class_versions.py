"""Objects of classes that travel by value become those of the job's class of the same name."""

from __future__ import annotations

import enum
import pickle
from typing import Any

import pytest

from shmjet.data import code_pickling
from shmjet.ring.class_versions import NewerClasses, classes_in

OLD = """
class Base:
    def who(self):
        return "old base"

class Total(Base):
    kind = "old"
    def __init__(self, n):
        self.n = n
    def shown(self):
        return f"old {self.n}"

class Color(enum.Enum):
    RED = 1
"""
NEW = OLD.replace("old", "new").replace("RED = 1", "RED = 1\n    BLUE = 2")


def version(text: str) -> dict[str, Any]:
    """The names of a script of that text, whose classes can be imported from nowhere."""
    names: dict[str, Any] = {"__name__": "a_script", "enum": enum}
    exec(text, names)
    return names


def saved(names: dict[str, Any]) -> bytes:
    total, color = names["Total"](3), names["Color"].RED
    return code_pickling.dumps([total, [total], color, 7])


def code(names: dict[str, Any], *classes: str) -> bytes:
    """The pickled code of a job with some classes, as a worker has unpickled it."""
    data = code_pickling.dumps([names[name] for name in classes])
    pickle.loads(data)
    return data


def read(state: bytes, job: bytes) -> Any:
    return NewerClasses(memoryview(state), (), classes_in(job)).load()


def test_objects_become_those_of_the_class_of_the_job() -> None:
    old, new = version(OLD), version(NEW)
    total, (again,), color, number = read(saved(old), code(new, "Total", "Color"))
    assert type(total) is new["Total"]
    assert (total.shown(), total.who(), total.kind, number) == ("new 3", "new base", "new", 7)
    assert again is total
    assert color is new["Color"].RED
    assert old["Total"](1).shown() == "old 1"  # not changed


def test_classes_that_the_job_does_not_bring_stay_as_they_were() -> None:
    old, new = version(OLD), version(NEW)
    total, _, color, _ = read(saved(old), code(new, "Base"))
    assert total.shown() == "old 3"
    assert type(color).__name__ == "Color"
    assert len(type(color)) == 1


def test_of_two_classes_of_one_name_none_is_taken() -> None:
    old, new, other = version(OLD), version(NEW), version(NEW)
    data = code_pickling.dumps([new["Total"], other["Total"]])
    pickle.loads(data)
    assert ("a_script", "Total") not in classes_in(data)
    assert read(saved(old), data)[0].shown() == "old 3"


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_only_the_classes_of_that_code_are_found(kind: Any) -> None:
    new, _other = version(NEW), code(version(OLD), "Total")
    found = classes_in(kind(code(new, "Color")))
    assert found == {("a_script", "Color"): new["Color"]}
