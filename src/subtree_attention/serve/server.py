"""The endpoint: who is answered, by whom, and how it ends.

An answer is computed by one of a few threads, as many as there are cores: kernels let go of
Python's lock, so that others are answered meanwhile. Who comes while too many wait is told so.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from ..io import FileError
from ..runs.answering import Answering, UnknownNode
from ..show.pages import serving
from ..show.pages.connections import HEAD_BYTES, Connection
from . import told
from .asked import MOST_BYTES, Asked, Refused, parse

OPENAPI = Path(__file__).with_name("openapi.json")
MOST_WAITING = 256
"""Requests that wait for an answer; more are told to come again."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
WORDS = {
    404: "there is no such address: see /openapi.json",
    405: "this address is not asked like that: see /openapi.json",
}


class Guard(serving.Guard):
    """Refuses what a page of another site asks.

    On this machine only, a foreign Host is a name that was bent to it. There are no CORS headers,
    and no preflight is answered: browsers let no other site read an answer.

    Args:
        app: what is guarded.
        host: the address that it listens on.
        port: likewise.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        super().__init__(app, HEADERS)
        names = (serving.ADDRESS, "localhost", "[::1]")
        hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())
        self._hosts = hosts if is_local(host) else None

    def refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or (self._hosts is not None and hosts[0].lower() not in self._hosts):
            return _error(421, "no such host")
        if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
            return _error(403, "not for other origins")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _error(403, "not for other sites")
        return None


class Desk:
    """Where requests wait for one of the threads that answer."""

    def __init__(self, answering: Answering, threads: int | None = None) -> None:
        self.answering = answering
        self._pool = ThreadPoolExecutor(threads or torch.get_num_threads(), "subtree-answers")
        self._waiting = 0

    async def predict(self, request: Request) -> Response:
        """An answer to what the body of a request asks."""
        body = await _body(request)
        if self._waiting >= MOST_WAITING:
            raise Refused(503, f"{MOST_WAITING} requests wait already: ask again in a moment")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._pool, self._answer, body)
        finally:
            self._waiting -= 1
        return Response(answer, media_type="application/json")

    def _answer(self, body: bytes) -> bytes:
        """In a thread: all that takes long."""
        return serving.json_bytes({"predictions": told.predictions(self._said(parse(body)))})

    def _said(self, asked: Asked) -> Any:
        try:
            if asked.ids is not None:
                return self.answering.nodes(asked.ids)
            return self.answering.new(asked.nodes, asked.edges)
        except UnknownNode as error:
            raise Refused(404, str(error)) from None
        except FileError:
            raise  # the run is broken, which is no mistake of the client's
        except (ValueError, TypeError, OverflowError) as error:
            raise Refused(422, " ".join(str(error).split())) from None

    def close(self) -> None:
        """Let those who are at work end, and take nobody more."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def create_app(desk: Desk, host: str, port: int) -> ASGIApp:
    """The endpoint, for a server at this address."""
    about = serving.json_bytes(told.model(desk.answering))

    def health(request: Request) -> Response:
        return serving.json_response({"status": "ok"})

    def model(request: Request) -> Response:
        return Response(about, media_type="application/json")

    routes = [
        Route("/health", health, methods=["GET"]),
        Route("/model", model, methods=["GET"]),
        Route("/predict", _in_words(desk.predict), methods=["POST"]),
        Route("/openapi.json", lambda request: FileResponse(OPENAPI), methods=["GET"]),
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, host, port)


def _in_words(
    respond: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await respond(request)
        except Refused as refused:
            return _error(refused.status, str(refused))
        except ClientDisconnect:
            return _error(400, "the request was cut off")

    return endpoint


async def _body(request: Request) -> bytes:
    """The whole body, if it is JSON and not too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be JSON: Content-Type: application/json")
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said[:20]) > MOST_BYTES:
        raise Refused(413, f"a body has at most {MOST_BYTES:,} bytes: ask in parts")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise Refused(413, f"a body has at most {MOST_BYTES:,} bytes: ask in parts")
    return bytes(body)


def _error(status: int, words: str) -> Response:
    return serving.json_response({"error": words}, status)


def _http_error(request: Request, error: HTTPException) -> Response:
    answer = _error(error.status_code, WORDS.get(error.status_code, str(error.detail)))
    answer.headers.update(error.headers or {})
    return answer


def _fault(request: Request, error: Exception) -> Response:
    """Nothing of the program is shown."""
    return _error(500, "something went wrong here; the request may be right")


# ------------------------------------------------------------------------------------- running it


class BodyConnection(Connection):
    """A connection whose requests have bodies: their heads are bounded, and the clock runs until
    the body is there."""

    def _too_large(self, data: bytes) -> bool:
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            return False  # `_body` counts it
        end = data.find(b"\r\n\r\n")
        return (len(data) if end < 0 else end) > HEAD_BYTES

    @property
    def _answering(self) -> bool:
        return super()._answering and not self.cycle.more_body


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def server(desk: Desk, listening: socket.socket) -> uvicorn.Server:
    """A server; `run(sockets=[listening])` serves until Ctrl-C or `should_exit`."""
    app = create_app(desk, *listening.getsockname()[:2])
    # A fault of ours is answered, and nothing of a request is printed.
    return serving.server(app, BodyConnection, log_level="critical")


def serve(answering: Answering, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    desk = Desk(answering)
    try:
        serving.serve(server(desk, listening), listening)
    finally:
        desk.close()
