from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.processors.files.file_blocks import FILES_PER_UNIT, absolute_patterns, cut_units, find_files, unit_size


@given(sizes=st.lists(st.integers(0, 10_000), max_size=30), size=st.integers(1, 3000))
def test_units_cover_every_byte_of_every_file_once(sizes: list[int], size: int) -> None:
    files = [(f"/{i}", total) for i, total in enumerate(sizes)]
    units = cut_units(files, size)
    covered: dict[str, list[tuple[int, int]]] = {}
    for unit in units:
        assert len(unit) <= FILES_PER_UNIT
        for segment in unit:
            covered.setdefault(segment.path, []).append((segment.start, segment.end))
            assert segment.end - segment.start <= size
    for path, total in files:
        at = 0
        for start, end in sorted(covered[path]):
            assert start == at
            at = end
        assert at == total
    assert len(covered) == len(files)


def test_large_blocks_come_first_so_that_processors_end_together() -> None:
    units = cut_units([("/small", 5), ("/large", 1000), ("/middle", 150)], 100)
    sizes = [sum(segment.end - segment.start for segment in unit) for unit in units]
    assert sizes == sorted(sizes, reverse=True)


def test_a_10_gb_file_makes_work_for_many_processors() -> None:
    total = 10 << 30
    assert len(cut_units([("/huge", total)], unit_size(total, 64))) >= 64 * 16


def test_paths_are_made_absolute_where_the_source_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_patterns(["a.txt", Path("b/*.txt")]) == (f"{tmp_path}/a.txt", f"{tmp_path}/b/*.txt")
    monkeypatch.setenv("HOME", "/home/me")
    assert absolute_patterns("~/x") == ("/home/me/x",)


def test_no_paths_is_an_error() -> None:
    with pytest.raises(ValueError, match="no paths"):
        absolute_patterns([])


def test_folders_are_walked_and_globs_expanded_and_each_file_is_found_once(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a.txt", "b.py", "deep/c.txt", "deep/er/d.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")

    def names(*patterns: str) -> set[str]:
        found = [os.path.relpath(path, tmp_path) for path, _ in find_files([str(tmp_path / p) for p in patterns])]
        assert len(found) == len(set(found))
        return set(found)

    assert names("") == {"a.txt", "b.py", "deep/c.txt", "deep/er/d.txt"}
    assert names("*.txt", "a.txt") == {"a.txt"}
    assert names("**/*.txt") == names("**") - {"b.py"} == {"a.txt", "deep/c.txt", "deep/er/d.txt"}
    assert names("deep/*") == {"deep/c.txt", "deep/er/d.txt"}
    (tmp_path / "linked").symlink_to(tmp_path / "deep" / "er")
    assert names("**/d.txt", "linked/*.txt") == {"linked/d.txt", "deep/er/d.txt"}
    assert names("deep/er") == {"deep/er/d.txt"}


def test_what_a_sink_has_not_finished_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    for name in ("0.csv", ".1.csv.unfinished", ".hidden", "2.unfinished"):
        (tmp_path / name).write_text("a\n")
    for pattern in ("", ".*"):
        found = {Path(path).name for path, _ in find_files([str(tmp_path / pattern)])}
        assert found == ({".hidden"} if pattern else {"0.csv", ".hidden", "2.unfinished"})
    unfinished = str(tmp_path / ".1.csv.unfinished")
    assert find_files([unfinished]) == [(unfinished, 2)]


def test_a_name_that_looks_like_a_glob_is_taken_literally_when_it_exists(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    (tmp_path / "a1.txt").write_text("y")
    assert find_files([str(tmp_path / "a[1].txt")]) == [(str(tmp_path / "a[1].txt"), 1)]


@pytest.mark.parametrize("name", ["missing.txt", "missing/*.txt"])
def test_a_path_that_does_not_exist_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        find_files([str(tmp_path / name)])
    assert caught.value.filename == str(tmp_path / name)


def test_a_dangling_link_given_by_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="link"):
        find_files([str(tmp_path / "link")])


def test_what_is_no_file_is_an_error_when_given_by_name() -> None:
    with pytest.raises(OSError, match="/dev/null"):
        find_files(["/dev/null"])
