"""The runs with which a cluster goes on that has been away as a whole: those on the disk of its last coordinator.

Each coordinator has the records of all its runs on its own disk (`run_records`), and others may have old ones. So the
coordinator of the cluster that begins asks the member that coordinated last (`PartitionTable.led_by`), and
restores these runs alone.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.jobs.run_records import RunRecord, RunRecords
from shmjet.cluster.membership.run_messages import AskStoredRuns, StoredRunsAre
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.data.errors import ShmjetError

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[RunRecord]).decode

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

    async def find(self) -> list[RunRecord]:
        """Return the records of the runs that go on, for the coordinator. No partition is waited for any more.

        Raises:
            ShmjetError: the member that has them is not there, or this one has nowhere to keep them.
        """
        if self._records is None:
            raise ShmjetError("the member that coordinates has no storage")
        table, me = self._network.table, self._network.me.uuid
        led_by = "" if table is None else table.led_by
        if led_by == me:
            return self._records.all()
        if not led_by:
            raise ShmjetError("the member that coordinated them last is not there")
        try:
            answer: StoredRunsAre = await self._questions.ask(led_by, AskStoredRuns)
            return _decode(answer.records)
        except (OSError, msgspec.MsgspecError) as error:
            raise ShmjetError(f"the member that coordinated them last cannot be asked: {error}") from error

    def receive(self, sender: str, message: Any) -> None:
        """Take a question of the coordinator, or its answer."""
        if isinstance(message, StoredRunsAre):
            self._questions.answered(sender, message)
        else:
            found = [] if self._records is None else self._records.all()
            self._network.send(sender, StoredRunsAre(message.number, _encode(found)))

    def member_gone(self, member: str, why: str) -> None:
        """Take that a member is lost."""
        self._questions.lost(member, why)
