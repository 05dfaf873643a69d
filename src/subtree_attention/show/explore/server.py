"""What the page asks over HTTP; who is answered is decided in `pages.serving`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ...explanations.explanation import GLOBAL
from ..pages import serving
from .choosing import ALL
from .views import UnknownNode, Views

STATIC = Path(__file__).parent / "static"


def create_app(views: Views, port: int) -> ASGIApp:
    """The page and what it asks, for a server on this port."""

    def svg(query: QueryParams) -> bytes:
        return views.svg(query.get("look", "light"), **_shown(query))

    def listed(query: QueryParams) -> Any:
        chosen = {name: query.getlist(name) for name in ("true", "predicted")}
        wrong = query.get("mistakes") == "only"
        return views.listed(
            query.get("what", ""), query.get("split", ALL), mistakes=wrong, **chosen
        )

    def briefs(query: QueryParams) -> Any:
        numbers = query.get("numbers", "").split(",")
        return views.briefs([_integer("numbers", number) for number in numbers])

    def positions(query: QueryParams) -> bytes:
        return views.map.positions(query.get("by", "pca")).astype("<f4").tobytes()

    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Route("/api/graph", _answer(lambda query: views.graph())),
        Route("/api/search", _answer(lambda query: views.search(query.get("text", "")))),
        Route("/api/list", _answer(listed)),
        Route(
            "/api/confusion",
            _answer(lambda query: views.choosing.confusion(query.get("split", ALL))),
        ),
        Route("/api/node", _answer(lambda query: views.node(**_shown(query)))),
        Route("/api/node.csv", _answer(lambda query: views.table(**_shown(query)), "text/csv")),
        Route("/api/node.svg", _answer(svg, "image/svg+xml")),
        Route("/api/columns", _answer(lambda query: views.columns(**_explained(query)))),
        Route("/api/picture", _answer(lambda q: views.picture(q.get("id", "")), "image/png")),
        Route("/api/map", _answer(lambda query: views.map.status())),
        Route("/api/map/points", _answer(lambda query: views.choosing.points())),
        Route("/api/map/positions", _answer(positions)),
        Route("/api/map/nodes", _answer(briefs)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return serving.PageGuard(Starlette(routes=routes), port)  # outermost: around what fails too


def _answer(
    ask: Callable[[QueryParams], Any], kind: str = "application/octet-stream"
) -> Callable[[Request], Response]:
    """JSON from the parameters of a request, or bytes of a kind; a mistake in them is told."""

    def respond(request: Request) -> Response:
        try:
            content, status = ask(request.query_params), 200
        except ValueError as error:
            content = {"error": str(error)}
            status = 404 if isinstance(error, UnknownNode) else 400
        if isinstance(content, bytes):
            return Response(content, media_type=kind)
        return serving.json_response(content, status)

    return respond


def _integer(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{name} must be a whole number, got '{text}'")
    return int(text)


def _shown(query: QueryParams) -> dict[str, Any]:
    """What `Views.node` is asked."""
    asked: dict[str, Any] = {"by": query.get("by", "attention"), **_explained(query)}
    if "hops" in query:
        asked["hops"] = _integer("hops", query["hops"])
    if query.get("head", "all") != "all":
        asked["head"] = _integer("head", query["head"])
    if "open" in query:
        asked["opened"] = _opened(query["open"])
    return asked


def _explained(query: QueryParams) -> dict[str, Any]:
    """Of which node and class, rather than which other, and after which changes."""
    changes = [*query.getlist("without"), *query.getlist("set")]
    names = {"cls": query.get("class"), "rather": query.get("rather")}
    return {"id": query.get("id", ""), "changes": changes, **names}


def _opened(text: str) -> dict[int | str, int]:
    """How many nodes of which levels are drawn: "2:60,global:30"."""
    pairs = [pair.partition(":") for pair in text.split(",")]
    return {
        hop if hop == GLOBAL else _integer("open", hop): _integer("open", count)
        for hop, _, count in pairs
    }


def server(views: Views, listening: socket.socket) -> uvicorn.Server:
    """What serves the page of some views at a port."""
    return serving.server(create_app(views, listening.getsockname()[1]))
