"""A short run on tables, what answers for it, and an endpoint on a free port of this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import subtree_attention as sta
from subtree_attention.runs.answering import Answering
from subtree_attention.serve.server import Desk, address, listen, server
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
    with listen("127.0.0.1", 0) as listening:
        running = server(desk, listening)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address(listening)
        finally:
            running.should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive(), "it does not end by itself"
