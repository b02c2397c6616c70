"""The routes against a running instance: what is shown, what can be changed, what the headers say."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `console` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `console` is not installed")
testclient = pytest.importorskip("starlette.testclient", reason="starlette or httpx are not installed")

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

import shmjet  # noqa: E402
from shmjet import JetConfig, JetInstance, JobConfig, JobStatus  # noqa: E402
from shmjet.console.access import make_access  # noqa: E402
from shmjet.console.member_finder import local_members  # noqa: E402
from shmjet.console.watcher import Watch  # noqa: E402
from shmjet.console.web import STATIC, make_app  # noqa: E402
from tests.console.conftest import TOKEN, endless_dag, failing_dag  # noqa: E402
from tests.stopping import stop  # noqa: E402

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
BASE = "http://127.0.0.1:8080"
DOCS = Path(__file__).resolve().parents[2] / "docs"
Wait = Callable[..., None]


@pytest.fixture
def client(jet: JetInstance) -> Iterator[Any]:
    """A console with a token, that looks ten times a second."""
    watch = Watch(lambda: local_members([jet.folder]), changes=True, period=0.1)
    with testclient.TestClient(make_app(watch, make_access("127.0.0.1", token=TOKEN)), base_url=BASE) as client:
        yield client


def state(client: Any, job: str | None = None) -> dict[str, Any]:
    answer = client.get("/api/state", params={} if job is None else {"job": job})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_an_idle_member_is_shown_with_its_workers(jet: JetInstance, client: Any, eventually: Wait) -> None:
    expected = jet.cluster.members[0]
    eventually(lambda: [w["pid"] for m in state(client)["members"] for w in m["workers"]] == list(expected.workers))
    member = state(client)["members"][0]
    assert (member["id"], member["pid"]) == (expected.uuid, expected.pid)
    assert member["memory"] > 1 << 20
    assert member["ended"] is False


def test_a_running_job_is_shown_with_rates_and_can_be_cancelled(
    jet: JetInstance, client: Any, eventually: Wait
) -> None:
    job = jet.new_job(endless_dag(), JobConfig(name="<script>alert(1)</script>"))
    execution = job.execute()
    eventually(lambda: (state(client, job.id)["selected"] or {}).get("sink_rate", 0) > 0)
    eventually(lambda: len(state(client, job.id)["selected"]["history"]["times"]) > 3)
    detail = state(client, job.id)["selected"]
    assert detail["card"]["name"] == "<script>alert(1)</script>"
    assert detail["card"]["status"] == "running"
    assert [vertex["flow"]["name"] for vertex in detail["vertices"]] == ["numbers", "parse", "transform", "drop"]
    assert [vertex["place"][0] for vertex in detail["vertices"]] == [0, 1, 2, 3]
    assert detail["edges"][0]["routing"] == "unicast"
    before = detail["vertices"][3]["flow"]["received"]
    eventually(lambda: state(client, job.id)["selected"]["vertices"][3]["flow"]["received"] > before)

    assert client.post(f"/api/jobs/{job.id}/cancel").status_code == 401
    assert not execution.done()
    assert client.post(f"/api/jobs/{job.id}/cancel", headers=AUTHORIZED).status_code == 202
    eventually(lambda: execution.cancelled())
    eventually(lambda: state(client, job.id)["selected"]["card"]["status"] == "cancelled")
    eventually(lambda: state(client, job.id)["selected"]["averaged"])
    assert client.post(f"/api/jobs/{job.id}/cancel", headers=AUTHORIZED).status_code == 409


def test_a_job_is_suspended_resumed_and_restarted_by_those_who_have_the_token(
    jet: JetInstance, client: Any, eventually: Wait
) -> None:
    job = jet.new_job(endless_dag(), JobConfig(name="steered"))
    execution = job.execute()

    def card() -> dict[str, Any]:
        detail = state(client, job.id)["selected"] or {"card": {"status": None, "id": None}}
        found: dict[str, Any] = detail["card"]
        return found

    def ask(verb: str, **more: Any) -> int:
        code: int = client.post(f"/api/jobs/{job.id}/{verb}", **more).status_code
        return code

    eventually(lambda: (card()["id"], card()["status"]) == (job.id, "running"))
    assert ask("suspend") == 401
    assert ask("resume", headers=AUTHORIZED) == 409
    assert ask("destroy", headers=AUTHORIZED) == 404
    assert ask("suspend", headers=AUTHORIZED) == 202
    eventually(lambda: card()["status"] == "suspended")
    assert state(client, job.id)["selected"]["suspension"] == {"requested_by_user": True, "error": None}
    assert ask("resume", headers=AUTHORIZED) == 202
    eventually(lambda: (card()["status"], card()["attempts"]) == ("running", 2))
    eventually(lambda: state(client, job.id)["selected"]["sink_rate"] > 0)
    assert ask("restart", headers=AUTHORIZED) == 202
    eventually(lambda: (card()["status"], card()["attempts"]) == ("running", 3))
    text = client.get("/metrics").text
    assert re.search(r'shmjet_execution_attempts_total{[^}]*job="steered"[^}]*} 3.0', text)
    execution.cancel()
    eventually(lambda: card()["status"] == "cancelled")
    assert ask("restart", headers=AUTHORIZED) == 409


def test_a_failed_job_is_shown_with_the_users_traceback(jet: JetInstance, client: Any, eventually: Wait) -> None:
    job = jet.new_job(failing_dag(), JobConfig(name="failing"))
    with pytest.raises(Exception, match="cannot parse item 50"):
        job.run(60)
    eventually(lambda: (state(client, job.id)["selected"] or {}).get("failure") is not None)
    detail = state(client, job.id)["selected"]
    assert (detail["card"]["id"], detail["card"]["status"]) == (job.id, "failed")
    assert detail["failure"]["error"] == "ValueError"
    assert detail["failure"]["vertex"] == "parse <b>"
    assert 'raise ValueError(f"cannot parse item {item}")' in detail["failure"]["text"]
    assert "conftest.py" in detail["failure"]["text"]
    assert f'File "{shmjet.__path__[0]}{os.sep}' not in detail["failure"]["text"]
    eventually(lambda: state(client, job.id)["selected"]["averaged"])


def test_a_job_that_runs_again_is_one_job(jet: JetInstance, client: Any, eventually: Wait) -> None:
    stopped = DOCS / "console.md"  # a file that exists: the source ends after its first items
    job = jet.new_job(endless_dag(stopped), JobConfig(name="twice"))
    job.run(60)
    job.run(60)

    def has_run_twice() -> bool:
        """What is averaged may still be the first run when the second one has been seen to run."""
        selected = state(client, job.id)["selected"] or {"card": {}, "averaged": False}
        shown = tuple(selected["card"].get(name) for name in ("name", "status", "executions"))
        return shown == ("twice", "completed", 2) and selected["averaged"]

    eventually(has_run_twice)
    assert job.status is JobStatus.COMPLETED


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[JetInstance, Any]]:
    """An instance that a test may harm, and a console that loses patience with it soon."""
    monkeypatch.setattr("shmjet.cluster.monitor.local.PATIENCE_S", 0.5)
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        watch = Watch(lambda: local_members([jet.folder]), changes=True, period=0.1)
        with testclient.TestClient(make_app(watch, make_access("127.0.0.1", token=TOKEN)), base_url=BASE) as client:
            yield jet, client


def test_a_member_that_is_killed_stays_to_be_read(own: tuple[JetInstance, Any], eventually: Wait) -> None:
    jet, client = own
    execution = jet.new_job(endless_dag(), JobConfig(name="lost one")).execute()
    eventually(lambda: (state(client)["selected"] or {}).get("sink_rate", 0) > 0)
    os.kill(jet.cluster.members[0].pid, signal.SIGKILL)
    with pytest.raises(shmjet.MemberLostError):
        execution.result(60)
    eventually(lambda: state(client)["members"][0]["ended"])
    shown = state(client)
    assert (shown["selected"]["card"]["name"], shown["selected"]["card"]["status"]) == ("lost one", "lost")
    assert shown["selected"]["vertices"][3]["flow"]["received"] > 0
    assert client.post(f"/api/jobs/{shown['selected']['card']['id']}/cancel", headers=AUTHORIZED).status_code == 503
    assert "shmjet_member_info{" not in client.get("/metrics").text


def test_a_member_that_does_not_answer_holds_nobody_up(own: tuple[JetInstance, Any], eventually: Wait) -> None:
    jet, client = own
    jobs = [jet.new_job(failing_dag(), JobConfig(name=name)) for name in ("first", "second")]
    for job in jobs:
        with pytest.raises(shmjet.JobFailedError):
            job.run(60)
    eventually(lambda: [card["status"] for card in state(client, jobs[0].id)["jobs"]] == ["failed", "failed"])
    eventually(lambda: state(client, jobs[0].id)["selected"]["failure"] is not None)
    pid = jet.cluster.members[0].pid
    stop(pid)
    try:
        shown = state(client, jobs[1].id)["selected"]
        assert (shown["card"]["name"], shown["failure"]) == ("second", None)
        assert state(client, jobs[0].id)["selected"]["failure"]["error"] == "ValueError"
        assert client.get("/metrics").status_code == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: state(client, jobs[1].id)["selected"]["failure"] is not None)


def test_an_unknown_job_is_not_found(client: Any) -> None:
    assert client.post("/api/jobs/nosuch/cancel", headers=AUTHORIZED).status_code == 404


def test_only_so_many_pages_can_be_open(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.console.web.MOST_STREAMS", 0)
    assert client.get("/api/events").status_code == 503


def test_the_token_can_be_tried(client: Any) -> None:
    assert client.post("/api/token").status_code == 401
    assert client.post("/api/token", headers={"Authorization": "Bearer wrong"}).headers["www-authenticate"] == "Bearer"
    assert client.post("/api/token", headers=AUTHORIZED).status_code == 204


def test_another_site_can_neither_change_nor_read(jet: JetInstance, client: Any) -> None:
    evil = {**AUTHORIZED, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert client.post("/api/jobs/1/cancel", headers=evil).status_code == 403
    assert client.options("/api/jobs/1/cancel", headers=evil).status_code == 403
    answer = client.get("/api/state", headers=evil)
    assert "access-control-allow-origin" not in answer.headers
    assert client.get("/api/state", headers={"Host": "evil.example:8080"}).status_code == 421
    assert client.get("/metrics", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/state", "/metrics", "/nosuch", "/static/../web.py"])
def test_every_answer_has_the_headers_that_browsers_obey(client: Any, path: str) -> None:
    headers = client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "cache-control" in headers


def test_files_beside_the_page_are_not_served(client: Any) -> None:
    for path in ("/static/../web.py", "/static/%2e%2e/web.py", "/static/..%2fweb.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404


def test_the_page_has_no_inline_script_and_asks_nobody_else() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\s(?:on\w+|style)=", page) == []
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        foreign = [url for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text) if "www.w3.org" not in url]
        assert foreign == [], file.name
        assert "innerHTML" not in text, file.name


def samples(text: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_metrics_have_jets_names_and_labels(jet: JetInstance, client: Any, eventually: Wait) -> None:
    job = jet.new_job(endless_dag(), JobConfig(name='a "quoted" name\n'))
    execution = job.execute()

    def seen(text: str, name: str) -> list[dict[str, str]]:
        return [labels for labels in samples(text).get(name, []) if labels["execution"] == str(execution.id)]

    def all_run() -> bool:
        text = client.get("/metrics").text
        statuses = [labels["status"] for labels in seen(text, "shmjet_job_status")]
        received = {labels["vertex"] for labels in seen(text, "shmjet_received_count_total")}
        return statuses == ["running"] and len(received) == 3

    try:
        eventually(all_run)
        answer = client.get("/metrics")
    finally:
        execution.cancel()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found, received = samples(answer.text), seen(answer.text, "shmjet_received_count_total")
    assert {labels["vertex"] for labels in received} == {"parse", "transform", "drop"}
    assert set(received[0]) == {"job", "execution", "member", "vertex", "processor", "worker", "ordinal"}
    assert received[0]["job"] == 'a "quoted" name\n'
    assert {"job": 'a "quoted" name\n', "status": "running"}.items() <= found["shmjet_job_status"][-1].items()
    assert len(found["shmjet_worker_busy_seconds_total"]) == 2
    assert {labels["process"] for labels in found["shmjet_process_resident_bytes"]} == {
        "member",
        "worker 0",
        "worker 1",
    }
    for labels in found.values():
        assert len({json.dumps(one, sort_keys=True) for one in labels}) == len(labels)
    eventually(execution.done)


def test_the_grafana_board_asks_for_metrics_that_exist(jet: JetInstance, client: Any, eventually: Wait) -> None:
    from shmjet.console import exposition

    board = json.loads((DOCS / "grafana" / "shmjet.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"shmjet_\w+", target["expr"])
    } | {name for variable in board["templating"]["list"] for name in re.findall(r"shmjet_\w+", str(variable["query"]))}
    offered = {f"shmjet_{name}_total" for name in exposition.COUNTERS} | {f"shmjet_{n}" for n in exposition.GAUGES}
    assert asked <= offered
    assert len(asked) > 12
    places = [panel["gridPos"] for panel in board["panels"]]
    covered = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(covered) == len(set(covered))
    assert max(x for x, _ in covered) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    page = (DOCS / "console.md").read_text(encoding="utf-8")
    for name in offered:
        assert f"`{name.removeprefix('shmjet_')}`" in page, name
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
