"""What a link does periodically: heartbeats to all peers, and how far they may send.

A link speaks for its member: when that has not said for a while that it is alive, no heartbeat leaves. Times are
nanoseconds, monotonic, and the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shmjet.net.messages import Heard
from shmjet.net.peer import Peer


class Periods:
    """The heartbeats and the flow control of one link.

    Args:
        flow_ns: the flow-control period.
    """

    def __init__(self, flow_ns: int) -> None:
        self._flow_ns = flow_ns
        self._beat_ns = 0
        self._patience_ns = 0
        self._alive_ns = 0
        self._next_beat_ns = 0
        self._next_flow_ns = 0

    def set_heartbeat(self, beat_ns: int, patience_ns: int, now_ns: int) -> None:
        """Begin to send heartbeats, now and every `beat_ns`, as long as the member is heard of every `patience_ns`."""
        self._beat_ns, self._patience_ns = beat_ns, patience_ns
        self._alive_ns = self._next_beat_ns = now_ns

    def alive(self, now_ns: int) -> None:
        """Note that the member is alive."""
        self._alive_ns = now_ns

    def begin_flow(self, now_ns: int) -> None:
        """Let a flow-control period begin now."""
        self._next_flow_ns = now_ns + self._flow_ns

    def next_ns(self, peers: Collection[Peer]) -> list[int]:
        """Return when something is due next."""
        times = []
        if self._beat_ns:
            times.append(self._next_beat_ns)
        if any(peer.incoming for peer in peers):
            times.append(self._next_flow_ns)
        return times

    def tick(self, now_ns: int, peers: Collection[Peer]) -> Iterator[Heard]:
        """Queue what is due; yields what the member has to know: when its peers were heard of."""
        if self._beat_ns and now_ns >= self._next_beat_ns:
            self._next_beat_ns = now_ns + self._beat_ns
            speaks = now_ns - self._alive_ns <= self._patience_ns
            for peer in peers:
                if speaks:
                    peer.send_heartbeat()
                if peer.heard_ns > peer.reported_ns:
                    peer.reported_ns = peer.heard_ns
                    yield Heard(peer.uuid, peer.heard_ns)
        if now_ns >= self._next_flow_ns:
            self.begin_flow(now_ns)
            for peer in peers:
                entries = [entry for lanes in peer.incoming.values() for entry in lanes.limits(now_ns)]
                if entries:
                    peer.send_limits(entries)
