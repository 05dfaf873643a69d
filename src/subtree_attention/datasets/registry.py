"""The graphs that `load` knows, as registry.toml lists them. No torch is imported here."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from .. import _check

_TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".jsonl", ".ndjson", ".json", ".gz", ".zst", ".db")


@dataclass(frozen=True)
class GraphInfo:
    """One graph of the registry.

    Attributes:
        name: what `load` is called with.
        title: the name to print.
        num_nodes: N.
        num_edges: directed edges after symmetrising, self-loops included.
        num_features: columns of x, before any positional encoding.
        num_classes: number of classes.
        protocol: the split that results are reported on: "A" (random 50/25/25), "B" (random
            60/20/20), or "own".
        classes: their names; by default their numbers.
        homophily: share of the edges between different nodes whose ends have the same class;
            None where it was not measured.
        raw_dir: folder of the raw files in PyG's layout, below the data folder; "" if none.
        pyg_name: what PyG's class of this graph is called with.
        urls: public address of each raw file; the last part of an address is the file's name.
        metric: "accuracy" or "roc_auc".
        row_normalised: whether the rows of x are scaled to sum 1.
        self_loops: whether every node gets a self-loop.
        num_own_splits: how many splits the graph brings along (`split="own"`).
        fixed_split: file below the data folder with one fixed split (`split="fixed"`), if any.
        folds: file below the data folder with the splits of `split="own"`, where they are not in
            the raw files.
        num_graphs: G of a collection, whose targets and splits are of graphs; 0 for one graph.
        members: the raw files, where they lie in one archive at the address.
    """

    name: str
    title: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    protocol: Literal["A", "B", "own"]
    classes: tuple[str, ...] = ()
    homophily: float | None = None
    raw_dir: str = ""
    pyg_name: str = ""
    urls: tuple[str, ...] = ()
    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    row_normalised: bool = True
    self_loops: bool = False
    num_own_splits: int = 0
    fixed_split: str | None = None
    folds: str | None = None
    num_graphs: int = 0
    members: tuple[str, ...] = ()

    @property
    def raw_files(self) -> tuple[str, ...]:
        """The names of the raw files; empty for a graph that needs none."""
        return self.members or tuple(url.rpartition("/")[2] for url in self.urls)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where each raw file can be had."""
        return self.urls * len(self.members) if self.members else self.urls

    @property
    def splits(self) -> tuple[str, ...]:
        """The kinds of split that this graph has."""
        own = ("own",) if self.num_own_splits else ()
        fixed = ("fixed",) if self.fixed_split else ()
        return ("A", "B", *own, *fixed)


def names() -> tuple[str, ...]:
    """The names that `load` knows, in the paper's order."""
    return tuple(_graphs())


def info(name: str) -> GraphInfo:
    """The registry's entry for a graph; upper and lower case are the same.

    Raises:
        ValueError: there is no such graph; the message suggests the nearest names.
    """
    name = _check.kind("the name of a graph", name, str, "a text")
    if name.lower().endswith(_TABLES) or "://" in name:
        name = _check.without_passwords(name)
        raise ValueError(
            f"'{name}' is a table and no graph of the registry: sta train --nodes {name} --edges "
            "... --target ..., with --tune 20m to search settings too"
        )
    return _graphs()[_check.known("graph", name.lower(), _graphs())]


def is_ogb(name: str | None) -> bool:
    """Whether a graph is called as OGB calls its own: these are not of the registry."""
    return name is not None and name.lower().startswith(("ogbn-", "ogbg-", "ogbl-"))


def sha256() -> dict[str, str]:
    """Path below the data folder -> SHA-256, of raw files that lie in sets of many.

    Planetoid's are pickles, which can run code: no foreign one is ever opened.
    """
    lines = Path(__file__).with_name("SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in map(str.split, lines)}


@cache
def _graphs() -> dict[str, GraphInfo]:
    content = tomllib.loads(Path(__file__).with_name("registry.toml").read_text(encoding="utf-8"))
    for entry in content.values():
        numbers = map(str, range(entry["num_classes"]))
        entry["classes"] = tuple(entry.get("classes", numbers))
        for name in ("urls", "members"):
            entry[name] = tuple(entry.get(name, ()))
    return {name: GraphInfo(name=name, **entry) for name, entry in content.items()}
