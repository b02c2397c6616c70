"""What a run does when members join and go: each rule, and random stories against a statement of Jet's rules."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from shmjet.cluster.jobs.scaling import RETRY_S, Scaling
from shmjet.cluster.lifecycle_messages import RunSettings

DELAY = 10.0
PLAIN = RunSettings()
FIXED = RunSettings(auto_scaling=False)
PROTECTED = RunSettings(split_brain_protection=True)


def begun(settings: RunSettings, members: str) -> Scaling:
    scaling = Scaling(settings, len(members), DELAY)
    scaling.begins(members)
    return scaling


def test_members_that_join_cause_one_restart_when_no_more_have_come_for_a_while() -> None:
    scaling = begun(PLAIN, "ab")
    scaling.members_joined("abc", 0.0)
    scaling.members_joined("abcd", 6.0)
    assert not scaling.take_due("abcd", 15.9, is_running=True)
    assert scaling.take_due("abcd", 16.0, is_running=True)
    assert not scaling.take_due("abcd", 60.0, is_running=True)


def test_a_run_that_does_not_run_when_it_is_due_is_looked_at_again() -> None:
    scaling = begun(PLAIN, "ab")
    scaling.members_joined("abc", 0.0)
    assert not scaling.take_due("abc", DELAY, is_running=False)
    assert scaling.due_at == DELAY + RETRY_S
    assert scaling.take_due("abc", DELAY + RETRY_S, is_running=True)


@pytest.mark.parametrize("settings", [PLAIN, FIXED])
def test_no_restart_is_due_on_the_same_members_or_where_the_job_does_not_want_one(settings: RunSettings) -> None:
    scaling = begun(settings, "ab")
    scaling.members_joined("abc", 0.0)
    if settings.auto_scaling:
        scaling.begins("abc")  # for another reason
    assert not scaling.take_due("abc", DELAY, is_running=True)
    assert scaling.due_at is None


def test_a_quorum_grows_with_joins_and_never_shrinks() -> None:
    scaling = begun(PROTECTED, "abc")
    assert scaling.quorum == 2
    assert scaling.lacks_quorum("ab") == ""
    scaling.members_joined("abcde", 0.0)
    assert scaling.quorum == 3
    scaling.members_joined("ab", 1.0)
    assert scaling.quorum == 3
    assert "3 members" in scaling.lacks_quorum("ab")
    assert Scaling(PROTECTED, 1, DELAY, quorum=3).quorum == 3
    assert begun(PLAIN, "abc").lacks_quorum("a") == ""


@dataclass
class History:
    """All that has happened to a run, from which Jet's rules say what follows; nothing is carried along."""

    settings: RunSettings
    sizes: list[int] = field(default_factory=list)
    """At its submission and after each join."""
    joins: list[float] = field(default_factory=list)
    looks: list[tuple[float, bool]] = field(default_factory=list)
    """When a join was due and looked at, and whether it was settled then."""
    attempt: frozenset[str] = frozenset()

    def quorum(self) -> int:
        return max(size // 2 + 1 for size in self.sizes) if self.settings.split_brain_protection else 0

    def is_due(self, members: frozenset[str], now: float, *, is_running: bool) -> bool:
        if not self.settings.auto_scaling or not self.joins:
            return False
        due = self.joins[-1] + DELAY
        for at, is_settled in self.looks:
            if at >= due and at >= self.joins[-1]:
                if is_settled:
                    return False
                due = at + RETRY_S
        if now < due:
            return False
        needless = not self.attempt or self.attempt == members
        self.looks.append((now, needless or is_running))
        return not needless and is_running


@pytest.mark.parametrize("seed", range(60))
def test_a_random_story_is_what_the_rules_say(seed: int) -> None:
    chance = random.Random(seed)
    settings = RunSettings(auto_scaling=chance.random() < 0.8, split_brain_protection=chance.random() < 0.5)
    names = [f"m{number}" for number in range(8)]
    members = frozenset(chance.sample(names, chance.randint(1, 4)))
    scaling, history, now = Scaling(settings, len(members), DELAY), History(settings, [len(members)]), 0.0
    for _ in range(120):
        now += chance.choice((0.0, 0.5, 2.0, 5.0, 12.0))
        match chance.choice(("join", "lose", "begin", "look", "look", "look")):
            case "join" if len(members) < len(names):
                members |= {chance.choice(sorted(set(names) - members))}
                scaling.members_joined(members, now)
                history.sizes.append(len(members))
                history.joins.append(now)
            case "lose" if len(members) > 1:
                members -= {chance.choice(sorted(members))}
            case "begin":
                if not scaling.lacks_quorum(members):
                    scaling.begins(members)
                    history.attempt = members
            case "look":
                is_running = chance.random() < 0.7
                expected = history.is_due(members, now, is_running=is_running)
                assert scaling.take_due(members, now, is_running=is_running) is expected
        assert scaling.quorum == history.quorum()
        assert bool(scaling.lacks_quorum(members)) is (len(members) < history.quorum())
