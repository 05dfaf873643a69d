"""From raw files to tensors, one reader for each source; most go through PyG's own classes.

A reader gets a folder that holds the raw files in PyG's layout and that it may write to. It returns
a `Data` with x [N, F], edge_index [2, E], y [N] and, where the graph brings its own splits,
own_splits [N, S] (see `OWN_TRAIN`). Nothing here is normalised or symmetrised yet.
"""

import contextlib
import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric import datasets as pyg
from torch_geometric.data import Data

from .features import compact, from_scipy

Reader = Callable[[Path], Data]

# The codes in own_splits [N, S]; 0 means that the node is in no part of that split.
OWN_TRAIN, OWN_VAL, OWN_TEST = 1, 2, 3

DIGITS_NEIGHBOURS = 10


def planetoid(name: str) -> Reader:
    return lambda folder: _read(pyg.Planetoid, folder / "Planetoid", name)


def citation_full(name: str) -> Reader:
    return lambda folder: _read(pyg.CitationFull, folder / "CitationFull", name)


def amazon(name: str) -> Reader:
    return lambda folder: _read(pyg.Amazon, folder / "Amazon", name)


def coauthor(name: str) -> Reader:
    return lambda folder: _read(pyg.Coauthor, folder / "Coauthor", name)


def heterophilous(name: str) -> Reader:
    root = "HeterophilousGraphDataset"
    return lambda folder: _read(pyg.HeterophilousGraphDataset, folder / root, name)


def actor(folder: Path) -> Data:
    return _read(pyg.Actor, folder / "Actor")


def deezer(folder: Path) -> Data:
    """SNAP's Deezer Europe: N users, binary features for the artists they like."""
    with zipfile.ZipFile(folder / "DeezerEurope" / "raw" / "deezer_europe.zip") as archive:
        edges = _csv_integers(archive, "edges.csv")  # [E, 2], one direction
        target = _csv_integers(archive, "target.csv")  # [N, 2]: id, class
        artists = json.loads(_member(archive, "features.json"))  # node id -> artist ids

    num_nodes = len(target)
    y = np.empty(num_nodes, dtype=np.int64)
    y[target[:, 0]] = target[:, 1]
    liked = [artists[str(node)] for node in range(num_nodes)]
    row_starts = np.cumsum([0, *map(len, liked)])
    columns = np.concatenate([np.asarray(row, dtype=np.int64) for row in liked])
    ones = np.ones(len(columns), dtype=np.float32)
    shape = (num_nodes, int(columns.max()) + 1)
    x = from_scipy(scipy.sparse.csr_matrix((ones, columns, row_starts), shape=shape))
    edge_index = torch.from_numpy(edges.T.copy())
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(y))


def digits(_folder: Path) -> Data:
    """scikit-learn's handwritten digits, each joined to its ten nearest neighbours."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "the graph 'digits' is made from scikit-learn's data: pip install scikit-learn"
        ) from None
    images = load_digits()
    pixels = images.data  # [N, 64], float64 holding whole numbers 0..16
    edge_index = _nearest_neighbours(pixels, DIGITS_NEIGHBOURS)
    x = torch.from_numpy(pixels / 16).to(torch.float32)
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(images.target).long())


def _nearest_neighbours(points: np.ndarray, k: int) -> Tensor:
    """Edges [2, N * k] from every point to its k nearest; a tie goes to the smaller index.

    Whole numbers make the squared distances exact, so the graph is the same on every machine.
    """
    squared = (points**2).sum(axis=1)
    distance = squared[:, None] + squared[None, :] - 2 * points @ points.T  # [N, N]
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    sources = np.repeat(np.arange(len(points)), k)
    return torch.from_numpy(np.stack([sources, nearest.ravel()]))


def _read(dataset: type, root: Path, *name: str) -> Data:
    """Let a PyG class read its raw files, and gather the masks it gives into own_splits."""
    # PyG announces "Processing..." on stderr. Its pre_transform runs before it saves, which is
    # where bag-of-words features have to become sparse: Physics is 1.2 GB otherwise.
    with contextlib.redirect_stderr(io.StringIO()):
        data = dataset(str(root), *name, pre_transform=_compact_features)[0]
    own_splits = _own_splits(data)
    found = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    if own_splits is not None:
        found.own_splits = own_splits
    return found


def _compact_features(data: Data) -> Data:
    data.x = compact(data.x)
    return data


def _own_splits(data: Data) -> Tensor | None:
    """The masks that PyG gives ([N] or [N, S]) as codes [N, S], int8."""
    if "train_mask" not in data:
        return None
    masks = (data.train_mask, data.val_mask, data.test_mask)
    train, val, test = (mask.reshape(len(mask), -1).to(torch.int8) for mask in masks)
    return OWN_TRAIN * train + OWN_VAL * val + OWN_TEST * test


def _member(archive: zipfile.ZipFile, ending: str) -> bytes:
    for name in archive.namelist():
        if name.endswith(ending):
            return archive.read(name)
    raise ValueError(f"the archive holds no file *{ending}")


def _csv_integers(archive: zipfile.ZipFile, ending: str) -> np.ndarray:
    """A comma-separated table with one header line as integers [rows, columns]."""
    rows = csv.reader(io.StringIO(_member(archive, ending).decode()))
    next(rows)
    return np.array([[int(value) for value in row] for row in rows], dtype=np.int64)
