"""Decoders that several threads make at the same time."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from shmjet.data.decoders import converter, from_json, from_msgpack, json_decoder, msgpack_decoder

RACE = """
import sys
import threading
import msgspec
from shmjet.data.decoders import converter, from_json, from_msgpack, json_decoder, msgpack_decoder

sys.setswitchinterval(1e-6)
fields = {"a": [{"b": 1, "c": "x", "d": [1.5]}] * 3, "e": None}
text, packed = msgspec.json.encode(fields), msgspec.msgpack.encode(fields)
WAYS = (
    lambda kind: from_json(text, kind),
    lambda kind: from_msgpack(packed, kind),
    lambda kind: json_decoder(kind).decode(text),
    lambda kind: msgpack_decoder(kind).decode(packed),
    lambda kind: converter(kind)(fields),
)


def decode(kinds, barrier, way):
    for kind in kinds:
        barrier.wait()
        assert way(kind).a[2].d == [1.5]


kinds = []
for number in range(60):
    made = {}
    exec("class Part(msgspec.Struct):\\n    b: int\\n    c: 'str | None'\\n    d: 'list[float]'", globals(), made)
    globals()[f"Part{number}"] = made["Part"]
    source = f"class Whole(msgspec.Struct):\\n    a: 'list[Part{number}]'\\n    e: 'int | Part{number} | None'"
    exec(source, globals(), made)
    kinds.append(made["Whole"])
barrier = threading.Barrier(len(WAYS))
threads = [threading.Thread(target=decode, args=(kinds, barrier, way), daemon=True) for way in WAYS]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def test_threads_that_decode_a_class_for_the_first_time_do_not_end_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


class Point(msgspec.Struct):
    x: int


def test_bytes_of_another_type_are_refused() -> None:
    assert from_json(b'{"x": 1}', Point) == from_msgpack(msgspec.msgpack.encode({"x": 1}), Point) == Point(1)
    assert from_json('{"x": 1}') == {"x": 1}
    assert converter(Point, strict=False)({"x": "1"}) == Point(1)
    for wrong in (
        lambda: from_json(b'{"x": "1"}', Point),
        lambda: from_msgpack(msgspec.msgpack.encode({}), Point),
        lambda: converter(Point)({"x": "1"}),
        lambda: json_decoder(Point).decode(b"[]"),
        lambda: msgpack_decoder(Point).decode(b"\x01"),
    ):
        with pytest.raises(msgspec.ValidationError):
            wrong()
