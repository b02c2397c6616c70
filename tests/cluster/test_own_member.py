"""A worker whose member has left: the job is restarted elsewhere, and not failed."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from shmjet import MemberLostError, RestartableError
from shmjet.cluster.member.grid_caller import GridCaller
from shmjet.cluster.member.observable_writer import ObservableWriter
from shmjet.execution.failure import make_failure


def unheard(folder: Path) -> Path:
    """Return the path of a socket that has been closed."""
    path = folder / "member.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
    return path


def removed(folder: Path) -> Path:
    return folder / "member.sock"


def use_maps(path: Path) -> None:
    GridCaller(path, path.parent)


def write_observable(path: Path) -> None:
    ObservableWriter(path, "prices")


@pytest.mark.parametrize("use", [use_maps, write_observable])
@pytest.mark.parametrize("there", [unheard, removed])
def test_a_job_is_restarted_when_its_member_listens_no_more(
    use: Callable[[Path], None], there: Callable[[Path], Path], tmp_path: Path
) -> None:
    with pytest.raises(MemberLostError, match="the member of this worker is gone") as caught:
        use(there(tmp_path))
    assert isinstance(caught.value, RestartableError)
    failure = make_failure(caught.value, vertex="sink", processor_index=0, worker=0)
    assert failure.restartable
    assert failure.exception is not None
    assert isinstance(pickle.loads(failure.exception), MemberLostError)


def test_a_job_is_restarted_when_its_member_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "member.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        writer = ObservableWriter(path, "prices")
        listener.accept()[0].close()
        with pytest.raises(RestartableError, match="the member of this worker is gone"):
            writer.write(1, b"")
            writer.wait()
        writer.close()
