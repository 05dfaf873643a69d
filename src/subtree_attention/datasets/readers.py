"""From raw files to tensors; most go through PyG's own classes.

A reader gets a folder that holds the raw files in PyG's layout and that it may write to. It returns
x [N, F], edge_index [2, E], y [N] and the splits that the graph brings along, by the names that
`Dataset` has for them; of many graphs y [G] and batch [N]. Nothing here is symmetrised yet.
"""

import contextlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

from .features import compact, from_scipy
from .pictures import from_pixels
from .registry import GraphInfo
from .splits import MASKS, own_codes
from .told import Told

Parts = dict[str, Any]

DIGITS_NEIGHBOURS = 10


def read_raw(graph: GraphInfo, folder: Path) -> Parts:
    """The raw files of a graph below a folder, by a reader of ours or by PyG's class.

    PyG's layout begins with the name of that class.
    """
    if graph.name in READERS:
        return READERS[graph.name](folder)
    from torch_geometric import datasets

    kind, name = Path(graph.raw_dir).parts[0], filter(None, [graph.pyg_name])
    # PyG announces "Processing..." on stderr. Its pre_transform runs before it saves, which is
    # where bag-of-words features have to become sparse: Physics is 1.2 GB otherwise.
    with contextlib.redirect_stderr(io.StringIO()):
        data = getattr(datasets, kind)(
            str(folder / kind),
            *name,
            pre_transform=lambda raw: raw.update({"x": compact(raw.x)}),
        )[0]
    has_masks = all(mask in data for mask in MASKS)
    splits = {"own": own_codes(*(data[mask] for mask in MASKS))} if has_masks else {}
    return {"x": data.x, "edge_index": data.edge_index, "y": data.y, "splits": splits}


def _deezer(folder: Path) -> Parts:
    """SNAP's Deezer Europe: N users, binary features for the artists they like."""
    with zipfile.ZipFile(folder / "DeezerEurope" / "raw" / "deezer_europe.zip") as archive:
        tables = (io.BytesIO(_member(archive, f"{name}.csv")) for name in ("edges", "target"))
        # Edges [E, 2], one direction; id and class [N, 2]. The first line names the columns.
        edges, target = (np.loadtxt(t, np.int64, delimiter=",", skiprows=1) for t in tables)
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
    return {"x": x, "edge_index": torch.from_numpy(edges.T.copy()), "y": torch.from_numpy(y)}


def _digits(_folder: Path) -> Parts:
    """scikit-learn's handwritten digits, each joined to its ten nearest neighbours."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "the graph 'digits' is made from scikit-learn's data: pip install scikit-learn"
        ) from None
    images = load_digits()
    pixels = images.data  # [N, 64], float64 holding whole numbers 0..16
    # They make squared distances [N, N] exact, and a tie goes to the smaller index, so the graph is
    # the same on every machine.
    squared = (pixels**2).sum(axis=1)
    distance = squared[:, None] + squared[None, :] - 2 * pixels @ pixels.T
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :DIGITS_NEIGHBOURS]
    sources = np.repeat(np.arange(len(pixels)), DIGITS_NEIGHBOURS)
    edge_index = torch.from_numpy(np.stack([sources, nearest.ravel()]))
    x = torch.from_numpy(pixels / 16).to(torch.float32)
    y = torch.from_numpy(images.target).long()
    drawn, _ = from_pixels(16 - images.images)  # ink on paper
    return {"x": x, "edge_index": edge_index, "y": y, "told": Told(pictures=drawn)}


def _collection(name: str) -> Callable[[Path], Parts]:
    """The reader of a collection of graphs in the text files of TUDataset."""

    def read(folder: Path) -> Parts:
        raw = folder / "TUDataset" / name / "raw"

        def column(what: str, **how: Any) -> np.ndarray:
            return np.loadtxt(raw / f"{name}_{what}.txt", delimiter=",", **how)

        edges = column("A", dtype=np.int64) - 1  # [E, 2]
        batch = column("graph_indicator", dtype=np.int64) - 1  # [N]
        labels = column("node_labels", dtype=np.int64)  # [N], as one-hot columns
        x = np.eye(labels.max() - labels.min() + 1)[labels - labels.min()]
        if (raw / f"{name}_node_attributes.txt").exists():
            attributes = column("node_attributes", ndmin=2)
            # They are lengths and counts of up to hundreds: as the numbers of a table.
            spread = np.maximum(attributes.std(0), 1e-12)
            x = np.hstack([(attributes - attributes.mean(0)) / spread, x])
        _, y = np.unique(column("graph_labels", dtype=np.int64), return_inverse=True)  # [G]
        return {
            "x": torch.from_numpy(x).float(),
            "edge_index": torch.from_numpy(edges.T.copy()),
            "y": torch.from_numpy(y),
            "batch": torch.from_numpy(batch),
        }

    return read


COLLECTIONS = ("MUTAG", "ENZYMES", "PROTEINS")
READERS: dict[str, Callable[[Path], Parts]] = {
    "deezer": _deezer,
    "digits": _digits,
    **{name.lower(): _collection(name) for name in COLLECTIONS},
}
"""Of graphs that PyG has no class for."""


def _member(archive: zipfile.ZipFile, ending: str) -> bytes:
    found = [name for name in archive.namelist() if name.endswith(ending)]
    if not found:
        raise ValueError(f"the archive holds no file *{ending}")
    return archive.read(found[0])
