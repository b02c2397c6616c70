"""What a notebook shows of instances, jobs, results, maps and lists, and of a job that failed."""

from __future__ import annotations

import atexit
import datetime
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from html.parser import HTMLParser
from typing import Any

import pytest

import shmjet
from shmjet import Batch, JetConfig, JetInstance, JobConfig, JobFailedError, Pipeline, sinks, sources
from shmjet.data.html_tables import value_repr
from shmjet.data.items_html import items_html
from shmjet.host import bounded_call
from shmjet.host.bounded_call import NoAnswerError, call_within

NASTY = "<script>alert(1)</script>&\"'\n\x1b[31m"
MOST = 100_000
"""Characters that a picture may have."""


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1)) as instance:
        yield instance


@pytest.fixture(autouse=True)
def _a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_call, "ANSWER_S", 60.0)


class Tags(HTMLParser):
    """Collects which tags there are, and the texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> list[str]:
    """Return the texts of what a notebook shows, which is safe and not large."""
    html = thing._repr_html_()
    assert len(html) < MOST
    found = Tags(html)
    assert "script" not in found.tags
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
    return found.texts


class Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no")

    def __reduce__(self) -> Any:
        return Unreadable, ()


def test_results_of_rows_are_a_table_whose_dates_are_dates(jet: JetInstance) -> None:
    p, results = Pipeline(), sinks.collect(NASTY.strip())
    rows = [{"day": datetime.date(2013, 1, 31), NASTY: n} for n in range(30)]
    p.read_from(sources.items(rows)).write_to(results)
    assert "has not been executed" in "".join(shown(results))
    jet.new_job(p).run()
    texts = shown(results)
    assert texts.count("2013-01-31") == 20
    assert "day" in texts


def test_maps_and_lists_show_their_first_entries(jet: JetInstance) -> None:
    many, few = jet.get_map(NASTY), jet.get_list("few")
    many.put_all(dict.fromkeys(range(50), NASTY * 1000))
    few.extend([Unreadable(), "x" * 1_000_000, NASTY])
    assert f"IMap({NASTY!r}): 50 entries" in shown(many)[0].replace("…", "")
    assert "... 30 more" in shown(many)
    texts = shown(few)
    assert any("Unreadable" in text for text in texts)
    assert all(len(text) <= 400 for text in texts)
    few.clear()
    few.extend([Batch({"a": [1, None]}), Batch({"a": [3, 4]}), Batch({"b": ["x"]})])
    assert [text for text in shown(few) if text in ("1", "null", "3", "4", "x")] == ["1", "null", "3", "4"]


def test_instance_cluster_job_execution_and_metrics_are_shown(jet: JetInstance) -> None:
    p = Pipeline()
    p.read_from(sources.items(range(3))).map(lambda n: n).write_to(sinks.list("numbers"))
    job = jet.new_job(p, JobConfig(name=NASTY.strip()))
    assert "NOT_RUNNING" in shown(job)[0]
    job.run()
    for thing in (jet, jet.cluster):
        assert str(jet.cluster.members[0].pid) in shown(thing)
    assert any("COMPLETED" in text for text in shown(jet))
    assert job.execution is not None
    for thing in (job, job.execution):
        assert "COMPLETED" in shown(thing)[0]
    assert "list(numbers)" in shown(job.metrics())


def test_what_has_been_shut_down_is_shown_still() -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        p, results = Pipeline(), sinks.collect()
        p.read_from(sources.items([1])).write_to(results)
        job = jet.new_job(p)
        job.run()
        things = [jet, jet.cluster, job, job.execution, job.metrics(), results, jet.get_map("m"), jet.get_list("l")]
        jet.get_list("l").append(1)
    for thing in things:
        assert shown(thing)


def test_columns_are_shown() -> None:
    batch = Batch({"text": [NASTY, None] * 30, "t": [datetime.datetime(2013, 1, 31, 5), None] * 30})
    assert "2013-01-31 05:00:00" in shown(batch["t"])
    assert shown(batch["text"])[0] == "Nullable: 60 values"
    assert shown(batch["text"].fill_null(""))[0] == "Text: 60 values"
    assert "... 50 more rows" in shown(batch)
    assert "... 950 more columns" in shown(Batch({f"c{n}": [n] for n in range(1000)}))
    assert len(items_html("many", [{str(n): n for n in range(10_000)}] * 20)) < MOST
    assert value_repr(datetime.datetime(2013, 1, 31, 5)) == "2013-01-31 05:00:00"


def test_a_picture_does_not_wait_for_who_does_not_answer() -> None:
    answer = threading.Event()
    with pytest.raises(NoAnswerError, match="no answer within"):
        call_within(answer.wait, 0.01)
    answer.set()
    with pytest.raises(NoAnswerError, match="ZeroDivisionError"):
        call_within(lambda: 1 // 0)


def failing(jet: JetInstance) -> Any:
    p = Pipeline()
    p.read_from(sources.items([0])).map(lambda n: 1 // n).write_to(sinks.list("never"))
    return jet.new_job(p)


def depth(error: BaseException) -> int:
    trace, count = error.__traceback__, 0
    while trace is not None:
        trace, count = trace.tb_next, count + 1
    return count


def test_an_error_of_a_job_has_one_frame_of_ours_however_often_it_is_raised(jet: JetInstance) -> None:
    with pytest.raises(JobFailedError) as failed:
        failing(jet).run()
    assert depth(failed.value) == 2
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    execution = failing(jet).execute()
    for _ in range(3):
        with pytest.raises(JobFailedError) as failed:
            execution.result(60)
        assert depth(failed.value) == 2


def test_waiting_for_a_job_that_does_not_end_says_so_in_one_frame(jet: JetInstance) -> None:
    p = Pipeline()
    p.read_from(sources.item_stream(1)).without_timestamps().write_to(sinks.noop())
    execution = jet.new_job(p).execute()
    with pytest.raises(TimeoutError, match="has not ended within 0 s") as late:
        execution.result(0)
    assert depth(late.value) == 2
    execution.cancel()
    with pytest.raises(CancelledError) as cancelled:
        execution.result(60)
    assert depth(cancelled.value) == 2


def test_ipython_shows_the_users_cell_and_function(jet: JetInstance, capsys: pytest.CaptureFixture[str]) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell(colors="nocolor")
    shell.user_ns["job"] = failing(jet)
    try:
        shell.run_cell("job.run()")
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
        sys.excepthook = sys.__excepthook__
    text = capsys.readouterr().out
    assert "----> 1 job.run()" in text
    assert "1 // n" in text
    assert len(re.findall(r"^File /", text, re.MULTILINE)) == 1
    assert "threading.py" not in text
    assert "concurrent" not in text
