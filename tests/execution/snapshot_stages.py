"""Processors with state for tests of snapshots: what they count is exact only if state and items stay together."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from shmjet.core import BroadcastKey, Inbox, Processor

RESULTS: dict[tuple[str, Any], int] = {}
"""What sinks have counted, by a label and the item; written when they complete, as often as they do."""


class Positions(Processor):
    """A source of shards of numbers; each shard belongs to one processor, which saves how far it has got.

    Args:
        label: the first part of all items.
        shards: how many items each shard has.
        chunk: items of a call at most.
        key: items are (label, number mod `keys`, shard, number) in ascending order of the number within a shard.
    """

    _saves_at_end = True

    def __init__(self, label: str, shards: list[int], chunk: int = 7, keys: int = 5) -> None:
        self.label, self.shards, self.chunk, self.keys = label, shards, chunk, keys
        self.at: dict[int, int] = {}
        self.saving: list[Any] | None = None

    def init(self, outbox: Any, context: Any) -> None:
        super().init(outbox, context)
        mine = range(context.global_index, len(self.shards), context.total_parallelism)
        self.at = dict.fromkeys(mine, 0)
        self.random = random.Random(context.global_index)

    def complete(self) -> bool:
        for _ in range(self.random.randint(1, self.chunk)):
            left = [shard for shard, at in self.at.items() if at < self.shards[shard]]
            if not left:
                return True
            shard = min(left, key=lambda one: (self.at[one], one))
            number = self.at[shard]
            if not self.outbox.offer((self.label, number % self.keys, shard, number)):
                return False
            self.at[shard] += 1
        return False

    def save_to_snapshot(self) -> bool:
        if self.saving is None:
            self.saving = list(self.at.items())
        while self.saving:
            shard, at = self.saving[-1]
            if not self.outbox.offer_to_snapshot(BroadcastKey(shard), at):
                return False
            self.saving.pop()
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for key, at in inbox.take():
            if key.key in self.at:
                self.at[key.key] = at


class Numbered(Processor):
    """Gives the items of each key consecutive numbers, in the order in which they come: (label, key, number)."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.counts: dict[Any, int] = {}
        self.saving: list[Any] | None = None

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox:
            key = inbox.peek()[1]
            number = self.counts.get(key, 0)
            if not self.outbox.offer((self.label, key, 0, number)):
                return
            self.counts[key] = number + 1
            inbox.remove()

    def save_to_snapshot(self) -> bool:
        if self.saving is None:
            self.saving = list(self.counts.items())
        while self.saving:
            if not self.outbox.offer_to_snapshot(*self.saving[-1]):
                return False
            self.saving.pop()
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        while inbox:
            key, count = inbox.poll()
            self.counts[key] = self.counts.get(key, 0) + count


class Forward(Processor):
    """Passes items on under another label."""

    def __init__(self, label: str) -> None:
        self.label = label

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox and self.outbox.offer((self.label, *inbox.peek()[1:])):
            inbox.remove()


class Tally(Processor):
    """A sink that counts items, and writes its counts down when it completes.

    Args:
        name: the first part of the keys in `RESULTS`.
    """

    movable = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[Any] = Counter()
        self.saving: list[Any] | None = None
        self.pending: list[int] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.counts.update(inbox.take())

    def complete(self) -> bool:
        for item, count in self.counts.items():
            RESULTS[self.name, item] = count
        return True

    def save_to_snapshot(self) -> bool:
        if self.saving is None:
            self.saving = list(self.counts.items())
        while self.saving:
            if not self.outbox.offer_to_snapshot(*self.saving[-1]):
                return False
            self.saving.pop()
        self.saving = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for item, count in inbox.take():
            self.counts[item] += count
