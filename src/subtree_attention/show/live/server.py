"""What the page of curves asks over HTTP; who is answered is decided in `pages.serving`.

The page asks again and again for what is new: a page that is asleep or a server that begins again
costs nothing, and a slow reader keeps nobody waiting.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from .. import colours
from ..pages import serving
from .follow import Followed

STATIC = Path(__file__).parent / "static"
MOST_CURVES = 10_000


def create_app(followed: Followed, port: int) -> ASGIApp:
    """The page and what it asks, for a server on this port."""

    def state(request: Request) -> Response:
        try:
            session = request.query_params.get("session", "")
            have = _numbers(request.query_params.get("have", ""))
            return serving.json_response(followed.state(session, have))
        except ValueError as error:
            return serving.json_response({"error": str(error)}, 400)

    routes = [
        Route("/", lambda request: FileResponse(STATIC / "index.html")),
        Route("/api/state", state),
        Route("/static/colours.css", lambda request: FileResponse(colours.SHEET)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return serving.PageGuard(Starlette(routes=routes), port)


def _numbers(text: str) -> list[int]:
    """1,20,3 as numbers."""
    numbers = text.split(",") if text else []
    if len(numbers) > MOST_CURVES or not all(
        one.isascii() and one.isdecimal() and len(one) < 10 for one in numbers
    ):
        raise ValueError("have must be whole numbers, as 120,40")
    return [int(one) for one in numbers]
