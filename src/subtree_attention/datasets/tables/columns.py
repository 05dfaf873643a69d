"""What a column of the nodes becomes: numbers, vectors, categories, text and tags, as columns of x.

Each kind learns what it needs from a table (`fit`), keeps it as plain values that JSON can hold,
and gives the features of that or of another table (`encode`).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ... import _check
from . import ranks
from .lazy import pl
from .lists import SIGNS
from .readings import DATES, Reading, zones
from .table import Table, TableError, counted
from .values import (
    Encoded,
    between_of,
    cells_of,
    find_reading,
    is_text,
    numbers_of,
    one_hot,
    placeholders,
    tags_of,
    vectors_of,
    width_of,
)

WORDS = 5000
TAGS = 10000
"""Columns that a text and a list of tags may have at most: the most frequent words are kept."""


SQUASHED = 5
"""Times the spread of the middle half that the deviation of a column has, if a few make it."""
FAR, FEW_FAR = 10, 0.1
"""Spreads from the median that are far; more than this share of the values are not a few."""
LEAST_VALUES = 50
"""Of fewer it is not asked which are far."""
BEND = 3.0
"""Spreads beyond which the logarithm goes on, so that what is far stays finite and in order."""
TEXTS = 2**18
"""Texts of which words are counted at once, so that little memory is taken beside them."""
SOME = 10_000
"""Values that are looked at to tell how a text is written."""
ENTRIES = 2**20
"""Numbers of a column that are added up at once, so that little memory is taken beside them."""
BLOCK = 64
"""Columns of vectors that are standardised at once, so that little memory is taken beside them."""
NO_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003134f"
)
"""Signs of scripts without blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
GRAMS = (1, 2, 3)
"""Signs of such a text that are taken together as a word."""


@dataclass(frozen=True)
class Number:
    """A standardised number; where any is missing, the mean and a second column of 0 and 1.

    Where a few values far away would squash all others, `mean` is the median and `std` the spread
    of the middle half; beyond `bend` of them the logarithm goes on. 0: nowhere.
    `reading` is how its texts are read; None if it held no texts, or an older version wrote this.
    """

    kind: ClassVar[str] = "number"
    name: str
    mean: float
    std: float
    flagged: bool
    bend: float = 0.0
    reading: Reading | None = None

    @classmethod
    def fit(cls, table: Table, name: str, reading: Reading | None = None) -> Number:
        reading = reading or find_reading(table.column(name, "--features"))
        values = numbers_of(table, name, reading=reading)
        there, missing = values.drop_nulls().to_numpy(), ranks.nulls_of(values) > 0
        if not ranks.size_of(values.drop_nulls()):
            raise TableError(f"{table.name}: column '{name}' holds no number at all")
        ((mean,), (std,), (largest,)) = _moments(table, name, 1, lambda: [there[:, None]])
        if std and (middle := _middle(there / largest, std / largest)):
            mean, std = (number * largest for number in middle)
            return cls(name, mean, std, missing, BEND, reading)
        return cls(name, mean, std or 1.0, missing, 0.0, reading)

    @property
    def width(self) -> int:
        return 1 + self.flagged

    def encode(self, table: Table) -> Encoded:
        values = numbers_of(table, self.name, reading=self.reading)
        standard = ((values - self.mean) / self.std).fill_null(0.0).to_numpy()
        if self.bend:
            size = np.abs(standard) / self.bend
            bent = np.copysign(self.bend * (1 + np.log(np.maximum(size, 1))), standard)
            standard = np.where(size > 1, bent, standard)
        _refuse_far(table, self.name, np.abs(standard) > np.finfo(np.float32).max)
        columns = [standard] + [values.is_null().to_numpy()] * self.flagged
        return Encoded(np.stack(columns, 1).astype(np.float32), values.null_count())

    def remark(self, table: Table) -> str:
        """What to say of the values of a table."""
        return _together(self._zones(table), self._empty(table))

    def _empty(self, table: Table) -> str:
        """What to say of texts that stand for no number."""
        found = placeholders(table.column(self.name, "--features"))
        return f"{' and '.join(map(repr, found))} taken as missing" if found else ""

    def _zones(self, table: Table) -> str:
        """What to say of dates with a time zone."""
        values = table.column(self.name, "--features")
        if self.reading is None or self.reading.form not in DATES or not is_text(values):
            return ""
        named, others = zones(cells_of(values).drop_nulls())
        words = "times are those of UTC" * bool(named)
        return words + f" ({others:,} name no zone: taken as UTC)" * bool(named and others)

    @property
    def note(self) -> str:
        read = "" if self.reading is None else self.reading.words(self.name)
        far = "a few values are far away: scaled by the middle half, beyond by logarithm"
        return _together(read, far if self.bend else "")

    def original(self, standard: float) -> float:
        """The number that a feature stands for: the inverse of `encode`."""
        size = abs(standard) / self.bend if self.bend else 0.0
        if size > 1:
            standard = math.copysign(self.bend * math.exp(min(size - 1, 700)), standard)
        return standard * self.std + self.mean

    def check(self) -> None:
        _check_moments([self.mean], [self.std])
        _check.flag("flagged", self.flagged)
        if not isinstance(self.bend, int | float) or not 0 <= self.bend < math.inf:
            raise ValueError("'bend' is a number, 0 or more")


def _middle(values: np.ndarray, std: float) -> tuple[float, float] | None:
    """Median and spread of the middle half, if a few of the values [n] make most of their
    deviation."""
    count = ranks.total(len(values))
    if count < LEAST_VALUES:
        return None
    low, median, high = quantiles(values, (0.25, 0.5, 0.75))
    spread = (high - low) / 1.349  # the deviation, were they normal
    if not spread > 0 or std <= SQUASHED * spread:
        return None
    few = ranks.count_of(np.abs(values - median) > FAR * spread) / count <= FEW_FAR
    return (median, spread) if few else None


@dataclass(frozen=True)
class Vector:
    """Standardised numbers, as many in each list; where a list is missing, their means and one
    more column of 0 and 1. `between` is the sign between them, "" in brackets."""

    kind: ClassVar[str] = "vector"
    name: str
    mean: list[float]
    std: list[float]
    flagged: bool
    between: str = ""

    @classmethod
    def fit(cls, table: Table, name: str, between: str | None = None) -> Vector:
        if between is None:
            between = between_of(table, name)
        kept = None if table.is_large else vectors_of(table, name, between)
        width = width_of(table, name, between) if kept is None else kept[0].shape[1]
        if not width:
            raise TableError(f"{table.name}: column '{name}' holds no vector at all")

        def vectors() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            if kept is not None:
                yield kept
            else:
                yield from (vectors_of(some, name, between, width) for some in table.blocks())

        missing = np.array([bool(lack.any()) for _, lack in vectors()])
        mean, std, _ = _moments(table, name, width, lambda: (there for there, _ in vectors()))
        return cls(name, mean, [each or 1.0 for each in std], ranks.any_of(missing), between)

    @property
    def width(self) -> int:
        return len(self.mean) + self.flagged

    def encode(self, table: Table) -> Encoded:
        values, missing = vectors_of(table, self.name, self.between, len(self.mean))
        block = np.zeros((len(table), self.width), np.float32)
        part, far = np.zeros(len(missing), bool), np.zeros(len(missing), bool)  # of each row
        there = np.flatnonzero(~missing)
        for start in range(0, len(self.mean), BLOCK):
            some = slice(start, min(start + BLOCK, len(self.mean)))
            standard = (values[:, some].astype(np.float64) - self.mean[some]) / self.std[some]
            far[there] |= (np.abs(standard) > np.finfo(np.float32).max).any(1)
            _refuse_far(table, self.name, far)
            part[there] |= np.isnan(standard).any(1)
            block[there, some] = np.nan_to_num(standard)
        if self.flagged:
            block[:, -1] = missing
        return Encoded(block, int((missing | part).sum()))

    @property
    def note(self) -> str:
        return f"vectors of {counted(len(self.mean), 'number')}"

    def remark(self, table: Table) -> str:
        return ""

    def check(self) -> None:
        if not isinstance(self.mean, list) or not isinstance(self.std, list) or not self.mean:
            raise ValueError("its means and deviations are lists")
        _check_moments(self.mean, self.std)
        _check.flag("flagged", self.flagged)
        _check.kind("between", self.between, str, "a text")


def _moments(
    table: Table, name: str, width: int, parts: Callable[[], Iterable[np.ndarray]]
) -> tuple[list[float], list[float], list[float]]:
    """Means, deviations and largest sizes of columns [n, d], NaN where a number is missing.

    `parts` gives the rows, as often as it is called. The deviation is exactly 0 where all are
    equal. Sums do not depend on where the rows lie.
    """
    each = max(1, ENTRIES // width)  # rows at a time

    def rows() -> Iterator[np.ndarray]:
        for values in parts():
            for start in range(0, len(values), each):
                yield values[start : start + each].astype(np.float64)

    nothing = np.zeros(width)
    largest = _largest(nothing, rows())
    if (largest > sys.float_info.max / 2).any():  # two of them can be twice as far apart
        raise TableError(f"{table.name}: the numbers in column '{name}' are too large")
    counts = ranks.added(sum((np.sum(~np.isnan(some), 0) for some in rows()), nothing))
    counts = np.maximum(counts, 1)
    # Scaled: the squares of tiny or huge values do not exist.
    middle = _sums(nothing, (some / largest for some in rows())) / counts
    spread = _largest(nothing, (some / largest - middle for some in rows()))
    away = (((some / largest - middle) / spread) ** 2 for some in rows())
    mean, std = middle * largest, np.sqrt(_sums(nothing, away) / counts) * spread * largest
    same = std <= np.maximum(1e-12 * np.abs(mean), sys.float_info.min)  # but for rounding
    return mean.tolist(), np.where(same, 0.0, std).tolist(), largest.tolist()


def _largest(nothing: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    """The largest sizes [d] of parts [n, d] on all ranks, without NaN; 1 where there is none."""
    sizes = nothing
    for part in parts:
        sizes = np.fmax(sizes, np.fmax.reduce(np.abs(part), axis=0))
    sizes = ranks.largest(sizes)
    return np.where(sizes > 0, sizes, 1.0)


def _sums(nothing: np.ndarray, parts: Iterable[np.ndarray]) -> np.ndarray:
    """The sums [d] of parts [n, d] of sizes up to 1, on all ranks, without NaN.

    They are added up as whole numbers of 2^-60: these have the same sum in any order.
    """
    sums = np.zeros((2, len(nothing)), np.int64)
    for part in parts:
        units = np.nan_to_num(part) * 2.0**30
        whole = np.rint(units)
        sums[0] += whole.astype(np.int64).sum(0)
        sums[1] += np.rint((units - whole) * 2.0**30).astype(np.int64).sum(0)
    wholes, rests = ranks.added(sums).astype(np.float64)
    return np.ldexp(wholes, -30) + np.ldexp(rests, -60)


def quantiles(values: np.ndarray, shares: Sequence[float]) -> list[float]:
    """Quantiles of values [n] on all ranks, exactly: between two of them on a straight line."""
    places = [share * (ranks.total(len(values)) - 1) for share in shares]
    ends = [int(place) for place in places]
    nearest = [*ends, *(math.ceil(place) for place in places)]
    found = ranks.order_statistics(values, nearest)
    pairs = zip(places, ends, found, found[len(ends) :], strict=False)
    return [low + (high - low) * (place - end) for place, end, low, high in pairs]


def _refuse_far(table: Table, name: str, far: np.ndarray) -> None:
    """Refuse rows of a mask, whose numbers no float32 can hold."""
    if not (rows := ranks.count_of(far)):
        return
    if (row := table.first(pl.Series(far))) is not None:
        raise TableError(
            f"{table.place(row)}: column '{name}' holds a number too far "
            f"from those that were learnt from ({counted(rows, 'such row')})"
        )


def _check_moments(mean: Iterable[Any], std: Iterable[Any]) -> None:
    for middle, spread in zip(mean, std, strict=True):
        numbers = isinstance(middle, int | float) and isinstance(spread, int | float)
        if not numbers or not math.isfinite(middle) or not 0 < spread < math.inf:
            raise ValueError("its mean and deviation are not numbers")


@dataclass(frozen=True)
class _Words:
    """What has a column for each of some words."""

    name: str
    values: list[str]

    @property
    def width(self) -> int:
        return len(self.values)

    @property
    def _kept(self) -> str:
        """What to say of kinds that keep the most frequent."""
        seen = getattr(self, "seen", 0)
        return f"the {self.width:,} most frequent of {seen:,}" if seen > self.width else ""

    @property
    def note(self) -> str:
        return self._kept

    def remark(self, table: Table) -> str:
        return ""

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
        return cls(name, ranks.unique_of(table.texts(name, "--features").drop_nulls()))

    def encode(self, table: Table) -> Encoded:
        texts = table.texts(self.name, "--features")
        return one_hot(np.arange(len(texts)), texts, self.values, len(texts), texts.null_count())


@dataclass(frozen=True)
class Tags(_Words):
    """One column of 0 and 1 for each tag; a value is a list of tags, in CSV as JSON or `a;b`.

    `seen` is how many different tags there were, of which the most frequent are kept. `between` is
    the sign between them, "" in brackets. They are not `sure` where they could be vectors.
    """

    kind: ClassVar[str] = "tags"
    seen: int
    between: str = ""
    sure: bool = True

    @classmethod
    def fit(cls, table: Table, name: str, between: str | None = None, sure: bool = True) -> Tags:
        if between is None:
            between = between_of(table, name)
        some = (tags_of(part, name, between=between)[1] for part in table.blocks())
        counts = ranks.merged(_added_up(ranks.counts_here(tags) for tags in some))
        seen = ranks.total(len(counts))
        if not seen:
            raise TableError(f"{table.name}: column '{name}' holds no tag at all")
        kept = _most_frequent(counts, TAGS)["value"].to_list()
        return cls(name, kept, seen, between, sure)

    def encode(self, table: Table) -> Encoded:
        rows, tags, missing = tags_of(table, self.name, between=self.between)
        return one_hot(rows, tags, self.values, len(table), int(missing.sum()))

    @property
    def note(self) -> str:
        split = f"split at '{self.between}'" if self.between else ""
        unsure = "" if self.sure else f"they could also be vectors: '{self.name}:vector'"
        return _together(self._kept, split, unsure)

    def check(self) -> None:
        super().check()
        _check.kind("between", self.between, str, "a text")
        _check.flag("sure", self.sure)


@dataclass(frozen=True)
class Text(_Words):
    """TF-IDF of the words of a text: rows of length 1. `seen` as in `Tags`.

    With `grams`, scripts without blanks are split into one to three signs each.
    """

    kind: ClassVar[str] = "text"
    idf: list[float]
    seen: int
    grams: bool = False

    @classmethod
    def fit(cls, table: Table, name: str) -> Text:
        from sklearn.feature_extraction.text import CountVectorizer

        values = table.texts(name, "--features")
        grams = without_blanks(values)

        def counted_words(some: list[str]) -> pl.DataFrame:
            counter = CountVectorizer(analyzer=_split if grams else "word")
            words, nodes = np.array([], object), np.array([], np.int64)
            with suppress(ValueError):  # no words at all
                counts = counter.fit_transform(some)  # [n, words]
                words, nodes = counter.get_feature_names_out(), np.bincount(counts.indices)
            kinds = {"value": pl.String, "count": pl.Int64}
            return pl.DataFrame({"value": words.tolist(), "count": nodes}, schema=kinds)

        parts = (values[a : a + TEXTS] for a in range(0, max(len(values), 1), TEXTS))
        found = _added_up(counted_words(part.fill_null("").to_list()) for part in parts)
        found = ranks.merged(found)
        seen = ranks.total(len(found))
        if not seen:
            raise TableError(f"{table.name}: column '{name}' holds no words")
        # A word of a single node tells nothing about others; but a small table has no other words.
        several = found.filter(pl.col("count") > 1)
        kept = _most_frequent(several if ranks.total(len(several)) else found, WORDS)
        idf = np.log((1 + ranks.total(len(values))) / (1 + kept["count"].to_numpy())) + 1
        return cls(name, kept["value"].to_list(), idf.tolist(), seen, grams)

    def encode(self, table: Table) -> Encoded:
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = table.texts(self.name, "--features")
        analyzer = _split if self.grams else "word"
        vectorizer = TfidfVectorizer(vocabulary=self.values, analyzer=analyzer)
        vectorizer.idf_ = np.array(self.idf)
        rows = texts.fill_null("").to_list() or [""]  # of a rank without any, no row is taken
        block = vectorizer.transform(rows).astype(np.float32)[: len(texts)]
        # A text of which no word is known is to the model what an unknown category is.
        silent = int((np.diff(block.indptr) == 0).sum()) - texts.null_count()
        return Encoded(scipy.sparse.csr_matrix(block), texts.null_count(), silent)

    def remark(self, table: Table) -> str:
        """What to say of a text that could be tags."""
        some = ranks.head(table.texts(self.name, "--features").drop_nulls(), SOME)
        for sign in SIGNS[:2]:
            if ranks.share_of(some.str.contains(sign, literal=True)) > 0.5:
                return f"not split at '{sign}': '{self.name}:tags' does so"
        return ""

    @property
    def note(self) -> str:
        grams = "in character n-grams where it has no blanks" if self.grams else ""
        return _together(self._kept, grams)

    def check(self) -> None:
        super().check()
        _check.flag("grams", self.grams)
        numbers = isinstance(self.idf, list) and len(self.idf) == len(self.values)
        if not numbers or not all(isinstance(i, int | float) and 0 < i < 1e9 for i in self.idf):
            raise ValueError("'idf' is a positive number for each word")


def without_blanks(texts: pl.Series) -> bool:
    """Whether texts are, in part, of scripts without blanks between words."""
    some = ranks.head(texts.drop_nulls(), SOME)
    return ranks.share_of(some.str.contains(f"[{NO_BLANKS}]")) > 0.05


def _added_up(counts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Counts of the same values in several parts together."""
    some = list(counts)
    if len(some) == 1:
        return some[0]
    return pl.concat(some).group_by("value").agg(pl.col("count").sum())


def _most_frequent(counts: pl.DataFrame, most: int) -> pl.DataFrame:
    """The most frequent values of all ranks, those first in order of as frequent ones; sorted."""

    def first(some: pl.DataFrame) -> pl.DataFrame:
        return some.sort("count", "value", descending=[True, False]).head(most)

    return first(ranks.gathered(first(counts.select("value", "count")))).sort("value")


def _split(text: str) -> list[str]:
    """The words of a text, and the grams of what is written without blanks."""
    text, words = text.lower(), []
    for run, word in re.findall(rf"([{NO_BLANKS}]+)|([^\W{NO_BLANKS}]{{2,}})", text):
        words += [word] if word else []
        words += [run[i : i + n] for n in GRAMS for i in range(len(run) - n + 1)]
    return words


def _together(*words: str) -> str:
    """What there is to say, in one line."""
    return "; ".join(filter(None, words))


@dataclass(frozen=True)
class Matrix:
    """Features that came as a matrix, taken as they are: no table has them."""

    kind: ClassVar[str] = "matrix"
    note: ClassVar[str] = ""
    name: str
    columns: int

    @property
    def width(self) -> int:
        return self.columns

    def remark(self, table: Table) -> str:
        return ""

    def encode(self, table: Table) -> Encoded:
        raise TableError(
            "this model was trained on a matrix of features, not on columns of a table: "
            "predict from Python, with model(x, graph)"
        )

    def check(self) -> None:
        _check.integer("columns", self.columns, 0)


Column = Number | Category | Tags | Text | Vector | Matrix
KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Category, Text, Tags, Vector)}
"""The kinds that a column of a table may have, by name."""


def to_dict(column: Column) -> dict[str, Any]:
    """A column as JSON can hold it; without what files of before did not have, unless it is set."""
    content = {each.name: each.default for each in fields(column)}
    given = {name: value for name, value in asdict(column).items() if value != content[name]}
    return {"kind": column.kind, **given}


def from_dict(content: Any) -> Column:
    """The inverse of `to_dict`; what does not fit is a `ValueError`."""
    content = dict(content)
    kinds = {**KINDS, Matrix.kind: Matrix}
    kind = kinds[_check.known("kind of column", content.pop("kind", None), kinds)]
    try:
        if content.get("reading") is not None:
            content["reading"] = Reading.from_dict(content["reading"])
        column = kind(**content)
        if not isinstance(column.name, str):
            raise ValueError("its name is no text")
        column.check()
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {content.get('name')!r}: {error}") from None
    return column
