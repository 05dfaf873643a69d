"""The page while this process trains, and until everybody has seen how it ended."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...train.watch import Watch
from ..pages import serving
from .follow import Followed
from .server import create_app

PORT = 8767
SEEN_SECONDS = 1.5
"""How long the end waits where a page is open: each asks once a second."""


def listening_at(port: int | None) -> socket.socket:
    """The port that was asked for; or the usual one, and any other if somebody has that."""
    if port is not None:
        return serving.listen(port)
    with suppress(ValueError):
        return serving.listen(PORT)
    return serving.listen(0)


class Page(Watch):
    """Told of a training, it knows where to look.

    Args:
        address: of the page.
        say: prints a line.
    """

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        self.address, self._say = address, say
        self.trains = True
        self.followed = Followed(trains=lambda: self.trains)

    def begin(
        self, banner: str, total: int | None, what: str = "runs", folder: Path | None = None
    ) -> None:
        self.followed.folder = folder

    def stay(self) -> None:
        """After the end: in a terminal until Enter or Ctrl-C, elsewhere until it was seen."""
        self.trains = False
        if sys.stdin.isatty() and sys.stdout.isatty():
            self._say(f"The curves stay at {self.address} until you press Enter or Ctrl-C.")
            with suppress(KeyboardInterrupt, EOFError):
                input()
            return
        if time.monotonic() - self.followed.asked < 2 * SEEN_SECONDS:
            time.sleep(SEEN_SECONDS)


@contextmanager
def watched(port: int | None, browser: bool, say: Callable[[str], None]) -> Iterator[Page]:
    """A page of what is trained meanwhile."""
    with listening_at(port) as listening:
        page = Page(f"{serving.address(listening)}/", say)
        app = create_app(page.followed, listening.getsockname()[1])
        with serving.serving(serving.server(app), listening):
            say(f"curves are at {page.address}")
            if browser:
                serving.open_browser(page.address)
            yield page
