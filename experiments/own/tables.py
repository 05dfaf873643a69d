"""Graphs as tables of nodes and edges, with a column that says which nodes are for what."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subtree_attention import _check, datasets
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.folders import MissingData, data_folder, mirror_folder

STREAMERS = ("twitch-es", "twitch-ptbr")
"""Tables as they were published: streamers, the games they like, and whether they use explicit
language."""
REGISTRY = ("cora", "cora-ml", "citeseer", "actor", "photo", "pubmed", "deezer")
GRAPHS = (*STREAMERS, *REGISTRY)
SHARES = {"60": (0.6, 0.2), "10": (0.1, 0.1)}
"""Percent of labels -> the shares of nodes for training and for validation."""


@dataclass(frozen=True)
class Tables:
    """Columns of nodes, columns of edges, and which of the former is the target."""

    nodes: dict[str, Any]
    edges: dict[str, Any]
    target: str


def dataset(graph: str, labels: str, seed: int) -> Dataset:
    """A graph, read from its tables, with the split of a share of labels and a seed."""
    tables = _tables(_check.known("graph", graph, GRAPHS))
    split = split_column(len(tables.nodes["id"]), labels, seed)
    nodes = {**tables.nodes, "split": split}
    return datasets.from_tables(
        nodes, tables.edges, tables.target, id="id", split_column="split"
    ).renamed(f"{graph}-table")


def split_column(count: int, labels: str, seed: int) -> list[str]:
    """train, val or test for each of some nodes, at random by the seed."""
    first, second = SHARES[_check.known("percent of labels", labels, SHARES)]
    order = np.random.default_rng(seed).permutation(count)
    words = np.full(count, "test", dtype=object)
    words[order[: int((first + second) * count)]] = "val"
    words[order[: int(first * count)]] = "train"
    return words.tolist()


@lru_cache(maxsize=1)
def _tables(graph: str) -> Tables:
    return _streamers(graph) if graph in STREAMERS else _registry(graph)


def _streamers(graph: str) -> Tables:
    """All columns that the files have of a streamer, and the list of games."""
    folder = _folder(graph)
    with (folder / "target.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    with (folder / "edges.csv").open(encoding="utf-8", newline="") as lines:
        _, *links = csv.reader(lines)
    games = json.loads((folder / "features.json").read_text(encoding="utf-8"))
    nodes = {
        "id": [row["new_id"] for row in rows],
        "days": [int(row["days"]) for row in rows],
        "views": [int(row["views"]) for row in rows],
        "partner": [row["partner"] for row in rows],
        "games": [[f"game {game}" for game in games.get(row["new_id"], [])] for row in rows],
        "mature": [row["mature"] for row in rows],
    }
    ends = list(zip(*links, strict=True))
    return Tables(nodes, {"source": list(ends[0]), "target": list(ends[1])}, "mature")


def _folder(graph: str) -> Path:
    places = [place / "tables" / graph for place in (data_folder(), mirror_folder()) if place]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise MissingData(f"{graph}: put its files into {places[0]}")
    return found


def _registry(graph: str) -> Tables:
    """Features that are all 0 or 1 become lists of tags, others a column of numbers each."""
    data = datasets.load(graph)
    names = [str(node) for node in range(data.num_nodes)]
    x = data.x.to_dense() if data.x.layout != torch.strided and data.x.size(1) < 2_000 else data.x
    nodes: dict[str, Any] = {"id": names, "class": [f"class {label}" for label in data.y.tolist()]}
    if x.layout == torch.strided and bool(((x != 0) & (x != 1)).any()):
        nodes |= {f"f{place}": column.tolist() for place, column in enumerate(x.T)}
    else:
        x = x.to_sparse_csr() if x.layout == torch.strided else x
        ends, columns = x.crow_indices().tolist(), x.col_indices().tolist()
        tags = (columns[a:b] for a, b in pairwise(ends))
        nodes["tags"] = [[f"t{place}" for place in some] for some in tags]
    source, dest = data.edge_index.tolist()
    edges = {"source": [names[s] for s in source], "target": [names[d] for d in dest]}
    return Tables(nodes, edges, "class")
