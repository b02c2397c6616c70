"""Addresses as users write them, and finding out what a host name stands for without waiting for it."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque

Resolved = tuple[int, tuple[str, int]] | OSError
"""Address family and socket address, or why there is none."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port".

    Raises:
        ValueError: it is neither.

    Example:
        >>> split_address("10.0.0.5:5701"), split_address("[::1]:0")
        (('10.0.0.5', 5701), ('::1', 0))
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address such as '10.0.0.5:5701'")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return an address as users write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def numeric(host: str, port: int) -> tuple[int, tuple[str, int]] | None:
    """Return what a host that is an IP address stands for; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    return None


def resolve(host: str, port: int) -> Resolved:
    """Return the first address of a host; it may take seconds."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    family, _, _, _, address = found[0]
    return int(family), (str(address[0]), int(address[1]))


class Resolver:
    """Looks host names up in a thread of its own, one after the other.

    `fileno` becomes readable when an answer is there. The thread is a daemon, as a look-up cannot be ended; it starts
    with the first name.
    """

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._asked: deque[tuple[str, str, int]] = deque()
        self._answers: deque[tuple[str, Resolved]] = deque()
        self._more = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._event

    def ask(self, address: str, host: str, port: int) -> None:
        """Look a name up; the answer comes under `address`."""
        self._asked.append((address, host, port))
        self._more.release()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="resolver", daemon=True)
            self._thread.start()

    def answers(self) -> list[tuple[str, Resolved]]:
        """Return what has been found since the last call."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return []
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def _run(self) -> None:
        while True:
            self._more.acquire()
            address, host, port = self._asked.popleft()
            if not host:
                os.close(self._event)
                return
            self._answers.append((address, resolve(host, port)))
            os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Let the thread end after what it is doing; it closes the descriptor then."""
        if self._thread is None:
            os.close(self._event)
            return
        self._asked.append(("", "", 0))
        self._more.release()
        self._thread.join(timeout=0.1)
