"""Short runs that the tests of what is shown share: on digits, and on tables of one's own."""

from pathlib import Path

import pytest

import subtree_attention as sta
from tests.samples import friends, people

HOSTILE = "<script>alert('x')</script>\"' onload=\"y\u202e"
"""Markup, quotes that would end an attribute, and a mark that turns the line round."""
NAME = "<script>alert('x')\"' onload=\"people"
"""As hostile as the name of a graph may be: folders are called after it."""


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a graph of the registry."""
    config = sta.recipe("digits", runs=1, epochs=6, hops=2)
    return sta.fit(config, tmp_path_factory.mktemp("digits") / "out", device="cpu").folder


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on tables whose ids, classes and columns are as hostile as can be."""
    nodes = people(90)
    nodes["id"] = [f"{HOSTILE}{id}" for id in nodes["id"]]
    nodes["label"] = [None if name is None else f"{HOSTILE}{name}" for name in nodes["label"]]
    nodes = {f"{HOSTILE}{name}" if name == "age" else name: v for name, v in nodes.items()}
    del nodes["city"], nodes["about"]  # so that the model is wrong about some
    edges = friends(90, 200)
    edges = {k: [f"{HOSTILE}{v}" for v in vs] if k != "strength" else vs for k, vs in edges.items()}
    data = sta.from_tables(nodes, edges, target="label")
    config = sta.recipe(data, graph=NAME, runs=2, epochs=8, hops=2, heads=2)
    return sta.fit(config, tmp_path_factory.mktemp("own") / "out", device="cpu", data=data).folder
