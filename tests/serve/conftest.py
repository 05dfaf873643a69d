"""A short run on tables, what answers for it, and an endpoint on a free port of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import subtree_attention as sta
from subtree_attention.runs.answering import Answering
from subtree_attention.serve.server import Desk, server
from subtree_attention.show.pages.serving import address, listen, serving
from tests.samples import friends, people


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = sta.from_tables(people(), friends(), target="label", weight="strength")
    config = sta.recipe(data, graph="people", runs=1, epochs=6, hops=2, heads=2)
    return sta.fit(config, tmp_path_factory.mktemp("own") / "run", device="cpu", data=data).folder


@pytest.fixture(scope="session")
def answering(own_run: Path) -> Answering:
    return sta.open(own_run, device="cpu").answering()


@pytest.fixture(scope="session")
def desk(answering: Answering) -> Iterator[Desk]:
    made = Desk(answering)
    yield made
    made.close()


@contextmanager
def served(desk: Desk) -> Iterator[str]:
    """The address of an endpoint that ends with the test."""
    with listen(0) as listening, serving(server(desk, listening), listening):
        yield address(listening)
