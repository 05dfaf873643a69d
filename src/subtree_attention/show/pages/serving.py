"""A page over HTTP, for this machine only.

What is shown is the user's own, and any site that is open in the same browser could ask a local
server for it. So only the page itself is answered: see `PageGuard`; and nobody can keep it waiting:
see `connections`.
"""

from __future__ import annotations

import json
import mimetypes
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connections import HEAD_BYTES, Connection

ADDRESS = "127.0.0.1"
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
    """Answers in place of an app what it refuses, and sets the headers of every answer.

    Args:
        app: what is guarded.
        headers: of every answer.
    """

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app, self._headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refused = self.refusal(scope, Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    def refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """What a request is told that is not answered."""
        raise NotImplementedError


class PageGuard(Guard):
    """Refuses what is not asked by the page itself.

    A foreign Host is a name that was bent to this machine; a foreign Origin, or fetch metadata
    that say so, is another site. A link to the page may come from anywhere.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        super().__init__(app, HEADERS)
        names = (ADDRESS, "localhost")
        self._hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    def refusal(self, scope: Scope, headers: Headers) -> Response | None:
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


def json_bytes(content: Any) -> bytes:
    """Only ASCII, so that any id can be sent, even half of a surrogate pair."""
    return json.dumps(content, allow_nan=False).encode()


def json_response(content: Any, status: int = 200) -> Response:
    """An answer for a program."""
    return Response(json_bytes(content), status, media_type="application/json")


# ------------------------------------------------------------------------------------- running it


def listen(port: int, host: str = ADDRESS) -> socket.socket:
    """Take a port of an address, by default of this machine's; 0 for any that is free."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        of, hint = "", ""
        if host != ADDRESS:
            of, hint = f" of {host}", "; --host must be an address of this machine"
        raise ValueError(
            f"port {port}{of} cannot be had ({getattr(error, 'strerror', '') or error}): choose "
            f"another by --port, or any free one by --port 0{hint}"
        ) from None


def address(listening: socket.socket) -> str:
    """Where it is asked, without a path."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def server(
    app: ASGIApp, http: type[Connection] = Connection, log_level: str = "error"
) -> uvicorn.Server:
    """A server; `run(sockets=[listening])` serves until Ctrl-C or `should_exit`.

    It does not say so whenever somebody sends no HTTP.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        http=http,
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(running: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        running.run(sockets=[listening])


@contextmanager
def serving(running: uvicorn.Server, listening: socket.socket) -> Iterator[None]:
    """Serve in a thread, as long as something else goes on here."""
    thread = Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join(timeout=5)  # one that still answers ends with the process


def open_browser(page: str) -> None:
    """Show a page. Some browsers return only when they are closed, so nobody waits for one."""
    import webbrowser

    Thread(target=webbrowser.open, args=[page], daemon=True).start()
