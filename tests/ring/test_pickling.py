"""Anything picklable comes back equal and of the same type; what is not is named."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections import OrderedDict
from typing import Any

import cloudpickle
import numpy as np
import pytest
from cloudpickle import cloudpickle as internals
from hypothesis import given
from hypothesis import strategies as st

from shmjet.ring import pickling
from shmjet.ring.pickling import BY_VALUE, CLASSES_BY_ID, PLAIN, ItemEncodingError, Pickling, UnknownClassError, loads
from tests.native.values import nested, odd_scalars, plain_scalars, same


def joined(obj: object) -> bytes:
    return b"".join(pickling.dumps(obj))


@given(nested(st.one_of(plain_scalars, odd_scalars)))
def test_any_nesting_comes_back_the_same(obj: Any) -> None:
    assert same(loads(joined(obj)), obj)


def test_large_arrays_are_not_copied_when_dumped_and_are_writable_when_loaded() -> None:
    array = np.arange(10_000)
    parts = pickling.dumps({"a": array, "b": array[:10]})
    assert any(isinstance(part, memoryview) and np.shares_memory(np.frombuffer(part, "B"), array) for part in parts)
    back = loads(b"".join(parts))
    assert (back["a"] == array).all()
    back["a"][0] = 5
    readonly = np.arange(1000)
    readonly.flags.writeable = False
    assert not loads(joined(readonly)).flags.writeable


def test_buffers_are_aligned_in_the_payload() -> None:
    arrays = [np.arange(n, dtype="i1") for n in (1025, 2000, 3001)]
    payload = bytearray(joined(arrays))
    back = loads(payload, copy=False)
    start = np.frombuffer(payload, "B").ctypes.data
    assert [(a.ctypes.data - start) % 16 for a in back] == [0, 0, 0]
    assert all(map(same, back, arrays))
    payload[:] = bytes(len(payload))
    assert not back[0].any()


def test_a_noncontiguous_array_and_a_fortran_one_come_back() -> None:
    array = np.arange(12_000).reshape(100, 120)
    for view in (array[:, ::2], array.T, np.asfortranarray(array)):
        assert (loads(joined(view)) == view).all()


@pytest.mark.parametrize("cut", [0, 8, 20, 40, 200])
def test_a_damaged_payload_is_an_error(cut: int) -> None:
    payload = joined([np.arange(1000), "x" * 100])
    with pytest.raises(Exception, match=r"damaged|buffer|truncated|Ran out|requires") as caught:
        loads(payload[:cut])
    assert not isinstance(caught.value, MemoryError)


def test_lambdas_and_local_functions_go_by_value() -> None:
    factor = 3
    back = loads(joined([lambda x: x * factor]))
    assert back[0](4) == 12


def make_class(name: str = "Order") -> type:
    """Make a class as it would look if it had been defined in a script."""
    return type(name, (), {"__module__": "__main__", "__eq__": lambda a, b: a.__dict__ == b.__dict__})


def instance_of(cls: type, **fields: object) -> Any:
    item = cls()
    item.__dict__.update(fields)
    return item


def test_instances_of_a_class_that_came_with_the_job_do_not_drag_its_body_along() -> None:
    cls = make_class()
    cloudpickle.dumps(cls)  # the deployment: this process knows the class by an id now
    pickler = Pickling()
    payload = b"".join(pickler.dumps([instance_of(cls, n=1)]))
    assert pickler.level == CLASSES_BY_ID
    assert len(payload) < 300
    back = loads(payload)
    assert type(back[0]) is cls
    assert back[0].n == 1


def test_a_class_that_nobody_was_sent_stays_by_value() -> None:
    cls = make_class("Late")
    pickler = Pickling()
    for _ in range(2):
        payload = b"".join(pickler.dumps([instance_of(cls, n=1)]))
        assert pickler.level == BY_VALUE
        assert b"_make_skeleton_class" in payload


def test_a_class_that_came_in_an_item_is_sent_on_by_value() -> None:
    script = textwrap.dedent(
        """
        import sys
        from shmjet.ring.pickling import dumps
        class Order:
            def __init__(self, n): self.n = n
        Order.__module__ = "__main__"
        sys.stdout.buffer.write(b"".join(dumps([Order(1)])))
        """
    )
    payload = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    item = loads(payload)[0]
    assert item.n == 1
    assert b"_make_skeleton_class" in joined([item])


def test_an_unknown_class_is_named() -> None:
    cls = make_class("Stranger")
    cloudpickle.dumps(cls)
    class_id = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls]
    payload = joined(instance_of(cls, n=1))
    del internals._DYNAMIC_CLASS_TRACKER_BY_ID[class_id]
    with pytest.raises(UnknownClassError, match=r"__main__\.Stranger.*add_module"):
        loads(payload)


def test_the_level_that_worked_is_remembered_and_a_cheaper_one_tried_again() -> None:
    pickler = Pickling()
    pickler.dumps([lambda: 1])
    assert pickler.level == BY_VALUE
    for _ in range(70):
        pickler.dumps([OrderedDict(a=1)])
    assert pickler.level == PLAIN


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (threading.Lock(), "type 'lock' cannot be pickled"),
        ((1, [threading.Lock()]), "type 'tuple' cannot be pickled, because of a 'lock' inside it"),
        ({"a": {"b": (x for x in ())}}, "'dict' cannot be pickled, because of a 'generator' inside it"),
    ],
)
def test_what_cannot_be_pickled_is_named(item: object, text: str) -> None:
    with pytest.raises(ItemEncodingError, match=text) as caught:
        pickling.dumps(item)
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is not None


def test_an_error_of_the_items_own_code_is_told() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            raise RuntimeError("no way")

    with pytest.raises(ItemEncodingError, match=r"'.*Broken' cannot be pickled: RuntimeError: no way"):
        pickling.dumps(Broken())
