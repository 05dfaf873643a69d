"""What the user's table says of the nodes, as it was written: to be shown and searched.

Nothing is learnt from it, so it lies in files of its own beside a graph:

    told.safetensors       every column as the bytes of its texts; in the header which one names
    pictures.safetensors   only where nodes have some: small PNGs, one after the other

They are read when something of them is first asked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import _check
from ..io import FileError, read_tensors, write_tensors

FORMAT = 1
TOLD, PICTURES = "told.safetensors", "pictures.safetensors"
REMEDY = "take it from a copy, or do without it, and nodes are shown by ids and features"
END = b"\0"
"""Before the first text, and behind every one: none has it inside."""
ACCENTS = re.compile(r"[\u0300-\u036f]+")
"""What letters wear, once it is taken from them."""
STAND_IN = "\N{REPLACEMENT CHARACTER}"
SHOWN = 60
"""Characters of an excerpt."""


class Texts:
    """N texts in one piece of memory, which is looked through at once.

    Args:
        packed: a zero, and then the UTF-8 of each text with a zero behind it.
    """

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Those of a list; a zero in one is shown as what cannot be shown."""
        given = [text.replace("\0", STAND_IN) for text in texts]
        return cls.joined("\0".join(given)) if given else cls(END)

    @classmethod
    def joined(cls, whole: str) -> Texts:
        """Those of one text, with zeros between them."""
        return cls(f"\0{whole}\0".encode(errors="surrogatepass"))

    @classmethod
    def blank(cls, count: int) -> Texts:
        """So many, of which none says anything."""
        return cls(END * (count + 1))

    def __len__(self) -> int:
        return self.packed.count(END) - 1

    def __getitem__(self, node: int) -> str:
        start, end = self._zeros[node], self._zeros[node + 1]
        return _text(self.packed[start + 1 : end])

    def __add__(self, others: Texts) -> Texts:
        return Texts(self.packed + others.packed[1:])

    def find(self, sought: bytes, start: bool = False, end: bool = False) -> Iterator[int]:
        """The numbers of the texts that hold some bytes, ascending; at their start or end only,
        if so said, or as a whole if both are."""
        whole, place = self.packed, 0
        sought = END * start + sought + END * end
        while (place := whole.find(sought, place)) >= 0:
            row = int(np.searchsorted(self._zeros, place, side="right")) - 1
            if row + 1 == len(self._zeros):
                return  # behind the last one
            yield row
            place = int(self._zeros[row + 1])

    @cached_property
    def folded(self) -> Texts:
        """The same, as `fold` has it."""
        whole = self.packed
        return Texts(whole.lower() if whole.isascii() else fold(_text(whole)))

    @cached_property
    def _zeros(self) -> np.ndarray:
        """Where the zeros stand, [N + 1]."""
        return np.flatnonzero(np.frombuffer(self.packed, np.uint8) == 0)


class Pictures:
    """A small PNG of each of N nodes, or none.

    Args:
        packed: one after the other.
        sizes: [N], int32: their bytes, 0 where there is none.
    """

    def __init__(self, packed: bytes, sizes: np.ndarray) -> None:
        self.packed, self.sizes = packed, sizes
        self._ends = np.cumsum(sizes, dtype=np.int64)

    @classmethod
    def of(cls, pictures: Iterable[bytes | None]) -> Pictures:
        """Those of a list."""
        given = [picture or b"" for picture in pictures]
        return cls(b"".join(given), np.array([len(picture) for picture in given], np.int32))

    @classmethod
    def blank(cls, count: int) -> Pictures:
        """No picture of so many nodes."""
        return cls(b"", np.zeros(count, np.int32))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, node: int) -> bytes | None:
        end, size = int(self._ends[node]), int(self.sizes[node])
        return self.packed[end - size : end] or None

    def __add__(self, others: Pictures) -> Pictures:
        sizes = np.concatenate([self.sizes, others.sizes])
        return Pictures(self.packed + others.packed, sizes)


class Match(NamedTuple):
    """A node that a search has found.

    Attributes:
        node: its number.
        column: where the text stands; None: it is the id.
        excerpt: the part of what is written there that holds the text.
    """

    node: int
    column: str | None
    excerpt: str


class Told:
    """A table of nodes as it was written.

    Attributes:
        columns: its columns but for the ids, by name, in its order: N texts each, "" where nothing
            stands.
        name: the column that says what nodes are called, if any.
        pictures: a small picture of each node, if there are any.
    """

    def __init__(
        self,
        columns: dict[str, Texts] | None = None,
        name: str | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        self._columns, self._name, self._pictures = columns or {}, name, pictures

    @property
    def columns(self) -> dict[str, Texts]:
        return self._columns

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def pictures(self) -> Pictures | None:
        return self._pictures

    @property
    def ordered(self) -> list[tuple[str, Texts]]:
        """The columns as they are searched: that of the names first."""
        return sorted(self.columns.items(), key=lambda column: column[0] != self.name)

    def check(self, count: int) -> None:
        """Refuse what is not of so many nodes."""
        parts = {f"the column '{name}'": texts for name, texts in self.columns.items()}
        for what, part in {**parts, "pictures": self.pictures}.items():
            if part is not None and len(part) != count:
                raise ValueError(f"{what} must be of {count} nodes, not of {len(part)}")
        if self.name is not None and self.name not in self.columns:
            raise ValueError(f"there is no column '{self.name}' that could name nodes")

    def joined(self, count: int, others: Told | None, more: int) -> Told:
        """What is told of `count` nodes, and of `more` nodes behind them by another table."""
        return _Joined((self, count), (others or Told(), more))

    def write(self, folder: Path) -> None:
        """Write the files that `read` reads."""
        if self.columns:
            header = {"format": FORMAT, "columns": list(self.columns), "name": self.name}
            texts = enumerate(self.columns.values())
            tensors = {str(place): _tensor(each.packed) for place, each in texts}
            write_tensors(folder / TOLD, tensors, header)
        if self.pictures is not None:
            sizes = torch.from_numpy(self.pictures.sizes)
            tensors = {"packed": _tensor(self.pictures.packed), "sizes": sizes}
            write_tensors(folder / PICTURES, tensors, {"format": FORMAT})

    @staticmethod
    def read(folder: Path, count: int) -> Told | None:
        """What is told in a folder of so many nodes, opened when it is asked for; None if nothing
        is. What is damaged, or is of another graph, is a `FileError` then."""
        there = any((folder / name).exists() for name in (TOLD, PICTURES))
        return _Kept(folder, count) if there else None


class _Joined(Told):
    """What two tables say of some nodes and those behind them, put together when it is asked for.

    Args:
        parts: what is told, and of how many nodes.
    """

    def __init__(self, *parts: tuple[Told, int]) -> None:
        self._parts = parts

    def check(self, count: int) -> None:
        _check_count(count, sum(each for _, each in self._parts))

    @cached_property
    def columns(self) -> dict[str, Texts]:
        (first, count), (second, more) = self._parts
        return {
            name: first.columns.get(name, Texts.blank(count))
            + second.columns.get(name, Texts.blank(more))
            for name in {**first.columns, **second.columns}
        }

    @property
    def name(self) -> str | None:
        return self._parts[0][0].name or self._parts[1][0].name

    @cached_property
    def pictures(self) -> Pictures | None:
        first, second = (told.pictures or Pictures.blank(count) for told, count in self._parts)
        return first + second if first.packed or second.packed else None


class _Kept(Told):
    """What is told in a folder."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count

    def check(self, count: int) -> None:
        _check_count(count, self._count)

    @cached_property
    def _told(self) -> Told:
        tensors, header = _read(self._folder / TOLD)
        if not header:
            return Told()
        with _in_words(self._folder / TOLD):
            names = _check.kind("columns", header["columns"], list, "a list")
            found = {str(name): Texts(_bytes(tensors, str(i))) for i, name in enumerate(names)}
            name = _check.kind("name", header["name"], (str, type(None)), "a text")
            (told := Told(found, name)).check(self._count)
        return told

    @property
    def columns(self) -> dict[str, Texts]:
        return self._told.columns

    @property
    def name(self) -> str | None:
        return self._told.name

    @cached_property
    def pictures(self) -> Pictures | None:
        tensors, header = _read(self._folder / PICTURES)
        if not header:
            return None
        with _in_words(self._folder / PICTURES):
            sizes, packed = tensors["sizes"], _bytes(tensors, "packed")
            if sizes.dtype != torch.int32 or sizes.dim() != 1 or bool((sizes < 0).any()):
                raise ValueError("sizes are whole numbers of bytes")
            if int(sizes.sum()) != len(packed):
                raise ValueError(f"{len(packed)} bytes are not those that sizes say")
            found = Pictures(packed, sizes.numpy())
            Told(pictures=found).check(self._count)
        return found


def _check_count(wanted: int, given: int) -> None:
    if wanted != given:
        raise ValueError(f"what is told must be of {wanted} nodes, not of {given}")


# ---------------------------------------------------------------------------------------- search


def search(ids: Texts, told: Told | None, text: str, count: int) -> list[Match]:
    """At most so many nodes of which a text is said, in any case, with accents or without.

    First come those whose id or name it is, then whose id or name begins with it, then holds it;
    and then, in the same order, those of which another column says it.
    """
    sought, found = fold(text), dict[int, str | None]()
    if not sought:
        return [Match(node, None, ids[node]) for node in range(min(count, len(ids)))]
    if END in sought:
        return []
    columns: list[tuple[str | None, Texts]] = [(None, ids), *(told.ordered if told else ())]
    named = 2 if told is not None and told.name is not None else 1
    exactly = ids.find(text.encode(errors="surrogatepass"), start=True, end=True)
    found |= dict.fromkeys(exactly)
    for some in (columns[:named], columns[named:]):
        for node, column in _ordered(some, sought):
            if len(found) >= count:
                break
            found.setdefault(node, column)
    said = dict(columns)
    return [
        Match(node, column, excerpt(said[column][node], text)) for node, column in found.items()
    ][:count]


def _ordered(
    columns: list[tuple[str | None, Texts]], sought: bytes
) -> Iterator[tuple[int, str | None]]:
    """Nodes of which some bytes are, begin or are in what a column says, in this order."""
    folded = [(column, texts.folded) for column, texts in columns]
    having = [(column, texts) for column, texts in folded if sought in texts.packed]
    for start, end in ((True, True), (True, False), (False, False)):
        for column, texts in having:
            for node in texts.find(sought, start, end):
                yield node, column


def fold(text: str) -> bytes:
    """The bytes of a text, where upper and lower case are one, and so are letters with accents and
    without."""
    return _folded(text).encode(errors="surrogatepass")


def _folded(text: str) -> str:
    return ACCENTS.sub("", unicodedata.normalize("NFKD", text)).casefold()


def excerpt(text: str, sought: str, most: int = SHOWN) -> str:
    """The part of a text that holds another one, with a sign where something is left out."""
    if len(text) <= most:
        return text
    at = text.casefold().find(sought.casefold())
    if at < 0:  # it has other accents; letters that are taken apart move it a little
        at = _folded(text).find(_folded(sought))
    start = min(max(0, at - most // 4), len(text) - most)
    end = start + most
    return "…" * (start > 0) + text[start:end] + "…" * (end < len(text))


# ----------------------------------------------------------------------------------------- files


def _text(written: bytes) -> str:
    try:
        return written.decode(errors="surrogatepass")
    except UnicodeDecodeError:  # somebody else's file
        return written.decode(errors="replace")


def _tensor(written: bytes) -> torch.Tensor:
    """Bytes [B], uint8, for a file."""
    return torch.from_numpy(np.frombuffer(written, np.uint8).copy())


def _bytes(tensors: dict[str, torch.Tensor], name: str) -> bytes:
    """The inverse of `_tensor`."""
    found = tensors[name]
    if found.dtype != torch.uint8 or found.dim() != 1:
        raise ValueError("it must hold bytes")
    return found.numpy().tobytes()


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What is in a file, if it is there."""
    if not path.exists():
        return {}, {}
    tensors, header = read_tensors(path, REMEDY)
    if header.get("format") != FORMAT:
        given = _check.said(header.get("format"))
        raise FileError(f"{path} has format {given}, and this version reads {FORMAT}: {REMEDY}")
    return tensors, header


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        missing = " is missing" if isinstance(error, KeyError) else ""  # it says what
        raise FileError(f"{path} is broken: {error}{missing}: {REMEDY}") from None
