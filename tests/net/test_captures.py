"""What tcpdump and wireshark write, as `shmjet wire-dump` reads it."""

from __future__ import annotations

import io
import ipaddress
import itertools
import random
import struct
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.net.capture_dump import dump_capture
from shmjet.net.captures import Direction, is_capture, tcp_streams
from shmjet.net.handshake import CLIENT, MEMBER, Answering, Dialing, Identity
from shmjet.net.packets import HEADER, HEARTBEAT, message_packets

NEAR, FAR = ("10.0.0.1", 40000), ("10.0.0.2", 5701)
End = tuple[str, int]
SYN, ACK = 2, 16
BEAT = HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 0)


def segment(source: End, destination: End, sequence: int, payload: bytes = b"", flags: int = ACK) -> bytes:
    """An IP packet, of the version of its addresses."""
    ports = struct.pack("!HH", source[1], destination[1])
    tcp = ports + struct.pack("!IIBBHHH", sequence % (1 << 32), 0, 5 << 4, flags, 9000, 0, 0) + payload
    near, far = (ipaddress.ip_address(end[0]).packed for end in (source, destination))
    if len(near) == 4:
        return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0x4000, 64, 6, 0) + near + far + tcp
    return struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + near + far + tcp


LINKS = {
    1: bytes(12) + b"\x08\x00",
    101: b"",
    0: struct.pack("<I", 2),
    113: bytes(14) + b"\x08\x00",
    276: b"\x08\x00" + bytes(18),
}


def pcap(packets: Sequence[bytes], link: int = 1, order: str = "<", magic: int = 0xA1B2C3D4) -> bytes:
    records = [struct.pack(f"{order}IIII", 0, 0, len(p), len(p)) + p for p in (LINKS[link] + p for p in packets)]
    return struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262144, link) + b"".join(records)


def pcapng(packets: Sequence[bytes], order: str = "<") -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack(f"{order}II", kind, 12 + len(body)) + body + struct.pack(f"{order}I", 12 + len(body))

    blocks = [block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))]
    blocks += [block(1, struct.pack(f"{order}HHI", 113, 0, 0)), block(1, struct.pack(f"{order}HHI", 1, 0, 0))]
    for packet in (LINKS[1] + p for p in packets):
        blocks.append(block(6, struct.pack(f"{order}IIIII", 1, 0, 0, len(packet), len(packet)) + packet))
    return b"".join(blocks)


def said(capture: bytes) -> dict[Direction, bytes]:
    return {direction: stream.data.read() for direction, stream in tcp_streams(io.BytesIO(capture)).items()}


def text_of(packets: Sequence[bytes]) -> str:
    return "\n".join(dump_capture(io.BytesIO(pcap(packets))))


THERE, BACK = Direction("10.0.0.1:40000", "10.0.0.2:5701"), Direction("10.0.0.2:5701", "10.0.0.1:40000")
SPOKEN = [
    segment(NEAR, FAR, 99, flags=SYN),
    segment(FAR, NEAR, 499, flags=SYN | ACK),
    segment(NEAR, FAR, 100, b"question"),
    segment(FAR, NEAR, 500, b"answer"),
]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("order", "<>")
def test_both_directions_are_found_whatever_the_link(link: int, order: str) -> None:
    assert said(pcap(SPOKEN, link, order)) == {THERE: b"question", BACK: b"answer"}
    assert said(pcap(SPOKEN, link, order, 0xA1B23C4D)) == {THERE: b"question", BACK: b"answer"}


@pytest.mark.parametrize("order", "<>")
def test_the_newer_format_is_read_too(order: str) -> None:
    capture = pcapng(SPOKEN, order)
    assert is_capture(capture)
    assert said(capture) == {THERE: b"question", BACK: b"answer"}


def test_other_traffic_is_left_out() -> None:
    udp = bytearray(segment(NEAR, FAR, 1, b"x" * 30))
    udp[9] = 17
    six = segment(("fe80::1", 1), ("fe80::2", 5701), 7, b"six")
    found = said(pcap([bytes(udp), six, b"", b"\x45"], 101))
    assert found == {Direction("[fe80::1]:1", "[fe80::2]:5701"): b"six"}


@given(st.binary(min_size=1, max_size=200), st.integers(0, (1 << 32) - 1), st.randoms(use_true_random=False))
def test_segments_in_any_order_and_sent_twice_are_one_stream(data: bytes, start: int, rng: random.Random) -> None:
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(4))})
    parts = [(a, data[a:b]) for a, b in itertools.pairwise(cuts)]
    parts += [(a, data[a : a + 9]) for a in (rng.randrange(len(data)) for _ in range(3))]
    rng.shuffle(parts)
    packets = [segment(NEAR, FAR, start - 1, flags=SYN), *(segment(NEAR, FAR, start + a, part) for a, part in parts)]
    assert said(pcap(packets, 101)) == {THERE: data}


@pytest.mark.parametrize("role", [MEMBER, CLIENT])
def test_a_connection_is_shown_from_its_handshake_on(role: str) -> None:
    near = Identity(role, "dev", "a" * 32 if role == MEMBER else "", "", b"secret")
    dialing = Dialing(near, bytes(32), b"")
    answering = Answering(Identity(MEMBER, "dev", "b" * 32, "10.0.0.2:5701", b"secret"), b"2" * 32, b"")
    hello = dialing.start()
    challenge = answering.feed(hello)
    proof = dialing.feed(challenge)
    answering.feed(proof)
    forth, back = hello + proof, challenge + answering.welcome()
    if role == MEMBER:
        message = msgspec.msgpack.encode(["PartReady", 42, b"abc", {"key": ["x"]}])
        back += BEAT + b"".join(bytes(part) for packet in message_packets(message) for part in packet)
    else:
        back += b"\x07\x00\x00\x00between"
    text = text_of(
        [
            segment(NEAR, FAR, 9, flags=SYN),
            segment(NEAR, FAR, 10, forth),
            segment(FAR, NEAR, 19, flags=SYN),
            segment(FAR, NEAR, 20, back),
        ]
    )
    assert f"10.0.0.1:40000 -> 10.0.0.2:5701: {len(forth)} bytes\n       0  preamble: version 2" in text
    assert f"Hello: role '{role}'" in text
    assert "Welcome: " in text
    assert "secret" not in text
    if role == MEMBER:
        assert "CONTROL: 25 bytes: PartReady(42, <3 bytes>, {'key': ['x']})" in text
        assert text.count("  end") == 2
    else:
        assert text.endswith("what a client and its member say follows, which is not shown")


def test_a_capture_that_begins_later_is_shown_from_the_first_packet_on() -> None:
    text = text_of([segment(NEAR, FAR, 10, b"rest of a batch"), segment(NEAR, FAR, 25, BEAT + BEAT)])
    assert "later than the connection" in text
    assert "      15  HEARTBEAT\n      47  HEARTBEAT\n      79  end" in text
    assert "no packet begins anywhere" in text_of([segment(NEAR, FAR, 10, b"something else")])


def test_a_gap_in_a_capture_is_told() -> None:
    text = text_of([segment(NEAR, FAR, 9, flags=SYN), segment(NEAR, FAR, 10, BEAT), segment(NEAR, FAR, 99, BEAT)])
    assert "      32  a gap: the capture has 32 bytes more" in text


def test_tls_is_recognised() -> None:
    assert "TLS: what is inside cannot be shown" in text_of([segment(NEAR, FAR, 1, b"\x16\x03\x01" + bytes(40))])


@given(st.binary(max_size=300), st.sampled_from([pcap(SPOKEN), pcapng(SPOKEN)]), st.integers(0, 400))
def test_a_spoiled_capture_is_read_to_some_end(spoil: bytes, capture: bytes, at: int) -> None:
    assert all(isinstance(line, str) for line in dump_capture(io.BytesIO(capture[:at] + spoil)))
