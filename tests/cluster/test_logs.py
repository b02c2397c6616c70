"""Log records of workers and member arrive in this process' own handlers, with job, vertex and worker."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmjet import DAG, AbstractProcessor, JetInstance, JobConfig, ProcessorContext, between, processors
from shmjet.core import Outbox

ROOT = Path(__file__).resolve().parents[2]


class Talkative(AbstractProcessor):
    """Says something for each item, in several ways."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        context.logger.info("init of %d", context.global_index)

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        self.context.logger.warning("item %s", item, extra={"item": item, "held": object()})
        logging.getLogger("users.own").warning("mine %s", item)
        logging.getLogger("users.own").info("not worth sending")
        try:
            raise ValueError(f"bad {item}")
        except ValueError:
            self.context.logger.exception("it failed")
        return True

    def close(self) -> None:
        thread = threading.Thread(target=lambda: self.context.logger.info("from a thread"))
        thread.start()
        thread.join()


def run_talkative(jet: JetInstance, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Run a job of one item and return the records that arrived before the job had ended."""
    dag = DAG()
    items = dag.new_vertex("items", processors.read_items([7]))
    dag.edge(between(items, dag.new_vertex("talk", Talkative, 1)))
    with caplog.at_level(logging.INFO):
        caplog.clear()
        jet.new_job(dag, JobConfig(name="chatter")).run(60)
    return list(caplog.records)


def test_records_have_job_vertex_and_worker_and_are_there_when_the_job_ends(
    jet: JetInstance, caplog: pytest.LogCaptureFixture
) -> None:
    records = run_talkative(jet, caplog)
    said = [record for record in records if record.name in ("shmjet.job.talk", "users.own")]
    assert [record.getMessage() for record in said] == ["init of 0", "item 7", "mine 7", "it failed", "from a thread"]
    (pid,) = {record.process for record in said}
    assert pid in jet.cluster.members[0].workers
    for record in said:
        assert (record.job, record.vertex) == ("chatter", "talk")  # type: ignore[attr-defined]
        assert record.worker == jet.cluster.members[0].workers.index(pid)  # type: ignore[attr-defined]
        assert record.processName == f"shmjet-w{record.worker}"  # type: ignore[attr-defined]
        assert len(record.job_id) == 16  # type: ignore[attr-defined]


def test_place_extra_and_traceback_come_along(jet: JetInstance, caplog: pytest.LogCaptureFixture) -> None:
    by_text = {record.getMessage(): record for record in run_talkative(jet, caplog)}
    item = by_text["item 7"]
    assert (item.filename, item.funcName, item.levelname) == ("test_logs.py", "try_process_any", "WARNING")
    assert item.item == 7  # type: ignore[attr-defined]
    assert not hasattr(item, "held")
    text = logging.Formatter("%(message)s").format(by_text["it failed"])
    assert text.startswith("it failed\nTraceback")
    assert text.endswith("ValueError: bad 7")


def test_a_handler_and_a_level_of_ones_own_are_honoured(jet: JetInstance, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(self.format(record))

    handler = Keep()
    handler.setFormatter(logging.Formatter("%(job)s/%(vertex)s/%(levelname)s: %(message)s"))
    logger = logging.getLogger("shmjet.job.talk")
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    try:
        run_talkative(jet, caplog)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [line.split("\n")[0] for line in seen] == ["chatter/talk/ERROR: it failed"]


def test_many_records_from_all_workers_all_arrive_in_order(
    jet: JetInstance, caplog: pytest.LogCaptureFixture, mapping: Callable[..., DAG]
) -> None:
    def say(x: int) -> int:
        logging.getLogger("users.many").warning("%d", x)
        return x

    caplog.clear()
    jet.new_job(mapping(say, range(3000))).run(60)
    records = [record for record in caplog.records if record.name == "users.many"]
    assert sorted(int(record.getMessage()) for record in records) == list(range(3000))
    for pid in {record.process for record in records}:
        created = [record.created for record in records if record.process == pid]
        assert created == sorted(created)


def test_a_very_long_message_is_cut(
    jet: JetInstance, caplog: pytest.LogCaptureFixture, mapping: Callable[..., DAG]
) -> None:
    caplog.clear()
    jet.new_job(mapping(lambda x: logging.getLogger("users.long").warning("%s", "ä" * 1_000_000) or x, [1])).run(60)
    (record,) = [record for record in caplog.records if record.name == "users.long"]
    assert record.getMessage().endswith("more characters)")


def test_a_message_that_is_no_unicode_is_shown_as_python_writes_it(
    jet: JetInstance, caplog: pytest.LogCaptureFixture, mapping: Callable[..., DAG]
) -> None:
    def say(x: int) -> int:
        try:
            raise ValueError("caf\udce9")
        except ValueError:
            logging.getLogger("users.half").exception("in %s", "caf\udce9", extra={"place": "caf\udce9"})
        return x

    caplog.clear()
    jet.new_job(mapping(say, [1])).run(60)
    (record,) = [record for record in caplog.records if record.name == "users.half"]
    text = logging.Formatter("%(message)s at %(place)s").format(record)
    assert text.startswith(r"in caf\udce9 at caf\udce9")
    assert text.endswith(r"ValueError: caf\udce9")


def run_program(body: str, **environment: str) -> str:
    """Run a program and return what it wrote to standard error."""
    program = f"""
import logging, os, sys
import shmjet
from shmjet import DAG, JetConfig, JobConfig, between, processors

with shmjet.new_instance(JetConfig(cores=1)) as jet:
    dag = DAG()
    items = dag.new_vertex("items", processors.read_items([1]))
    dag.edge(between(items, dag.new_vertex("log", processors.logger())))
{textwrap.indent(textwrap.dedent(body), "    ")}
    jet.new_job(dag, JobConfig(name="j")).run(60)
"""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=60, check=True
    )
    return answer.stderr


@pytest.mark.slow
def test_without_configuration_records_go_to_standard_error_from_info_on() -> None:
    (line,) = [line for line in run_program("").splitlines() if "shmjet.job.log" in line]
    assert line.endswith(" INFO shmjet.job.log [shmjet-w0 j] 1")
    assert "shmjet.job.log" not in run_program("", SHMJET_LOG_LEVEL="WARNING")
    configured = run_program("logging.basicConfig(format='<%(vertex)s %(message)s>', level=logging.INFO)")
    assert any(line.startswith("<log ") for line in configured.splitlines())
