"""What is interrupted in user code that an execution has to leave, and what is not."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmjet.execution import control
from shmjet.execution.interrupts import CLOSE_S, ExecutionInterrupted, Interrupts

EXECUTION = 7


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = signal.getsignal(signal.SIGUSR1)
    words = memoryview(bytearray(control.BLOCK_SIZE)).cast("q")
    words[control.INTERRUPT] = EXECUTION
    made = Interrupts(words)
    made.install()
    yield made
    signal.signal(signal.SIGUSR1, before)


def test_code_of_the_execution_is_left(interrupts: Interrupts) -> None:
    with pytest.raises(ExecutionInterrupted), interrupts.around(EXECUTION):
        signal.raise_signal(signal.SIGUSR1)
    with interrupts.around(EXECUTION + 1):
        signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)


def test_an_import_is_not_cut_in_two(interrupts: Interrupts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_a_job"
    package.mkdir()
    (package / "__init__.py").write_text("from .first import *\nfrom .second import *\n__all__ = first.__all__\n")
    (package / "first.py").write_text("__all__ = []\n")
    (package / "second.py").write_text("import signal\nsignal.raise_signal(signal.SIGUSR1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(ExecutionInterrupted), interrupts.around(EXECUTION):
            import package_of_a_job  # type: ignore[import-not-found]

            assert package_of_a_job.second
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        for name in [name for name in sys.modules if name.startswith("package_of_a_job")]:
            del sys.modules[name]


def test_a_close_has_time_before_it_is_left(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    words = memoryview(bytearray(control.BLOCK_SIZE)).cast("q")
    words[control.INTERRUPT] = EXECUTION
    now = [100.0]
    made = Interrupts(words, clock=lambda: now[0])
    made.install()
    reached = []
    try:
        with made.closing(EXECUTION, "a sink"):
            signal.raise_signal(signal.SIGUSR1)
            reached.append("soon")
            now[0] += CLOSE_S
            signal.raise_signal(signal.SIGUSR1)
            reached.append("late")
        with pytest.raises(ExecutionInterrupted), made.around(EXECUTION):  # other code is left at once
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert reached == ["soon"]
    assert "close() of a sink did not return, and was interrupted" in caplog.text


def test_the_way_into_and_out_of_the_code_of_an_execution_is_not_interrupted(interrupts: Interrupts) -> None:
    raised = compile("raise_signal(SIGUSR1)", contextlib.__file__, "exec")
    with interrupts.around(EXECUTION):
        exec(raised, vars(signal).copy())  # as if the signal came in `__exit__` of a context manager
    with pytest.raises(ExecutionInterrupted), interrupts.around(EXECUTION):
        signal.raise_signal(signal.SIGUSR1)
