"""Where the console finds members: in this user's folders on this host, or in a cluster over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from shmjet.cluster.afar import FarCluster, FarMember
from shmjet.cluster.attach import AttachedMember
from shmjet.cluster.protocol import MemberSurvey
from shmjet.cluster.seen import SeenMember

Found = dict[str, Callable[[], SeenMember]]
"""By a key that names a member for good: what connects to it. It may raise MemberLostError."""


def here(folders: Iterable[Path]) -> Found:
    """Return the members of this host that have these folders."""
    return {str(folder): partial(AttachedMember, folder) for folder in folders}


def afar(cluster: FarCluster) -> Found:
    """Return the members of a cluster.

    Raises:
        MemberLostError: no member can be reached.
    """

    def connect(survey: MemberSurvey) -> SeenMember:
        return FarMember(cluster, survey)

    return {survey.uuid: partial(connect, survey) for survey in cluster.survey().members}
