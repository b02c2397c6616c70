"""The records of runs on all members: the newest state wins, whatever is late, doubled or lost."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from shmjet.cluster.jobs.run_copies import MOST_AT_ONCE, RunCopies, in_messages
from shmjet.cluster.jobs.run_replication import RunCollection, RunReplication
from shmjet.cluster.membership.peer_messages import PeerMessage
from shmjet.cluster.membership.run_messages import (
    AskRuns,
    KeepEnded,
    KeepRun,
    KeepRunState,
    RunEnd,
    RunOrigin,
    RunRecordCopy,
    RunsAre,
    RunState,
    RunStateKept,
)
from shmjet.cluster.protocol import Submission
from shmjet.cluster.settings import KEPT_RESULTS
from shmjet.execution.job_plan import JobShape

JOB = Submission("0123456789abcdef", None, JobShape([], []), b"code", b"", {}, [])
ENDED = RunEnd("completed")


def origin(run: int) -> RunOrigin:
    return RunOrigin(run, JOB, f"token {run}", None, 0.0)


def test_the_newest_state_wins_and_an_outcome_is_never_undone() -> None:
    copies = RunCopies()
    assert copies.keep(7, RunState((1, 1)), origin(7))
    assert copies.keep(7, RunState((2, 1), attempts=2))
    assert not copies.keep(7, RunState((1, 9), attempts=1), origin(7))
    assert [copy.state.attempts for copy in copies.live()] == [2]
    assert copies.keep(7, RunState((2, 5), end=ENDED))
    assert not copies.keep(7, RunState((2, 4)), origin(7))
    assert copies.live() == []
    assert copies.end_of(7) == ENDED


def test_what_has_ended_is_kept_without_its_code_as_far_as_it_is_known() -> None:
    copies, others = RunCopies(), RunCopies()
    copies.keep(7, RunState((1, 1)), origin(7))
    copies.keep(8, RunState((1, 2)), origin(8))
    copies.keep(7, RunState((1, 3), attempts=3, end=ENDED))
    copies.keep(8, RunState((1, 4), end=ENDED))
    copies.keep(9, RunState((1, 5), end=ENDED))
    seven, eight, nine = copies.ended()
    assert (seven.run, seven.state.attempts, nine.origin) == (7, 3, None)
    assert seven.origin is not None
    assert eight.origin is not None
    assert (seven.origin.job.job_id, seven.origin.token, seven.origin.job.code) == (JOB.job_id, "token 7", b"")
    assert seven.origin.job is eight.origin.job, "many runs may be of one job"
    others.keep_ended(copies.ended())
    assert others.ended() == copies.ended()
    assert others.ended_run(8) == eight


def test_a_message_has_some_of_many_ended_runs_and_the_oldest_of_too_many_are_forgotten() -> None:
    copies = RunCopies()
    for run in range(KEPT_RESULTS + 60):
        copies.keep(run, RunState((1, run)), origin(run))
        copies.keep(run, RunState((2, run), end=ENDED))
    assert [ended.run for ended in copies.ended()] == list(range(60, KEPT_RESULTS + 60))
    pieces = list(in_messages(copies.ended()))
    assert max(map(len, pieces)) <= MOST_AT_ONCE
    assert [ended for piece in pieces for ended in piece] == copies.ended()


def test_nothing_is_kept_of_a_run_that_is_unknown_and_has_not_ended() -> None:
    copies = RunCopies()
    assert not copies.keep(7, RunState((1, 1)))
    assert copies.live() == []
    assert copies.keep(8, RunState((1, 1), end=ENDED))


class Net:
    """Members and the messages between them, each connection in its order."""

    def __init__(self, *names: str) -> None:
        self.copies = {name: RunCopies() for name in names}
        self.way: list[tuple[str, str, object]] = []
        self.collections: dict[str, RunCollection] = {}
        self.coordinator: RunReplication | None = None

    def send_from(self, sender: str, to: str, message: object) -> None:
        written = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=PeerMessage)
        self.way.append((sender, to, written))

    def deliver(self, chance: random.Random | None = None) -> None:
        while self.way:
            self.deliver_one(chance)

    def deliver_one(self, chance: random.Random | None = None) -> None:
        pairs = list(dict.fromkeys((sender, to) for sender, to, _ in self.way))
        pair = pairs[0] if chance is None else chance.choice(pairs)
        at = next(place for place, (sender, to, _) in enumerate(self.way) if (sender, to) == pair)
        sender, to, message = self.way.pop(at)
        copies = self.copies[to]
        match message:
            case KeepRun():
                copies.keep(message.copy.origin.run, message.copy.state, message.copy.origin)
            case KeepRunState():
                copies.keep(message.run, message.state)
                if message.number:
                    self.send_from(to, sender, RunStateKept(message.number))
            case RunStateKept():
                assert self.coordinator is not None
                self.coordinator.confirmed(sender, message)
            case AskRuns():
                live, ended = copies.newer_than(message.known)
                for piece in in_messages(ended):
                    self.send_from(to, sender, KeepEnded(list(piece)))
                self.send_from(to, sender, RunsAre(message.epoch, live))
            case KeepEnded():
                copies.keep_ended(message.runs)
            case RunsAre():
                self.collections[to].take(sender, message)


def replication(net: Net, name: str) -> RunReplication:
    return RunReplication(net.copies[name], lambda to, message: net.send_from(name, to, message))


def test_a_member_that_is_connected_gets_all_and_then_each_change() -> None:
    net = Net("a", "b", "c")
    sender = replication(net, "a")
    sender.put(1, RunState((1, 1)), origin(1))
    sender.put(2, RunState((1, 2)), origin(2))
    sender.follow(["b"])
    sender.put(1, RunState((1, 3), attempts=1))
    net.deliver()
    assert net.copies["b"].versions() == {1: (1, 3), 2: (1, 2)}
    assert net.copies["c"].versions() == {}
    sender.put(3, RunState((1, 4)), origin(3))
    sender.put(3, RunState((1, 5), end=ENDED))
    sender.follow(["b", "c"])
    net.deliver()
    assert net.copies["c"].live() == net.copies["b"].live()
    assert [ended.run for ended in net.copies["c"].ended()] == [3]
    assert net.copies["c"].ended() == net.copies["b"].ended()
    assert net.copies["c"].live()[0].origin.job.code == b"code"


def test_the_record_of_a_job_with_files_comes_after_them() -> None:
    net = Net("a", "b", "c")
    sender = replication(net, "a")
    sender.follow(["b"])
    made = origin(1)
    made = msgspec.structs.replace(made, job=msgspec.structs.replace(made.job, attachments={"words": "0/words"}))
    sender.put(1, RunState((1, 1)), made)
    sender.put(1, RunState((1, 2), attempts=1))
    sender.follow(["b", "c"])
    net.deliver()
    assert net.copies["b"].live() == net.copies["c"].live() == []
    sender.files_sent(1, ["b"])
    net.deliver()
    assert net.copies["b"].live()[0].state.attempts == 1
    assert net.copies["c"].live() == []


def test_a_state_is_confirmed_when_all_members_have_it_or_are_lost() -> None:
    async def main() -> None:
        net = Net("a", "b", "c")
        sender = net.coordinator = replication(net, "a")
        sender.follow(["b", "c"])
        sender.put(1, RunState((1, 1)), origin(1))
        waiting = asyncio.ensure_future(sender.put_confirmed(1, RunState((1, 2), is_committing=True)))
        await asyncio.sleep(0)
        net.way = [(s, to, message) for s, to, message in net.way if to == "b"]
        net.deliver()
        await asyncio.sleep(0)
        assert not waiting.done()
        sender.member_lost("c")
        await waiting
        assert net.copies["b"].live()[0].state.is_committing
        sender.follow([])
        await sender.put_confirmed(1, RunState((1, 3), is_committing=True))

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(40))
def test_a_new_coordinator_has_the_newest_of_what_any_member_has(seed: int) -> None:
    chance = random.Random(seed)
    net = Net("a", "b", "c", "d")
    sender = replication(net, "a")
    sender.follow(["b", "c", "d"])
    counter = 0
    for run in range(1, 5):
        counter += 1
        sender.put(run, RunState((3, counter)), origin(run))
    for _ in range(12):
        counter += 1
        run = chance.randint(1, 4)
        if net.copies["a"].end_of(run) is None:
            state = RunState((3, counter), attempts=counter, end=ENDED if chance.random() < 0.2 else None)
            sender.put(run, state)
    for _ in range(chance.randint(0, len(net.way))):
        net.deliver_one(chance)
    net.way.clear()  # the rest is lost with its sender
    newest = {
        run: max(copies.versions().get(run, (0, 0)) for name, copies in net.copies.items() if name != "a")
        for run in range(1, 5)
    }
    done: list[bool] = []
    collection = RunCollection(
        net.copies["b"], lambda to, message: net.send_from("b", to, message), lambda: done.append(True)
    )
    net.collections["b"] = collection
    collection.begin(4, ["c", "d"])
    if chance.random() < 0.5:  # another view comes before all have answered
        net.way.clear()
        collection.begin(5, ["c", "d"])
    assert collection.is_active
    net.deliver(chance)
    assert done == [True]
    assert not collection.is_active
    assert net.copies["b"].versions() == {run: version for run, version in newest.items() if version != (0, 0)}
    for ended in net.copies["b"].ended():
        assert ended.origin is not None
        assert (ended.origin.run, ended.origin.job.name) == (ended.run, JOB.name)


def test_a_collection_asks_again_who_has_been_connected_again_and_ends_when_nobody_is_left() -> None:
    done: list[bool] = []
    sent: list[tuple[str, object]] = []
    collection = RunCollection(RunCopies(), lambda to, message: sent.append((to, message)), lambda: done.append(True))
    collection.begin(2, ["b"])
    collection.ask("b")
    collection.ask("c")
    assert sent == [("b", AskRuns(2, {})), ("b", AskRuns(2, {}))]
    collection.take("b", RunsAre(1, [RunRecordCopy(origin(1), RunState((1, 1)))]))
    assert not done
    collection.begin(3, [])
    assert done == [True]


def test_a_log_calls_a_job_by_its_name_in_one_line_or_by_its_id() -> None:
    forged = msgspec.structs.replace(JOB, name="job\n2026-11-28 ERROR shmjet: \x1b[2Jgone")
    assert forged.label == r"job\n2026-11-28 ERROR shmjet: \x1b[2Jgone"
    assert JOB.label == "0123456789abcdef"
