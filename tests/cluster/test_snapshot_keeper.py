"""Copies of snapshots on several members, and what happens to them when members are lost, full, silent or wrong."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.membership.peer_messages import AskFile, FilePiece, KeepSnapshot, SnapshotKept
from shmjet.snapshots.manifest import read_manifest
from tests.cluster.simulated_snapshots import LINEAGE, SimulatedMembers
from tests.cluster.test_asking_again import until

HOSTS = ["x", "y", "z"]


def run(members: SimulatedMembers, story: Coroutine[Any, Any, None]) -> None:
    async def to_the_end() -> None:
        try:
            await story
        finally:
            members.stop()

    asyncio.run(to_the_end())


def test_each_file_is_on_another_member_and_the_manifest_on_all(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        for name, file in (("a", 0), ("b", 1), ("c", 2)):
            after = members.members["bca"["abc".index(name)]]
            assert f"1-7-{file}.chunk" in members.members[name].files & after.files
        assert [member.lineage().newest() for member in members.living] == [1, 1, 1]

    run(members, story())


def test_a_large_file_comes_in_pieces(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS[:2])
    asked = []

    def count(sender: str, receiver: str, message: object) -> object:
        if isinstance(message, AskFile) and message.file.endswith(".chunk"):
            asked.append(message.offset)
        return message

    async def story() -> None:
        members.tamper = count
        piece = members.members["a"].write("1-9-0.chunk", "x" * 4_000_000)
        manifest, _ = members.snapshot(1, ["b"], piece)
        await members.coordinator.lineage().copy(manifest, {"1-9-0.chunk": ["a"]}, None, prepared=True, least_s=60.0)
        assert len(asked) == 4
        theirs = tmp_path / "b" / LINEAGE / "1-9-0.chunk"
        assert theirs.read_bytes() == (tmp_path / "a" / LINEAGE / "1-9-0.chunk").read_bytes()

    run(members, story())


def test_members_of_one_host_share_a_file(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, ["x", "x"])

    async def story() -> None:
        await members.take(1, ["a", "b"])
        assert (tmp_path / "a" / LINEAGE / "1-7-0.chunk").samefile(tmp_path / "b" / LINEAGE / "1-7-0.chunk")

    run(members, story())


def test_a_damaged_copy_is_refused_and_nothing_counts(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    def spoil(sender: str, receiver: str, message: object) -> object:
        if isinstance(message, FilePiece) and b"shmjetSC" in message.data:
            return msgspec.structs.replace(message, data=message.data[:-1] + b"?")
        return message

    async def story() -> None:
        members.tamper = spoil
        with pytest.raises(OSError, match=r"1-7-0\.chunk.*damaged"):
            await members.take(1, ["a"])
        assert members.coordinator.lineage().newest() == -1

    run(members, story())


def test_another_holder_is_asked_when_one_gives_a_damaged_file(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a"])
        (tmp_path / "a" / LINEAGE / "1-7-0.chunk").write_bytes(b"shmjetSC and nothing right")
        lacks = await members.coordinator.lineage().find()
        assert lacks["c"] == {"1-7-0.chunk": ["a", "b"]}
        await members.members["c"].keeper.restore(LINEAGE, 1, "a", lacks["c"])
        assert "1-7-0.chunk" in members.members["c"].files

    run(members, story())


def test_a_member_without_room_fails_the_snapshot_by_name(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        (tmp_path / "b" / LINEAGE / ".2.manifest").mkdir()  # nothing can be written there
        with pytest.raises(OSError, match="member y:1: "):
            await members.take(2, ["a", "b", "c"])
        assert members.coordinator.lineage().newest() == 1

    run(members, story())


@pytest.mark.parametrize("kind", [KeepSnapshot, AskFile, FilePiece, SnapshotKept])
@pytest.mark.parametrize("lost", ["b", "c"])
def test_a_member_that_is_lost_at_any_message_fails_the_copies(tmp_path: Path, kind: type, lost: str) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    def lose(sender: str, receiver: str, message: object) -> object:
        if isinstance(message, kind) and lost in (sender, receiver) and not members.members[lost].is_lost:
            members.lose(lost)
            return None
        return message

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        members.tamper = lose
        with pytest.raises(OSError, match="gone"):
            await members.take(2, ["a", "b", "c"])
        members.tamper = lambda sender, receiver, message: message
        lineage = members.coordinator.lineage()
        lacks = await lineage.find()
        for member in members.living:
            await member.keeper.restore(LINEAGE, lineage.newest(), "a", lacks[member.name])
        await members.take(3, [member.name for member in members.living])
        assert all(member.lineage().newest() == 3 for member in members.living)

    run(members, story())


def test_a_participant_forgets_what_is_newer_than_what_it_restores(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        manifest, holders = members.snapshot(2, ["a", "b", "c"])
        await members.coordinator.lineage().copy(manifest, holders, None, prepared=True, least_s=60.0)
        second = members.members["b"]
        assert second.lineage().newest() == 2
        await second.keeper.restore(LINEAGE, 1, "a", {})
        assert second.lineage().newest() == 1

    run(members, story())


@pytest.mark.parametrize("goes_on", [True, False])
def test_of_what_a_member_has_had_in_another_cluster_only_chunk_files_count(tmp_path: Path, *, goes_on: bool) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        second = members.members["b"]
        await second.keeper.restore(LINEAGE, 1, "a", {})
        before = set(second.store.names(LINEAGE))
        second.keeper.forget_all()
        assert second.lineage().newest() == -1
        assert set(second.store.names(LINEAGE)) == before - {"1.manifest"}
        second.keeper.remove_left_over([LINEAGE] if goes_on else [])
        assert (tmp_path / "b" / LINEAGE).exists() is goes_on
        files = await members.coordinator.lineage().find()
        await second.keeper.restore(LINEAGE, 1, "a", files["b"])
        assert second.lineage().newest() == 1
        assert set(second.store.names(LINEAGE)) >= before

    run(members, story())


def test_what_a_participant_is_still_told_to_keep_does_not_count_when_it_restores_an_older_one(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        held_back = asyncio.Event()

        def hold(sender: str, receiver: str, message: object) -> object:
            if isinstance(message, FilePiece) and receiver == "b" and message.data.startswith(b"shmjetSC"):
                held_back.set()
                return None
            return message

        members.tamper = hold
        manifest, holders = members.snapshot(2, ["a", "b", "c"])
        copies = asyncio.ensure_future(
            members.coordinator.lineage().copy(manifest, holders, None, prepared=True, least_s=60.0)
        )
        await held_back.wait()
        copies.cancel()
        members.tamper = lambda sender, receiver, message: message
        await members.members["b"].keeper.restore(LINEAGE, 1, "a", {})
        assert members.members["b"].lineage().newest() == 1
        assert not [name for name in (tmp_path / "b" / LINEAGE).iterdir() if name.name.startswith(".fetching")]

    run(members, story())


def test_what_a_member_was_still_told_to_keep_when_it_was_removed_never_counts(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        second = members.members["b"]
        held_back: list[FilePiece] = []
        is_held = asyncio.Event()

        def hold(sender: str, receiver: str, message: object) -> object:
            if isinstance(message, FilePiece) and receiver == "b":
                held_back.append(message)
                is_held.set()
                return None
            return message

        members.tamper = hold
        manifest, holders = members.snapshot(2, ["a", "b", "c"])
        copies = asyncio.ensure_future(
            members.coordinator.lineage().copy(manifest, holders, None, prepared=True, least_s=60.0)
        )
        await is_held.wait()
        second.keeper.forget_all()
        members.tamper = lambda sender, receiver, message: message
        for piece in held_back:
            members.deliver("a", "b", piece)
        copies.cancel()
        await asyncio.gather(copies, return_exceptions=True)
        await members.take(3, ["a", "c"])  # what is ordered now comes after what was ordered then
        assert "2.manifest" not in second.files

    run(members, story())


def test_a_snapshot_that_no_living_member_has_is_distrusted_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = SimulatedMembers(tmp_path, [*HOSTS, "w"])

    async def story() -> None:
        await members.take(1, ["a", "b"])
        await members.take(2, ["a", "c"])
        members.lose("c")
        members.lose("d")
        lineage = members.coordinator.lineage()
        with caplog.at_level(logging.ERROR, "shmjet.member"):
            lacks = await lineage.find()
        assert lineage.newest() == 1
        assert "snapshot 2 cannot be used: no member has its chunk file 2-7-1.chunk" in caplog.text
        await members.members["b"].keeper.restore(LINEAGE, 1, "a", lacks["b"])
        (tmp_path / "b" / LINEAGE / "1-7-1.chunk").unlink()
        assert members.coordinator.name == "a"
        await lineage.find()
        assert lineage.has_lost_all == ("1-7-1.chunk" not in members.members["a"].files)

    run(members, story())


def test_an_attempt_waits_for_the_manifest_that_the_one_before_is_still_writing(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS[:1])

    async def story() -> None:
        lineage, disk = members.coordinator.lineage(), asyncio.Event()
        manifest, _ = members.snapshot(1, ["a"])

        async def write() -> None:
            await disk.wait()
            lineage.write(manifest, None, prepared=True)

        lineage.writes(write())
        finding = asyncio.ensure_future(lineage.find())
        await asyncio.sleep(0)
        assert lineage.is_writing
        assert not finding.done()
        disk.set()
        await finding
        assert lineage.newest() == 1

    run(members, story())


def test_files_on_other_members_are_no_damage_when_a_member_is_started_again(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        lineage = members.coordinator.lineage()
        lineage.check()
        assert lineage.newest() == 1
        assert lineage.absent() == ["1-7-1.chunk"]
        (tmp_path / "a" / LINEAGE / "1-7-0.chunk").write_bytes(b"torn")
        lineage.check()
        assert lineage.newest() == -1
        assert lineage.absent() == []

    run(members, story())


def test_a_member_that_stands_still_is_waited_for_until_it_is_gone(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        members.members["b"].is_silent = True
        copies = asyncio.ensure_future(members.take(1, ["a", "b", "c"]))
        await asyncio.sleep(0)
        assert not copies.done()
        members.members["b"].go_on()
        await copies
        members.members["b"].is_silent = True
        copies = asyncio.ensure_future(members.take(2, ["a", "b", "c"]))
        await asyncio.sleep(0)
        members.lose("b")
        with pytest.raises(OSError, match="gone"):
            await copies

    run(members, story())


def test_copies_that_take_too_long_fail(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        members.members["b"].is_silent = True
        manifest, holders = members.snapshot(1, ["a"])
        with pytest.raises(TimeoutError, match="not copied within"):
            await members.coordinator.lineage().copy(manifest, holders, None, prepared=True, least_s=0.0)

    run(members, story())


def test_exported_snapshots_are_on_all_members_and_begin_a_job_on_any(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        for number in (1, 2):
            await members.take(number, ["a", "b", "c"])
            assert await members.coordinator.lineage().export("x", 60.0)
        for member in members.living:
            exported = member.store.find("x")
            assert exported is not None
            assert exported.manifest.snapshot_id == 2
            while len(list(exported.path.parent.parent.iterdir())) > 1:  # the older one goes
                await asyncio.sleep(0)
        for member in members.living:
            member.store.lineage(LINEAGE).remove()
        members.lose("a")
        lineage = members.coordinator.lineage()
        exported = members.coordinator.store.find("x")
        assert exported is not None
        lineage.begin_from(exported)
        lacks = await lineage.find()
        assert lineage.newest() == 0
        for member in members.living:
            await member.keeper.restore(LINEAGE, 0, "b", lacks[member.name])
            files = read_manifest(member.lineage().restored_from()).files()
            assert files <= member.files

    run(members, story())


def test_an_exported_snapshot_is_whole_while_any_member_has_each_of_its_files_and_tells_its_request(
    tmp_path: Path,
) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        assert await members.coordinator.lineage().export("x", 60.0, "token")
        members.lose("a")
        found = members.coordinator.store.find("x")
        assert found is not None
        assert found.manifest.token == "token"
        assert await members.coordinator.keeper.copies.is_whole(found)
        for member in members.living[1:]:
            member.store.destroy("x")
        assert not await members.coordinator.keeper.copies.is_whole(found)

    run(members, story())


def test_an_export_that_fails_leaves_the_one_before_on_all_members(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        await members.coordinator.lineage().export("x", 60.0)
        await members.take(2, ["a", "b", "c"])
        full = members.members["c"]
        for version in list((tmp_path / "c" / "exported" / "x").iterdir()):
            shutil.move(version, tmp_path / "aside")
        (tmp_path / "c" / "exported" / "x").rmdir()
        (tmp_path / "c" / "exported" / "x").touch()  # no folder can be made there
        with pytest.raises(OSError, match=full.me.address):
            await members.coordinator.lineage().export("x", 60.0)
        second = members.members["b"].store

        def has_the_first_alone() -> bool:
            found = second.find("x")
            assert found is not None
            return found.manifest.snapshot_id == 1 and len(list((second.root / "exported" / "x").iterdir())) == 1

        await until(has_the_first_alone)  # the failed one may still come, and goes
        assert [member.lineage().newest() for member in members.living] == [2, 2, 2]

    run(members, story())


def test_after_a_loss_exported_snapshots_get_new_copies(tmp_path: Path) -> None:
    members = SimulatedMembers(tmp_path, HOSTS)

    async def story() -> None:
        await members.take(1, ["a", "b", "c"])
        await members.coordinator.lineage().export("x", 60.0)
        members.lose("c")
        newcomer = members.add("v")
        manifest = members.coordinator.store.find("x")
        assert manifest is not None
        folder = members.coordinator.store.folder_of(manifest.path)
        members.coordinator.keeper.copies.look(lambda: [LINEAGE])
        await members.coordinator.keeper.copies.looked()
        for where in (folder, LINEAGE):
            names = [set(member.store.names(where)) for member in members.living]
            for file in manifest.manifest.files():
                assert sum(file in theirs for theirs in names) >= 2
        assert newcomer.store.find("x") is not None
        assert newcomer.lineage().newest() == 1

    run(members, story())


class LosesAt:
    """Loses a member when so many messages have been sent."""

    def __init__(self, members: SimulatedMembers, doomed: str | None, left: int) -> None:
        self.members, self.doomed, self.left = members, doomed, left

    def __call__(self, sender: str, receiver: str, message: object) -> object:
        self.left -= 1
        if self.left == 0 and self.doomed is not None:
            self.members.lose(self.doomed)
        return message


@pytest.mark.parametrize("seed", range(12))
def test_no_story_of_single_losses_loses_a_snapshot(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    members = SimulatedMembers(tmp_path, [rng.choice("xyz") for _ in range(4)])

    async def story() -> None:
        valid = -1
        for number in range(1, 13):
            names = [member.name for member in members.living]
            step = rng.choice(["take", "take", "lose", "join"])
            if step == "take":
                doomed = rng.choice(names[1:]) if len(names) > 2 and rng.random() < 0.4 else None
                left = rng.randrange(1, 9)

                members.tamper = LosesAt(members, doomed, left)
                try:
                    await members.take(number, rng.choices(names, k=3))
                    valid = number
                except OSError:
                    pass
                members.tamper = lambda sender, receiver, message: message
            elif step == "lose" and len(names) > 2:
                members.lose(rng.choice(names))
            elif step == "join":
                members.add(rng.choice("xyz"))
            lineage = members.coordinator.lineage()
            lacks = await lineage.find()
            newest = lineage.newest()
            assert newest >= valid, "a valid snapshot is lost"
            valid = max(valid, newest)
            for member in members.living:
                await member.keeper.restore(LINEAGE, newest, members.coordinator.name, lacks.get(member.name, {}))
                if newest > 0:
                    assert read_manifest(member.lineage().restored_from()).files() <= member.files

    run(members, story())
