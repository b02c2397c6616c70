"""A member that does not come up says what it was doing, and never outlives the process that started it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import shmjet
from shmjet import ConfigError, JetConfig, Pipeline, PoolExecutor, ShmjetError, new_instance, sinks, sources
from shmjet.cluster.client import launch, member_start
from shmjet.cluster.client.launch import StartingMember
from shmjet.cluster.member import program
from shmjet.cluster.member.start_report import StartReport
from tests.stopping import stop

STUCK = """
    import sys, time

    class Holding:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                open({marker!r}, "w").write(str(__import__("os").getpid()))
                time.sleep(3600)

    sys.meta_path.insert(0, Holding())
"""

STUCK_LINK = """
    import os, select, stat, sys, time

    class Holding:
        def find_spec(self, name, path=None, target=None):
            if name == "shmjet.net.link_main":
                poller = select.poll()
                for fd in map(int, os.listdir("/proc/self/fd")):
                    try:
                        if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode):
                            poller.register(fd, select.POLLIN)
                    except OSError:
                        pass  # that of the listing
                poller.poll()  # until its member has sent what it is to do, and waits for it
                open({marker!r}, "w").write(str(os.getpid()))
                time.sleep(3600)

    sys.meta_path.insert(0, Holding())
"""


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "3601"])
def test_a_pause_that_is_no_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SHMJET_RESTART_PAUSE", text)
    with pytest.raises(ConfigError, match=f"SHMJET_RESTART_PAUSE is '{text}'; it must be a number of seconds from 0"):
        launch.member_settings(JetConfig())


def test_a_member_without_a_network_loads_nothing_that_is_only_for_one() -> None:
    program = (
        "import sys\n"
        "sys.modules['ssl'] = None\n"  # as members do
        "import asyncio\n"
        "del sys.modules['ssl']\n"
        "import shmjet.cluster.member.program\n"
        "needless = {'ssl', 'shutil', '_hashlib', 'shmjet.cluster.membership.network', 'shmjet.net.dial',\n"
        "    'shmjet.cluster.member.partition_keeper', 'shmjet.grid.service', 'shmjet.grid.code_free',\n"
        "    'shmjet.grid.replica'}\n"
        "print(sorted(needless & set(sys.modules)))\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60) == "[]\n"


def test_a_member_loads_nothing_that_only_its_client_needs() -> None:
    program = (
        "import sys\n"
        "import shmjet.cluster.member.program, shmjet.cluster.membership.network\n"
        "import shmjet.cluster.member.fork_server_main, shmjet.net.link_main\n"
        "print('shmjet.core.config' in sys.modules)\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60) == "False\n"


def test_workers_share_the_processors_that_the_client_has_loaded_and_a_few_more() -> None:
    program = (
        "import os\n"
        "os.environ.pop('SHMJET_PRELOAD', None)\n"
        "from shmjet.cluster.client.launch import shared_imports\n"
        "before = shared_imports()\n"
        "from shmjet import processors\n"
        "processors.read_files\n"
        "names = set(shared_imports())\n"
        "wanted = {'shmjet.processors.files.file_source', 'shmjet.processors.general.transform'}\n"
        "print(before, wanted <= names, any('.time.' in name or '.columns.' in name for name in names))\n"
        "import numpy, shmjet.columns\n"
        "print('shmjet.processors.columns.group_by' in shared_imports())\n"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60) == "[] True False\nTrue\n"


def test_threads_of_a_member_soon_let_its_loop_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float] = []

    async def serve(*_: object) -> None:
        found.append(sys.getswitchinterval())

    for name in ("name_process", "prefer_nodes", "ForkServerProcess"):
        monkeypatch.setattr(program, name, lambda *_: None)
    monkeypatch.setattr(program, "send_logs", lambda logs, *_: logs.close())
    monkeypatch.setattr(program, "_serve", serve)
    settings = launch.member_settings(JetConfig())
    before, report = sys.getswitchinterval(), cast("StartReport", None)
    logs, server = socket.socketpair()
    try:
        program.main(settings, report, logs.detach(), 0, server, -1, None)
    finally:
        sys.setswitchinterval(before)
        server.close()
    assert found[0] < before


@pytest.mark.parametrize(("named", "is_loaded"), [(" that_exits,wave,no_such_module", True), ("", False)])
def test_workers_share_the_modules_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, is_loaded: bool
) -> None:
    (tmp_path / "that_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SHMJET_PRELOAD", named)
    pipeline = Pipeline()
    found = pipeline.read_from(sources.items([0])).map(lambda _: "wave" in __import__("sys").modules)
    found.write_to(sinks.list("found"))
    with new_instance(JetConfig(cores=1)) as jet:
        jet.new_job(pipeline).run(60)
        assert list(jet.get_list("found")) == [is_loaded]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`site(program, module)` has each new interpreter run a program first; returns a path that it may use."""
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    marker = tmp_path / "marker"

    def write(program: str, module: str = "shmjet.cluster.member.program") -> Path:
        filled = textwrap.dedent(program).replace("{marker!r}", repr(str(marker))).replace("{module!r}", repr(module))
        (tmp_path / "site" / "sitecustomize.py").write_text(filled)
        return marker

    return write


def test_a_member_that_is_late_says_what_it_was_doing_and_where(
    site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], object]], None]
) -> None:
    marker = site(STUCK)
    starting = StartingMember(JetConfig(cores=1))
    eventually(marker.exists)
    monkeypatch.setattr(member_start, "START_S", 0.0)
    with pytest.raises(ShmjetError) as caught:
        starting.wait()
    text = str(caught.value)
    assert f"the member process (pid {starting.process.pid}) did not come up within 0 s" in text
    assert re.search(r"it was importing its own half of the modules \(state [A-Z]", text)
    assert "s of CPU time" in text
    assert "sitecustomize.py" in text  # the stack of where it is
    assert text.index("sitecustomize.py") < text.index("importlib")  # the innermost call is not what is cut off
    assert "the load of the host is" in text
    assert starting.process.returncode == -signal.SIGKILL


def test_a_member_that_waits_for_its_link_shows_its_processes(
    site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], object]], None]
) -> None:
    marker = site(STUCK_LINK)
    starting = StartingMember(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush"))
    eventually(lambda: marker.exists() and marker.read_text())
    link = int(marker.read_text())
    watched = os.pidfd_open(link)
    monkeypatch.setattr(member_start, "START_S", 0.0)
    with pytest.raises(ShmjetError) as caught:
        starting.wait()
    text = str(caught.value)
    assert "it was opening its port on 127.0.0.1:0 (state " in text
    assert re.search(rf"Its processes: .*\(pid {link}, [a-z]+", text)
    assert "most recent call first" in text
    assert has_ended_soon(watched), "the link goes on without its member"


def test_the_first_link_of_a_member_is_forked_and_one_that_takes_its_place_is_executed(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    with new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush")) as jet:
        [member] = jet.cluster.members
        [link] = links(member.pid)
        assert auxiliary_vector(link) == auxiliary_vector(member.pid)
        os.kill(link, signal.SIGKILL)
        eventually(lambda: links(member.pid) not in ([], [link]))
        [other] = links(member.pid)
        assert auxiliary_vector(other) != auxiliary_vector(member.pid)


def links(member: int) -> list[int]:
    """Return the pids of the children of a member that are links."""
    found = []
    for child in Path(f"/proc/{member}/task/{member}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just gone
            if Path(f"/proc/{child}/comm").read_text() == "shmjet-link\n":
                found.append(int(child))
    return found


def auxiliary_vector(pid: int) -> bytes:
    """Return what the kernel gave to a process as it executed its program: addresses of its own, which a fork keeps."""
    return Path(f"/proc/{pid}/auxv").read_bytes()


def test_a_member_that_waits_for_its_storage_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], object]], None]
) -> None:
    (tmp_path / "jobs").mkdir()
    os.mkfifo(tmp_path / "jobs" / "1.run")
    starting = StartingMember(JetConfig(cores=1, storage=str(tmp_path)))
    writers: list[int] = []

    def has_reader() -> bool:
        with contextlib.suppress(OSError):
            writers.append(os.open(tmp_path / "jobs" / "1.run", os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    eventually(has_reader)
    monkeypatch.setattr(member_start, "START_S", 0.0)
    try:
        with pytest.raises(ShmjetError, match=f"it was reading the records of jobs in its storage {tmp_path} "):
            starting.wait()
    finally:
        os.close(writers[0])


def test_a_member_that_dies_says_when_and_quotes_the_interpreter(
    site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site("import os; os.write(2, b'the disk with the modules is gone\\n'); os._exit(7)")
    text = (
        r"ended with status 7 before it was up, while it was starting the interpreter(?s:.)*the disk with the modules"
    )
    with pytest.raises(ShmjetError, match=text):
        new_instance(JetConfig(cores=1))


def test_what_an_interpreter_says_as_it_starts_reaches_standard_error(
    site: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    site("import os, sys; '-P' in sys.orig_argv and os.write(2, b'a warning\\n')")
    new_instance(JetConfig(cores=1)).shutdown()
    assert capfd.readouterr().err.splitlines().count("a warning") == 1


def test_a_process_that_holds_the_pipe_keeps_nobody_waiting() -> None:
    """A process that another thread forks during a start inherits what leads to the member."""
    before = _pipes(os.getpid())
    starting = StartingMember(JetConfig(cores=1))
    member = starting.process.pid
    stop(member)
    ours = _pipes(os.getpid()).keys() - before
    [writer] = [fd for pipe, fd in _pipes(member).items() if pipe in ours]
    holder = subprocess.Popen(
        ["sh", "-c", f"exec 9> /proc/{member}/fd/{writer}; echo; read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    os.kill(member, signal.SIGCONT)
    try:
        assert starting.wait().pid == member
    finally:
        holder.communicate()
        starting.kill()


def _pipes(pid: int) -> dict[str, int]:
    """Return the pipes of a process, each with a descriptor."""
    found: dict[str, int] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("pipe:"):
                found[target] = int(name)
    return found


@pytest.mark.parametrize("stopped", [False, True], ids=["", "while it is stopped"])
def test_a_member_that_comes_up_ends_with_the_process_that_started_it(
    site: Callable[..., Path], eventually: Callable[[Callable[[], object]], None], stopped: bool
) -> None:
    marker = site(STUCK)
    program = (
        "from shmjet.cluster.client.launch import StartingMember; from shmjet import JetConfig; import time\n"
        "StartingMember(JetConfig(cores=1)); time.sleep(3600)"
    )
    client = subprocess.Popen([sys.executable, "-c", program], cwd=Path(shmjet.__file__).parents[1])
    try:
        eventually(lambda: marker.exists() and marker.read_text())
        member = os.pidfd_open(int(marker.read_text()))
        if stopped:
            stop(int(marker.read_text()))
    finally:
        client.kill()
        client.wait()
    assert has_ended_soon(member), "the member goes on without the process that started it"


def has_ended_soon(process: int) -> bool:
    """Wait for the end of a process, and close its descriptor."""
    poller = select.poll()
    poller.register(process, select.POLLIN)
    try:
        return bool(poller.poll(60_000))
    finally:
        os.close(process)


def test_all_processes_have_their_stack_before_they_need_it() -> None:
    """Where there is no address space left, a stack that has to grow ends its process."""
    with new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush")) as jet, PoolExecutor(1) as pool:
        [member] = jet.cluster.members
        pids = [member.pid, *member.workers, *links(member.pid), pool.submit(os.getpid).result()]
        assert all(stack_of(pid) >= 1 << 20 for pid in pids)


def stack_of(pid: int) -> int:
    """Return the bytes of a process' first stack."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmStk:"))
