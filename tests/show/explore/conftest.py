"""A run on tables with odd ids and hostile texts, its views, and the page in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import subtree_attention as sta
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import server
from subtree_attention.show.pages.serving import address, listen, serving
from tests.show.explore.odd import HOSTILE, ODD

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

WAYS = {"light": (1280, 900), "dark": (1280, 900), "narrow": (320, 640)}


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on people in two cities, some with odd ids."""
    ids = [*ODD, *(f"p{i}" for i in range(40 - len(ODD)))]
    cities = ["Rome" if i % 2 else HOSTILE for i in range(40)]
    nodes = {
        "id": ids,
        "age": [None if i == 3 else 20.0 + i for i in range(40)],
        "city": cities,
        "label": [None if i == 5 else ("yes" if i % 2 else "<b>no</b>") for i in range(40)],
    }
    ends = [(i, (i + step) % 40) for i in range(40) for step in (1, 2, 8)]
    edges = {"source": [ids[a] for a, _ in ends], "target": [ids[b] for _, b in ends]}
    data = sta.from_tables(nodes, edges, target="label", features=["age", "city"])
    config = sta.recipe(data, graph="people", runs=1, epochs=8, hops=4, heads=2)
    return sta.fit(config, tmp_path_factory.mktemp("own") / "run", device="cpu", data=data).folder


@pytest.fixture(scope="session")
def views(own_run: Path) -> Views:
    return Views.of_run(own_run)


@pytest.fixture(scope="session")
def url(views: Views) -> Iterator[str]:
    """A server that runs as long as the tests."""
    with listen(0) as listening, serving(server(views, listening), listening):
        yield f"{address(listening)}/"


@pytest.fixture(params=["light"])
def page(browser: "Browser", url: str, request: pytest.FixtureRequest) -> "Iterator[Page]":
    """A page whose every complaint fails the test."""
    width, height = WAYS[request.param]
    scheme = "dark" if request.param == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    with watched(page, url):
        yield page


@contextmanager
def watched(page: "Page", url: str) -> Iterator[None]:
    """Any complaint of the page, and any question to another server, is a failure."""
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("requestfailed", lambda asked: complaints.extend(failed(asked)))
    page.on("request", lambda asked: asked.url.startswith(url) or complaints.append(asked.url))
    yield
    page.close()
    assert complaints == []


def failed(asked: "Request") -> list[str]:
    """A request that failed, unless the page was left before the answer came."""
    return [] if asked.failure == "net::ERR_ABORTED" else [f"{asked.url}: {asked.failure}"]
