"""The console's web application: the page, its events, `/metrics`, and what the buttons ask for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from shmjet.cluster.lifecycle_messages import RestartExecution, ResumeExecution, SuspendExecution
from shmjet.console.access import Access
from shmjet.console.exposition import CONTENT_TYPE, exposition
from shmjet.console.guard import Guard
from shmjet.console.membership import SteeringRequest
from shmjet.console.watcher import Watch
from shmjet.core import JobNotFoundError, MemberLostError, ShmjetError

STATIC = Path(__file__).parent / "static"
MOST_STREAMS = 50
"""Pages that may be open at once."""

STEERING: dict[str, type[SteeringRequest]] = {
    "suspend": SuspendExecution,
    "resume": ResumeExecution,
    "restart": RestartExecution,
}
"""What a page may ask of a job, apart from its end."""

_ENCODER = msgspec.json.Encoder()


def make_app(watch: Watch, access: Access) -> ASGIApp:
    """Return the application.

    Args:
        watch: runs while the application does.
        access: who may do what.
    """
    pages = _Pages(watch)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        running = asyncio.ensure_future(watch.run())
        try:
            yield
        finally:
            watch.stop()
            await running

    application = Starlette(
        routes=[
            Route("/", pages.index),
            Route("/metrics", pages.metrics),
            Route("/api/state", pages.state),
            Route("/api/events", pages.events),
            Route("/api/token", pages.token, methods=["POST"]),
            Route("/api/jobs/{job_id}/{verb}", pages.change, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
    )
    return Guard(application, access)


class _Pages:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._streams = 0

    async def index(self, _request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def state(self, request: Request) -> Response:
        snapshot = await self._watch.snapshot(request.query_params.get("job"))
        return Response(_ENCODER.encode(snapshot), media_type="application/json")

    async def events(self, request: Request) -> Response:
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages of this console are open\n", 503)
        return StreamingResponse(self._stream(request.query_params.get("job")), media_type="text/event-stream")

    async def _stream(self, job_id: str | None) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            while not self._watch.stopped:
                yield b"data: " + _ENCODER.encode(await self._watch.snapshot(job_id)) + b"\n\n"
                await self._watch.next_look()
        finally:
            self._streams -= 1

    async def metrics(self, _request: Request) -> Response:
        members = [member for member in self._watch.members if not member.ended]
        readings = zip(members, await asyncio.gather(*(member.readings() for member in members)), strict=True)
        return Response(exposition(readings), headers={"content-type": CONTENT_TYPE})

    async def token(self, _request: Request) -> Response:
        """The guard let it pass, so the token is right."""
        return Response(status_code=204)

    async def change(self, request: Request) -> Response:
        job_id, verb = request.path_params["job_id"], request.path_params["verb"]
        try:
            if verb == "cancel":
                asked = await self._watch.cancel(job_id)
            elif verb in STEERING:
                asked = await self._watch.steer(job_id, STEERING[verb])
            else:
                return PlainTextResponse(f"a job cannot be asked to {verb}\n", 404)
        except JobNotFoundError as error:
            return PlainTextResponse(f"{error}\n", 404)
        except MemberLostError as error:
            return PlainTextResponse(f"{error}\n", 503)
        except ShmjetError as error:
            return PlainTextResponse(f"{error}\n", 409)
        if not asked:
            return PlainTextResponse("the job has ended already\n", 409)
        return JSONResponse({"asked": verb, "job": job_id}, 202)
