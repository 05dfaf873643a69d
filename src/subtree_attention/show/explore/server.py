"""The page over HTTP, for this machine only.

Ids and features are the user's own, and any site that is open in the same browser could ask a
local server for them. So only the page itself is answered: see `Guard`; and nobody can keep it
waiting: see `connections`.
"""

from __future__ import annotations

import json
import mimetypes
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connections import HEAD_BYTES, Connection
from .views import UnknownNode, Views

ADDRESS = "127.0.0.1"
STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
for suffix in (".js", ".mjs"):  # some systems call these plain text, and browsers then refuse them
    mimetypes.add_type("text/javascript", suffix)


class Guard:
    """Refuses what is not asked by the page itself, and sets the headers of every answer.

    A foreign Host is a name that was bent to this machine; a foreign Origin, or fetch metadata
    that say so, is another site. A link to the page may come from anywhere.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        names = (ADDRESS, "localhost")
        self._app = app
        self._hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET", 405, {"Allow": "GET, HEAD"})
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return PlainTextResponse("no such host", 421)
        origins = {f"http://{host}" for host in self._hosts}
        if not origins.issuperset(headers.getlist("origin")):
            return PlainTextResponse("not for other origins", 403)
        site = headers.get("sec-fetch-site", "none")
        followed = scope["path"] == "/" and headers.get("sec-fetch-dest") == "document"
        if site not in ("same-origin", "none") and not followed:
            return PlainTextResponse("not for other sites", 403)
        return None


def create_app(views: Views, port: int) -> ASGIApp:
    """The page and what it asks, for a server on this port."""

    def node(query: dict[str, str]) -> Any:
        numbers: dict[str, Any] = {}
        if "hops" in query:
            numbers["hops"] = _integer("hops", query["hops"])
        if query.get("head", "all") != "all":
            numbers["head"] = _integer("head", query["head"])
        by = query.get("by", "attention")
        return views.node(query.get("id", ""), by=by, cls=query.get("class"), **numbers)

    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Route("/api/graph", _answer(lambda query: views.graph())),
        Route("/api/search", _answer(lambda query: views.search(query.get("text", "")))),
        Route("/api/list", _answer(lambda query: views.listed(query.get("what", "")))),
        Route("/api/node", _answer(node)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Starlette(routes=routes), port)  # outermost: around what fails too


def _answer(ask: Callable[[dict[str, str]], Any]) -> Callable[[Request], Response]:
    """JSON from the parameters of a request; a mistake in them is told."""

    def respond(request: Request) -> Response:
        try:
            content, status = ask(dict(request.query_params)), 200
        except ValueError as error:
            content = {"error": str(error)}
            status = 404 if isinstance(error, UnknownNode) else 400
        # Only ASCII, so that any id can be sent, even half of a surrogate pair.
        return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")

    return respond


def _integer(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{name} must be a whole number, got '{text}'")
    return int(text)


# ------------------------------------------------------------------------------------- running it


def listen(port: int) -> socket.socket:
    """Take a port of this machine, 0 for any that is free."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        raise ValueError(
            f"port {port} cannot be had ({error.strerror or error}): choose another by --port, "
            "or any free one by --port 0"
        ) from None


def address(listening: socket.socket) -> str:
    """Where the page is."""
    return f"http://{ADDRESS}:{listening.getsockname()[1]}/"


def server(views: Views, listening: socket.socket) -> uvicorn.Server:
    """A server; `run(sockets=[listening])` serves until Ctrl-C or `should_exit`."""
    app = create_app(views, listening.getsockname()[1])
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        http=Connection,
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_level="error",  # not whenever somebody sends no HTTP
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(views: Views, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        server(views, listening).run(sockets=[listening])
