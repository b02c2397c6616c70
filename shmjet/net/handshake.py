"""How two ends of a new connection prove to each other that they know the secret, before anything else is said.

The dialer says who it is and gives a nonce, the listener gives one, the dialer answers with an HMAC-SHA256 over
all that was said, and the listener with another one over that and its answer. Neither sends the secret, an answer is
good for this conversation only, and the roles are part of what is signed, so that nothing can be sent back to where it
came from. With TLS, the listener's certificate is part of it, too: who sits in between can pass nothing on.

Two members with a member secret prove that one as well, with a second HMAC over the same: a client does not know it, so
a client cannot be a member, neither as dialer nor as listener.

State machines: bytes in, bytes out. No socket, no clock, no randomness of their own (nonces come in), and nothing here
ever unpickles. `docs/formats/handshake.md` has the bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, TypeVar

import msgspec

from shmjet.core import ShmjetError
from shmjet.data.decoders import from_msgpack
from shmjet.host.terminal_text import clean_line
from shmjet.ipc.decode_errors import UNREADABLE

MAGIC: Final = b"SHMJET"
VERSION: Final = 2
"""The newest version of the protocol that this end speaks, which it names."""
OLDEST: Final = 2
"""The oldest version that it still speaks. Members are replaced one by one, so this is at most 1 below `VERSION`."""
PREAMBLE: Final = struct.Struct("<6sH")
"""What both ends send first: the magic and the version."""
LENGTH: Final = struct.Struct("<H")
"""In front of each message."""
LONGEST: Final = 1024
"""Bytes of a message at most."""
NONCE_SIZE: Final = 32

MEMBER, CLIENT = "member", "client"


class HandshakeError(ShmjetError):
    """The handshake has failed; `kind` as in `shmjet.net.messages.ConnectFailed`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Dialer to listener: who I am. A client has no uuid and no address."""

    role: str
    cluster: str
    uuid: str
    address: str
    nonce: bytes


class Challenge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Listener to dialer."""

    uuid: str
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Dialer to listener: the HMAC of everything so far, and as a member with a member secret the one with that."""

    mac: bytes
    member_mac: bytes


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome", forbid_unknown_fields=True):
    """Listener to dialer: the HMACs of everything so far and of my address; from here on the connection is open."""

    mac: bytes
    member_mac: bytes
    address: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused", forbid_unknown_fields=True):
    """Listener to dialer: no, for this reason; the connection is closed behind it."""

    kind: str
    reason: str


_Message = TypeVar("_Message")


class Identity(msgspec.Struct, frozen=True):
    """Who takes part at this end.

    Args:
        role: MEMBER or CLIENT.
        cluster: name of the cluster.
        uuid: of the member; empty for a client.
        address: that others are told; empty for a client.
        secret: what both have to know.
        member_secret: what two members have to know as well; empty for a client, and where members have none.
    """

    role: str
    cluster: str
    uuid: str
    address: str
    secret: bytes
    member_secret: bytes = b""

    def __repr__(self) -> str:
        return f"Identity({self.role} {self.uuid} {self.address} of {self.cluster!r})"


class _Conversation:
    """What both roles have in common: cutting messages from the stream, and remembering all that was said."""

    def __init__(self, me: Identity, nonce: bytes, binding: bytes) -> None:
        if len(nonce) != NONCE_SIZE:
            raise ValueError(f"a nonce has {NONCE_SIZE} bytes, got {len(nonce)}")
        self._me = me
        self._nonce = nonce
        self._said = hashlib.sha256(binding)
        self._buffer = bytearray()
        self._greeted = False

    @property
    def leftover(self) -> bytes:
        """What has come behind the handshake's last message."""
        return bytes(self._buffer)

    def _preamble(self) -> bytes:
        return PREAMBLE.pack(MAGIC, VERSION)

    def _say(self, message: object, *, preamble: bool = False) -> bytes:
        body = msgspec.msgpack.encode(message)
        data = (self._preamble() if preamble else b"") + LENGTH.pack(len(body)) + body
        self._said.update(data)
        return data

    def _take_preamble(self) -> bool:
        """Check the other end's magic as soon as its first bytes are here; True when all of it is."""
        if self._greeted:
            return True
        seen = bytes(self._buffer[: len(MAGIC)])
        if seen != MAGIC[: len(seen)]:
            raise HandshakeError("protocol", f"the other end does not speak shmjet's protocol: it began with {seen!r}")
        if len(self._buffer) < PREAMBLE.size:
            return False
        _, version = PREAMBLE.unpack_from(self._buffer)
        if version < OLDEST:  # a newer end speaks this version, or refuses it as this end does here
            own = f"{VERSION}" if OLDEST == VERSION else f"{OLDEST} to {VERSION}"
            raise HandshakeError("version", f"the other end speaks version {version} of the protocol, this one {own}")
        self._said.update(self._buffer[: PREAMBLE.size])
        del self._buffer[: PREAMBLE.size]
        self._greeted = True
        return True

    def _next(self, kind: type[_Message], *, remember: bool = True) -> _Message | None:
        """Return the next message when all of it is here."""
        if len(self._buffer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._buffer)
        if length > LONGEST:
            raise HandshakeError("protocol", f"a message of {length} bytes in the handshake; {LONGEST} are allowed")
        end = LENGTH.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[:end])
        try:
            message: _Message = from_msgpack(data[LENGTH.size :], kind)
        except UNREADABLE as error:
            raise HandshakeError("protocol", f"a message of the handshake cannot be read: {error}") from None
        if remember:
            self._said.update(data)
        del self._buffer[:end]
        return message

    def _mac(self, who: bytes, more: bytes = b"") -> bytes:
        """Sign what was said so far."""
        return hmac.digest(self._me.secret, b"shmjet " + who + b"\0" + self._said.digest() + more, "sha256")

    def _member_mac(self, who: bytes, more: bytes = b"") -> bytes:
        """Sign what was said so far as a member; empty for one without a member secret."""
        if not self._me.member_secret:
            return b""
        signed = b"shmjet member " + who + b"\0" + self._said.digest() + more
        return hmac.digest(self._me.member_secret, signed, "sha256")


class Dialing(_Conversation):
    """The end that has connected.

    Args:
        me: who dials.
        nonce: 32 random bytes, used once.
        binding: hash of the listener's certificate with TLS, else empty.

    Example:
        >>> dialing = Dialing(me, os.urandom(32), b"")         # doctest: +SKIP
        >>> socket.sendall(dialing.start())                    # doctest: +SKIP
        >>> while not dialing.done:                            # doctest: +SKIP
        ...     socket.sendall(dialing.feed(socket.recv(4096)))
    """

    def __init__(self, me: Identity, nonce: bytes, binding: bytes) -> None:
        super().__init__(me, nonce, binding)
        self._proved = False
        self.done = False
        """Whether both ends have proved themselves."""
        self.peer = ""
        """The listener's uuid, as soon as it has said so; not proved before `done`."""
        self.address = ""
        """The listener's address."""

    @property
    def proved(self) -> bool:
        """Whether this end has sent its proof, so that the listener may count the connection as made."""
        return self._proved

    def start(self) -> bytes:
        """Return the first bytes to send."""
        me = self._me
        return self._say(Hello(me.role, me.cluster, me.uuid, me.address, self._nonce), preamble=True)

    def feed(self, data: bytes) -> bytes:
        """Take what has come; return what to send.

        Raises:
            HandshakeError: it has failed; close the connection.
        """
        self._buffer += data
        answer = b""
        if self.done or not self._take_preamble():
            return answer
        if not self._proved:
            if self._is_refusal():
                return answer
            challenge = self._next(Challenge)
            if challenge is None:
                return answer
            if len(challenge.nonce) != NONCE_SIZE or challenge.nonce == self._nonce:
                raise HandshakeError("protocol", "the other end's challenge is none")
            self.peer = challenge.uuid
            self._proved = True
            answer = self._say(Proof(self._mac(b"dialer"), self._member_mac(b"dialer")))
        verdict = self._next(Welcome | Refused, remember=False)  # type: ignore[arg-type]
        if isinstance(verdict, Refused):
            raise _refused(verdict)
        if isinstance(verdict, Welcome):
            address = verdict.address.encode()
            if not hmac.compare_digest(verdict.mac, self._mac(b"listener", address)):
                raise HandshakeError("authentication", "the other end has not proved that it knows the secret")
            if not hmac.compare_digest(verdict.member_mac, self._member_mac(b"listener", address)):
                raise HandshakeError("authentication", "the other end has not proved that it knows the member secret")
            self.address = verdict.address
            self.done = True
        return answer

    def _is_refusal(self) -> bool:
        """Raise when the listener has no challenge for us but a refusal (it has too many connections, for example)."""
        if len(self._buffer) < LENGTH.size:
            return False
        (length,) = LENGTH.unpack_from(self._buffer)
        if not LENGTH.size < length + LENGTH.size <= len(self._buffer):
            return False
        try:
            refused = from_msgpack(bytes(self._buffer[LENGTH.size : LENGTH.size + length]), Refused)
        except UNREADABLE:
            return False
        raise _refused(refused)


class Answering(_Conversation):
    """The end that was connected to. When `feed` has made `hello` proved, the owner says `welcome` or `refuse`.

    Args:
        me: who listens.
        nonce: 32 random bytes, used once.
        binding: hash of the own certificate with TLS, else empty.
    """

    def __init__(self, me: Identity, nonce: bytes, binding: bytes) -> None:
        super().__init__(me, nonce, binding)
        self._hello: Hello | None = None
        self.proved = False
        """Whether the dialer has proved that it knows the secret, and what a member of this cluster has to know."""

    @property
    def hello(self) -> Hello:
        """Who dials; to be believed only when `proved`."""
        assert self._hello is not None
        return self._hello

    def feed(self, data: bytes) -> bytes:
        """Take what has come; return what to send.

        Raises:
            HandshakeError: it has failed; send `refusal` of it and close the connection.
        """
        self._buffer += data
        answer = b""
        if self.proved or not self._take_preamble():
            return answer
        if self._hello is None:
            hello = self._next(Hello)
            if hello is None:
                return answer
            if len(hello.nonce) != NONCE_SIZE or hello.role not in (MEMBER, CLIENT):
                raise HandshakeError("protocol", "the other end's greeting is none")
            self._hello = hello
            answer = self._say(Challenge(self._me.uuid, self._nonce), preamble=True)
        expected, member_expected = self._mac(b"dialer"), self._member_mac(b"dialer") if self._is_of_member else b""
        proof = self._next(Proof)
        if proof is not None:
            if not hmac.compare_digest(proof.mac, expected):
                raise HandshakeError("authentication", "the secrets differ")
            if not hmac.compare_digest(proof.member_mac, member_expected):
                raise HandshakeError("authentication", self._not_a_member(proof))
            self.proved = True
        return answer

    @property
    def _is_of_member(self) -> bool:
        return self.hello.role == MEMBER

    def _not_a_member(self, proof: Proof) -> str:
        if not self._is_of_member:
            return "a client has no member secret"
        if not proof.member_mac:
            return "members of this cluster have to prove a member_secret as well, and the dialer has none"
        if not self._me.member_secret:
            return "the member that dialled proves a member_secret, and this one has none; give all members the same"
        return "the member secrets differ"

    def welcome(self) -> bytes:
        """Return the last message, after which the connection is open."""
        address = self._me.address.encode()
        member_mac = self._member_mac(b"listener", address) if self._is_of_member else b""
        return self._say(Welcome(self._mac(b"listener", address), member_mac, self._me.address))

    def refuse(self, kind: str, reason: str) -> bytes:
        """Return the last message to a peer that has proved itself but is not accepted."""
        return self._say(Refused(kind, reason), preamble=self._hello is None)


def refusal(kind: str, reason: str) -> bytes:
    """Return what to send to a connection that is refused before its first message."""
    body = msgspec.msgpack.encode(Refused(kind, reason))
    return PREAMBLE.pack(MAGIC, VERSION) + LENGTH.pack(len(body)) + body


KINDS = ("authentication", "cluster", "version", "self", "fenced", "protocol", "duplicate", "busy", "tls")


def _refused(verdict: Refused) -> HandshakeError:
    """Return the error of a refusal. The other end has proved nothing, and its words are shown in a terminal."""
    kind = verdict.kind if verdict.kind in KINDS else "protocol"
    return HandshakeError(kind, f"refused: {clean_line(verdict.reason[:200])}")
