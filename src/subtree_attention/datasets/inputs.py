"""What a model sees of a node, by name: which features are those of which column.

An `Input` is a column of a table, a matrix or the encoding. It also says what its features become
if a node had another value there, or lacked a word; means, spreads and words stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from .. import _check
from .dataset import Dataset
from .tables.columns import Category, Column, Matrix, Number, Tags, Text, Vector
from .tables.errors import TableError
from .tables.schema import TableSchema

WORDY = (Category, Tags, Text)
"""Kinds that have a feature for each of some words."""
NAMED = 8
"""Words and columns that a refusal names at most."""


@dataclass(frozen=True)
class Input:
    """The features of one column.

    Attributes:
        name: of the column.
        start: the first of its features.
        width: how many they are.
        column: how values become features; None of an encoding and of labels that are shown, which
            belong to no column.
        labels: that are shown, if it stands for them.
    """

    name: str
    start: int
    width: int
    column: Column | None = None
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """As in the notes of a table, "encoding" or "labels"."""
        if self.column is None:
            return "labels" if self.labels else "encoding"
        return self.column.kind

    @property
    def places(self) -> slice:
        """Of its features among all."""
        return slice(self.start, self.start + self.width)

    @property
    def takes_values(self) -> bool:
        """Whether it came from a column of a table."""
        return self.column is not None and not isinstance(self.column, Matrix)

    @property
    def words(self) -> list[str]:
        """What has a feature of its own: words, tags or values; none of numbers."""
        return self.column.values if isinstance(self.column, WORDY) else []

    @cached_property
    def _place_of(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def called(self, place: int) -> str:
        """What one of its features is called: "title: the", "age" or "x 12"."""
        if words := self.words or self.labels:
            return f"{self.name}: {words[place]}"
        flagged = isinstance(self.column, Number | Vector) and self.column.flagged
        if flagged and place == self.width - 1:
            return f"{self.name}: missing"
        return self.name if isinstance(self.column, Number) else f"{self.name} {place}"

    def with_value(self, value: Any) -> np.ndarray:
        """Its features where a node has another value, None or empty where that is missing."""
        from .tables.read import read_table

        if self.column is None or not self.takes_values:
            raise ValueError(
                f"'{self.name}' is {self.width:,} features: set one, such as '{self.name} 0'"
            )
        missing = value is None or value == ""
        try:
            table = read_table({self.name: [None if missing else value]}, "nodes")
            encoded = self.column.encode(table)
        except (TableError, TypeError, ValueError, OverflowError) as error:
            said = str(error).partition(": ")[2] or str(error)
            why = said.partition(", but holds")[0]
            raise ValueError(f"'{self.name}' cannot be {_check.said(value)}: {why}") from None
        if encoded.unseen:
            raise ValueError(f"'{self.name}' cannot be {_check.said(value)}: {self._near(value)}")
        block = encoded.block
        return (block if isinstance(block, np.ndarray) else block.toarray())[0]

    def without_word(self, features: np.ndarray, word: str) -> np.ndarray:
        """Its features [width] where a node lacks a word that it has.

        The words of a text then have length 1 together again, as those of every text.
        """
        if not self.words:
            raise ValueError(
                f"'{self.name}' is a {self.kind} and has no words: set it, {self.name}=VALUE"
            )
        place = self._place_of.get(word)
        if place is None or not features[place]:
            own = [self.words[at] for at in np.argsort(-features)[: np.count_nonzero(features)]]
            near = get_close_matches(word, own, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            more = ", ..." * (len(own) > NAMED)
            there = f"It has: {', '.join(own[:NAMED])}{more}" if own else "It has none"
            raise ValueError(f"the node has no '{word}' in '{self.name}'.{hint} {there}")
        others = features.astype(np.float64)
        others[place] = 0.0
        length = np.linalg.norm(others)
        if isinstance(self.column, Text) and length:
            others *= np.linalg.norm(features.astype(np.float64)) / length
        return others.astype(features.dtype)

    def _near(self, value: Any) -> str:
        near = get_close_matches(str(value), self.words, n=3, cutoff=0.5)
        known = near or self.words[:NAMED]
        more = ", ..." * (not near and len(self.words) > NAMED)
        return f"{'near' if near else 'known'} are {', '.join(known)}{more}"


class Inputs(Sequence[Input]):
    """All that a model sees of the nodes of a dataset.

    Args:
        dataset: with its encoding, if the model takes one.
        shown: classes that labels are shown of, if they are.
    """

    def __init__(self, dataset: Dataset, shown: Sequence[str] = ()) -> None:
        self._schema, self._own = dataset.schema, dataset.x.size(1)
        schema: TableSchema | None = dataset.schema
        columns: Sequence[Column] = schema.columns if schema else ()
        if schema and schema.graphs:
            columns = (*columns, *schema.graphs.columns)
        if sum(column.width for column in columns) != self._own:  # of the registry, for one
            columns = (Matrix("feature", self._own),)
        found, start = [], 0
        for column in columns:
            found.append(Input(column.name, start, column.width, column))
            start += column.width
        if dataset.encoding is not None:
            found.append(Input("eigenvector", start, dataset.encoding.size(1)))
            start += dataset.encoding.size(1)
        if shown:  # see `nn.labels.Labelled`
            labels = *shown, "is known"
            found.append(Input("label", start, len(labels), labels=labels))
        self._inputs = found

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, place: Any) -> Any:
        return self._inputs[place]

    def of(self, feature: int) -> Input:
        """Whose a feature is."""
        starts = [each.start for each in self._inputs]
        return self._inputs[int(np.searchsorted(starts, feature, side="right")) - 1]

    def called(self, feature: int) -> str:
        """What a feature is called."""
        own = self.of(feature)
        return own.called(feature - own.start)

    def find(self, name: str) -> Input:
        """A column by its name; near names if there is none."""
        for each in self._inputs:
            if each.name == name and each.column is not None:
                return each
        if self._schema is not None:
            why = dict(self._schema.left_out)
            why |= {self._schema.id: "it names the nodes"}
            why |= {self._schema.target or "": "it is what is learnt"}
            if name in why:
                raise ValueError(f"'{name}' is no feature of this model: {why[name]}")
        names = [each.name for each in self._inputs if each.column is not None]
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f" Near: {', '.join(near)}." if near else ""
        more = ", ..." * (len(names) > NAMED)
        raise ValueError(
            f"there is no column '{name}' among the features.{hint} "
            f"There are: {', '.join(names[:NAMED])}{more}"
        )

    def feature(self, name: str) -> int | None:
        """The number of a feature of a matrix, "x 12" or "12"; None if it is no such name."""
        matrix = [each for each in self._inputs if isinstance(each.column, Matrix)]
        for each in matrix:
            place = name.removeprefix(each.name).strip()
            if place.isascii() and place.isdecimal() and int(place) < each.width:
                return each.start + int(place)
        return None
