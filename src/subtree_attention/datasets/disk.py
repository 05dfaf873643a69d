"""Arrays and edges on disk that are larger than memory: written in order, sorted, mapped.

An array is a file of NumPy's own format (.npy), written part after part. Edges come in any order
and are sorted there, by receiver and sender.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ..compressed import INT32_MAX
from ..io import FileError, open_regular

HEAD = 128
"""Bytes of a file before its values: the sizes are known when it ends, and written there then."""
_MAGIC = b"\x93NUMPY\x01\x00"
KINDS = {
    name: np.dtype(name).newbyteorder("<") for name in ("float64", "float32", "int64", "int32")
}
KINDS |= {name: np.dtype(name) for name in ("int8", "uint8")}
"""Types of values, as files of any machine have them."""
PART = 2**24
"""Bytes that are read together."""
EDGES = 2**22
"""Edges that are read or written together."""
SORTED = 2**23
"""Edges that are sorted in memory, about."""
CELLS = 2**16
"""Into how many pieces the pairs of nodes are cut, of which the buckets are made."""
_NORESERVE = 0x4000
"""MAP_NORESERVE of Linux: else a file larger than the memory is refused, which nobody writes to."""


# --------------------------------------------------------------------------------------- arrays


class ArrayWriter:
    """A .npy file that is written in order; at first under no name that anybody reads.

    Args:
        path: of the file.
        kind: of its values, see `KINDS`.
        width: the sizes of a row but the first: () of numbers, (F,) of rows.
    """

    def __init__(self, path: Path, kind: str, *width: int) -> None:
        self._kind, self._width, self._path = kind, width, path
        self._file: BinaryIO = path.open("xb")
        self._file.write(bytes(HEAD))
        self.rows, self._crc = 0, 0

    def add(self, rows: Tensor | np.ndarray) -> None:
        """More rows, [n] or [n, F]."""
        values = rows.numpy() if isinstance(rows, Tensor) else rows
        values = np.ascontiguousarray(values, KINDS[self._kind])
        if values.shape[1:] != self._width:
            raise ValueError(f"rows must have {self._width} values, got {values.shape[1:]}")
        part = _bytes(values)
        self.rows, self._crc = self.rows + len(values), zlib.crc32(part, self._crc)
        self._file.write(part)

    def shut(self) -> None:
        """Close the file, whether or not it is whole."""
        self._file.close()

    def close(self) -> dict[str, Any]:
        """Write the head; what a reader has to know of the file."""
        shape = (self.rows, *self._width)
        order = {"descr": KINDS[self._kind].str, "fortran_order": False, "shape": shape}
        words = repr(order).encode()
        size = HEAD - len(_MAGIC) - 2
        self._file.seek(0)
        self._file.write(_MAGIC + size.to_bytes(2, "little") + words.ljust(size - 1) + b"\n")
        self._file.close()
        return {"dtype": self._kind, "shape": list(shape), "crc32": f"{self._crc:08x}"}


def _bytes(values: np.ndarray) -> memoryview:
    """The bytes of an array without gaps, which are not copied."""
    return values.reshape(-1).view(np.uint8).data


def write_array(path: Path, values: Tensor) -> dict[str, Any]:
    """A whole array as a file; what a reader has to know of it."""
    writer = ArrayWriter(path, str(values.dtype).removeprefix("torch."), *values.shape[1:])
    for start in range(0, len(values), max(1, PART // max(1, values[:1].nbytes))):
        writer.add(values[start : start + max(1, PART // max(1, values[:1].nbytes))])
    return writer.close()


def mapped(path: Path, about: dict[str, Any]) -> Tensor:
    """The array of a file, of which nothing is read before it is used.

    A change to it stays in memory and never reaches the file. What does not fit is a `FileError`.
    """
    kind, shape = KINDS[about["dtype"]], tuple(about["shape"])
    count = int(np.prod(shape, dtype=object))
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != HEAD + count * kind.itemsize:
            raise FileError(
                f"{path} has {size:,} bytes, but {HEAD + count * kind.itemsize:,} were written"
            )
        head = file.read(HEAD)
        if not head.startswith(_MAGIC) or repr(kind.str).encode() not in head:
            raise FileError(f"{path} is no array of {about['dtype']}")
        if not count:
            return torch.from_numpy(np.zeros(shape, kind))
        return torch.from_numpy(np.frombuffer(_map(file), kind, count, HEAD).reshape(shape))


def _map(file: BinaryIO) -> mmap.mmap:
    """The bytes of a file; pages that are changed become our own."""
    if os.name == "nt":
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | (_NORESERVE if os.uname().sysname == "Linux" else 0)
    return mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ | mmap.PROT_WRITE)


def checksum(path: Path) -> str:
    """That of the values of a file, which is read for it."""
    crc = 0
    with open_regular(path) as file:
        file.seek(HEAD)
        while part := file.read(PART):
            crc = zlib.crc32(part, crc)
    return f"{crc:08x}"


# ---------------------------------------------------------------------------------------- edges


@dataclass
class EdgeSorter:
    """Edges that come in any order and leave by receiver and sender, with little memory.

    They are written as they come, as numbers `receiver * N + sender`; counted by size, they are
    then written once more into buckets of which each can be sorted in memory.

    Attributes:
        folder: where the files are while they are needed.
        num_nodes: N.
        weighted: whether each has a weight, float64.
    """

    folder: Path
    num_nodes: int
    weighted: bool = False

    def __post_init__(self) -> None:
        self.count = 0
        self._cell = max(1, -(-(self.num_nodes**2) // CELLS))  # numbers of a cell
        self._filled = np.zeros(CELLS, np.int64)
        names = ["edges", *(["weights"] if self.weighted else [])]
        self._paths = [self.folder / f".{name}.tmp" for name in names]
        self._files = [path.open("w+b") for path in self._paths]

    def add(self, source: np.ndarray, dest: np.ndarray, weight: np.ndarray | None = None) -> None:
        """More edges: sources, receivers and weights, [e] each; their ends are nodes."""
        for start in range(0, len(source), EDGES):
            some = slice(start, start + EDGES)
            key = dest[some].astype(np.int64) * self.num_nodes + source[some]
            self.count += len(key)
            self._filled += np.bincount(key // self._cell, minlength=CELLS)
            self._files[0].write(_bytes(key))
            if self.weighted:
                assert weight is not None
                self._files[1].write(_bytes(weight[some].astype(np.float64)))

    def sorted(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Numbers of edges, some at a time, and their weights; those of duplicates stay in the
        order in which they came, and are never apart."""
        cells = self._buckets()
        ends = np.concatenate([[0], np.cumsum(self._filled)])[cells]
        if len(cells) > 2:
            self._part(cells, ends)
        for start, end in pairwise(ends.tolist()):
            found = [self._read(file, start, end) for file in self._files]
            if not self.weighted:
                found[0].sort()
                yield found[0], None
            else:
                order = np.argsort(found[0], kind="stable")
                yield found[0][order], found[1].view(np.float64)[order]

    def close(self) -> None:
        """Remove the files, if that was not done."""
        for path, file in zip(self._paths, self._files, strict=True):
            file.close()
            path.unlink(missing_ok=True)

    def _buckets(self) -> np.ndarray:
        """The cells at which buckets begin and end: about `SORTED` edges each."""
        upto = np.cumsum(self._filled)
        cuts = np.searchsorted(upto, np.arange(SORTED, max(self.count, 1), SORTED)) + 1
        return np.unique(np.concatenate([[0], cuts, [CELLS]]))

    def _part(self, cells: np.ndarray, ends: np.ndarray) -> None:
        """Write the edges once more, those of a bucket together."""
        paths = [path.with_suffix(".parted") for path in self._paths]
        parted = [path.open("w+b") for path in paths]
        cursor = ends[:-1].copy()
        for start in range(0, self.count, EDGES):
            some = [self._read(f, start, min(start + EDGES, self.count)) for f in self._files]
            bucket = np.searchsorted(cells, some[0] // self._cell, "right") - 1
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            sizes = np.bincount(bucket, minlength=len(cursor))
            for values, file in zip(some, parted, strict=True):
                values = values[order]
                for which, (a, b) in enumerate(pairwise(accumulate(sizes, initial=0))):
                    file.seek(8 * int(cursor[which]))
                    file.write(_bytes(values[a:b]))
            cursor += sizes
        self.close()
        self._paths, self._files = paths, parted

    def _read(self, file: BinaryIO, start: int, end: int) -> np.ndarray:
        file.seek(8 * start)
        return np.fromfile(file, np.int64, end - start)


def merged(keys: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted edges, each once; weights of duplicates added up."""
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if weights is not None and len(keys):
        weights = np.add.reduceat(weights, first)
    return keys[first], weights


class RowsWriter:
    """Compressed rows of sorted edges: the files rowptr and col, and edge_weight if they have any.

    Args:
        folder: of the files.
        num_nodes: N.
        most: how many edges there may be.
        weighted: whether they have weights.
    """

    def __init__(self, folder: Path, num_nodes: int, most: int, weighted: bool) -> None:
        self._folder, self._num_nodes = folder, num_nodes
        self._kind = "int32" if max(num_nodes, most) <= INT32_MAX else "int64"
        self._degree = np.zeros(num_nodes + 1, np.int64)  # of the node before
        self._files = {"col": ArrayWriter(folder / "col.npy", self._kind)}
        if weighted:
            self._files["edge_weight"] = ArrayWriter(folder / "edge_weight.npy", "float32")

    def add(self, keys: np.ndarray, weights: np.ndarray | None) -> None:
        """More edges, all of them behind those before."""
        if not len(keys):
            return
        dest, source = np.divmod(keys, self._num_nodes)
        first, last = int(dest[0]), int(dest[-1])
        self._degree[first + 1 : last + 2] += np.bincount(dest - first, minlength=last - first + 1)
        self._files["col"].add(source)
        if weights is not None:
            self._files["edge_weight"].add(weights)

    def shut(self) -> None:
        """Close the files, whether or not they are whole."""
        for writer in self._files.values():
            writer.shut()

    def close(self) -> dict[str, dict[str, Any]]:
        """What a reader has to know of each file."""
        files = {name: writer.close() for name, writer in self._files.items()}
        rowptr = ArrayWriter(self._folder / "rowptr.npy", self._kind)
        rowptr.add(np.cumsum(self._degree))
        return files | {"rowptr": rowptr.close()}
