"""Which nodes are for training, validation and test.

"A" and "B" are random over all nodes (of a graph of one's own: class by class over those with a
label); "own" are the splits that a graph brings along; "fixed" is one published split in a file.
Results on different kinds of split are not comparable.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..graph import as_device
from ..io import open_regular
from .folders import MissingData
from .registry import GraphInfo

MASKS = ("train_mask", "val_mask", "test_mask")
"""What the parts of a split are called in PyG."""

# Per cent of the nodes for training and for validation; the test part is the rest.
PROTOCOLS = {"A": (50, 25), "B": (60, 20)}

# What the bits of a code mean, in the order of the parts.
BITS = (1, 2, 4)


class Split(NamedTuple):
    """Which nodes are for what: masks, bool [N] each."""

    train: Tensor
    val: Tensor
    test: Tensor

    def part(self, node: int) -> str | None:
        """Train, val or test; None for a node that is in no part."""
        _check.index("node", node, len(self.train))
        return next((name for name, mask in self._asdict().items() if bool(mask[node])), None)

    def to(self, device: str | torch.device) -> Split:
        device = as_device(device)
        return Split(*(mask.to(device) for mask in self))

    @classmethod
    def from_codes(cls, codes: Tensor) -> Split:
        """The inverse of `own_codes`, for codes [N] of one split."""
        return cls(*(codes & bit > 0 for bit in BITS))


def own_codes(train: Tensor, val: Tensor, test: Tensor) -> Tensor:
    """Masks [N] or [N, S] as one code for each node and split, int8 [N, S].

    A code is the sum of 1 for training, 2 for validation and 4 for test; 0 is in no part.
    """
    masks = (mask[:, None] if mask.dim() == 1 else mask for mask in (train, val, test))
    train, val, test = (mask.to(torch.int8) for mask in masks)
    return BITS[0] * train + BITS[1] * val + BITS[2] * test


def random_split(num_nodes: int, protocol: str, seed: int) -> Split:
    """A random split over all nodes; the same arguments always give the same split.

    Args:
        num_nodes: N.
        protocol: "A" for 50/25/25 or "B" for 60/20/20.
        seed: of this split's own generator; the global one is left alone.

    Returns:
        Train, validation and test masks, bool [N] each. Every node is in exactly one.
    """
    num_nodes = _check.integer("num_nodes", num_nodes, 0)
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        got = _check.said(protocol)
        raise ValueError(f"protocol is 'A' (50/25/25) or 'B' (60/20/20), got {got}")
    # numpy's generator: the same splits whatever the version of torch.
    generator = np.random.default_rng(_check.integer("seed", seed, 0, _check.MOST_SEED))
    with _check.fits(f"a split of {num_nodes:,} nodes"):
        order = torch.from_numpy(generator.permutation(num_nodes))
    train, val = (num_nodes * share // 100 for share in PROTOCOLS[protocol])
    return _masks(num_nodes, order.split([train, val, num_nodes - train - val]))


def labelled_split(labels: Tensor, protocol: str, seed: int) -> Split:
    """A random split of each class, so that small ones are in every part as far as they reach.

    A node whose label [N] is -1, not known, is in no mask; a class of one node is in training. The
    other arguments and the masks are those of `random_split`.
    """
    share, _ = PROTOCOLS[_check.known("protocol", protocol, PROTOCOLS)]
    if _check.whole("labels", labels).dim() != 1:
        raise ValueError(f"labels must have shape [N], got {_check.shape(labels)}")
    order = np.random.default_rng(_check.integer("seed", seed, 0, _check.MOST_SEED)).permutation(
        len(labels)
    )
    classes = labels.cpu().numpy()[order]
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    turn = 0  # of an odd node, which goes to validation and test in turns
    for number in np.unique(classes[classes >= 0]):
        nodes = order[classes == number]
        train = max(1, len(nodes) * share // 100)
        val = train + (len(nodes) - train + 1 - turn) // 2
        turn ^= (len(nodes) - train) % 2
        for part, some in zip(parts, np.split(nodes, [train, val]), strict=True):
            part.append(some)
    nodes_of = [torch.from_numpy(np.concatenate([*part, order[:0]])) for part in parts]
    if not all(map(len, nodes_of)):
        raise ValueError(
            f"{int((classes >= 0).sum())} nodes with a label are too few to split into training, "
            "validation and test: label more nodes, or several of a class"
        )
    return _masks(len(labels), nodes_of)


def known_split(split: str | None, graph: GraphInfo) -> str:
    """The split asked for, None meaning the protocol; `ValueError` if the graph has no such one."""
    split = graph.protocol if split is None else _check.kind("split", split, str, "a name")
    if split not in graph.splits:
        raise ValueError(
            f"graph {graph.name!r} has no split {split!r}; it has {', '.join(graph.splits)}"
        )
    return split


def fixed_codes(graph: GraphInfo, folder: Path, mirror: Path | None) -> Tensor:
    """The published split of a graph, as `own_codes` gives it: [N, 1].

    It is a file with the arrays train, valid and test, in the data folder or else in the mirror.
    """
    path = _published("fixed split", graph, str(graph.fixed_split), folder, mirror)
    try:
        with open_regular(path, links=True) as raw, np.load(raw, allow_pickle=False) as file:
            parts = [torch.from_numpy(file[part]).long() for part in ("train", "valid", "test")]
        together = torch.cat(parts)
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        raise ValueError(f"{path} is damaged: expected arrays train, valid and test") from None
    _check_units(path, together, graph.num_nodes)
    return own_codes(*_masks(graph.num_nodes, parts))


def fold_codes(graph: GraphInfo, folder: Path, mirror: Path | None) -> Tensor:
    """The folds of a collection of graphs, as `own_codes` gives them: [G, S].

    It is a JSON list, in the data folder or else in the mirror: the graphs of each fold's "test",
    and below "model_selection" those of "train" and "validation".
    """
    path = _published("folds", graph, str(graph.folds), folder, mirror)
    try:
        with open_regular(path, links=True) as raw:
            folds = json.load(raw)
        inside = [fold["model_selection"][0] for fold in folds]
        lists = [
            (within["train"], within["validation"], fold["test"])
            for within, fold in zip(inside, folds, strict=True)
        ]
        parts = [[torch.tensor(part, dtype=torch.int64) for part in fold] for fold in lists]
    except (OSError, ValueError, KeyError, IndexError, TypeError, RuntimeError):
        raise ValueError(f"{path} is damaged: expected a list of folds") from None
    codes = []
    for fold in parts:
        _check_units(path, torch.cat(fold), graph.num_graphs)
        codes.append(own_codes(*_masks(graph.num_graphs, fold)))
    if len(codes) != graph.num_own_splits:
        raise ValueError(f"{path} has {len(codes)} folds instead of {graph.num_own_splits}")
    return torch.cat(codes, 1)


def _published(what: str, graph: GraphInfo, name: str, folder: Path, mirror: Path | None) -> Path:
    """A file of splits in the data folder, or else in the mirror."""
    path = next((p / name for p in (folder, mirror) if p and (p / name).is_file()), None)
    if path is None:
        verb = "are" if what == "folds" else "is"
        raise MissingData(
            f"the {what} of {graph.name!r} {verb} missing. Put the file {Path(name).name} "
            f"into {(folder / name).parent}, or set STA_MIRROR to a folder that holds {name}."
        )
    return path


def _check_units(path: Path, together: Tensor, count: int) -> None:
    """Refuse numbers of nodes or graphs that are out of bounds, or there twice."""
    inside = together.numel() and together.min() >= 0 and together.max() < count
    if not inside or together.unique().shape != together.shape:
        what = "node" if path.suffix == ".npz" else "graph"
        raise ValueError(f"{path} is the split of another graph, or names a {what} twice")


def _masks(num_nodes: int, parts: Iterable[Tensor]) -> Split:
    """The nodes of the three parts, by their numbers, as masks [N]."""
    nobody = torch.zeros(num_nodes, dtype=torch.bool)
    return Split(*(nobody.index_fill(0, nodes, True) for nodes in parts))
