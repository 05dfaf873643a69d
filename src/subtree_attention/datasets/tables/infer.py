"""Which columns of the nodes are features, and of what kind each is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import _check
from . import lists, ranks
from .columns import KINDS, NO_BLANKS, Category, Column, Number, Tags, Text, Vector
from .lazy import pl
from .readings import ASKED, NAMED_MONTH, NUMBERS, Reading, currencies, find
from .table import Table, TableError, counted
from .values import cells_of, find_reading, is_text, of_numbers, without_placeholders

SAMPLE = 10_000
"""Values that are looked at to tell text from categories."""
SENTENCE, PHRASE = 4, 2
"""Words of a value, on average: as many make it a sentence, and what is no category a text."""
FEW_VALUES, FEW_ROWS_EACH, MANY_VALUES = 20, 10, 1000
"""Up to so many different values are categories; or so many as have ten rows each, but no more
than a thousand."""


TAG_SIGNS, ROW_SIGNS = (";", "|"), (";", "|", " ", ",")
"""What may stand between tags, and between the numbers of a vector, where nobody asked."""
SHORT = 3
"""Words that a tag has at most, on average."""


class Guess(NamedTuple):
    """A kind of column and what its `fit` is told; or the reason why a column is of none."""

    kind: str
    how: Mapping[str, Any] = {}


def fit_columns(
    table: Table, features: Sequence[str] | None, taken: set[str]
) -> tuple[list[Column], dict[str, str]]:
    """The columns of the nodes as features, and those left out, each with the reason.

    `features` are as in `from_tables`; columns `taken` are something else: id, label, split.
    """
    left_out: dict[str, str] = {}
    if features is None:
        names = [name for name in table.frame.columns if name not in taken]
        chosen = {name: _guess(table, name) for name in names}
        left_out = {name: kind for name, (kind, _) in chosen.items() if kind not in KINDS}
    else:
        listed = isinstance(features, list | tuple)
        if not listed or not all(isinstance(name, str) for name in features):
            raise TypeError(f"features must be a list of columns, got {_check.said(features)}")
        chosen = dict(_asked(table, feature, taken) for feature in features)
    fitted = {name: guess for name, guess in chosen.items() if name not in left_out}
    return [KINDS[kind].fit(table, name, **how) for name, (kind, how) in fitted.items()], left_out


def _asked(table: Table, feature: str, taken: set[str]) -> tuple[str, Guess]:
    """Name and kind of 'age', 'zip:category' or 'born:day-first'."""
    words = [*KINDS, *ASKED]
    name, _, kind = feature.rpartition(":")
    if feature in table.frame.columns or kind not in words:
        if name in table.frame.columns:
            _check.known(f"kind of column '{name}'", kind, words)
        name, kind = feature, ""
    table.check(name, "--features")
    if name in taken:
        raise TableError(f"column '{name}' (--features) is the id, the label or the split already")
    if kind in ASKED:
        values = table.column(name, "--features")
        return name, Guess(Number.kind, {"reading": find_reading(values, ASKED[kind])})
    guess = Guess(kind) if kind else _guess(table, name)
    if guess.kind not in KINDS:
        raise TableError(
            f"{table.name}: column '{name}' {guess.kind}; name its kind, such as '{name}:category'"
        )
    return name, guess


def _guess(table: Table, name: str) -> Guess:
    """A kind, or the reason why it is none."""
    if isinstance(table.frame.schema[name], pl.List | pl.Array):
        return _of_lists(table, name)
    values = table.frame[name]
    if not ranks.size_of(values.drop_nulls()):
        return Guess("is empty")
    if values.dtype.is_nested() or values.dtype == pl.Binary:
        return Guess(f"is of type {values.dtype}, which is not read")
    if not is_text(values):
        return Guess(Number.kind)
    there = cells_of(values).drop_nulls()
    if not (cells := ranks.size_of(there)):
        return Guess("is empty")
    numbers = without_placeholders(there).drop_nulls()
    if cells < 2 * ranks.size_of(numbers) < 2 * cells and not ranks.any_of(find(numbers)[1]):
        there = numbers
    reading, wrong = find(there)
    # 00057 is no number.
    codes = reading.form in NUMBERS and ranks.any_of(there.str.contains(r"^0\d"))
    if not ranks.any_of(wrong) and not codes:
        return Guess(Number.kind, {"reading": reading})
    return _bracketed(there) or _separated(there) or _text_or_category(there, reading, wrong)


# ---------------------------------------------------------------------------------------- lists


def _of_lists(table: Table, name: str) -> Guess:
    """What a column of lists is."""

    def parts() -> Iterator[pl.Series]:
        for part in table.blocks():
            yield part.frame[name]

    if not ranks.total(sum(len(some) - some.null_count() for some in parts())):
        return Guess("is empty")
    dtype: Any = table.frame.schema[name]
    if not of_numbers(pl.Series(dtype=dtype)):
        return Guess("holds empty lists only") if dtype.inner == pl.Null else Guess(Tags.kind)
    if isinstance(dtype, pl.Array):
        return Guess(Vector.kind)
    return _vector_or_tags(parts, dtype.inner.is_integer(), "")


def _bracketed(texts: pl.Series) -> Guess | None:
    """What texts in brackets are, if they are lists, or but few are not, which `fit` will name."""
    if not ranks.all_of(lists.bracketed(texts)):
        return None
    if lists.are_numbers(texts, ""):
        whole = not ranks.any_of(texts.str.contains(r"[.eE]"))
        found = lists.numbers(texts, "")
        return _vector_or_tags(lambda: [found], whole, "")
    some = ranks.head(texts, SAMPLE)
    listed = ranks.share_of(lists.words(some, "").is_not_null()) > 0.5
    nested = lists.is_nested(ranks.first_of(some))
    return Guess(Tags.kind, {"between": ""}) if listed or nested else None


def _vector_or_tags(parts: Callable[[], Iterable[pl.Series]], whole: bool, between: str) -> Guess:
    """What lists of numbers are, of which `parts` gives some at a time.

    Vectors are equally long. Whole numbers (by type, or as they are written) may also be the ids of
    tags, of which a list has any number, none below 0 and none twice.
    """
    seen, no_ids, all_whole = pl.Series(dtype=pl.UInt32), False, True
    for given in parts():
        values = given.filter(given.list.len().fill_null(0) > 0)
        lengths, flat = values.list.len(), values.explode().cast(pl.Float64)
        no_ids |= bool((flat < 0).any()) or bool((values.list.n_unique() < lengths).any())
        all_whole &= bool((flat == flat.floor()).all())
        seen = pl.concat([seen, lengths.cast(pl.UInt32)]).unique()
    if not ranks.size_of(seen):
        return Guess("holds empty lists only")
    ids = not ranks.any_of(np.array([no_ids]))
    how = {"between": between}
    sizes = ranks.unique_of(seen)
    if len(sizes) == 1:
        if whole and ids:
            return Guess(Tags.kind, how | {"sure": False})
        return Guess(Vector.kind, how)
    if ranks.all_of(pl.Series([all_whole])):
        return Guess(Tags.kind, how)
    many = f"{sizes[0]} to {sizes[-1]}"
    return Guess(f"holds vectors of {many} numbers: all must be equally long")


def _separated(texts: pl.Series) -> Guess | None:
    """Vectors or tags without brackets, with a sign between."""
    first = ranks.first_of(texts)
    for sign in ROW_SIGNS:
        if sign in first and lists.are_numbers(texts, sign):
            lengths = ranks.unique_of(lists.numbers(texts, sign).list.len())
            if len(lengths) == 1 and ranks.any_of(texts.str.contains(".", literal=True)):
                return Guess(Vector.kind, {"between": sign})
    some = ranks.head(texts, SAMPLE)
    signs = [sign for sign in TAG_SIGNS if _are_tags(some, sign)]
    return Guess(Tags.kind, {"between": signs[0]}) if signs else None


def _are_tags(texts: pl.Series, sign: str) -> bool:
    """Whether a sign stands between tags, not in sentences, names or keys.

    It is in a fifth of the values; what is between it is short, and most of that is there more than
    once.
    """
    if ranks.share_of(texts.str.contains(sign, literal=True)) < 0.2:
        return False
    parts = lists.words(texts, sign).explode().str.strip_chars()
    parts = parts.filter(parts != "")
    number = ranks.size_of(parts)
    if not number or _words(parts) > SHORT:
        return False
    counts = ranks.counts_of(parts)["count"]
    once = ranks.count_of(counts == 1)
    return 3 * (number - once) > 2 * number


# ----------------------------------------------------------------------------------------- text


def _words(texts: pl.Series) -> float:
    """Words of a text, on average; two signs of a script without blanks are one."""
    pattern = rf"[{NO_BLANKS}]{{1,2}}|[^\s{NO_BLANKS}]+"
    found = ranks.total(int(texts.str.count_matches(pattern).sum()))
    return found / max(1, ranks.size_of(texts))


def _text_or_category(values: pl.Series, reading: Reading, wrong: pl.Series) -> Guess:
    """Few different values are categories; sentences are text; names and keys are neither.

    `wrong` says which are no numbers by the reading that fits best.
    """
    some, rows = ranks.head(values, SAMPLE), ranks.size_of(values)
    different, words = ranks.n_unique_of(values), _words(some)
    if words >= SENTENCE and 2 * different > rows:  # most are there once
        return Guess(Text.kind)
    if different <= min(MANY_VALUES, max(FEW_VALUES, rows // FEW_ROWS_EACH)):
        return Guess(Category.kind)
    if words >= PHRASE and len(currencies(some)) < 2:
        return Guess(Text.kind)
    return Guess(
        _almost_numbers(values, reading, wrong)
        or f"has {different:,} different values of one word in {rows:,} rows"
    )


def _almost_numbers(values: pl.Series, reading: Reading, wrong: pl.Series) -> str:
    """Why a column that looks like numbers is none; empty if it does not look so."""
    count = ranks.count_of(wrong)
    if 0 < 2 * count < ranks.size_of(values):
        some = counted(count, "value")
        odd = f"{some} such as {ranks.first_of(values.filter(wrong))!r}"
        return f"holds {reading.many}, but also {odd}: correct them"
    first = ranks.head(values, SAMPLE)
    if ranks.share_of(first.str.contains(NAMED_MONTH)) > 0.5:
        example = ranks.first_of(first)
        return (
            f"looks like dates, such as {example!r}, which are not read: write them as 2024-01-05"
        )
    signs = currencies(first)
    if len(signs) > 1:
        return f"holds amounts in {' and '.join(signs)}: write them in one, without a sign"
    return ""
