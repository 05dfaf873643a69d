"""What a model of links says of pairs of nodes: of given ones, or the most probable missing links.

All known links are walked on, also those of validation and test: nothing is trained any more, and
what is known shall count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..datasets import Dataset
from ..datasets.tables.edges import find_ends
from ..datasets.tables.lazy import pl
from ..datasets.tables.read import read_table
from ..datasets.tables.schema import TableNotes
from ..datasets.tables.table import Table, TableError, counted, positions
from ..graph import Graph
from ..nn import LinkNetwork, PairDecoder
from ..tasks.calibration import Calibration, Intervals
from ..tasks.link import LinkPrediction, Links
from .predictions import write_columns
from .saved import Folder, SavedRun, open

TOP = 100
BLOCK = 2**24
"""Numbers that are computed at a time: of two ends each, or of a node and all others."""
MOST_PAIRS = 10**11
"""So many are looked through for missing links; of a larger graph pairs must be given."""


@dataclass(frozen=True, eq=False)
class LinkPredictions:
    """How probable links are.

    Attributes:
        source, target: the ids of the nodes of each pair, P.
        probabilities: [P], calibrated: among as many random pairs as links.
        known: [P], whether the graph has that link already.
        calibration: how far the probabilities can be trusted.
        run: the folder of the run whose model it is.
        notes: what was done with new tables, if any.
    """

    source: list[str]
    target: list[str]
    probabilities: np.ndarray
    known: np.ndarray
    calibration: Calibration | Intervals
    run: Path
    notes: TableNotes | None = None

    @property
    def ids(self) -> list[tuple[str, str]]:
        """The pairs."""
        return list(zip(self.source, self.target, strict=True))


def predict_links(
    folder: Folder,
    pairs: Any = None,
    *,
    top: int | None = None,
    nodes: Any = None,
    edges: Any = None,
    join: bool = False,
    unknown_ends: str = "error",
    device: str = "auto",
) -> LinkPredictions:
    """The probability of given pairs of nodes; or the most probable links that are missing.

    The model walks on all links that are known, not only on those that it was trained on.

    Args:
        folder: what `sta train --task link` wrote; of several runs, the best by validation score.
        pairs: a table with two columns of ids (path, frame or dictionary), or numbers of nodes
            [2, P]; None for the missing links.
        top: how many of those, 100 unless given.
        nodes: a table of new nodes, as in `predict`, like the arguments that follow.
        edges: the table of their edges.
        join: the new nodes join the graph of the run; missing links are then those of new nodes,
            with each other and with those that were there.
        unknown_ends: see `from_tables`.
        device: see `fit`.
    """
    run, notes = open(folder, device=device), None
    if not isinstance(run.task, LinkPrediction):
        raise ValueError(
            f"the model of {run.folder} is for {run.task.unit}s, not for pairs of nodes: train one "
            "with --task link"
        )
    if pairs is not None and top is not None:
        raise ValueError(
            "top (--top) looks for missing links, and pairs (--pairs) names those in question: "
            "choose one of them"
        )
    dataset, new = run.dataset, 0
    if nodes is not None or edges is not None:
        dataset, new = run.read_tables(nodes, edges, join, unknown_ends)
        notes = dataset.notes
    scored = ScoredPairs(run, dataset)
    if pairs is None:
        index = scored.missing(_check.integer("top", TOP if top is None else top, 1), new)
    else:
        index = read_pairs(dataset, pairs)
    names = dataset.node_ids
    source, target = ([names[node] for node in ends] for ends in index.tolist())
    known = scored.links.known(scored.links.key(*index))
    shares = scored.probabilities(index)
    return LinkPredictions(source, target, shares, known, run.calibration, run.folder, notes)


def write(predictions: LinkPredictions, path: Path, force: bool = False) -> None:
    """Write source, target, whether that link is known, and its probability, all or nothing."""
    known = ["link" if link else None for link in predictions.known]
    own: dict[str, list[Any]] = {"source": predictions.source, "target": predictions.target}
    own["known"] = known
    shares = {"probability": predictions.probabilities}
    write_columns(path, own, shares, force, {"known": str})


class ScoredPairs:
    """A model of links on a graph, all of whose links are walked on.

    Args:
        run: whose model it is.
        dataset: the graph: that of the run, or another with the same columns.
    """

    @torch.no_grad()
    def __init__(self, run: SavedRun, dataset: Dataset) -> None:
        model = _check.kind("the model", run.model, LinkNetwork, "a LinkNetwork")
        self.links, self.temperature = Links.of(dataset), run.temperature
        dataset = dataset.encoded(run.config.data.encoding)
        graph = Graph.from_data(dataset, **run.config.walk).to(run.device)
        self.decoder: PairDecoder = model.decoder
        z = model.encoder(dataset.features.to(run.device), graph)
        self.start, self.end = self.decoder.prepare(z)  # [N, width] each

    @torch.no_grad()
    def probabilities(self, pairs: np.ndarray) -> np.ndarray:
        """[2, P] -> [P], calibrated."""
        ends = torch.from_numpy(pairs).to(self.start.device)
        parts = [
            self.decoder.score(self.start[some[0]], self.end[some[1]])
            for some in ends.split(self._rows, 1)
        ]
        logits = torch.cat(parts).double()
        return torch.sigmoid(logits / self.temperature).cpu().numpy()

    @property
    def _rows(self) -> int:
        """Pairs at a time."""
        return max(1, BLOCK // self.start.size(1))

    @torch.no_grad()
    def missing(self, count: int, new: int = 0) -> np.ndarray:
        """The most probable pairs that are no links, the most probable first: [2, count].

        All pairs are looked through, some nodes with all others at a time. At least one end is a
        node from `new` on.
        """
        n = self.links.num_nodes
        if n * n > MOST_PAIRS:
            raise ValueError(
                f"{n:,} nodes have too many pairs to look through all of them: name those that "
                "you think of (--pairs)"
            )
        best, keys = (self.start.new_zeros(0, dtype=d) for d in (self.start.dtype, torch.int64))
        for rows in self._blocks():
            scores = self._scores(rows, new)  # [b, N]
            some = scores.flatten()
            values, places = some.topk(min(count, some.numel()))
            together = torch.cat([best, values])
            numbers = torch.cat([keys, places + int(rows[0]) * n])
            best, order = together.topk(min(count, together.numel()))
            keys = numbers[order]
        there = best > -torch.inf
        return np.stack(np.divmod(keys[there].cpu().numpy(), n))

    def _blocks(self) -> Iterator[Tensor]:
        """The nodes, some at a time."""
        n, width = self.start.shape
        nodes = torch.arange(n, device=self.start.device)
        return iter(nodes.split(max(1, BLOCK // (n * width))))

    def _scores(self, rows: Tensor, new: int) -> Tensor:
        """Logits of some nodes [b] with all others, [b, N]; -inf where that is no missing link of
        a node from `new` on."""
        n, first = self.links.num_nodes, int(rows[0])
        scores = self.decoder.score(self.start[rows, None], self.end[None])
        others = torch.arange(n, device=rows.device)
        mine = others[None] != rows[:, None] if self.links.directed else others > rows[:, None]
        mine = mine & ((rows[:, None] >= new) | (others >= new))
        low, high = np.searchsorted(self.links.keys, [first * n, (first + len(rows)) * n])
        known = torch.from_numpy(self.links.keys[low:high] - first * n).to(rows.device)
        scores = torch.where(mine, scores, -torch.inf)
        scores.view(-1)[known] = -torch.inf
        return scores


def read_pairs(dataset: Dataset, pairs: Any) -> np.ndarray:
    """Pairs of nodes as numbers [2, P]: of a table with two columns of ids, or numbers already."""
    if isinstance(pairs, Tensor | np.ndarray):
        index = np.asarray(pairs)
        if index.ndim != 2 or len(index) != 2 or index.dtype.kind not in "iu":
            raise ValueError(f"pairs must be whole numbers [2, P], got {list(index.shape)}")
        if index.size and not 0 <= index.min() <= index.max() < dataset.num_nodes:
            raise ValueError(f"pairs names a node outside 0..{dataset.num_nodes - 1}")
        if (same := index[0] == index[1]).any():
            at = int(np.argmax(same))
            raise ValueError(f"pair {at}: {_twice(str(index[0, at]), same)}")
        return index.astype(np.int64)
    table = read_table(pairs, "pairs")
    ends = find_ends(table, None, None, None)
    ids = pl.Series(dataset.node_ids, dtype=pl.String)
    index = np.stack([_nodes(table, name, ids, dataset) for name in (ends.source, ends.dest)])
    if (same := index[0] == index[1]).any():
        row = int(np.argmax(same))
        raise TableError(f"{table.place(row)}: {_twice(ids[int(index[0, row])], same)}")
    return index


def _twice(node: str, same: np.ndarray) -> str:
    """Why a node with itself is refused; `same` [P] says which pairs are so."""
    count = counted(int(same.sum()), "such pair")
    return f"both nodes are '{node}': a link is between two nodes ({count})"


def _nodes(table: Table, name: str, ids: pl.Series, dataset: Dataset) -> np.ndarray:
    texts = table.texts(name, "a node of a pair")
    if (row := table.first(texts.is_null())) is not None:
        raise TableError(f"{table.place(row)}: column '{name}' is empty: a pair has two nodes")
    found = positions(texts, ids)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        more = counted(int((found < 0).sum()), "such pair")
        try:
            id = dataset.id(dataset.find(str(texts[row])))
            said = f"'{texts[row]}' is the name of '{id}': pairs are of ids"
        except ValueError as error:  # it offers ids that are near
            said = str(error)
        raise TableError(f"{table.place(row)}: {said} ({more})")
    return found
