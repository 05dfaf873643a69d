"""A graph that stays on disk: features, edges and labels in files of which batches read what they
need.

    store.json      sizes, names, schema, notes and what each file holds; written last
    x.npy           [N, F], float32; sparse ones as x_values, x_columns and x_row_starts
    rowptr.npy      [N + 1]: where the edges that end at each node begin
    col.npy         [E]: the nodes where they start, ascending for each node; int32 where it fits
    told.safetensors    the table of the nodes as it was written, see `told`
    edge_weight.npy [E], float32; and y, ids, encoding, split_own, ... as in `Dataset`

A store stands at its place when all of it is written, and what is not whole is refused.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..adjacency import check_ends, check_extremes, weight_extremes
from ..compressed import csr_rows
from ..graph import Graph, as_device
from ..io import (
    FileError,
    new_folder,
    parse_checked,
    read_bytes,
    read_header,
    with_checksum,
    write_json,
    write_tensors,
)
from .dataset import FILE as GRAPH_FILE
from .dataset import Dataset, class_names, other_requirements, texts, unpacked
from .dataset import read as read_file
from .disk import (
    EDGES,
    PART,
    ArrayWriter,
    EdgeSorter,
    RowsWriter,
    checksum,
    mapped,
    write_array,
)
from .features import csr_tensor, is_csr, named_parts, values_of
from .tables.schema import TableNotes, TableSchema
from .told import Told

if TYPE_CHECKING:
    from .pyg_stores import FeatureStore, GraphStore

FORMAT = 1
FILE = "store.json"
"""Says what the others hold."""
ROWS = "rowptr", "col"
NAMES = "ids", "graph_ids"
SPARSE = "x_values", "x_columns", "x_row_starts"
FILES = ["x", *SPARSE, *ROWS, "edge_weight", "y", "encoding", "batch", *NAMES]
FILES += ["split_own", "split_fixed"]
REMEDY = "take it from a copy, or write it again"


class Store:
    """A graph in a folder, opened without reading it: see :meth:`open`.

    Attributes:
        folder: where it is.
        num_nodes, num_edges, num_features: N, E and F.
        rowptr, col, edge_weight: its edges in compressed rows that receive, [N + 1], [E] and [E] or
            None.
        dataset: all of it as a `Dataset`, whose edge_index and ids are made when asked for.
    """

    def __init__(self, folder: Path, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.folder, self._about, self._tensors = folder, about, tensors
        self.rowptr, self.col = (tensors[name] for name in ROWS)
        self.edge_weight = tensors.get("edge_weight")
        self.num_nodes, self.num_features = about["shape"]
        self.num_edges = self.col.numel()

    # ------------------------------------------------------------------------------- opening

    @classmethod
    def open(cls, folder: str | Path, verify: bool = False) -> Store:
        """The store in a folder; its tensors are mapped, and read where they are used.

        What is written to such a tensor stays in this process. A store that is not whole is a
        `FileError`: sizes are looked at always, values and checksums if it is asked for.

        Args:
            folder: of the store.
            verify: read all files once and check them as `Dataset` does: for a store that comes
                from somewhere else.
        """
        folder = _check.path("folder", folder)
        about = _about(folder)
        with _in_words(folder):
            files = _check.kind("files", about["files"], dict, "a table")
            for name in files:
                _check.known("file", name, FILES)
            tensors = {name: mapped(folder / f"{name}.npy", files[name]) for name in files}
            _check_sizes(about, tensors)
            store = cls(folder, about, tensors)
            _ = store.dataset
        if _check.flag("verify", verify):
            store.verify()
        return store

    def verify(self) -> None:
        """Read all files and check them; what is wrong is a `FileError`."""
        for name, about in self._about["files"].items():
            path = self.folder / f"{name}.npy"
            if checksum(path) != about["crc32"]:
                raise FileError(
                    f"{path} is damaged or was changed: its checksum is another one: {REMEDY}"
                )
        with _in_words(self.folder):
            _check_rows(self.rowptr, self.col, self.edge_weight, self.num_nodes)
            for block in values_of(self.dataset.x).flatten().split(EDGES):
                _check.finite("x", block)
            _refuse(other_requirements(self.dataset))
        if (told := self.dataset.told) is not None:
            _ = told.columns, told.pictures

    @cached_property
    def dataset(self) -> Dataset:
        """The graph as a `Dataset`."""
        return StoredDataset._of(self, self._fields())

    def graph(self, transition: str | None = "rw", self_loops: bool = False) -> Graph:
        """The graph to walk on, of the edges in the files: see :meth:`Graph.from_csr`."""
        return Graph.from_csr(self.rowptr, self.col, self.edge_weight, transition, self_loops)

    @property
    def feature_store(self) -> FeatureStore:
        """Features and labels for loaders of PyG, which take it with the graph store."""
        from .pyg_stores import FeatureStore

        return FeatureStore(self)

    @property
    def graph_store(self) -> GraphStore:
        """Edges for loaders of PyG."""
        from .pyg_stores import GraphStore

        return GraphStore(self)

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        names = [FILE, *(f"{name}.npy" for name in self._tensors)]
        return sum((self.folder / name).stat().st_size for name in names)

    def _fields(self) -> dict[str, Any]:
        """What a `Dataset` has of it, but edge_index and ids."""
        tensors, about = self._tensors, self._about
        schema, notes = about["schema"], about["notes"]
        found = {name: tensors.get(name) for name in ("y", "edge_weight", "encoding", "batch")}
        found |= {name: about[name] for name in ("name", "own", "source")}
        return found | {
            "x": features_of(tensors, tuple(about["shape"])),
            "classes": tuple(texts("classes", about["classes"])),
            "splits": {n[6:]: t for n, t in tensors.items() if n.startswith("split_")},
            "schema": None if schema is None else TableSchema.from_dict(schema),
            "notes": None if notes is None else TableNotes.from_dict(notes),
            "graph_ids": self._names("graph_ids"),
            "kept_in": None,
            "told": Told.read(self.folder, self.num_nodes),
        }

    def _names(self, what: str) -> list[str] | None:
        return unpacked(self._tensors[what]) if what in self._tensors else None

    def __reduce__(self) -> Any:
        return Store.open, (self.folder.absolute(),)  # another process maps the same files

    def __repr__(self) -> str:
        return f"Store({self.folder}: {self.num_nodes:,} nodes, {self.num_edges:,} edges)"

    # ------------------------------------------------------------------------------- writing

    @classmethod
    def write(cls, dataset: Dataset, folder: str | Path) -> Store:
        """Write a graph that is in memory; edges are then in the order of their ends.

        The folder must not be there yet. It stands at its place when all of it is written.
        """
        _check.kind("dataset", dataset, Dataset, "a Dataset")
        with StoreWriter.new(folder, dataset.num_nodes) as writer:
            writer.features(_rows(dataset.x))
            writer.edges(_edges(dataset.edge_index, dataset.edge_weight))
            for name in ("y", "encoding", "batch"):
                writer.array(name, getattr(dataset, name))
            for kind, codes in dataset.splits.items():
                writer.array(f"split_{kind}", codes)
            for name in NAMES:
                if (ids := getattr(dataset, name)) is not None:
                    writer.names(name, [ids])
            if dataset.told is not None:
                dataset.told.write(writer.folder)
            words = {n: getattr(dataset, n) for n in ("name", "own", "source", "schema", "notes")}
            writer.finish(classes=dataset.classes, **words)
        return cls.open(folder)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        x: Tensor | Iterable[Tensor],
        edges: Tensor | Iterable[Tensor | tuple[Tensor, Tensor]],
        y: Tensor,
        *,
        name: str = "graph",
        classes: tuple[str, ...] | list[str] = (),
        ids: list[str] | None = None,
        splits: dict[str, Tensor] | None = None,
        schema: TableSchema | None = None,
        notes: TableNotes | None = None,
        source: str = "",
    ) -> Store:
        """Write a graph that comes in parts, of which one at a time is in memory.

        All is checked as `Dataset` does, part by part.

        Args:
            folder: it must not be there yet; it stands at its place when all of it is written.
            x: features [n, F] of some nodes after those of the nodes before, dense or CSR.
            edges: some of the edge_index [2, e] in any order, or pairs of that and weights [e].
            y: as in `Dataset`, of all nodes, like what follows.
        """
        with StoreWriter.new(folder, len(_check.plain("y", y))) as writer:
            writer.features([x] if isinstance(x, Tensor) else x)
            writer.edges([edges] if isinstance(edges, Tensor) else edges)
            writer.array("y", y)
            if ids is not None:
                writer.names("ids", [texts("ids", ids)])
            for kind, codes in (splits or {}).items():
                writer.array(f"split_{kind}", codes)
            words: dict[str, Any] = {"name": name, "schema": schema, "notes": notes}
            writer.finish(classes=class_names(classes, y), source=source, own=True, **words)
        return cls.open(folder)


class StoredDataset(Dataset):
    """A `Dataset` whose tensors lie in a store, and whose edges and ids are made when asked for."""

    mapped = True
    store: Store

    @classmethod
    def _of(cls, store: Store, given: dict[str, Any]) -> StoredDataset:
        found = object.__new__(cls)
        vars(found).update(given, store=store)
        return found

    @cached_property
    def edge_index(self) -> Tensor:
        store = self.store
        return torch.stack([store.col.long(), csr_rows(store.rowptr, store.num_edges).long()])

    @cached_property
    def ids(self) -> list[str] | None:
        return self.store._names("ids")

    @property
    def num_edges(self) -> int:
        return self.store.num_edges

    @property
    def compressed_rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Edges as `Graph.from_csr` takes them: rowptr [N + 1], col [E] and weights [E] or None."""
        return self.store.rowptr, self.store.col, self.store.edge_weight

    def to(self, device: str | torch.device) -> Dataset:
        """The same graph, or a copy in the memory of another device."""
        return self if as_device(device).type == "cpu" else super().to(device)

    def _with(self, **changes: Any) -> Dataset:
        if changes.keys() & {"edge_index", "edge_weight"}:  # these are not those of the store
            return super()._with(**changes)
        kept = {each.name for each in fields(self)} & vars(self).keys()
        return self._of(self.store, {name: vars(self)[name] for name in kept} | changes)

    def save(self, path: str | Path) -> None:
        """Write a file that says where the store is: `read` opens it there."""
        place = str(self.store.folder.resolve())
        write_tensors(_check.path("path", path), {}, {"store": place, "crc32": self.fingerprint()})

    def same_as(self, other: Dataset) -> bool:
        """Whether the other one lies in the same store, or in one with the same files."""
        _check.kind("other", other, Dataset, "a Dataset")
        return isinstance(other, StoredDataset) and self.fingerprint() == other.fingerprint()

    def fingerprint(self) -> str:
        """Of the checksums of all files, which were found when they were written."""
        files = self.store._about["files"]
        told = json.dumps({name: files[name]["crc32"] for name in sorted(files)})
        return f"{zlib.crc32(told.encode()):08x}"

    def __reduce__(self) -> Any:
        """By the place of the store, which another process opens too, and what was changed."""
        own = vars(self.store.dataset)
        changed = {n: part for n, part in vars(self).items() if part is not own.get(n)}
        return _reopened, (self.store, {n: part for n, part in changed.items() if n != "store"})


def read(path: str | Path) -> Dataset:
    """The graph that `Dataset.save` wrote, or that of a run folder, also of an older one.

    A folder holds it as graph.safetensors. If anything does not fit, it is a `FileError`; so it is
    where the store that the file names is gone, or another one.
    """
    path = _check.path("path", path)
    path = path / GRAPH_FILE if path.is_dir() else path
    header = read_header(path, REMEDY) if path.exists() else {}
    if "store" not in header:
        return read_file(path)
    place = _check.path("the place of a store", header["store"])
    if not (place / FILE).exists():
        raise FileError(f"the graph of {path} is the store {place}, which is not there any more")
    found = Store.open(place).dataset
    if found.fingerprint() != header.get("crc32"):
        raise FileError(f"the store {place} is another one than {path} was made with")
    return found


def _reopened(store: Store, changed: dict[str, Any]) -> Dataset:
    return store.dataset._with(**changed)


# -------------------------------------------------------------------------------------- writing


class StoreWriter:
    """The files of a store that is being written into a folder which nobody reads yet.

    Args:
        folder: it is there, and empty.
        num_nodes: N.
    """

    def __init__(self, folder: Path, num_nodes: int) -> None:
        self.folder, self.num_nodes = folder, num_nodes
        self.files: dict[str, dict[str, Any]] = {}
        self._open = ExitStack()

    @classmethod
    @contextmanager
    def new(cls, folder: str | Path, num_nodes: int) -> Iterator[StoreWriter]:
        """A writer of a store that stands at its place when all has gone well."""
        with new_folder(_check.path("folder", folder)) as inside:
            writer = cls(inside, num_nodes)
            with writer._open:  # what an error leaves open is closed
                yield writer

    def array(self, name: str, values: Tensor | None) -> None:
        """A whole array; None: there is none."""
        if values is not None:
            self.files[_check.known("file", name, FILES)] = write_array(self._path(name), values)

    def names(self, name: str, blocks: Iterable[list[str]]) -> None:
        """What nodes are called, some at a time, as JSON; nothing if these are their numbers."""
        path, start, numbers = self._path(_check.known("file", name, NAMES)), 0, True
        writer = self._new(name, "uint8")
        for some in blocks:
            written = json.dumps(some).encode()[1:-1]
            numbers &= all(id == str(i) for i, id in enumerate(some, start))
            writer.add(np.frombuffer((b", " if start else b"[") + written, np.uint8))
            start += len(some)
        writer.add(np.frombuffer(b"]" if start else b"[]", np.uint8))
        about = writer.close()
        if numbers:
            path.unlink()
        else:
            self.files[name] = about

    def features(self, blocks: Iterable[Tensor]) -> None:
        """Features [n, F], some nodes after the other, all dense or all CSR."""
        writers: dict[str, ArrayWriter] = {}
        entries, rows, width, sparse = 0, 0, 0, False
        for block in blocks:
            _check.floating("x", block)
            if block.dim() != 2 or block.dtype != torch.float32:
                got = f"{block.dtype} {_check.shape(block)}"
                raise ValueError(f"x must be float32 [N, F], got {got}")
            if writers and (is_csr(block), block.size(1)) != (sparse, width):
                raise ValueError("the parts of x must all be dense or all CSR, and equally wide")
            _check.finite("x", values_of(block))
            if not writers:
                width, sparse = block.size(1), is_csr(block)
                writers = self._feature_files(width, sparse)
            parts = named_parts(block)
            if sparse:
                starts = parts["x_row_starts"] + entries
                parts["x_row_starts"] = starts if not rows else starts[1:]
                entries += len(parts["x_values"])
            for name, part in parts.items():
                writers[name].add(part)
            rows += len(block)
        if rows != self.num_nodes:
            raise ValueError(f"x has {rows:,} rows, but there are {self.num_nodes:,} nodes")
        writers = writers or self._feature_files(0, False)
        self.files |= {name: writer.close() for name, writer in writers.items()}
        self.width = width

    def _feature_files(self, width: int, sparse: bool) -> dict[str, ArrayWriter]:
        if not sparse:
            return {"x": self._new("x", "float32", width)}
        kinds = dict(zip(SPARSE, ("float32", "int64", "int64"), strict=True))
        return {name: self._new(name, kind) for name, kind in kinds.items()}

    def _new(self, name: str, kind: str, *width: int) -> ArrayWriter:
        writer = ArrayWriter(self._path(name), kind, *width)
        self._open.callback(writer.shut)
        return writer

    def sorter(self, weighted: bool) -> EdgeSorter:
        """What sorts edges that come in any order."""
        sorter = EdgeSorter(self.folder, self.num_nodes, weighted)
        self._open.callback(sorter.close)
        return sorter

    def rows(self, sorter: EdgeSorter) -> RowsWriter:
        """What takes them when they are sorted."""
        rows = RowsWriter(self.folder, self.num_nodes, sorter.count, sorter.weighted)
        self._open.callback(rows.shut)
        return rows

    def edges(self, blocks: Iterable[Tensor | tuple[Tensor, Tensor]]) -> None:
        """Edges [2, e] in any order, with weights [e] or without."""
        sorter: EdgeSorter | None = None
        extremes = [0.0, math.inf, 0.0]
        for block in blocks:
            ends, weight = (block, None) if isinstance(block, Tensor) else block
            if sorter is None:
                sorter = self.sorter(weight is not None)
            if (weight is not None) != sorter.weighted:
                raise ValueError("all parts of the edges have weights, or none has")
            _check_edges(ends, weight, self.num_nodes)
            if weight is not None and weight.numel():
                total, smallest, least = weight_extremes(weight).tolist()
                extremes[0] += total
                extremes[1:] = min(extremes[1], smallest), min(extremes[2], least)
                check_extremes(extremes, weight, "rw")
            source, dest = ends.numpy()
            sorter.add(source, dest, None if weight is None else weight.numpy())
        sorter = sorter or self.sorter(weighted=False)
        rows = self.rows(sorter)
        for keys, weights in sorter.sorted():
            rows.add(keys, weights)
        sorter.close()
        self.files |= rows.close()

    def finish(self, *, classes: Iterable[str], named: bool = False, **words: Any) -> None:
        """Check what was not checked yet, and write what says that all is there.

        `named`: ids are known to be different, one for each node.
        """
        schema, notes = words.pop("schema"), words.pop("notes")
        about = {
            "format": FORMAT,
            "shape": [self.num_nodes, self.width],
            "edges": self.files["col"]["shape"][0],
            "classes": list(classes),
            **words,
            "schema": schema and schema.to_dict(),
            "notes": notes and notes.to_dict(),
            "files": self.files,
        }
        tensors = {name: mapped(self._path(name), file) for name, file in self.files.items()}
        data = Store(self.folder, about, tensors).dataset
        _refuse(other_requirements(data._with(ids=None) if named else data))
        write_json(self.folder / FILE, with_checksum(about))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def _rows(x: Tensor) -> Iterator[Tensor]:
    """The rows of features, some at a time; sparse ones are small enough."""
    if is_csr(x):
        yield x
    else:
        yield from x.detach().cpu().split(max(1, PART // max(4, 4 * x.size(1))))


def _edges(
    edge_index: Tensor, edge_weight: Tensor | None
) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
    """Edges, some at a time."""
    edges = edge_index.cpu()
    if edge_weight is None:
        yield edges
    else:
        yield edges, edge_weight.cpu()


def _check_edges(ends: Any, weight: Tensor | None, num_nodes: int) -> None:
    """As `Dataset` does."""
    _check.whole("edge_index", _check.plain("edge_index", ends))
    if ends.dim() != 2 or ends.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, E], got {_check.shape(ends)}")
    check_ends([int(end) for end in ends.aminmax()] if ends.numel() else [], num_nodes)
    if weight is not None:
        _check.floating("edge_weight", _check.plain("edge_weight", weight))
        if weight.shape != ends.shape[1:]:
            raise ValueError("edge_weight must be a number of at least 0 for each edge")


# -------------------------------------------------------------------------------------- reading


def _about(folder: Path) -> dict[str, Any]:
    """What store.json says, if it is of this format."""
    if not folder.is_dir():
        half = folder.with_name(f".{folder.name}.tmp").is_dir()
        why = "its writing was stopped or is not over: write it again" if half else "no such folder"
        raise FileError(f"there is no store in {folder}: {why}")
    if not (folder / FILE).exists():
        raise FileError(f"{folder} is no store: {FILE} is missing")
    about = parse_checked(read_bytes(folder / FILE), folder / FILE, REMEDY)
    if about.get("format") != FORMAT:
        raise FileError(
            f"{folder}: its format is {about.get('format')!r}, but this version reads {FORMAT}"
        )
    return about


@contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        said = (str(error) or type(error).__name__).splitlines()[0]
        missing = " is missing" if isinstance(error, KeyError) else ""  # it says what
        raise FileError(f"the store in {folder} is broken: {said}{missing}: {REMEDY}") from None


def _check_sizes(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse files that do not fit together; their values are not looked at."""
    n, width = (_check.integer("a size of x", size, 0) for size in about["shape"])
    edges = _check.integer("edges", about["edges"], 0, 2**62)
    wanted = {"rowptr": [n + 1], "col": [edges], "edge_weight": [edges]}
    wanted |= {"x": [n, width]} if "x" in tensors else {"x_row_starts": [n + 1]}
    kinds = {"rowptr": tensors["col"].dtype, "edge_weight": torch.float32, "x": torch.float32}
    for name, shape in wanted.items():
        if name == "edge_weight" and name not in tensors:
            continue
        given = tensors[name]
        if [*given.shape] != shape or given.dtype != kinds.get(name, given.dtype):
            raise ValueError(f"{name} must be {shape}, got {given.dtype} {_check.shape(given)}")
    if int(tensors["rowptr"][0]) or int(tensors["rowptr"][-1]) != edges:
        raise ValueError(f"rowptr must lead from 0 to {edges}")


def features_of(tensors: dict[str, Tensor], shape: tuple[int, int]) -> Tensor:
    """Features from the arrays of a store, dense or CSR."""
    if "x" in tensors:
        return tensors["x"]
    values, columns, row_starts = (tensors[name] for name in SPARSE)
    return csr_tensor(row_starts, columns, values, shape)


def _check_rows(rowptr: Tensor, col: Tensor, weight: Tensor | None, num_nodes: int) -> None:
    """Refuse edges that lead out of an array, or that a walk cannot take."""
    if bool((rowptr.diff() < 0).any()):
        raise ValueError("rowptr must ascend")
    for some in col.split(EDGES) if col.numel() else ():
        check_ends([int(end) for end in some.aminmax()], num_nodes)
    for each in () if weight is None else weight.split(EDGES):
        check_extremes(weight_extremes(each).tolist(), each, "rw")


def _refuse(requirements: Iterator[tuple[bool, str]]) -> None:
    for good, words in requirements:
        if not good:
            raise ValueError(words)
