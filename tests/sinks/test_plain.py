"""Maps, lists, sockets, the log and functions as sinks."""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, JobFailedError, ShmjetError, processors, sinks, sources
from shmjet.pipeline.definitions import SourceDef
from shmjet.processors.grid.merge_sink import merged
from tests.sources.running import run


def test_a_list_keeps_the_order(jet: shmjet.JetInstance) -> None:
    run(jet, sources.items(range(20_000)), sinks.list("written"))
    assert list(jet.get_list("written")) == list(range(20_000))


def test_a_map_of_pairs_and_of_functions(jet: shmjet.JetInstance) -> None:
    run(jet, sources.items([("a", 1), ("b", 2)]), sinks.map("pairs"), sinks.map("made", lambda p: p[1], lambda p: p[0]))
    assert dict(jet.get_map("pairs")) == {"a": 1, "b": 2}
    assert dict(jet.get_map("made")) == {1: "a", 2: "b"}


def test_a_map_that_merges_counts_right_from_all_processors(jet: shmjet.JetInstance) -> None:
    words = SourceDef("words", processors.generate(lambda index, count: (f"w{n % 97}" for n in range(50_000))), 4)
    jet.get_map("counts")["w5"] = 1_000_000
    run(jet, words, sinks.map("counts", lambda word: word, lambda word: 1, lambda old, new: old + new))
    expected = Counter(f"w{n % 97}" for n in range(50_000))
    assert dict(jet.get_map("counts")) == {word: 4 * n + 1_000_000 * (word == "w5") for word, n in expected.items()}


def test_merging_to_none_removes(jet: shmjet.JetInstance) -> None:
    jet.get_map("few").update(a=1, b=2)
    run(jet, sources.items([("a", 1), ("c", 3)]), sinks.map("few", merge_fn=lambda old, new: None))
    assert dict(jet.get_map("few")) == {"b": 2, "c": 3}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(alphabet="xyz", max_size=2))))
def test_merging_keeps_the_order_of_values(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, str] = {}
    for key, value in pairs:
        expected[key] = expected.get(key, "") + value
    assert merged(pairs, lambda old, new: old + new) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: sinks.map(""),
        lambda: sinks.map("m", key_fn=len),
        lambda: sinks.map("m", merge_fn=3),  # type: ignore[arg-type]
        lambda: sinks.list(""),
        lambda: sinks.logger(3),  # type: ignore[arg-type]
        lambda: sinks.socket("", 1),
    ],
)
def test_wrong_arguments_are_refused(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_socket_gets_a_line_for_each_item(jet: shmjet.JetInstance) -> None:
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    received.extend(data)

        thread = threading.Thread(target=serve)
        thread.start()
        run(jet, sources.items(["ä", "b"]), sinks.socket("127.0.0.1", server.getsockname()[1], str.upper))
        thread.join()
    assert received.decode() == "Ä\nB\n"


def test_the_log_and_nowhere(jet: shmjet.JetInstance, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run(jet, sources.items(["item for the log"]), sinks.logger(repr), sinks.noop())
    assert any("'item for the log'" in record.getMessage() for record in caplog.records)


# -- builder ---------------------------------------------------------------------------------------------------------


def test_a_built_sink_receives_flushes_and_is_destroyed(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    class Target:
        def __init__(self, context: shmjet.ProcessorContext) -> None:
            self.path = tmp_path / str(context.global_index)
            self.waiting: list[str] = []

        def receive(self, item: int) -> None:
            self.waiting.append(f"{item}\n")

        def flush(self) -> None:
            with self.path.open("a") as file:
                file.writelines(self.waiting)
            self.waiting = []

        def destroy(self) -> None:
            assert not self.waiting
            with self.path.open("a") as file:
                file.write("end\n")

    built = sinks.builder("target", Target).receive_fn(Target.receive).flush_fn(Target.flush).destroy_fn(Target.destroy)
    run(jet, sources.items(range(5000)), built.build())
    assert (tmp_path / "0").read_text().split() == [*map(str, range(5000)), "end"]
    (tmp_path / "0").unlink()
    run(jet, sources.items(range(5000)), built.preferred_local_parallelism(2).build())
    lines = (tmp_path / "0").read_text().split() + (tmp_path / "1").read_text().split()
    assert sorted(lines) == sorted([*map(str, range(5000)), "end", "end"])


def test_errors_of_a_built_sink_fail_the_job(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    def refuse(path: Path, item: int) -> None:
        raise ValueError(f"not {item}")

    built = sinks.builder("picky", lambda _: tmp_path / "destroyed").receive_fn(refuse).destroy_fn(Path.touch)
    with pytest.raises(JobFailedError, match="not 1"):
        run(jet, sources.items([1]), built.build())
    eventually((tmp_path / "destroyed").exists)
    late = sinks.builder("late", lambda _: 0).receive_fn(lambda *_: None).destroy_fn(lambda zero: 1 // zero)
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        run(jet, sources.items([1]), late.build())


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ShmjetError, match="receive_fn"):
        sinks.builder("s", str).build()
    with pytest.raises(TypeError, match="flush_fn"):
        sinks.builder("s", str).flush_fn(None)  # type: ignore[arg-type]
    with pytest.raises(ShmjetError, match="preferred_local_parallelism"):
        sinks.builder("s", str).preferred_local_parallelism(0)


def test_what_a_sink_does_item_by_item_it_does_to_the_rows_of_batches(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("user,paid\nann,1\nbo,2\n")
    p = shmjet.Pipeline()
    batches = p.read_from(sources.csv(tmp_path / "in.csv", as_=Batch))
    batches.write_to(sinks.map("paid", lambda row: row["user"], lambda row: row["paid"]))
    batches.write_to(sinks.files(tmp_path / "out", lambda row: f"{row['user']} {row['paid']}"))
    batches.write_to(sinks.list("as they are"))
    jet.new_job(p).run(60)
    assert dict(jet.get_map("paid").items()) == {"ann": 1, "bo": 2}
    assert sorted("".join(file.read_text() for file in (tmp_path / "out").iterdir()).split("\n")) == [
        "",
        "ann 1",
        "bo 2",
    ]
    assert all(isinstance(item, Batch) for item in jet.get_list("as they are"))
    assert "map(paid)-rows" in [vertex.name for vertex in p.to_dag()]


@pytest.mark.parametrize("item", [5, "ab", {"user": 1, "paid": 2}, (1, 2, 3)])
def test_a_map_without_functions_takes_pairs_only(jet: shmjet.JetInstance, item: Any) -> None:
    with pytest.raises(JobFailedError, match=r"map 'pairs only': expected \(key, value\) items, got") as failed:
        run(jet, sources.items([item]), sinks.map("pairs only"))
    assert isinstance(failed.value.cause, TypeError)
    assert len(jet.get_map("pairs only")) == 0
