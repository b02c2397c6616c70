"""The pages on packets and the handshake, held against the code."""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from pathlib import Path

import msgspec
import pytest

from shmjet.net import compression, handshake, packets
from shmjet.net.handshake import Answering, Dialing, Identity, Welcome
from shmjet.net.messages import ConnectFailed
from shmjet.net.window import BLOCK

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
ROW = re.compile(r"^\| *(\S[^|]*?) *\| *([^|]*?) *\| *([^|]*?) *\|", re.MULTILINE)


def rows(page: str, heading: str) -> list[tuple[str, str, str]]:
    text = (FORMATS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [row for row in ROW.findall(text) if row[0].isdecimal()]


def test_the_header_is_as_the_page_says() -> None:
    names, offset = [], 0
    for at, size, name in rows("packet.md", "Header"):
        assert int(at) == offset
        offset += int(size)
        names.append(name)
    assert offset == packets.HEADER_SIZE == 32
    assert tuple(names) == packets.Header._fields
    sizes = [int(size) for _, size, _ in rows("packet.md", "Header")]
    assert [struct.calcsize(f"<{code}") for code in packets.HEADER.format[1:]] == sizes


def test_the_kinds_are_as_the_page_says() -> None:
    table = rows("packet.md", "Kinds")
    assert {int(kind): name for kind, name, _ in table} == packets.KIND_NAMES
    assert {int(kind): int(longest) for kind, _, longest in table} == packets.LONGEST


def test_the_flags_are_as_the_page_says() -> None:
    table = rows("packet.md", "Flags")
    told = {packets.KIND_NAMES[kind]: flag for kind, flag in packets.FLAGS.items()}
    assert {name: int(flag) for flag, names, _ in table for name in names.split(", ")} == told


def test_a_compressed_payload_is_as_the_page_says() -> None:
    (at, size, _), (block_at, _, _) = rows("packet.md", "A compressed payload")
    assert (int(at), int(size), int(block_at)) == (0, compression.SIZE.size, compression.SIZE.size)
    block = pytest.importorskip("lz4.block")
    payload = bytes(range(200)) * 30
    packed = compression.Lz4Compressor().pack(memoryview(payload))
    assert packed is not None
    assert int.from_bytes(packed[:4], "little") == len(payload)
    assert block.decompress(packed[4:], uncompressed_size=len(payload)) == payload


def test_a_limit_is_as_the_page_says() -> None:
    table = rows("packet.md", "A limit")
    assert sum(int(size) for _, size, _ in table) == packets.FLOW_ENTRY.size
    packed = packets.FLOW_ENTRY.pack(7, 3, 0, -5)
    assert int.from_bytes(packed[:8], "little") == 7
    assert int.from_bytes(packed[8:10], "little") == 3
    assert int.from_bytes(packed[12:], "little", signed=True) == -5
    assert str(BLOCK) in (FORMATS / "packet.md").read_text()


def test_the_handshake_is_as_the_page_says() -> None:
    secret, member_secret = b"secret", b"of members"
    alice = Identity("member", "dev", "a" * 32, "10.0.0.1:5701", secret, member_secret)
    bob = Identity("member", "dev", "b" * 32, "10.0.0.2:5701", secret, member_secret)
    binding = hashlib.sha256(b"certificate").digest()
    dialing, answering = Dialing(alice, b"1" * 32, binding), Answering(bob, b"2" * 32, binding)

    def frame(values: list[object]) -> bytes:
        body = msgspec.msgpack.encode(values)
        return len(body).to_bytes(2, "little") + body

    preamble = b"SHMJET" + (2).to_bytes(2, "little")
    hello = dialing.start()
    assert hello == preamble + frame(["member", "dev", "a" * 32, "10.0.0.1:5701", b"1" * 32])
    challenge = answering.feed(hello)
    assert challenge == preamble + frame(["b" * 32, b"2" * 32])
    said = binding + hello + challenge
    said_hash = hashlib.sha256(said).digest()
    mac = hmac.digest(secret, b"shmjet dialer\0" + said_hash, "sha256")
    member_mac = hmac.digest(member_secret, b"shmjet member dialer\0" + said_hash, "sha256")
    proof = dialing.feed(challenge)
    assert proof == frame([mac, member_mac])
    answering.feed(proof)
    said += proof
    signed = hashlib.sha256(said).digest() + bob.address.encode()
    mac = hmac.digest(secret, b"shmjet listener\0" + signed, "sha256")
    member_mac = hmac.digest(member_secret, b"shmjet member listener\0" + signed, "sha256")
    welcome = frame(["welcome", mac, member_mac, bob.address])
    assert answering.welcome() == welcome
    assert Welcome(mac, member_mac, bob.address) == msgspec.msgpack.decode(welcome[2:], type=Welcome)
    page = (FORMATS / "handshake.md").read_text()
    assert f"at most {handshake.LONGEST}" in page
    assert all(kind in page for kind in handshake.KINDS)
    assert ConnectFailed.__doc__ is not None
