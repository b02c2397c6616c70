"""What is known of many entries of a map by one look at each, against msgpack and the codec of entries."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import Ext, encode

from shmjet._native import move_entries, place_entries, plain_entries, survey_entries
from shmjet.core.keys import canonical_bytes, canonical_tagged, partition_id
from shmjet.grid.blobs import BlobStore
from shmjet.grid.entries import EntryCodec
from shmjet.grid.pickles import ObjectCodec
from shmjet.grid.times import TIMED, times_of
from tests.examples import seeds

PREFIX = b"\0\0\0\x05"


def entry(partition: int, key: str, value: Any) -> tuple[bytes, bytes]:
    return PREFIX + partition.to_bytes(2, "big") + b"s" + key.encode(), encode((key, value))


def test_a_survey_says_what_there_is() -> None:
    some = [entry(3, "a", 1), entry(3, "bb", "x" * 300), entry(300, "c", None), entry(3, "d", 1.5)]
    runs, prefix, size, longest_key, longest_value, is_marked, are_plain = survey_entries(some, b"xx", 4, TIMED)
    assert runs == [(3, 0, 2), (300, 2, 3), (3, 3, 4)]
    assert prefix == PREFIX
    assert size == sum(len(key) + len(value) for key, value in some)
    assert (longest_key, longest_value) == (9, max(len(value) for _, value in some))
    assert is_marked
    assert are_plain
    assert survey_entries([], b"", 0, TIMED) == ([], None, 0, 0, 0, False, True)


def test_keys_of_several_prefixes_have_none() -> None:
    other = b"\0\0\0\x06" + entry(3, "a", 1)[0][4:]
    assert survey_entries([entry(3, "a", 1), (other, encode(("a", 1)))], b"x", 1, TIMED)[1] is None


@pytest.mark.parametrize("wrong", [[("a", b"")], [(b"1234567",)], [b"1234567"], [(b"123456", b"")], [(b"", b"")]])
def test_what_is_no_entry_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        survey_entries(wrong, b"x", 1, TIMED)
    with pytest.raises(TypeError):
        move_entries(wrong, 7, b"")


@pytest.mark.parametrize("seed", seeds(3))
def test_plain_entries_are_those_that_a_decoder_takes(seed: int) -> None:
    chance = random.Random(seed)

    def value(depth: int = 0) -> Any:
        many = chance.choice([0, 1, 15, 16, 40, 300])
        match chance.randrange(9):
            case 0:
                return chance.randrange(-(2**63), 2**64) >> chance.randrange(64)
            case 1:
                return "x" * many
            case 2:
                return b"y" * many
            case 3 if depth < 4:
                return [value(depth + 1) for _ in range(min(many, 20))]
            case 4 if depth < 4:
                return {str(at): value(depth + 1) for at in range(min(many, 20))}
            case 5:
                return Ext(chance.choice([TIMED, chance.randrange(-128, 128)]), b"z" * chance.choice([1, 4, 9, 70_000]))
            case 6:
                return chance.random()
            case _:
                return chance.choice([None, True, False])

    taken = 0
    for _ in range(3000):
        data = bytearray(encode((value(), value())))
        for _ in range(chance.choice([0, 0, 1, 2])):
            at = chance.randrange(min(len(data), 40)) if data else 0
            match chance.randrange(3):
                case 0 if data:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at:]
                case _:
                    data += bytes([chance.randrange(256)])
        try:
            expected = times_of(bytes(data)) is None
        except Exception:
            expected = False
        assert survey_entries([(b"1234567", bytes(data))], b"", 0, TIMED)[-1] == expected, bytes(data[:60])
        taken += expected
    assert 500 < taken < 2900


def test_an_entry_that_is_very_deep_is_left_to_a_decoder() -> None:
    deep: Any = 1
    for _ in range(15):
        deep = [deep]
    assert survey_entries([(b"1234567", encode((1, deep)))], b"", 0, TIMED)[-1]
    assert not survey_entries([(b"1234567", encode((1, [deep])))], b"", 0, TIMED)[-1]
    assert not survey_entries([(b"1234567", b"\x92\x01" + b"\x91" * 100_000)], b"", 0, TIMED)[-1]


def test_entries_get_another_prefix() -> None:
    some = [entry(1, "a", 1), entry(2, "b", 2)]
    assert move_entries(some, 4, b"new") == [(b"new" + key[4:], value) for key, value in some]
    assert move_entries(some, 0, b"") == some
    with pytest.raises(ValueError, match="below 0"):
        move_entries(some, -1, b"")


def test_entries_are_put_where_their_partition_is() -> None:
    heads = [b"h0", b"h1", b"h2"]
    placed = place_entries([2, 0, 2], [b"a", b"b", b"c"], [b"1", b"2", b"3"], heads)
    assert placed == [[(b"h0b", b"2")], [], [(b"h2a", b"1"), (b"h2c", b"3")]]
    for partition in (3, -1, "1"):
        with pytest.raises(TypeError):
            place_entries([partition], [b"a"], [b"1"], heads)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        place_entries([1, 2], [b"a"], [b"1"], heads)


class Count(int):
    pass


VALUES: list[Any] = ["", "é", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65_000, b"", b"\0" * 255, b"\0" * 256]
VALUES += [sign * (1 << bits) + more for bits in range(64) for sign in (1, -1) for more in (-1, 0, 1)]
VALUES += [0.0, -0.0, 1.5, float("inf"), True, False]


def codec_in(folder: Path) -> EntryCodec:
    (folder / "blobs").mkdir()
    return EntryCodec(
        ObjectCodec(1 << 16, lambda _: None, lambda *_: None), BlobStore(folder / "blobs", folder / "reserve"), 271
    )


def test_pairs_become_what_the_codec_makes_of_each(tmp_path: Path) -> None:
    codec, heads = codec_in(tmp_path), [b"....%c" % (number % 256) for number in range(271)]
    keys = [*range(-300, 300), *(key for key in VALUES if type(key) in (int, str) and key not in ("", 1 << 63))]
    keys = [key for key in keys if type(key) is str or -(1 << 63) <= key < 1 << 63]
    keys = [key for key in keys if len(canonical_tagged(key)) <= 500]
    values = [value for value in VALUES if type(value) is not int or -(1 << 63) <= value < 1 << 64]
    pairs = [(key, values[at % len(values)]) for at, key in enumerate(keys * 3)]
    expected: list[list[tuple[bytes, bytes]]] = [[] for _ in heads]
    for key, value in pairs:
        partition = partition_id(key)
        expected[partition].append((heads[partition] + canonical_tagged(key), codec.entry(key, value, [])))
    assert plain_entries(pairs, heads, 500, 1 << 16) == expected
    assert codec.placed(pairs, heads, []) == expected


@pytest.mark.parametrize(
    "pair",
    [
        (1.0, 1), (True, 1), (b"k", 1), (Count(1), 1), (1 << 63, 1), ("k" * 501, 1), ("\ud800", 1), (None, 1),
        (1, Count(1)), (1, 1 << 64), (1, -(1 << 63) - 1), (1, "\ud800"), (1, None), (1, [1]), (1, "x" * 65_600),
        (1, b"x" * 65_600), [1, 1], (1,), (1, 1, 1), "ab",
    ],
)  # fmt: skip
def test_other_pairs_are_left_to_the_codec(pair: Any) -> None:
    assert plain_entries([(1, 1), pair], [b"head"], 500, 1 << 16) is None


def test_a_mixture_goes_the_long_way_and_is_the_same(tmp_path: Path) -> None:
    codec, heads = codec_in(tmp_path), [b"%4d" % number for number in range(271)]
    pairs = [("a", 1), (1.0, [2]), ((1, "x"), {"y": 3}), (b"k", 1 << 70)]
    found = codec.placed(pairs, heads, [])
    for key, value in pairs:
        place = heads[partition_id(key)] + canonical_tagged(key)
        assert (place, codec.entry(key, value, [])) in found[partition_id(key)]
    assert canonical_bytes(1.0) == canonical_bytes(1)


def test_lists_of_another_kind_are_refused() -> None:
    for wrong in ((((1, 1),), [b"h"], 9, 9), ([(1, 1)], [], 9, 9), ([(1, 1)], [b"h"], "9", 9), ([(1, 1)], ["h"], 9, 9)):
        with pytest.raises(TypeError):
            plain_entries(*wrong)  # type: ignore[arg-type]
