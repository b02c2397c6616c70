"""Files attached to jobs: kept in memory, so only for jobs that may need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.cluster.membership.peer_messages import PutFile
from shmjet.cluster.protocol import Submission
from shmjet.cluster.requests.attachments import MOST_JOBS, Attachments
from shmjet.core import JobNotFoundError, ShmjetError
from shmjet.execution.job_plan import JobShape

NEEDED = f"{3:016x}"


def attachments(folder: Path) -> Attachments:
    return Attachments(folder, None, lambda job: job == NEEDED)


def test_a_file_comes_in_pieces(tmp_path: Path) -> None:
    files = attachments(tmp_path)
    job = Submission("ab", None, JobShape([], []), b"", b"", {"words": "0/words.txt"}, [])
    files.add("ab", "0/words.txt", 0, b"one ", is_last=False)
    assert not files.has_all(job), "half a file is none"
    files.add("ab", "0/words.txt", 4, b"two")
    assert files.has_all(job)
    assert (tmp_path / "ab/0/words.txt").read_bytes() == b"one two"
    files.add("ab", "0/words.txt", 0, b"anew")
    assert (tmp_path / "ab/0/words.txt").read_bytes() == b"anew"


def test_a_file_that_two_send_at_once_is_whole(tmp_path: Path) -> None:
    files, path = attachments(tmp_path), "0/words.txt"
    files.add("ab", path, 0, b"one ", is_last=False)
    files.add("ab", path, 4, b"two ", is_last=False)
    files.add("ab", path, 0, b"one ", is_last=False)  # of another member
    files.add("ab", path, 8, b"three")
    with pytest.raises(JobNotFoundError, match="went to a member that was lost"):
        files.add("ab", path, 4, b"two ", is_last=False)
    files.take(PutFile("ab", path, 4, b"two "))
    assert (tmp_path / "ab/0/words.txt").read_bytes() == b"one two three"


@pytest.mark.parametrize(("job", "path"), [("../x", "a"), ("ab", "../../a"), ("ab", "/etc/a"), ("ab", "")])
def test_no_file_leads_out_of_its_folder(tmp_path: Path, job: str, path: str) -> None:
    with pytest.raises(ShmjetError, match="cannot be called"):
        attachments(tmp_path / "attachments").add(job, path, 0, b"x")
    assert not list(tmp_path.iterdir())


def test_files_of_jobs_that_nobody_needs_make_room(tmp_path: Path) -> None:
    files = attachments(tmp_path)
    for number in range(3 * MOST_JOBS):
        job = f"{number:016x}"
        files.add(job, "0/a", 0, b"x")
        files.add(job, "1/b", 0, b"x")
    kept = {folder.name for folder in tmp_path.iterdir()}
    assert len(kept) == MOST_JOBS
    assert NEEDED in kept
    assert f"{3 * MOST_JOBS - 1:016x}" in kept
