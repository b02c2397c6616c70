"""The client's ends of sinks: one execution at a time has an address, and leaves it before the next one comes."""

from __future__ import annotations

import errno
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from shmjet import ShmjetError
from shmjet.processors.general.client_ends import ClientEnds
from shmjet.processors.general.collect import CollectedResults


class Address:
    """An address that only one can have; `wait` holds up the end that leaves it."""

    def __init__(self) -> None:
        self.opened = 0
        self.taken = False
        self.leaving = threading.Event()
        self.wait = threading.Event()
        self.wait.set()

    def take(self) -> Address:
        assert not self.taken
        self.taken = True
        self.opened += 1
        return self

    def end(self) -> None:
        self.leaving.set()
        assert self.wait.wait(60)
        self.taken = False


def test_an_execution_has_its_end_once_and_gives_it_up_when_it_is_done() -> None:
    ends, address = ClientEnds("a sink"), Address()
    execution: Future[None] = Future()
    for _ in range(2):  # of a sink that is two vertices'
        ends.open("x", execution, address.take)
    assert (address.opened, address.taken) == (1, True)
    with pytest.raises(ShmjetError, match="a sink: the execution before is still running"):
        ends.open("x", Future(), address.take)
    ends.open("y", Future(), Address().take)
    execution.set_result(None)
    assert not address.taken
    ends.open("x", Future(), address.take)
    assert address.opened == 2


def test_the_next_execution_waits_until_the_one_before_has_left() -> None:
    ends, address = ClientEnds("a sink"), Address()
    first: Future[None] = Future()
    second: Future[None] = Future()
    ends.open("x", first, address.take)
    address.wait.clear()
    ending = threading.Thread(target=lambda: first.set_result(None))
    ending.start()
    assert address.leaving.wait(60)
    beginning = threading.Thread(target=lambda: ends.open("x", second, address.take))
    beginning.start()
    assert address.opened == 1
    address.wait.set()
    beginning.join(60)
    ending.join(60)
    assert (address.opened, address.taken) == (2, True)
    second.set_result(None)
    assert not address.taken


def test_an_end_that_cannot_be_opened_leaves_its_place_to_the_next() -> None:
    ends, address = ClientEnds("a sink"), Address()

    def refuse() -> Address:
        raise OSError("no")

    first: Future[None] = Future()
    with pytest.raises(OSError, match="no"):
        ends.open("x", first, refuse)
    ends.open("x", Future(), address.take)
    first.set_result(None)
    assert address.taken


def test_results_end_while_the_interpreter_closes_their_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    finalizers: list[Callable[[], None]] = []
    closed = []

    class Closing:
        """A listener that the exit of the interpreter closes while it is asked."""

        def accept(self) -> Any:
            (finalize,) = finalizers
            finalize()
            raise OSError(errno.EBADF, "Bad file descriptor")

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(weakref, "finalize", lambda _, function: finalizers.append(function))
    monkeypatch.setattr(sys.modules[CollectedResults.__module__], "listen_for_results", lambda _: Closing())
    run = CollectedResults("results", Future())
    run.end()
    assert len(closed) == 1
    run.close()
