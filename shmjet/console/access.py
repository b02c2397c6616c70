"""The console's access rules: a pure function of a request's method, path and headers.

Three dangers, three rules. Another site's script that has its name resolve to this address (DNS rebinding): the `Host`
must be one of the console's names. Another site's page that sends a request here: `Origin` and `Sec-Fetch-Site` must be
the page's own. Another user of this host, or the network: the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shmjet.core import ConfigError

SHORTEST_TOKEN = 16
"""Fewest characters of a token; `read_token` makes tokens of 43."""

_PROTECTED = ("/api/", "/metrics")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Refusal:
    """Why a request is not served: the status of the answer, and one sentence."""

    status: int
    text: str


@dataclass(frozen=True)
class Access:
    """The rules of one console.

    `hosts`: names and addresses that it answers to; `any_address`: also to every numeric address, which no site can
    have pointed here; `token`: what changes need, None when nothing may be changed; `private`: reading needs it too.
    """

    hosts: frozenset[str]
    any_address: bool = False
    token: str | None = None
    private: bool = False

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, None when it is not.

        Args:
            headers: by name in lower case.
        """
        host = headers.get("host", "")
        if not self._knows(host):
            return Refusal(421, f"this console does not answer to {host!r}; start it with --allow-host to change that")
        reads = method in ("GET", "HEAD")
        if not reads and not _is_own(host, headers):
            return Refusal(403, "a request from another site")
        if not reads and self.token is None:
            return Refusal(403, "this console is read-only: it was started without a token")
        if (not reads or (self.private and path.startswith(_PROTECTED))) and not self.admits(headers):
            return Refusal(401, "the token is missing or wrong")
        return None

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Say whether a request carries the token."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        expected = self.token
        if expected is None or kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), expected.encode())

    def _knows(self, host: str) -> bool:
        name = host_name(host)
        return name in self.hosts or (self.any_address and _address(name) is not None)


def make_access(host: str, *, token: str | None = None, private: bool = False, allow: tuple[str, ...] = ()) -> Access:
    """Return the rules of a console that listens on `host`.

    Args:
        host: an address, or a name.
        token: for changes; also for reading where others can connect.
        private: reading needs the token on loopback too.
        allow: further names that it answers to.

    Raises:
        ConfigError: others can connect, or it is to be private, and there is no token; or the token is too short.
    """
    local = is_loopback(host)
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(f"the console's token must have at least {SHORTEST_TOKEN} characters, got {len(token)}")
    if token is None and not local:
        raise ConfigError(f"a console on {host}, which others can reach, needs a token (--token-file)")
    if token is None and private:
        raise ConfigError("a private console needs a token (--token-file)")
    own = frozenset() if host in ("0.0.0.0", "::") else frozenset({host.lower()})
    return Access(
        hosts=_LOOPBACK | own | {name.lower() for name in allow},
        any_address=not local,
        token=token,
        private=private or not local,
    )


def read_token(path: Path) -> str:
    """Return the token in a file; if the file does not exist, make it, readable by this user only.

    Raises:
        ConfigError: others can read the file, or it holds no token.
        OSError: it can be neither read nor made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        pass
    else:
        token = secrets.token_urlsafe(32)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token
    with path.open(encoding="utf-8", errors="replace") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise ConfigError(f"the token file {path} can be read by others: chmod 600 {path}")
        token = file.read().strip()
    if not token.isascii() or not token.isprintable() or len(token) < SHORTEST_TOKEN:
        raise ConfigError(f"the token file {path} must hold one line of at least {SHORTEST_TOKEN} ASCII characters")
    return token


def is_loopback(host: str) -> bool:
    """Say whether only this host can connect to a server that listens there.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without port and brackets, in lower case.

    Example:
        >>> host_name("Localhost:8080"), host_name("[::1]:8080"), host_name("::1")
        ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() and ":" not in name else host.lower()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_own(host: str, headers: Mapping[str, str]) -> bool:
    """Say whether what changes something was sent by the console's own page, or by no page (a program)."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()
