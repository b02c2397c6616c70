"""Files attached to jobs: kept in memory, so only for jobs that may need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.cluster.requests.attachments import MOST_JOBS, Attachments
from shmjet.core import ShmjetError

NEEDED = f"{3:016x}"


def attachments(folder: Path) -> Attachments:
    return Attachments(folder, None, lambda job: job == NEEDED)


def test_a_file_comes_in_pieces(tmp_path: Path) -> None:
    files = attachments(tmp_path)
    files.add("ab", "0/words.txt", 0, b"one ")
    files.add("ab", "0/words.txt", 4, b"two")
    assert (tmp_path / "ab/0/words.txt").read_bytes() == b"one two"
    files.add("ab", "0/words.txt", 0, b"anew")
    assert (tmp_path / "ab/0/words.txt").read_bytes() == b"anew"


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
