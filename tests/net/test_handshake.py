"""The handshake as pure state machines: what proves, what is refused, and that no bytes whatever do anything else."""

from __future__ import annotations

import contextlib
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shmjet.net import handshake
from shmjet.net.handshake import (
    CLIENT,
    LENGTH,
    LONGEST,
    MAGIC,
    MEMBER,
    OLDEST,
    PREAMBLE,
    VERSION,
    Answering,
    Dialing,
    HandshakeError,
    Identity,
    refusal,
)

ALICE = Identity(MEMBER, "test", "a" * 32, "10.0.0.1:5701", b"the secret")
BOB = Identity(MEMBER, "test", "b" * 32, "10.0.0.2:5701", b"the secret")


def pair(dialer: Identity = ALICE, listener: Identity = BOB, *bindings: bytes) -> tuple[Dialing, Answering]:
    first, second = bindings or (b"", b"")
    return Dialing(dialer, os.urandom(32), first), Answering(listener, os.urandom(32), second)


def converse(dialing: Dialing, answering: Answering) -> None:
    answering_said = answering.feed(dialing.start())
    answering.feed(dialing.feed(answering_said))
    if answering.proved:
        dialing.feed(answering.welcome())


def test_both_ends_prove_themselves_and_know_each_other() -> None:
    dialing, answering = pair()
    converse(dialing, answering)
    assert dialing.done
    assert (dialing.peer, dialing.address) == (BOB.uuid, BOB.address)
    assert (answering.hello.uuid, answering.hello.address, answering.hello.role) == (ALICE.uuid, ALICE.address, MEMBER)


def test_it_works_byte_by_byte_and_what_follows_is_left_over() -> None:
    dialing, answering = pair(replace(ALICE, role=CLIENT, uuid="", address=""))
    to_listener, to_dialer = bytearray(dialing.start()), bytearray()
    while not dialing.done:
        while to_listener:
            to_dialer += answering.feed(bytes([to_listener.pop(0)]))
        if answering.proved:
            to_dialer += answering.welcome() + b"first packet"
        while to_dialer and not dialing.done:
            to_listener += dialing.feed(bytes([to_dialer.pop(0)]))
    assert bytes(to_dialer) == b"first packet"
    dialing.feed(bytes(to_dialer))
    assert dialing.leftover == b"first packet"


@pytest.mark.parametrize("wrong", [b"", b"another", b"the secret "])
def test_a_dialer_with_another_secret_is_not_proved(wrong: bytes) -> None:
    dialing, answering = pair(replace(ALICE, secret=wrong))
    with pytest.raises(HandshakeError) as raised:
        converse(dialing, answering)
    assert raised.value.kind == "authentication"
    assert not answering.proved


def test_a_listener_with_another_secret_is_not_believed() -> None:
    dialing, _ = pair()
    impostor = Answering(replace(BOB, secret=b"guess"), os.urandom(32), b"")
    said = impostor.feed(dialing.start())
    dialing.feed(said)
    with pytest.raises(HandshakeError, match="has not proved") as raised:
        dialing.feed(impostor.welcome())
    assert raised.value.kind == "authentication"
    assert not dialing.done


AS_CLIENT = replace(ALICE, role=CLIENT, uuid="", address="")
MEMBERS = replace(ALICE, member_secret=b"of members"), replace(BOB, member_secret=b"of members")


def test_members_prove_the_member_secret_too_and_clients_need_none() -> None:
    dialing, answering = pair(*MEMBERS)
    converse(dialing, answering)
    assert dialing.done
    assert answering.hello.role == MEMBER
    dialing, answering = pair(AS_CLIENT, MEMBERS[1])
    converse(dialing, answering)
    assert dialing.done
    assert answering.hello.role == CLIENT


@pytest.mark.parametrize(
    ("dialer", "listener", "said"),
    [
        (ALICE, MEMBERS[1], "have to prove a member_secret as well, and the dialer has none"),
        (MEMBERS[0], BOB, "proves a member_secret, and this one has none"),
        (replace(ALICE, member_secret=b"another"), MEMBERS[1], "the member secrets differ"),
        (replace(ALICE, member_secret=b"the secret"), MEMBERS[1], "the member secrets differ"),
        (replace(MEMBERS[0], secret=b"another"), MEMBERS[1], "the secrets differ"),
        (replace(AS_CLIENT, member_secret=b"of members"), MEMBERS[1], "a client has no member secret"),
    ],
)
def test_who_proves_too_little_is_no_member(dialer: Identity, listener: Identity, said: str) -> None:
    dialing, answering = pair(dialer, listener)
    with pytest.raises(HandshakeError, match=said) as raised:
        converse(dialing, answering)
    assert raised.value.kind == "authentication"
    assert not answering.proved
    with pytest.raises(HandshakeError, match=said):
        dialing.feed(answering.refuse("authentication", str(raised.value)))
    assert not dialing.done


def test_a_client_cannot_pass_its_proof_for_that_of_a_member() -> None:
    """The role in the Hello is among the bytes that are signed, and the macs of the two secrets are not the same."""
    client, answering = pair(AS_CLIENT, MEMBERS[1])
    challenge = answering.feed(client.start().replace(b"\xa6client", b"\xa6member"))
    with pytest.raises(HandshakeError, match="the secrets differ"):
        answering.feed(client.feed(challenge))
    member, answering = pair(ALICE, MEMBERS[1])
    proof = member.feed(answering.feed(member.start()))
    (mac, _) = msgspec.msgpack.decode(proof[2:])
    doubled = msgspec.msgpack.encode([mac, mac])
    with pytest.raises(HandshakeError, match="the member secrets differ"):
        answering.feed(len(doubled).to_bytes(2, "little") + doubled)
    assert not answering.proved


@pytest.mark.parametrize("listener", [BOB, replace(BOB, member_secret=b"a guess")])
def test_who_knows_only_the_secret_cannot_listen_as_a_member(listener: Identity) -> None:
    dialing, _ = pair(MEMBERS[0])
    impostor = Answering(listener, os.urandom(32), b"")
    proof = dialing.feed(impostor.feed(dialing.start()))
    with pytest.raises(HandshakeError, match=r"member_secret|member secrets"):
        impostor.feed(proof)
    with pytest.raises(HandshakeError, match="has not proved that it knows the member secret"):
        dialing.feed(impostor.welcome())
    assert not dialing.done


def test_what_was_said_cannot_be_used_again() -> None:
    dialing, answering = pair()
    hello = dialing.start()
    proof = dialing.feed(answering.feed(hello))
    answering.feed(proof)
    assert answering.proved
    again = Answering(BOB, os.urandom(32), b"")
    again.feed(hello)
    with pytest.raises(HandshakeError, match="secrets differ"):
        again.feed(proof)


def test_a_listener_that_sends_back_what_it_gets_proves_nothing() -> None:
    dialing = Dialing(ALICE, bytes(32), b"")
    hello = dialing.start()
    echo = Dialing(BOB, bytes(32), b"")
    with pytest.raises(HandshakeError):
        dialing.feed(hello)
        dialing.feed(echo.start())


def test_certificates_that_differ_are_noticed() -> None:
    dialing, answering = pair(ALICE, BOB, b"the one in between", b"the listener's own")
    with pytest.raises(HandshakeError, match="secrets differ"):
        converse(dialing, answering)


def test_an_older_version_than_this_end_speaks_is_named() -> None:
    dialing, answering = pair()
    with pytest.raises(HandshakeError, match=f"version {OLDEST - 1} of the protocol, this one {VERSION}") as raised:
        answering.feed(PREAMBLE.pack(MAGIC, OLDEST - 1))
    assert raised.value.kind == "version"
    dialing.start()
    with pytest.raises(HandshakeError, match=f"version {OLDEST - 1}"):
        dialing.feed(PREAMBLE.pack(MAGIC, OLDEST - 1))


@pytest.mark.parametrize("dials", [True, False])
def test_an_end_of_the_next_version_goes_on_with_this_one(monkeypatch: pytest.MonkeyPatch, dials: bool) -> None:
    dialing, answering = pair()
    newer = dialing if dials else answering
    monkeypatch.setattr(newer, "_preamble", lambda: PREAMBLE.pack(MAGIC, VERSION + 1))
    converse(dialing, answering)


def test_two_versions_are_named_as_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "VERSION", OLDEST + 1)
    _, answering = pair()
    with pytest.raises(HandshakeError, match=f"this one {OLDEST} to {OLDEST + 1}"):
        answering.feed(PREAMBLE.pack(MAGIC, OLDEST - 1))


def test_a_refusal_by_who_has_proved_nothing_does_not_steer_a_terminal() -> None:
    dialing, _ = pair()
    dialing.start()
    with pytest.raises(HandshakeError) as refused:
        dialing.feed(refusal("busy", "\x1b]0;mine\x07\nroot# \u202e"))
    assert str(refused.value) == "refused: \\x1b]0;mine\\x07\\nroot# \\u202e"
    dialing, answering = pair()
    dialing.feed(answering.feed(dialing.start()))
    with pytest.raises(HandshakeError, match=r"^refused: \\x9b31m$"):
        dialing.feed(answering.refuse("cluster", "\x9b31m"))


def test_a_refusal_reaches_the_dialer_whenever_it_comes() -> None:
    dialing, answering = pair()
    dialing.start()
    with pytest.raises(HandshakeError, match="too many") as raised:
        dialing.feed(refusal("busy", "too many"))
    assert raised.value.kind == "busy"
    dialing, answering = pair()
    answering.feed(dialing.feed(answering.feed(dialing.start())))
    assert answering.proved
    with pytest.raises(HandshakeError, match="another cluster") as raised:
        dialing.feed(answering.refuse("cluster", "another cluster"))
    assert raised.value.kind == "cluster"


def test_a_secret_is_in_no_repr() -> None:
    assert "secret" not in repr(ALICE)
    assert "the secret" not in str(vars(HandshakeError("protocol", "x")))


@given(st.binary(max_size=4096), st.integers(1, 64))
def test_no_bytes_make_a_listener_do_anything_but_refuse(data: bytes, step: int) -> None:
    answering = Answering(BOB, bytes(range(32)), b"")
    with contextlib.suppress(HandshakeError):
        for at in range(0, len(data), step):
            answering.feed(data[at : at + step])
    assert not answering.proved
    assert len(answering.leftover) <= LENGTH.size + LONGEST + 64 + PREAMBLE.size


@given(st.binary(max_size=2048), st.booleans())
def test_no_bytes_make_a_dialer_believe(data: bytes, with_preamble: bool) -> None:
    dialing = Dialing(ALICE, bytes(32), b"")
    dialing.start()
    with contextlib.suppress(HandshakeError):
        dialing.feed((PREAMBLE.pack(MAGIC, VERSION) if with_preamble else b"") + data)
    assert not dialing.done


@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed(data: st.DataObject) -> None:
    dialing, answering = Dialing(ALICE, bytes(32), b""), Answering(BOB, bytes([1]) * 32, b"")
    which = data.draw(st.integers(0, 3), "message")

    def sent(number: int, said: bytes) -> bytes:
        if number != which:
            return said
        bit = data.draw(st.integers(0, len(said) * 8 - 1), "bit")
        changed = bytearray(said)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    with contextlib.suppress(HandshakeError):
        challenge = answering.feed(sent(0, dialing.start()))
        proof = dialing.feed(sent(1, challenge))
        answering.feed(sent(2, proof))
        if answering.proved:
            dialing.feed(sent(3, answering.welcome()))
    assert not dialing.done


@given(st.integers(0, 200))
def test_a_dialer_that_stops_anywhere_is_never_proved(cut: int) -> None:
    dialing, answering = pair()
    hello = dialing.start()
    answering.feed(hello[:cut])
    assert not answering.proved
