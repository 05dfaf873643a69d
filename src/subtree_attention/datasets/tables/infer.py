"""Which columns of the nodes are features, and of what kind each is."""

from __future__ import annotations

from collections.abc import Sequence

from ... import _check
from .columns import KINDS, Category, Column, Number, Tags, Text
from .lazy import pl
from .read import Table, TableError, counted
from .values import as_numbers

SAMPLE = 10_000
"""Values that are looked at to tell text from categories."""
SENTENCE, PHRASE = 4, 2
"""Words of a value, on average: as many make it a sentence, and what is no category a text."""
FEW_VALUES, FEW_ROWS_EACH, MANY_VALUES = 20, 10, 1000
"""Up to so many different values are categories; or so many as have ten rows each, but no more
than a thousand."""


def fit_columns(
    table: Table, features: Sequence[str] | None, taken: set[str]
) -> tuple[list[Column], dict[str, str]]:
    """The columns of the nodes as features, and those left out, each with the reason.

    `features` are as in `from_tables`; columns `taken` are something else: id, label, split.
    """
    if features is None:
        names = [name for name in table.frame.columns if name not in taken]
        chosen = {name: _guess(table.frame[name]) for name in names}
        left_out = {name: why for name, why in chosen.items() if why not in KINDS}
        kinds = {name: kind for name, kind in chosen.items() if kind in KINDS}
    else:
        listed = isinstance(features, list | tuple)
        if not listed or not all(isinstance(name, str) for name in features):
            raise TypeError(f"features must be a list of columns, got {_check.said(features)}")
        kinds, left_out = dict(_asked(table, feature, taken) for feature in features), {}
    return [KINDS[kind].fit(table, name) for name, kind in kinds.items()], left_out


def _asked(table: Table, feature: str, taken: set[str]) -> tuple[str, str]:
    """Name and kind of 'age' or 'zip:category'."""
    name, _, kind = feature.rpartition(":")
    if feature in table.frame.columns or kind not in KINDS:
        if name in table.frame.columns:
            _check.known(f"kind of column '{name}'", kind, KINDS)
        name, kind = feature, ""
    values = table.column(name, "--features")
    if name in taken:
        raise TableError(f"column '{name}' (--features) is the id, the label or the split already")
    kind = kind or _guess(values)
    if kind not in KINDS:
        raise TableError(
            f"{table.name}: column '{name}' {kind}; name its kind, such as '{name}:category'"
        )
    return name, kind


def _guess(values: pl.Series) -> str:
    """A kind, or the reason why it is none."""
    there = values.drop_nulls()
    if not len(there):
        return "is empty"
    if isinstance(values.dtype, pl.List | pl.Array):
        return Tags.kind
    if values.dtype.is_nested() or values.dtype == pl.Binary:
        return f"is of type {values.dtype}, which is not read"
    if values.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return Number.kind
    there = there.cast(pl.String)
    numbers, wrong = as_numbers(there)
    codes = there.str.contains(r"^0\d").any()  # 00057 is no number
    if not wrong.any() and numbers.null_count() < len(numbers) and not codes:
        return Number.kind
    if there.str.contains(r"(?s)^\[.*\]$").all():
        return Tags.kind
    return _text_or_category(there, wrong)


def _text_or_category(values: pl.Series, wrong: pl.Series) -> str:
    """Few different values are categories; sentences are text; names and keys are neither.

    `wrong` says which are no numbers.
    """
    different = values.n_unique()
    words = float(values.head(SAMPLE).str.count_matches(r"\S+").mean() or 0)  # type: ignore[arg-type]
    if words >= SENTENCE and 2 * different > len(values):  # most are there once
        return Text.kind
    if different <= min(MANY_VALUES, max(FEW_VALUES, len(values) // FEW_ROWS_EACH)):
        return Category.kind
    if words >= PHRASE:
        return Text.kind
    return _almost_numbers(values, wrong) or (
        f"has {different:,} different values of one word in {len(values):,} rows"
    )


def _almost_numbers(values: pl.Series, wrong: pl.Series) -> str:
    """Why a column that looks like numbers is none; empty if it does not look so."""
    count = int(wrong.sum())
    if 0 < 2 * count < len(values):
        some = counted(count, "value")
        return f"holds numbers, but also {some} such as {values.filter(wrong)[0]!r}: correct them"
    _, wrong = as_numbers(values.str.replace(",", ".", literal=True))
    if count and not wrong.any():
        return f"holds numbers with a decimal comma, such as {values[0]!r}: write 1.5, not 1,5"
    return ""
