"""The fixture that catches what a test leaves behind must itself catch each kind of thing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.conftest import SHM, Belongings, leftovers


def test_nothing_is_left_by_doing_nothing() -> None:
    assert leftovers(Belongings.now()) == []


def test_a_thread_is_named_until_it_has_ended() -> None:
    before = Belongings.now()
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, name="straggler")
    thread.start()
    assert leftovers(before, grace=0) == ["thread straggler"]
    gate.set()
    assert leftovers(before) == []
    thread.join()


def test_a_child_is_named_by_its_command_until_somebody_has_waited_for_it() -> None:
    before = Belongings.now()
    program = "print(1, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as child:  # type: ignore[call-overload]
        child.stdout.readline()  # its command can be read a moment after it was started
        found = leftovers(before, grace=0)
        child.communicate(b"\n")
    assert any(line.startswith(f"process {child.pid}: ") and "input()" in line for line in found)
    assert leftovers(before) == []


def test_the_child_of_a_child_is_found() -> None:
    before = Belongings.now()
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as child:  # type: ignore[call-overload]
        child.stdout.readline()
        found = [line for line in leftovers(before, grace=0) if line.startswith("process")]
        child.stdin.write(b"\n")
        child.stdin.close()
    assert len(found) == 2
    assert leftovers(before) == []


def test_a_descriptor_is_named_with_what_it_leads_to() -> None:
    before = Belongings.now()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    assert leftovers(before, grace=0) == [f"file descriptor {descriptor}: /dev/null"]
    os.close(descriptor)


def test_a_temporary_file_is_named() -> None:
    before = Belongings.now()
    descriptor, path = tempfile.mkstemp()
    os.close(descriptor)
    assert leftovers(before, grace=0) == [f"temporary file {Path(path).name}"]
    os.unlink(path)


def test_a_name_in_shared_memory_is_named_when_it_is_one_of_ours() -> None:
    before = Belongings.now()
    ours, foreign = SHM / f"shmjet-test-{os.getpid()}", SHM / f"other-{os.getpid()}"
    ours.touch()
    foreign.touch()
    try:
        assert leftovers(before, grace=0) == [str(ours)]
    finally:
        ours.unlink()
        foreign.unlink()
