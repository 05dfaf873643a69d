"""A graph with all that is known of it: one type, one validator, one file.

    GRAPH.safetensors   features, edges, weights, labels, splits, ids and encoding as tensors;
                        in the header a format number, a checksum, and everything that is words

Many graphs are one, too: they lie side by side without an edge between them, and what is learnt is
a target of each graph instead of each node.

Whoever wrote such a file, reading it runs nothing of theirs, and every index is checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .. import _check
from ..adjacency import check_weights
from ..compressed import index_dtype
from ..graph import as_device
from ..io import FileError, read_json, read_tensors, write_tensors
from . import targets
from .encoding import check_number, encoding_of
from .features import append_columns, crc32, from_named_parts, named_parts, values_of
from .registry import info
from .splits import BITS, MASKS, Split, known_split, labelled_split, own_codes, random_split
from .tables.schema import TableNotes, TableSchema
from .told import Match, Texts, Told, search

if TYPE_CHECKING:
    from torch_geometric.data import Data

FORMAT = 3
"""Of the file; 1 was a folder, see `_upgraded`, and 2 had the checksum in its own header."""
FILE = "graph.safetensors"
"""What it is called in a folder."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A graph: features, edges, labels, and what people call its nodes, classes and columns.

    Attributes:
        x: [N, F], float32, dense or CSR, without the encoding.
        edge_index: [2, E], int64.
        y: [N], int64: the class, -1 where it is not known; or labels or numbers, see `targets`. Of
            many graphs [G], that of each graph.
        edge_weight: [E], float32, at least 0; None if all are 1.
        name: what the graph is called.
        classes: the names of the classes or labels, C; by default their numbers. None of numbers.
        ids: the names of the nodes, N; None if they are called by their numbers.
        splits: kind of split -> codes [N, S] of S splits (see `splits.own_codes`): "own" are those
            that the graph brings along, "fixed" is the published one. Of many graphs [G, S].
        schema: how columns of tables became features; None for a graph of the registry.
        notes: what was done with the tables.
        own: whether it is the user's own; False for a graph of the registry.
        source: where it came from, in words.
        encoding: [N, m], float32: Laplacian eigenvectors, see `encoded`.
        kept_in: folder in which computed encodings are kept; None: nowhere.
        batch: [N], int64: of many graphs, that of each node, ascending; None for one graph.
        graph_ids: the names of the graphs, G; None if they are called by their numbers.
        told: the table of the nodes as it was written, with names and pictures; no number depends
            on it. It lies in files of its own, see `told`.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    edge_weight: Tensor | None = None
    name: str = "graph"
    classes: tuple[str, ...] = ()
    ids: list[str] | None = None
    splits: dict[str, Tensor] = field(default_factory=dict)
    schema: TableSchema | None = None
    notes: TableNotes | None = None
    own: bool = True
    source: str = ""
    encoding: Tensor | None = None
    kept_in: Path | None = None
    batch: Tensor | None = None
    graph_ids: list[str] | None = None
    told: Told | None = None

    mapped: ClassVar[bool] = False
    """Whether features and edges lie in files, and are read where they are used."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "classes", class_names(self.classes, self.y))
            for good, words in _requirements(self):
                if not good:
                    raise ValueError(words)
        except (TypeError, ValueError) as error:
            named = isinstance(self.source, str) and self.source
            raise ValueError(f"{self.source}: {error}" if named else str(error)) from None
        for name in ("ids", "graph_ids"):
            given = getattr(self, name)
            if given is not None and all(id == str(i) for i, id in enumerate(given)):
                object.__setattr__(self, name, None)  # they are called by their numbers

    # ------------------------------------------------------------------------------- numbers

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def unit(self) -> str:
        """What a target is of: "node", or of many graphs "graph"."""
        return "node" if self.batch is None else "graph"

    @property
    def target(self) -> str:
        """What is to be learnt of each: a "class", "labels" or a "number"."""
        return targets.kind_of(self.y)

    @property
    def known(self) -> Tensor:
        """Nodes, or graphs, whose target is known: a mask [N] or [G]."""
        return targets.known(self.y)

    @property
    def num_units(self) -> int:
        """How many nodes or graphs have a target, known or not: the length of y."""
        return self.y.size(0)

    @property
    def num_features(self) -> int:
        """Columns of `features`: F + m."""
        return self.x.size(1) + (0 if self.encoding is None else self.encoding.size(1))

    @cached_property
    def features(self) -> Tensor:
        """What a model takes: x with the encoding beside it, [N, F + m], in the layout of x."""
        return self.x if self.encoding is None else append_columns(self.x, self.encoding)

    def encoded(self, m: int) -> Dataset:
        """The same graph with m Laplacian eigenvectors as its encoding; with m = 0 without any.

        Those of a graph of the registry are kept beside its cached file.
        """
        m = check_number(m)
        if (0 if self.encoding is None else self.encoding.size(1)) == m:
            return self
        if m == 0:
            return self._with(encoding=None)
        if self.batch is not None:
            raise ValueError(
                "Laplacian eigenvectors are of one graph, and their signs are arbitrary in each of "
                "many: use --encoding 0"
            )
        file = self.kept_in and self.kept_in / f"{self.name}.encoding-{m}.safetensors"
        found = encoding_of(self.edge_index, self.num_nodes, m, kept=file)
        return self._with(encoding=found.to(self.x.device))

    def split(self, kind: str | None = None, seed: int = 0) -> Split:
        """Which nodes, or of many graphs which graphs, are for training, validation and test.

        Args:
            kind: "A" (50/25/25) or "B" (60/20/20), random over all nodes, or of one's own graph
                class by class over those with a label; "own" or "fixed"; None for the graph's
                protocol, which is "B" for one's own.
            seed: of a random split; for "own" of the registry, which of the graph's splits.
        """
        if self.own:
            kind = "B" if kind is None else kind
            _check.known("split of a graph of one's own", kind, ("A", "B", "own"))
        else:
            kind = known_split(kind, info(self.name))
        if kind in self.splits:
            codes, several = self.splits[kind], kind == "own" and not self.own
            index = _check.integer("seed", seed, 0, _check.MOST_SEED) * several
            n = codes.size(1)
            if index >= n:
                have = f"{n} splits, index 0 to {n - 1}" if n > 1 else "only one split, index 0"
                past = f"{index} is past the end (fewer runs?)"
                raise ValueError(f"graph {self.name!r} has {have} of its own; {past}")
            return Split.from_codes(codes[:, index])
        if kind == "own" and self.own:
            raise ValueError(
                "this graph has no split of its own: name its column with --split-column"
            )
        if kind in ("own", "fixed"):
            raise ValueError(
                f"the {kind} split of {self.name!r} was not read: load it with "
                f"datasets.load({self.name!r}, split='{kind}')"
            )
        if self.own:
            return labelled_split(targets.groups(self.y), kind, seed).to(self.y.device)
        return random_split(self.num_units, kind, seed).to(self.y.device)

    # --------------------------------------------------------------------------------- names

    @property
    def node_ids(self) -> list[str]:
        """What the nodes are called, N: their ids or their numbers."""
        return [str(i) for i in range(self.num_nodes)] if self.ids is None else self.ids

    @property
    def unit_ids(self) -> list[str]:
        """What those are called that have a target: the nodes, or of many graphs the graphs."""
        if self.batch is None:
            return self.node_ids
        return list(map(str, range(self.num_units))) if self.graph_ids is None else self.graph_ids

    def id(self, node: int) -> str:
        """What a node is called."""
        node = _check.index("node", node, self.num_nodes)
        return str(node) if self.ids is None else self.ids[node]

    def title(self, node: int) -> str:
        """What people call a node: its name, if it has one, or else its id."""
        id = self.id(node)
        named = None if self.told is None else self.told.name
        return id if self.told is None or named is None else self.told.columns[named][node] or id

    def picture(self, node: int) -> bytes | None:
        """A small picture of a node, a PNG; None if there is none."""
        node = _check.index("node", node, self.num_nodes)
        pictures = None if self.told is None else self.told.pictures
        return None if pictures is None else pictures[node]

    def found(self, text: str, count: int = 10) -> list[int]:
        """Nodes whose id, name or any column of their table is, begins with or holds a text."""
        return [match.node for match in self.matches(text, count)]

    def matches(self, text: str, count: int = 10) -> list[Match]:
        """As `found`, with where the text stands: see `told.search`."""
        _check.kind("the text to search for", text, str, "a text")
        return search(self._id_texts, self.told, text, _check.integer("count", count, 0))

    @cached_property
    def _id_texts(self) -> Texts:
        return Texts.of(self.node_ids)

    def find(self, id: str) -> int:
        """The number of a node, by its id or else by a name that is its alone; near ids if there
        is none."""
        node = _place("node", id, self.ids, self.num_nodes)
        named = self._named(id) if node is None else [node]
        if len(named) == 1:
            return named[0]
        if named:
            raise ValueError(f"{self._some(named)} are called '{id}': say which by its id")
        raise _unknown("node", id, self.ids, self.num_nodes)

    def _named(self, name: str) -> list[int]:
        """The nodes of that name, spelt so."""
        column = None if self.told is None else self.told.name
        if self.told is None or column is None or not name or "\0" in name:
            return []
        sought = name.encode(errors="surrogatepass")
        return list(self.told.columns[column].find(sought, start=True, end=True))

    def _some(self, nodes: list[int], most: int = 3) -> str:
        """The ids of the first ones, and how many more there are."""
        *ids, last = [f"'{self.id(node)}'" for node in nodes[:most]]
        if len(nodes) > most:
            ids, last = [*ids, last], f"{len(nodes) - most:,} more"
        return f"{', '.join(ids)} and {last}"

    def find_unit(self, id: str) -> int:
        """The number of a node, or of many graphs that of a graph; near ids if there is none."""
        if self.batch is None:
            return self.find(id)
        graph = _place(self.unit, id, self.graph_ids, self.num_units)
        if graph is None:
            raise _unknown(self.unit, id, self.graph_ids, self.num_units)
        return graph

    def find_class(self, name: str | int) -> int:
        """The number of a class or label, by its name or number."""
        if not self.classes:
            raise ValueError(f"there is no class {_check.said(name)}: the target is a number")
        if not isinstance(name, str):
            name = str(_check.integer("class", name, 0))
        if name not in self.classes and name.isdecimal() and int(name) < self.num_classes:
            return int(name)
        return self.classes.index(_check.known("class", name, self.classes))

    def label(self, unit: int) -> str | None:
        """The class, labels or number of a node, or of a graph, as a text; None if not known."""
        _check.index(self.unit, unit, self.num_units)
        value = targets.value(self.y, unit, self.classes)
        return None if value is None else targets.in_words(value)

    @property
    def about_target(self) -> str:
        """How many classes or labels there are, in words; or that it is a number."""
        many = {"class": f"{self.num_classes:,} classes", "labels": f"{self.num_classes:,} labels"}
        return many.get(self.target, f"a number of each {self.unit}")

    def __repr__(self) -> str:
        graphs = "" if self.batch is None else f"{self.num_units:,} graphs, "
        return (
            f"Dataset({self.name}: {graphs}{self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features:,} features, {self.about_target})"
        )

    # -------------------------------------------------------------------------- other places

    def to(self, device: str | torch.device) -> Dataset:
        """The same graph with its tensors on another device."""
        device = as_device(device)
        tensors = ("x", "edge_index", "y", "edge_weight", "encoding", "batch")
        there = {n: None if (t := getattr(self, n)) is None else t.to(device) for n in tensors}
        splits = {kind: codes.to(device) for kind, codes in self.splits.items()}
        return self._with(**there, splits=splits)

    def to_pyg(self, split: Split | None = None) -> Data:
        """A PyG `Data` with `features` as x, y, edges, and the masks of a split.

        By default that is the graph's own one, if it has just one.
        """
        from torch_geometric.data import Data

        if split is not None:
            _check.kind("split", split, Split, "a Split, as Dataset.split gives it")
        own = self.splits.get("own")
        if split is None and own is not None and own.size(1) == 1:
            split = Split.from_codes(own[:, 0])
        return Data(
            x=self.features,
            edge_index=self.edge_index,
            y=self.y,
            edge_weight=self.edge_weight,  # what is None, PyG leaves out
            name=self.name,
            ids=self.ids,
            classes=list(self.classes),
            num_classes=self.num_classes,
            batch=self.batch,
            **({} if split is None else dict(zip(MASKS, split, strict=True))),
        )

    def save(self, path: str | Path) -> None:
        """Write the file that `read` reads, all or nothing."""
        tensors, header = _parts(self)
        write_tensors(_check.path("path", path), tensors, header)

    def renamed(self, name: str) -> Dataset:
        """The same graph under another name."""
        return self._with(name=_check.name("the name of a graph", name))

    def same_as(self, other: Dataset) -> bool:
        """Whether all is the same that numbers depend on, and what they are called."""
        _check.kind("other", other, Dataset, "a Dataset")
        ours, theirs = _numbers(self), _numbers(other)
        same = ours.keys() == theirs.keys() and all(_equal(ours[n], theirs[n]) for n in ours)
        names = ("ids", "classes", "graph_ids")
        return same and all(getattr(self, name) == getattr(other, name) for name in names)

    def fingerprint(self) -> str:
        """A short text that another graph does not have."""
        crc = 0
        for name, tensor in _numbers(self).items():
            crc = crc32(tensor, zlib.crc32(f"{name} {list(tensor.shape)}".encode(), crc))
        return f"{crc:08x}"

    def _with(self, **changes: Any) -> Dataset:
        """A copy with changes that are known to fit: it is not checked again."""
        copy = object.__new__(Dataset)
        for name in (each.name for each in fields(self)):
            given = changes[name] if name in changes else getattr(self, name)
            object.__setattr__(copy, name, given)
        return copy


def read(path: str | Path) -> Dataset:
    """The graph that `Dataset.save` wrote, or that of a run folder, also of an older one.

    A folder holds it as graph.safetensors. If anything does not fit, it is a `FileError`.
    """
    path = _check.path("path", path)
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise FileError(f"{path} is missing: the graph is not there")
    tensors, header = read_tensors(path, "take it from a copy, or make it again from its data")
    try:
        if "format" not in header:
            return _dataset(*_upgraded(path.parent, tensors, header))
        if header["format"] not in (2, FORMAT):
            raise ValueError(f"its format is {header['format']!r}, but this version reads {FORMAT}")
        if header["format"] == 2 and header.pop("checksum") != _checksum(tensors, header):
            raise ValueError("its checksum is another one: the file was changed or is damaged")
        return _dataset(tensors, header)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, FileError):
            raise
        said = (str(error) or type(error).__name__).splitlines()[0]
        missing = " is missing" if isinstance(error, KeyError) else ""  # it says what
        raise FileError(f"the graph in {path} is broken: {said}{missing}") from None


# ------------------------------------------------------------------------------------ validator

FEW_CLASSES = 1_000
"""So many classes any graph may have; more only where it has a node for each."""


def class_names(names: Any, y: Any) -> tuple[str, ...]:
    """The names of the classes or labels as texts; by default the numbers of those in y.

    A label is a number that anybody can write: it alone does not make that many names.
    """
    _check.plain("y", y)
    if y.is_floating_point() and (names is None or not len(names)):
        return tuple(map(str, range(y.size(1)))) if y.dim() == 2 else ()
    if names is not None and not (isinstance(names, tuple | list) and not names):
        return tuple(texts("classes", names))
    largest = int(y.max()) if y.numel() and not y.is_complex() else -1
    if largest >= max(FEW_CLASSES, y.numel()):
        raise ValueError(
            f"y holds the label {largest:,}, but there are {y.numel():,} nodes: classes are "
            "numbered from 0"
        )
    return tuple(str(number) for number in range(largest + 1))


def texts(what: str, values: Any) -> list[str]:
    """Names of things as texts, whatever list they come as."""
    if isinstance(values, Tensor):
        _check.plain(what, values)
    if isinstance(values, Tensor | np.ndarray):
        values = values.tolist()
    listed = isinstance(values, list | tuple | range)
    if not listed or not all(isinstance(value, str | int | float) for value in values):
        raise TypeError(f"{what} must be a list of names, got {_check.said(values)}")
    return [str(value) for value in values]


def _requirements(data: Dataset) -> Iterator[tuple[bool, str]]:
    """Whether a thing fits, and in words what it must be; each may rely on those before it.

    Above all nothing may lead out of an array.
    """
    x, edges, weight = data.x, data.edge_index, data.edge_weight
    _check.name("the name of a graph", data.name)
    _check.flag("own", data.own)
    _check.kind("splits", data.splits, dict, "a dictionary of kinds")
    _check.kind("source", data.source, str, "a text")
    _check.kind("schema", data.schema, (TableSchema, type(None)), "a TableSchema")
    _check.kind("notes", data.notes, (TableNotes, type(None)), "TableNotes")
    _check.kind("kept_in", data.kept_in, (Path, type(None)), "a Path")
    _check.kind("told", data.told, (Told, type(None)), "what is Told of a table")
    for what, tensor in {"edge_index": edges, **data.splits}.items():
        _check.plain(what, tensor)
    _check.floating("x", x)
    got = f"{x.dtype} {_check.shape(x)}"
    yield x.dim() == 2 and x.dtype == torch.float32, f"x must be float32 [N, F], got {got}"
    layouts = (torch.strided, torch.sparse_csr)
    yield x.device.type != "meta", "x is on the device meta, which holds no values"
    yield x.layout in layouts, f"x must be dense or CSR, got {x.layout}"
    _check.finite("x", values_of(x))
    n = x.size(0)
    pairs = edges.dim() == 2 and edges.size(0) == 2 and edges.dtype == torch.int64
    yield pairs, "edge_index must be int64 [2, E]"
    yield _within(edges, 0, n), f"edge_index names a node outside 0..{n - 1}"
    if weight is not None:
        _check.floating("edge_weight", _check.plain("edge_weight", weight))
        fits = weight.shape == edges.shape[1:] and weight.dtype == torch.float32
        fits = fits and bool(((weight >= 0) & weight.isfinite()).all())
        yield fits, "edge_weight must be a number of at least 0 for each edge"
        check_weights(weight, "rw")
    yield from other_requirements(data)


def other_requirements(data: Dataset) -> Iterator[tuple[bool, str]]:
    """As `_requirements`, of all but features and edges, which are taken to fit."""
    (n, width), y, encoding = data.x.shape, data.y, data.encoding
    if not data.own:
        info(data.name)  # refuses one that is not of the registry
    units, unit = n, data.unit
    if data.batch is None:
        yield data.graph_ids is None, "graph_ids are of many graphs: batch says which node is whose"
    else:
        yield from _many_graphs(data, data.batch)
        units = data.num_units
    yield from targets.requirements(y, units, unit, data.classes, data.own)
    yield from _names("ids", data.ids, n, "node")
    if data.told is not None:
        data.told.check(n)
    yield from _names("graph_ids", data.graph_ids, units, "graph")

    for kind, codes in data.splits.items():
        split = f"the split '{_check.known('kind of split', kind, ('own', 'fixed'))}'"
        fits = codes.dim() == 2 and len(codes) == units and codes.dtype == torch.int8
        yield fits, f"{split} must be int8 [{units}, S]"
        yield _within(codes, 0, 8), f"{split} holds codes that mean nothing"
        yield not bool(codes[~data.known].any()), f"{split} names {unit}s without a label"
        parts = [(name, codes & bit > 0) for name, bit in zip(MASKS, BITS, strict=True)]
        for (one, first), (other, second) in combinations(parts, 2):
            same = data.own & (first == second).all(0) & first.any(0)
            yield not bool(same.any()), f"{split} has the same {unit}s in {one} and {other}"
    schema = data.schema
    fits = schema is None or schema.target is None or schema.target_kind == data.target
    yield fits, f"y is {targets.KINDS[data.target]} of each {unit}, which its tables were not"
    columns = width if data.schema is None else data.schema.width
    yield width == columns, f"{width} features, but columns for {columns}"
    if encoding is not None:
        _check.floating("encoding", _check.plain("encoding", encoding))
        fits = encoding.shape[:-1] == (n,) and encoding.dtype == torch.float32
        yield fits, f"encoding must be float32 [{n}, m]"
        _check.finite("encoding", encoding)


def _many_graphs(data: Dataset, batch: Tensor) -> Iterator[tuple[bool, str]]:
    """As `_requirements`, of which node is in which of many graphs."""
    n = data.x.size(0)
    fits = _check.plain("batch", batch).shape == (n,) and batch.dtype == torch.int64
    yield fits, f"batch must be int64 [{n}], the graph of each node"
    yield data.y.dim() > 0, "y must have a target for each graph"
    count = data.y.size(0)
    yield _within(batch, 0, count), f"batch names a graph outside 0..{count - 1}"
    yield bool((batch.diff() >= 0).all()), "batch must ascend: the nodes of a graph stand together"
    empty = torch.bincount(batch, minlength=count) == 0
    first = int(empty.byte().argmax()) if count else 0
    yield not bool(empty.any()), f"graph {first} has no nodes"
    source, target = batch[data.edge_index]
    crossing = source != target
    yield not bool(crossing.any()), "edge_index has an edge between two graphs"


def _names(what: str, ids: Any, count: int, unit: str) -> Iterator[tuple[bool, str]]:
    """As `_requirements`, of what nodes or graphs are called."""
    if ids is not None:
        listed = isinstance(ids, list) and all(isinstance(id, str) for id in ids)
        yield listed, f"{what} must be a list of texts"
        different = len(ids) == len(set(ids)) == count
        yield different, f"{what} must be different, one for each of {count} {unit}s"


def _place(unit: str, id: str, ids: list[str] | None, count: int) -> int | None:
    """The number of a node or graph, if there is one of that id."""
    _check.kind(f"the id of a {unit}", id, str, "a text")
    if ids is None:
        return int(id) if id.isdecimal() and int(id) < count else None
    return ids.index(id) if id in ids else None


def _unknown(unit: str, id: str, ids: list[str] | None, count: int) -> ValueError:
    """That there is no node or graph of that id, and which ones are near."""
    if ids is None:
        where = "this graph has nodes" if unit == "node" else "they are"
        return ValueError(f"there is no {unit} '{id}': {where} 0 to {count - 1}")
    near = get_close_matches(id, ids, n=3, cutoff=0.7)
    hint = " Near: " + ", ".join(f"'{other}'" for other in near) if near else ""
    return ValueError(f"there is no {unit} '{id}' among {count:,} ids.{hint}")


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether all is the same; what is not known is the same as itself."""
    if one.is_floating_point() and one.shape == other.shape and one.dtype == other.dtype:
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return torch.equal(one, other)


def _within(values: Tensor, low: int, end: int) -> bool:
    return not values.numel() or (int(values.min()) >= low and int(values.max()) < end)


# ----------------------------------------------------------------------------------------- file


def _parts(data: Dataset) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What is stored of a graph: tensors, indices as int32 where they fit, and words."""
    tensors = {"edge_index": data.edge_index, "y": data.y, **named_parts(data.x)}
    tensors |= {} if data.batch is None else {"batch": data.batch}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int64 and tensor.numel():
            tensors[name] = tensor.to(index_dtype(int(tensor.max()) + 1))
    tensors |= {f"split_{kind}": codes for kind, codes in data.splits.items()}
    others = {"edge_weight": data.edge_weight, "encoding": data.encoding}
    for name in ("ids", "graph_ids"):
        others[name] = None if (ids := getattr(data, name)) is None else packed(ids)
    tensors |= {name: tensor for name, tensor in others.items() if tensor is not None}
    header = {"format": FORMAT, "shape": list(data.x.shape), "classes": list(data.classes)}
    header |= {"name": data.name, "source": data.source, "own": data.own}
    header["schema"] = data.schema and data.schema.to_dict()
    header["notes"] = data.notes and data.notes.to_dict()
    return tensors, header


def _dataset(tensors: dict[str, Tensor], header: dict[str, Any]) -> Dataset:
    """The inverse of `_parts`, whatever it is given: what does not fit is an error."""
    if not isinstance(header["shape"], list) or len(header["shape"]) != 2:
        raise ValueError(f"shape must be [N, F], got {_check.said(header['shape'])}")
    num_nodes, width = (_check.integer("a size of x", size, 0) for size in header["shape"])
    schema, notes, batch = header["schema"], header["notes"], tensors.get("batch")
    y = _check.plain("y", tensors["y"])
    names = {n: unpacked(tensors[n]) for n in ("ids", "graph_ids") if n in tensors}
    x = from_named_parts(tensors, (num_nodes, width))
    if tuple(x.shape) != (num_nodes, width):
        raise ValueError(f"x is not float32 [{num_nodes}, {width}]")
    return Dataset(
        x=x,
        edge_index=_check.whole("edge_index", tensors["edge_index"]).long(),
        y=y if y.is_floating_point() else _check.whole("y", y).long(),
        edge_weight=tensors.get("edge_weight"),
        classes=header["classes"],
        **names,
        batch=None if batch is None else _check.whole("batch", batch).long(),
        splits={n.removeprefix("split_"): t for n, t in tensors.items() if n.startswith("split_")},
        schema=None if schema is None else TableSchema.from_dict(schema),
        notes=None if notes is None else TableNotes.from_dict(notes),
        encoding=tensors.get("encoding"),
        own=header["own"],
        name=header["name"],
    )._with(source=str(header["source"]))


def _upgraded(
    folder: Path, tensors: dict[str, Tensor], header: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Format 1 as format 2: ids, classes and columns lay in files beside, masks one by one."""
    ids, about = read_json(folder / "ids.json"), read_json(folder / "columns.json")
    masks = [tensors.pop(mask) for mask in MASKS if mask in tensors]
    if masks:
        tensors["split_own"] = own_codes(*masks)
    notes = {"words": about["report"]["notes"], "columns": about["report"]["columns"]}
    shape = [len(ids), header["num_features"]]
    words = {"shape": shape, "classes": about["classes"], "schema": about["recipe"], "notes": notes}
    return tensors | {"ids": packed(ids)}, {"name": "graph", "source": "", "own": True, **words}


def packed(ids: Any) -> Tensor:
    """A list as the bytes of its JSON, [B], which takes a moment for a million of them."""
    return torch.from_numpy(np.frombuffer(json.dumps(ids).encode(), dtype=np.uint8).copy())


def unpacked(bytes: Tensor) -> Any:
    """The inverse of `packed`, whatever it is given."""
    try:
        return json.loads(bytes.numpy().tobytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"ids are not valid JSON ({error})") from None


def _numbers(data: Dataset) -> dict[str, Tensor]:
    """All of a graph that numbers depend on, by name; part of the fingerprints of old studies."""
    found = {"edge_index": data.edge_index.to(index_dtype(data.num_nodes)), "y": data.y}
    found |= named_parts(data.x)
    others = {"edge_weight": data.edge_weight, "batch": data.batch}
    found |= {name: tensor for name, tensor in others.items() if tensor is not None}
    if "own" in data.splits:
        found |= dict(zip(MASKS, Split.from_codes(data.splits["own"][:, 0]), strict=True))
    return found


def _checksum(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    """That of format 2."""
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        crc = crc32(tensors[name], zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"
