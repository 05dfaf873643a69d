"""The command `watch`, and the same page while `sta train` goes on (`--watch`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .app import Given, command, group, needs, say

if TYPE_CHECKING:
    from ..show.live.page import Page

PORT = (int, r"Of this machine; 0 for any that is free. \[default: 8767, else any that is free]")
OPEN = (bool, "Open the page in your browser.", True, "--open/--no-open")
PAGE = group(
    "Watching (extra explore)",
    watch=(
        bool,
        "Show curves that grow as it trains, on a page in your browser. In a terminal the page "
        "stays after the end, until Enter or Ctrl-C.",
    ),
    port=PORT,
    open=OPEN,
)


@contextmanager
def page(given: Given) -> Iterator[Page | None]:
    """The page of a training, if it is asked for."""
    if not given.pop("watch", False):
        if given:
            option = "--no-open" if "open" in given else "--port"
            raise ValueError(f"{option} is for the page of --watch: give --watch too")
        yield None
        return
    with needs("--watch", "explore"):
        from ..show.live.page import watched
    with watched(given.get("port"), given.get("open", True), say) as shown:
        yield shown


@command(how=group(port=PORT, open=OPEN))
def watch(
    folder: Annotated[
        Path | None,
        typer.Argument(help=r"What 'sta train' writes. \[default: the newest in runs/]"),
    ] = None,
    *,
    how: Given,
) -> None:
    """Watch a training in the browser: curves that grow, or those of a run that is done.

    Loss, training and validation scores of every epoch; the best epoch marked, earlier runs faint
    behind their mean, how far it is and how long it takes. Test scores come when a run has ended.
    It reads the files of the run folder and nothing else: training waits for nobody, and may
    be stopped and resumed meanwhile. 'sta train --watch' is the same in one command.

    The page is for this machine only (127.0.0.1) and needs no network; Ctrl-C ends it. It needs
    pip install "subtree-attention\\[explore]".

    \b
    [bold]Examples[/bold]
    sta watch                            what was begun last under runs/
    sta watch runs/mine --no-open        open the address yourself
    """
    with needs("the page", "explore"):
        from ..show.live import Followed
        from ..show.live.page import listening_at
        from ..show.live.server import create_app
        from ..show.pages.serving import address, open_browser, serve, server
    from ..runs import folder as files

    folder = folder or files.latest()
    if not files.holds_run(folder):
        raise ValueError(f"there is no run in {folder}: 'sta train' writes such folders")
    with listening_at(how.get("port")) as listening:
        shown = f"{address(listening)}/"
        say(f"curves of {folder} are at {shown} (Ctrl-C ends)")
        if how.get("open", True):
            open_browser(shown)
        app = create_app(Followed(folder), listening.getsockname()[1])
        serve(server(app), listening)
