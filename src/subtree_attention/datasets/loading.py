"""`load`: from a name to a graph that is ready for training.

The first use reads a private copy of the raw files and leaves one cache file; it becomes visible
by a rename, so several processes may do this at once.
"""

import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .. import io
from ..io import FileError
from . import folders
from .dataset import Dataset, read
from .features import compact, crc32, from_named_parts, normalise_rows
from .folders import Folder
from .readers import Parts, read_raw
from .registry import GraphInfo, info
from .splits import fixed_codes, fold_codes, known_split, own_codes


def load(
    name: str,
    *,
    split: str | None = None,
    data_dir: Folder | None = None,
    mirror: Folder | None = None,
) -> Dataset:
    """Load a graph of the registry, preprocessed as in the paper.

    Args:
        name: one of `names()`.
        split: the kind of split that is wanted, which is refused here if the graph has no such
            one; "fixed", and "own" of a collection, read a file of their own. See `Dataset.split`.
        data_dir: the data folder; default `STA_DATA`, else a folder in the user's cache.
        mirror: an offline copy of the raw files, only read; default `STA_MIRROR`.

    Returns:
        A graph with x [N, F] (float32; CSR where bag-of-words are sparse), edge_index [2, E]
        (symmetric, sorted, no duplicates), y [N], and the splits that it brings along.

    Raises:
        ValueError: no such graph or split, or a raw file is damaged.
        MissingData: the raw files are nowhere and could not be downloaded.
    """
    graph = info(name)
    known_split(split, graph)  # before minutes of reading, not after
    if not graph.raw_files:
        return _preprocessed(graph, read_raw(graph, Path()), "scikit-learn")
    folder = folders.data_folder(data_dir)
    data = _cached(graph, folder) or _first_use(graph, folder, folders.mirror_folder(mirror))
    splits = data.splits
    if split == "fixed":
        splits = splits | {"fixed": fixed_codes(graph, folder, folders.mirror_folder(mirror))}
    if graph.folds and known_split(split, graph) == "own":
        splits = splits | {"own": fold_codes(graph, folder, folders.mirror_folder(mirror))}
    return replace(data, splits=splits, classes=graph.classes, kept_in=folder / "processed")


def _cached(graph: GraphInfo, folder: Path) -> Dataset | None:
    """What an earlier use left behind, if it is whole and this graph."""
    for path, reader in zip(folders.cache_files(graph, folder), (read, _read_v1), strict=True):
        try:
            data = reader(path)
        except (OSError, KeyError, ValueError, SafetensorError):
            continue
        if not data.own and not _differences(graph, data):
            return data
    return None


def _read_v1(path: Path) -> Dataset:
    """A cache file as it was before `Dataset.save` wrote them: 3 meant test, where 4 does now."""
    with safe_open(path, framework="pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    shape = (int(about["num_nodes"]), int(about["num_features"]))
    crc = zlib.crc32(f"{shape} {sorted(tensors)}".encode())
    for name in sorted(tensors):
        crc = crc32(tensors[name], crc)
    if about["crc32"] != f"{crc:08x}":
        raise ValueError(f"{path} is damaged")
    codes = tensors.get("own_splits")
    splits = {} if codes is None else {"own": own_codes(codes == 1, codes == 2, codes == 3)}
    parts = (from_named_parts(tensors, shape), tensors["edge_index"], tensors["y"])
    name, source = path.name.partition(".")[0], about.get("source", "")
    return Dataset(*parts, name=name, splits=splits, own=False, source=source)


def _first_use(graph: GraphInfo, folder: Path, mirror: Path | None) -> Dataset:
    """Read the raw files, and keep the result (and what was downloaded) in the data folder."""
    found = folders.find_raw(graph, folder, mirror)
    files = [str(found / name) for name in graph.raw_files] if found else list(graph.addresses)
    source = ", ".join(dict.fromkeys(files))
    if found is None:
        folders.check_data_folder(folder)
    # Not in the data folder: who may write to that, could put another folder in place of this one.
    with tempfile.TemporaryDirectory(prefix=f"{folders.APP}-") as name:
        private = Path(name)
        raw = private / graph.raw_dir
        raw.mkdir(parents=True)
        try:
            if found is None:
                folders.download(graph, raw, folder)
            else:
                folders.copy_raw(graph, found, raw)
            folders.check_raw_files(graph, raw, files)
            parts = read_raw(graph, private)
        except (MemoryError, folders.MissingData, FileError):
            raise
        except Exception as error:
            # The readers are other people's parsers: a damaged file can raise anything in them.
            folders.refuse_full_disk(error, private.parent, "TMPDIR")
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            words = f"cannot read {graph.name!r}, damaged file? {source} ({why})"
            raise ValueError(words) from None
        data = _preprocessed(graph, parts, source)
        _keep(graph, data, folder, downloaded=None if found else raw)
    return data


def _preprocessed(graph: GraphInfo, parts: Parts, source: str) -> Dataset:
    """A graph of the registry, preprocessed as the paper's experiments do; another is refused."""
    x = compact(parts["x"])
    data = Dataset(**{**parts, "x": x}, name=graph.name, own=False, source=source)  # checks indices
    x = normalise_rows(x) if graph.row_normalised else x
    edge_index = _undirected(data.edge_index, data.num_nodes, graph.self_loops)
    data = replace(data, x=x, edge_index=edge_index)
    wrong = _differences(graph, data)
    if wrong:
        raise ValueError(f"this is not the graph {graph.name!r}: {', '.join(wrong)} in {source}")
    return replace(data, classes=graph.classes, source=", ".join(graph.urls[:1]) or source)


def _undirected(edge_index: Tensor, num_nodes: int, self_loops: bool) -> Tensor:
    """Every edge in both directions and, if asked for, a loop at every node: each once, sorted."""
    nodes = torch.arange(num_nodes if self_loops else 0)
    source, target = torch.cat([edge_index, edge_index.flip(0), nodes.expand(2, -1)], dim=1)
    key = (source * num_nodes + target).unique()
    return torch.stack([key // num_nodes, key % num_nodes])


def _differences(graph: GraphInfo, data: Dataset) -> list[str]:
    """In which counts a graph differs from the registry's, in words: it is another graph."""
    own_splits = 0 if graph.folds else graph.num_own_splits
    counts = {
        "graphs": (data.num_units if data.batch is not None else 0, graph.num_graphs),
        "nodes": (data.num_nodes, graph.num_nodes),
        "edges": (data.num_edges, graph.num_edges),
        "features": (data.x.size(1), graph.num_features),
        "classes": (int(data.y.max()) + 1, graph.num_classes),
        "splits": (data.splits["own"].size(1) if "own" in data.splits else 0, own_splits),
    }
    return [
        f"{got:,} {what} instead of {expected:,}"
        for what, (got, expected) in counts.items()
        if got != expected
    ]


def _keep(graph: GraphInfo, data: Dataset, folder: Path, downloaded: Path | None) -> None:
    """Write the raw files that were downloaded and the cache file into the data folder."""
    try:
        if downloaded:
            for name in graph.raw_files:
                io.write_bytes(folder / graph.raw_dir / name, (downloaded / name).read_bytes())
        data.save(folders.cache_files(graph, folder)[0])
    except (OSError, FileError, SafetensorError) as error:
        folders.refuse_full_disk(error, folder)
        # The graph is in memory; that it could not be cached only costs time at the next load.
