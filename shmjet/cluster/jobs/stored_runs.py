"""The runs with which a cluster goes on that has been away as a whole: those on the disk of its last coordinator.

Each coordinator has the records of all its runs on its own disk (`run_records`), and others may have old ones. So the
records of the member that coordinated last (`PartitionTable.led_by`) count alone. All members get them from there
before partitions are open: then the next coordinator has them, too, if the first one is lost before it has restored
the runs.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

import msgspec

from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.jobs.run_records import RunRecord, RunRecords
from shmjet.cluster.membership.run_messages import AskStoredRuns, StoredRunsAre
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.data.decoders import from_msgpack
from shmjet.data.errors import ShmjetError

_encode = msgspec.msgpack.Encoder().encode

logger = logging.getLogger("shmjet.member")

StoredRunsMessage: Final = (AskStoredRuns, StoredRunsAre)


class NetworkOfStoredRuns(SnapshotNetwork, Protocol):
    """The network of a member, as far as stored runs are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...


class StoredRuns:
    """See the module.

    Args:
        network: leads to the others.
        records: of this member; None: it has no storage.
    """

    def __init__(self, network: NetworkOfStoredRuns, records: RunRecords | None) -> None:
        self._network = network
        self._records = records
        self._questions = Questions(network)
        self._asked = ""
        """The member that is being asked."""
        self._found: tuple[str, list[RunRecord]] = "", []
        """The member that coordinated last, and the records that it has."""

    async def get(self, led_by: str) -> bool:
        """Get the records that a member has, which may be this one; say whether they are here now.

        Args:
            led_by: the member.
        """
        if self._asked == led_by:
            return False
        self._asked = led_by
        try:
            self._found = led_by, await self._ask(led_by)
        except ShmjetError as error:
            logger.warning("%s", error)
            return False
        finally:
            self._asked = ""
        return True

    async def _ask(self, led_by: str) -> list[RunRecord]:
        if led_by == self._network.me.uuid:
            return self._all()
        try:
            answer: StoredRunsAre = await self._questions.ask(led_by, AskStoredRuns)
            return from_msgpack(answer.records, list[RunRecord])
        except (OSError, msgspec.MsgspecError) as error:
            raise ShmjetError(f"the member that coordinated them last cannot be asked: {error}") from error

    def _all(self) -> list[RunRecord]:
        return [] if self._records is None else self._records.all()

    async def find(self) -> list[RunRecord]:
        """Return the records of the runs that go on, for the coordinator. No partition is waited for any more.

        Raises:
            ShmjetError: the member that has them is not there, or this one has nowhere to keep them.
        """
        if self._records is None:
            raise ShmjetError("the member that coordinates has no storage")
        table = self._network.table
        led_by = "" if table is None else table.led_by
        if not led_by:
            raise ShmjetError("the member that coordinated them last is not there")
        return self._found[1] if self._found[0] == led_by else await self._ask(led_by)

    def forget(self) -> None:
        """Forget the records: the runs go on, or this member is out of its cluster."""
        self._found = "", []

    def receive(self, sender: str, message: Any) -> None:
        """Take a question of the coordinator, or its answer."""
        if isinstance(message, StoredRunsAre):
            self._questions.answered(sender, message)
        else:
            self._network.send(sender, StoredRunsAre(message.number, _encode(self._all())))

    def member_gone(self, member: str, why: str) -> None:
        """Take that a member is lost."""
        self._questions.lost(member, why)
