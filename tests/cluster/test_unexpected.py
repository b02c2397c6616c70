"""An error of shmjet itself ends the job that it has met; `stress/unexpected_errors.py` raises them everywhere."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from shmjet.cluster.jobs.registry import ParticipantRegistry
from shmjet.cluster.jobs.unexpected import in_background, step, unexpected
from shmjet.cluster.membership.peer_messages import FinishPart, ProbePart
from shmjet.core import JobStatus
from tests.cluster.run_story import JOB, Story, looped


class Worn:
    """Something that notes why it has broken down."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def break_down(self, error: Exception) -> None:
        self.errors.append(str(error))


def raising(text: str) -> None:
    raise RuntimeError(text)


def test_an_unexpected_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raising("no such entry")
    except RuntimeError as error:
        failure = unexpected(error, "while it counted")
    assert failure.type_name == "RuntimeError"
    assert failure.text == "no such entry (unexpected: the log of the member says where)"
    assert "while it counted" in caplog.text
    assert "in raising" in caplog.text


def test_a_step_that_raises_breaks_down_what_takes_it() -> None:
    async def later(text: str) -> None:
        await asyncio.sleep(0)
        raising(text)

    async def main() -> None:
        worn, done = Worn(), list[Any]()
        step(worn, done.append, 1)
        step(worn, raising, "at once")
        await in_background(worn, later("in a task"))
        assert (done, worn.errors) == ([1], ["at once", "in a task"])

    looped(main)


@pytest.mark.parametrize("pauses", [[], [5.0]], ids=["at once", "after a pause"])
def test_a_run_whose_next_attempt_cannot_begin_fails(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        story = Story(attempts=2, pauses=pauses)
        story.cannot_begin = "no descriptor"
        story.fails()
        await asyncio.sleep(10)
        assert story.told[-1][0] is JobStatus.FAILED
        assert str(story.told[-1][1]).startswith("no descriptor (unexpected")
        assert (story.over, story.run.is_over, len(story.made)) == (1, True, 1)
        assert "between two attempts of job" in caplog.text

    looped(main)


class Posted:
    """Takes what is sent to members."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(self, identity: str, message: object, payload: object = None) -> None:
        self.sent.append((identity, type(message).__name__))

    def is_own(self, identity: str) -> bool:
        return False


class AskingLogs:
    """Has records to pass on, for which it asks who leads an attempt."""

    def __init__(self) -> None:
        self.registry: ParticipantRegistry | None = None
        self.leaders: list[str | None] = []

    def drain(self) -> None:
        assert self.registry is not None
        self.leaders.append(self.registry.leader_of(7))

    def ended(self, attempt: int) -> None:
        self.drain()
        raise RuntimeError(f"no room for records of {attempt}")


def test_a_part_in_which_all_fails_says_so_and_goes_and_its_records_go_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        logs, post = AskingLogs(), Posted()
        registry = logs.registry = ParticipantRegistry(cast("Any", logs), lambda: None)
        registry.open(cast("Any", object()), cast("Any", post))  # a member that can do nothing
        registry.take("coordinator", ProbePart(7, 7, JOB, [], None, []), None)
        assert post.sent == [("coordinator", "PartFailed"), ("coordinator", "PartEnded")]
        registry.take("coordinator", FinishPart(7, "it has failed"), None)
        assert post.sent[2:] == [("coordinator", "PartFinished")]
        assert registry.is_empty
        assert logs.leaders == ["coordinator"] * 2
        assert "no room for records of 7" in caplog.text

    looped(main)


def test_a_run_that_cannot_begin_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        story = Story(starts=False)
        story.cannot_begin = "no descriptor"
        story.run.start()
        assert story.told[-1][0] is JobStatus.FAILED
        assert story.over == 1

    looped(main)


def test_a_run_fails_when_nothing_can_say_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        story = Story(attempts=2)
        story.cannot_follow = "no such attempt"
        story.fails("the broker is away")
        assert story.told[-1] == (JobStatus.FAILED, "the broker is away")
        assert story.over == 1
        assert "no such attempt" in caplog.text

    looped(main)


def test_a_resumed_run_that_cannot_begin_is_not_resumed_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        story = Story()
        story.newest.becomes(JobStatus.RUNNING)
        story.run.suspend()
        story.stops()
        assert story.run.status is JobStatus.SUSPENDED
        story.cannot_begin = "no descriptor"
        story.run.resume()
        assert story.told[-1][0] is JobStatus.FAILED
        assert story.over == 1

    looped(main)


def test_a_listener_that_raises_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        story = Story(starts=False)
        heard: list[JobStatus] = []
        story.run.add_status_listener(lambda old, new: raising("not now"))
        story.run.add_status_listener(lambda old, new: heard.append(new))
        story.run.start()
        story.newest.becomes(JobStatus.COMPLETED)
        story.newest.ends()
        assert heard == [JobStatus.COMPLETED]
        assert story.told == [(JobStatus.COMPLETED, None)]
        assert "not now" in caplog.text

    looped(main)
