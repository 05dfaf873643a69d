"""`load`: from a name to a graph that is ready for training.

The first use reads the raw files in a private folder and leaves one cache file; it becomes visible
by a rename, so several processes may do this at once.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import add_remaining_self_loops, to_undirected

from .cache import read_graph, save_graph
from .features import compact, normalise_rows, values_of
from .folders import (
    Folder,
    cache_file,
    check_raw_files,
    data_folder,
    download,
    find_raw,
    mirror_folder,
    refuse_full_disk,
)
from .registry import GraphInfo, info
from .splits import apply_split, known_split


def load(
    name: str,
    *,
    data_dir: Folder | None = None,
    mirror: Folder | None = None,
    split: str | None = None,
    seed: int = 0,
) -> Data:
    """Load a graph of the registry, preprocessed as in the paper.

    Args:
        name: one of `names()`.
        data_dir: the data folder; default `STA_DATA`, else a folder in the user's cache.
        mirror: an offline copy of the raw files, only read; default `STA_MIRROR`.
        split: "A" (random 50/25/25), "B" (random 60/20/20), "own", "fixed", or None for the
            protocol that the graph's results are reported on.
        seed: of a random split; for "own", which of the graph's splits.

    Returns:
        Data with x [N, F] (float32; CSR where bag-of-words are sparse), edge_index [2, E]
        (symmetric, sorted, no duplicates), y [N], train_mask, val_mask and test_mask [N], name,
        num_classes, and own_splits [N, S] where the graph brings splits along.

    Raises:
        ValueError: no such graph or split, or a raw file is damaged.
        MissingData: the raw files are nowhere and could not be downloaded.
    """
    graph = info(name)
    known_split(split, graph)  # before minutes of reading, not after
    data = _embedded(graph) if not graph.raw_files else _from_files(graph, data_dir, mirror)
    data.name = graph.name
    data.num_classes = graph.num_classes
    return apply_split(data, split, seed=seed, data_dir=data_dir, mirror=mirror)


def _embedded(graph: GraphInfo) -> Data:
    data = _preprocess(graph, graph.reader(Path()))
    _check_counts(graph, data, source="scikit-learn")
    return data


def _from_files(graph: GraphInfo, data_dir: Folder | None, mirror: Folder | None) -> Data:
    folder = data_folder(data_dir)
    data = read_graph(cache_file(graph, folder))
    if data is None or _differences(graph, data):
        return _first_use(graph, folder, mirror_folder(mirror))
    return data


def _first_use(graph: GraphInfo, folder: Path, mirror: Path | None) -> Data:
    """Read the raw files, and keep the result (and what was downloaded) in the data folder."""
    found = find_raw(graph, folder, mirror)
    with _staging(folder, must_be_kept=found is None) as (staging, keep):
        raw = staging / graph.raw_dir
        raw.mkdir(parents=True)
        if found is None:
            download(graph, raw, folder)
        else:
            _link(graph, found, raw)
        files = [str(found / f) for f in graph.raw_files] if found else list(graph.urls)
        data = _read(graph, staging, files)
        if keep:
            _keep(graph, data, staging, folder, downloaded=found is None)
    return data


def _read(graph: GraphInfo, staging: Path, files: list[str]) -> Data:
    """Read, preprocess and check the raw files in the staging folder; `files` is for messages."""
    check_raw_files(graph, staging / graph.raw_dir, files)
    source = ", ".join(files)
    try:
        data = graph.reader(staging)
    except MemoryError:
        raise
    except Exception as error:
        # The readers are other people's parsers: a damaged file can raise anything in them.
        refuse_full_disk(error, staging.parent)
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise ValueError(f"cannot read {graph.name!r}, damaged file? {source} ({reason})") from None
    _check_tensors(data, source)
    data = _preprocess(graph, data)
    _check_counts(graph, data, source)
    return data


def _preprocess(graph: GraphInfo, data: Data) -> Data:
    """Symmetrise the edges and normalise the features, as the paper's experiments do."""
    num_nodes = data.x.shape[0]
    edge_index = to_undirected(data.edge_index, num_nodes=num_nodes)
    if graph.self_loops:
        edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=num_nodes)
        edge_index = to_undirected(edge_index, num_nodes=num_nodes)  # sorts again
    x = compact(data.x)
    data.x = normalise_rows(x) if graph.row_normalised else x
    data.edge_index = edge_index
    return data


def _check_tensors(data: Data, source: str) -> None:
    """Raise `ValueError` unless x [N, F], edge_index [2, E] and y [N] fit each other."""
    x, edge_index, y = data.x, data.edge_index, data.y
    num_nodes = x.shape[0]
    if not bool(torch.isfinite(values_of(x)).all()):
        raise ValueError(f"{source}: the features hold NaN or infinity")
    if not _within(edge_index, num_nodes):
        raise ValueError(f"{source}: an edge ends at a node outside 0..{num_nodes - 1}")
    if tuple(y.shape) != (num_nodes,) or y.dtype != torch.int64 or int(y.min()) < 0:
        raise ValueError(f"{source}: expected one class from 0 for each of {num_nodes} nodes")


def _within(indices: Tensor, size: int) -> bool:
    return indices.numel() == 0 or (int(indices.min()) >= 0 and int(indices.max()) < size)


def _check_counts(graph: GraphInfo, data: Data, source: str) -> None:
    """Raise `ValueError` if the counts are not the registry's: the file is another graph."""
    wrong = _differences(graph, data)
    if wrong:
        raise ValueError(f"this is not the graph {graph.name!r}: {', '.join(wrong)} in {source}")


def _differences(graph: GraphInfo, data: Data) -> list[str]:
    counts = {
        "nodes": (data.x.shape[0], graph.num_nodes),
        "edges": (data.edge_index.shape[1], graph.num_edges),
        "features": (data.x.shape[1], graph.num_features),
        "classes": (int(data.y.max()) + 1, graph.num_classes),
        "splits": (data.own_splits.shape[1] if "own_splits" in data else 0, graph.num_own_splits),
    }
    return [
        f"{got:,} {what} instead of {expected:,}"
        for what, (got, expected) in counts.items()
        if got != expected
    ]


@contextmanager
def _staging(folder: Path, must_be_kept: bool) -> Iterator[tuple[Path, bool]]:
    """A private folder and whether results can be moved from it into the data folder.

    It lies inside the data folder, so that moving is a rename. A data folder that cannot be written
    to does not stop a graph whose raw files are at hand: it is read in a temporary folder instead.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = tempfile.mkdtemp(prefix=".staging-", dir=folder)
        keep = True
    except OSError as error:
        refuse_full_disk(error, folder)
        if must_be_kept:
            raise PermissionError(
                f"cannot write to the data folder {folder} ({error.strerror}); "
                "name another one with STA_DATA"
            ) from None
        staging = tempfile.mkdtemp(prefix="subtree-attention-")
        keep = False
    try:
        yield Path(staging), keep
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _link(graph: GraphInfo, found: Path, raw: Path) -> None:
    """Let the raw files appear in the staging folder without a second copy where possible."""
    for name in graph.raw_files:
        try:
            os.symlink((found / name).resolve(), raw / name)
        except OSError:  # Windows without the right to make links
            shutil.copyfile(found / name, raw / name)


def _keep(graph: GraphInfo, data: Data, staging: Path, folder: Path, downloaded: bool) -> None:
    """Move the downloaded raw files and the cache file into place, each by one rename."""
    target = cache_file(graph, folder)
    try:
        if downloaded:
            (folder / graph.raw_dir).mkdir(parents=True, exist_ok=True)
            for name in graph.raw_files:
                os.replace(staging / graph.raw_dir / name, folder / graph.raw_dir / name)
        save_graph(data, staging / target.name, source=", ".join(graph.urls[:1]))
        target.parent.mkdir(exist_ok=True)
        os.replace(staging / target.name, target)
    except (OSError, SafetensorError) as error:
        refuse_full_disk(error, folder)
        # The graph is in memory; that it could not be cached only costs time at the next load.
