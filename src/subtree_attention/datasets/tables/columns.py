"""What a column of the nodes becomes: numbers, categories, text and tags, as columns of x.

Each kind learns what it needs from a table (`fit`), keeps it as plain values that JSON can hold,
and gives the features of that or of another table (`encode`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ... import _check
from .read import Table, TableError, counted
from .values import Encoded, numbers_of, one_hot, tags_of

WORDS = 5000
TAGS = 10000
"""Columns that a text and a list of tags may have at most: the most frequent words are kept."""


@dataclass(frozen=True)
class Number:
    """A standardised number; where any is missing, the mean and a second column of 0 and 1."""

    kind: ClassVar[str] = "number"
    name: str
    mean: float
    std: float
    flagged: bool

    @classmethod
    def fit(cls, table: Table, name: str) -> Number:
        values = numbers_of(table, name)
        if values.null_count() == len(values):
            raise TableError(f"{table.name}: column '{name}' holds no number at all")
        there = values.drop_nulls().to_numpy()
        largest = float(np.abs(there).max()) or 1.0
        if not math.isfinite(2 * largest):  # as far as two of them can be apart
            raise TableError(f"{table.name}: the numbers in column '{name}' are too large")
        scaled = there / largest  # the squares of tiny or huge values do not exist
        mean, std = float(scaled.mean()) * largest, float(scaled.std()) * largest
        same = std <= max(1e-12 * abs(mean), sys.float_info.min)  # but for rounding
        return cls(name, mean, 1.0 if same else std, values.null_count() > 0)

    @property
    def width(self) -> int:
        return 1 + self.flagged

    def encode(self, table: Table) -> Encoded:
        values = numbers_of(table, self.name)
        standard = ((values - self.mean) / self.std).fill_null(0.0).to_numpy()
        far = np.abs(standard) > np.finfo(np.float32).max
        if far.any():
            raise TableError(
                f"{table.place(int(far.argmax()))}: column '{self.name}' holds a number too far "
                f"from those that were learnt from ({counted(int(far.sum()), 'such row')})"
            )
        columns = [standard] + [values.is_null().to_numpy()] * self.flagged
        return Encoded(np.stack(columns, 1).astype(np.float32), values.null_count())

    def check(self) -> None:
        numbers = isinstance(self.mean, int | float) and isinstance(self.std, int | float)
        if not numbers or not math.isfinite(self.mean) or not 0 < self.std < math.inf:
            raise ValueError("its mean and deviation are not numbers")
        if not isinstance(self.flagged, bool):
            raise ValueError("'flagged' is true or false")


@dataclass(frozen=True)
class _Words:
    """What has a column for each of some words."""

    name: str
    values: list[str]

    @property
    def width(self) -> int:
        return len(self.values)

    def check(self) -> None:
        if not isinstance(self.values, list) or not all(isinstance(v, str) for v in self.values):
            raise ValueError("its values are a list of texts")
        if len(set(self.values)) != len(self.values):
            raise ValueError("a value of it is there twice")
        _check.integer("seen", getattr(self, "seen", 0), 0)  # of kinds that keep the most frequent


@dataclass(frozen=True)
class Category(_Words):
    """One column of 0 and 1 for each value; a missing or an unknown value is all zeros."""

    kind: ClassVar[str] = "category"

    @classmethod
    def fit(cls, table: Table, name: str) -> Category:
        return cls(name, table.texts(name, "--features").drop_nulls().unique().sort().to_list())

    def encode(self, table: Table) -> Encoded:
        texts = table.texts(self.name, "--features")
        return one_hot(np.arange(len(texts)), texts, self.values, len(texts), texts.null_count())


@dataclass(frozen=True)
class Tags(_Words):
    """One column of 0 and 1 for each tag; a value is a list of tags, in CSV as JSON.

    `seen` is how many different tags there were, of which the most frequent are kept.
    """

    kind: ClassVar[str] = "tags"
    seen: int

    @classmethod
    def fit(cls, table: Table, name: str) -> Tags:
        _, tags, _ = tags_of(table, name)
        if not len(tags):
            raise TableError(f"{table.name}: column '{name}' holds no tag at all")
        counts = tags.value_counts().sort(["count", "tag"], descending=[True, False])
        return cls(name, counts["tag"].head(TAGS).sort().to_list(), len(counts))

    def encode(self, table: Table) -> Encoded:
        rows, tags, missing = tags_of(table, self.name)
        return one_hot(rows, tags, self.values, len(table), int(missing.sum()))


@dataclass(frozen=True)
class Text(_Words):
    """TF-IDF of the words of a text: rows of length 1. `seen` as in `Tags`."""

    kind: ClassVar[str] = "text"
    idf: list[float]
    seen: int

    @classmethod
    def fit(cls, table: Table, name: str) -> Text:
        from sklearn.feature_extraction.text import CountVectorizer

        texts, counter = table.texts(name, "--features").fill_null("").to_list(), CountVectorizer()
        try:
            counts = counter.fit_transform(texts)  # [N, words]
        except ValueError:
            raise TableError(f"{table.name}: column '{name}' holds no words") from None
        words, nodes = counter.get_feature_names_out(), np.bincount(counts.indices)
        # A word of a single node tells nothing about others; but a small table has no other words.
        least = 2 if nodes.max() > 1 else 1
        kept = np.sort(np.argsort(-nodes, kind="stable")[: min(WORDS, int((nodes >= least).sum()))])
        idf = np.log((1 + len(texts)) / (1 + nodes[kept])) + 1
        return cls(name, words[kept].tolist(), idf.tolist(), len(words))

    def encode(self, table: Table) -> Encoded:
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = table.texts(self.name, "--features")
        vectorizer = TfidfVectorizer(vocabulary=self.values)
        vectorizer.idf_ = np.array(self.idf)
        block = vectorizer.transform(texts.fill_null("").to_list()).astype(np.float32)
        # A text of which no word is known is to the model what an unknown category is.
        silent = int((np.diff(block.indptr) == 0).sum()) - texts.null_count()
        return Encoded(scipy.sparse.csr_matrix(block), texts.null_count(), silent)

    def check(self) -> None:
        super().check()
        numbers = isinstance(self.idf, list) and len(self.idf) == len(self.values)
        if not numbers or not all(isinstance(i, int | float) and 0 < i < 1e9 for i in self.idf):
            raise ValueError("'idf' is a positive number for each word")


@dataclass(frozen=True)
class Matrix:
    """Features that came as a matrix, taken as they are: no table has them."""

    kind: ClassVar[str] = "matrix"
    name: str
    columns: int

    @property
    def width(self) -> int:
        return self.columns

    def encode(self, table: Table) -> Encoded:
        raise TableError(
            "this model was trained on a matrix of features, not on columns of a table: "
            "predict from Python, with model(x, graph)"
        )

    def check(self) -> None:
        _check.integer("columns", self.columns, 0)


Column = Number | Category | Tags | Text | Matrix
KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Category, Text, Tags)}
"""The kinds that a column of a table may have, by name."""


def to_dict(column: Column) -> dict[str, Any]:
    """A column as JSON can hold it."""
    return {"kind": column.kind, **asdict(column)}


def from_dict(content: Any) -> Column:
    """The inverse of `to_dict`; what does not fit is a `ValueError`."""
    content = dict(content)
    kinds = {**KINDS, Matrix.kind: Matrix}
    kind = kinds[_check.known("kind of column", content.pop("kind", None), kinds)]
    try:
        column = kind(**content)
        if not isinstance(column.name, str):
            raise ValueError("its name is no text")
        column.check()
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {content.get('name')!r}: {error}") from None
    return column
