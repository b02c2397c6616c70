"""A TCP proxy that makes a network of loopback: latency, jitter, and bytes cut anywhere.

Within a connection TCP keeps the order, and so does this; what goes over several connections (of members and clients,
there and back) overtakes each other, as each piece has a delay of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from types import TracebackType

_PIECE = 1 << 16


class Proxy:
    """Passes on what comes to `address`, both ways, for as long as the `with` block lasts.

    Args:
        target: "host:port".
        latency: seconds that each piece takes.
        jitter: seconds at most that it takes longer.
        cut: bytes at most that are passed on at once are drawn from 1 to this; 0: as they come.
        seed: decides delays and cuts.
    """

    def __init__(self, target: str, latency: float, jitter: float = 0.0, cut: int = 0, seed: int = 0) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._latency, self._jitter, self._cut = latency, jitter, cut
        self._random = random.Random(seed)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self.address = ""
        self.connections = 0
        self.bytes = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()  # connections that are open end with their tasks

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, back))
                tasks.create_task(self._pass_on(there, writer))
        except* OSError:
            pass
        finally:
            writer.close()
            back.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read ahead, and hand over each piece when its time has come."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def hand_over() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(due - loop.time())
                at = 0
                while at < len(data):
                    size = self._random.randint(1, self._cut) if self._cut else len(data)
                    writer.write(data[at : at + size])
                    at += size
                await writer.drain()
                if not data:
                    with contextlib.suppress(OSError):
                        writer.write_eof()
                    return

        task = asyncio.create_task(hand_over())
        try:
            while data := await reader.read(_PIECE):
                self.bytes += len(data)
                await waiting.put((self._due(loop.time()), data))
            await waiting.put((self._due(loop.time()), b""))
            await task
        finally:
            task.cancel()

    def _due(self, now: float) -> float:
        return now + self._latency + self._jitter * self._random.random()
