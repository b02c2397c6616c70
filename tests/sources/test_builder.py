"""Sources of functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import JobFailedError, ShmjetError, sources
from shmjet.processors.general.user_functions import SourceBuffer
from tests.sources.running import collected


class Numbers:
    """Counts to a limit; notes when it is destroyed."""

    def __init__(self, context: shmjet.ProcessorContext, limit: int, journal: Path) -> None:
        self.numbers = range(context.global_index, limit, context.total_parallelism)
        self.at = 0
        self.journal = journal

    def fill(self, buffer: SourceBuffer[int]) -> None:
        for _ in range(7):
            if self.at == len(self.numbers):
                buffer.close()
                return
            buffer.add(self.numbers[self.at])
            self.at += 1

    def destroy(self) -> None:
        with self.journal.open("a") as file:
            print(os.getpid(), file=file)


def test_a_source_is_one_processor_in_order(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    source = (
        sources.builder("numbers", lambda context: Numbers(context, 10_000, journal))
        .fill_buffer_fn(Numbers.fill)
        .destroy_fn(Numbers.destroy)
        .build()
    )
    assert collected(jet, source) == list(range(10_000))
    assert len(journal.read_text().split()) == 1


def test_a_distributed_source_has_an_object_per_processor(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    source = (
        sources.builder("numbers", lambda context: Numbers(context, 1000, journal))
        .fill_buffer_fn(Numbers.fill)
        .destroy_fn(Numbers.destroy)
        .distributed(3)
        .build()
    )
    assert sorted(collected(jet, source)) == list(range(1000))
    assert len(set(journal.read_text().split())) == 3


def test_items_added_with_the_end_are_emitted(jet: shmjet.JetInstance) -> None:
    def fill(_: None, buffer: SourceBuffer[int]) -> None:
        buffer.add_all(range(100_000))
        buffer.close()

    assert collected(jet, sources.builder("all", lambda _: None).fill_buffer_fn(fill).build()) == list(range(100_000))


def test_a_buffer_takes_many_items_at_once_up_to_one_that_is_none() -> None:
    buffer: SourceBuffer[Any] = SourceBuffer()
    buffer.add(0, timestamp=7)
    buffer.add_all(iter([1, 2]))
    with pytest.raises(TypeError, match="None is never an item"):
        buffer.add_all([3, None, 4])
    buffer.add(5, timestamp=8)
    assert buffer.take_timestamps(-1) == [7, -1, -1, -1, 8]
    assert buffer.take() == [0, 1, 2, 3, 5]


def test_an_error_fails_the_job_and_the_object_is_destroyed(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    journal = tmp_path / "journal"

    def fail(_: Numbers, buffer: SourceBuffer[int]) -> None:
        buffer.add(1)
        raise RuntimeError("the well is dry")

    built = sources.builder("well", lambda context: Numbers(context, 1, journal)).fill_buffer_fn(fail)
    with pytest.raises(JobFailedError, match="the well is dry") as caught:
        collected(jet, built.destroy_fn(Numbers.destroy).build())
    assert caught.value.vertex == "well"
    eventually(journal.exists)


def test_an_error_of_create_or_destroy_fails_the_job(jet: shmjet.JetInstance) -> None:
    def fill(_: Any, buffer: SourceBuffer[int]) -> None:
        buffer.close()

    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        collected(jet, sources.builder("s", lambda _: 1 // 0).fill_buffer_fn(fill).build())
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        collected(jet, sources.builder("s", lambda _: 0).fill_buffer_fn(fill).destroy_fn(lambda x: 1 // x).build())


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(ShmjetError, match="fill_buffer_fn"):
        sources.builder("s", str).build()
    with pytest.raises(TypeError, match="create_fn"):
        sources.builder("s", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name"):
        sources.builder("", str)
    with pytest.raises(ShmjetError, match="distributed"):
        sources.builder("s", str).distributed(0)
    with pytest.raises(TypeError, match="None"):
        SourceBuffer[Any]().add(None)


def test_a_builder_is_immutable() -> None:
    first = sources.builder("s", str).fill_buffer_fn(lambda *_: None)
    assert first.distributed(4).build().parallelism == 4
    assert first.build().parallelism == 1


def test_a_stream_whose_sources_all_end_completes_the_job(jet: shmjet.JetInstance) -> None:
    source = (
        sources.builder("numbers", lambda context: Numbers(context, 1000, Path(os.devnull)))
        .fill_buffer_fn(Numbers.fill)
        .distributed(2)
        .stream()
    )
    p = shmjet.Pipeline()
    p.read_from(source).without_timestamps().map(lambda n: n * 2).write_to(shmjet.sinks.list("doubled"))
    jet.new_job(p).run(60)
    assert sorted(jet.get_list("doubled")) == list(range(0, 2000, 2))


def test_a_stream_that_waits_is_asked_again_and_its_items_come_soon(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    folder = tmp_path

    def fill(seen: set[str], buffer: SourceBuffer[str]) -> None:
        for name in set(os.listdir(folder)) - seen:
            seen.add(name)
            buffer.add(name)

    p = shmjet.Pipeline()
    source = sources.builder("names", lambda context: set[str]()).fill_buffer_fn(fill).stream()
    p.read_from(source).without_timestamps().write_to(shmjet.sinks.list("names"))
    execution = jet.new_job(p).execute()
    found = jet.get_list("names")
    for name in "abc":
        (folder / name).touch()
        eventually(lambda: name in found)  # noqa: B023
    execution.cancel()
    assert sorted(found) == ["a", "b", "c"]


def test_windows_of_a_stream_that_ends_are_finished(jet: shmjet.JetInstance) -> None:
    def fill(at: list[int], buffer: SourceBuffer[int]) -> None:
        for _ in range(50):
            buffer.add(at[0], timestamp=at[0] * 10)
            at[0] += 1
        if at[0] == 250:
            buffer.close()

    p = shmjet.Pipeline()
    source = sources.builder("numbers", lambda context: [0]).fill_buffer_fn(fill).distributed(2).stream()
    stage = p.read_from(source).with_native_timestamps().window(shmjet.tumbling(1))
    stage.aggregate(shmjet.aggregate_ops.counting()).write_to(shmjet.sinks.list("counts"))
    jet.new_job(p).run(60)
    assert [(found.start, found.result) for found in jet.get_list("counts")] == [(0, 200), (1000, 200), (2000, 100)]
