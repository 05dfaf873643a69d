"""Pages of Wikipedia and their traffic: a graph that comes as tables, for regression.

It is read from `tables/wiki-chameleon` in the data folder or in the mirror: `edges.csv` (two ids),
`features.json` (id -> the nouns of the page) and `target.csv` (id, mean monthly visits).
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

from experiments.field.trees import TreesSettings, grow
from experiments.reproduce.jobs import Direct, Job
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import compact
from subtree_attention.datasets.folders import MissingData, data_folder, mirror_folder

NAME = "wiki-chameleon"
FOLDER = Path("tables") / NAME
FILES = ("edges.csv", "features.json", "target.csv")


def folder() -> Path | None:
    """Where its files are, if they are anywhere."""
    places = (place / FOLDER for place in (data_folder(), mirror_folder()) if place)
    return next((p for p in places if all((p / name).is_file() for name in FILES)), None)


def load() -> Dataset:
    """The graph: a column for each noun, links in both directions, visits as numbers."""
    found = folder()
    if found is None:
        raise MissingData(f"{NAME}: put {', '.join(FILES)} into {data_folder() / FOLDER}")
    with (found / "target.csv").open(encoding="utf-8", newline="") as lines:
        visits = {int(row["id"]): float(row["target"]) for row in csv.DictReader(lines)}
    with (found / "edges.csv").open(encoding="utf-8", newline="") as lines:
        _, *links = csv.reader(lines)
    nouns = json.loads((found / "features.json").read_text(encoding="utf-8"))
    count, pairs = len(visits), np.array(links, dtype=np.int64)
    both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    rows = np.array([int(page) for page, some in nouns.items() for _ in some])
    columns = np.array([noun for some in nouns.values() for noun in some])
    ones = np.ones(len(rows), dtype=np.float32)
    x = scipy.sparse.csr_matrix((ones, (rows, columns)), shape=(count, columns.max() + 1))
    return Dataset(
        x=compact(torch.from_numpy(x.minimum(1).toarray())),
        edge_index=torch.from_numpy(both.T.copy()),
        y=torch.tensor([visits[page] for page in range(count)]),
        name=NAME,
        source="benedekrozemberczki/MUSAE",
    )


@dataclass(frozen=True)
class WikiJob(Job):
    """A run on this graph: of a network, or of boosted trees."""

    @property
    def at_hand(self) -> bool:
        return folder() is not None

    def load(self) -> Dataset:
        return load().encoded(self.config.data.encoding)

    @property
    def direct(self) -> bool:
        return isinstance(self.config.model, TreesSettings)

    def fit(self, data: Dataset) -> Direct:
        return grow(data, self.config, self.seed)
