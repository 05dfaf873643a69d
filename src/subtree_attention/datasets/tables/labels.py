"""The target of the nodes as classes, labels or numbers, and the column that says which part of a
split each is in."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ... import _check
from . import ranks
from .columns import quantiles
from .lazy import pl
from .lists import bracketed
from .readings import NUMBERS, Reading, find
from .table import Table, TableError, counted, positions
from .values import (
    cells_of,
    find_between,
    find_reading,
    is_text,
    numbers_of,
    tags_of,
    without_missing,
)

CLASSES_NAMED = 10
PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
FEW_CLASSES = 20
"""More classes than this, and on average fewer than two nodes for each, are no classes."""
MOST_LABELS = 1_000
SKEWED = 20
"""Times the median that the largest number of a skewed column has at least."""


class Cells(NamedTuple):
    """How the cells of a target are read: numbers by their reading, None where they are no texts;
    and labels by the sign between them, "" in brackets."""

    reading: Reading | None = None
    between: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"reading": self.reading and self.reading.to_dict(), "between": self.between}

    @classmethod
    def from_dict(cls, content: Any) -> Cells:
        """The inverse of `to_dict`; what does not fit is a `ValueError` or `TypeError`."""
        cells = cls(**_check.kind("cells", content, dict, "a table"))
        _check.kind("between", cells.between, str, "a text")
        reading = None if cells.reading is None else Reading.from_dict(cells.reading)
        return cells._replace(reading=reading)


AS_IT_IS = Cells()


def find_cells(kind: str, table: Table, target: str) -> Cells:
    """How the cells of a target are read."""
    values = table.column(target, "--target")
    if kind == "number":
        return Cells(reading=find_reading(values))
    return Cells(between=find_between(values) if kind == "labels" else "")


def find_names(kind: str, table: Table, target: str, cells: Cells) -> list[str]:
    """The classes or labels that occur, numbers by their size and then words; none of numbers."""
    if kind == "class":
        return find_classes(table, target)
    if kind == "labels":
        return find_labels(table, target, cells.between)
    if not ranks.size_of(numbers_of(table, target, "--target", cells.reading).drop_nulls()):
        raise _empty(table, target)
    return []


def read_target(
    kind: str, table: Table, target: str, names: list[str], cells: Cells
) -> tuple[np.ndarray, list[str]]:
    """The target of each node, see `datasets.targets`, and what to say about it."""
    if kind == "number":
        return read_numbers(table, target, cells.reading)
    if kind == "labels":
        return read_tags(table, target, names, cells.between)
    return read_labels(table, target, names)


def find_classes(table: Table, target: str) -> list[str]:
    """The classes that occur, numbers by their size and then words."""
    if are_lists(table.column(target, "--target")):
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds lists, not values: to learn any "
            f"number of labels of each {table.unit}, use --task multilabel"
        )
    texts = without_missing(table.texts(target, "--target")).drop_nulls()
    counts = ranks.counts_of(texts)
    different, known = ranks.total(len(counts)), ranks.size_of(texts)
    if not different:
        raise _empty(table, target)
    if different == 1:
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds one class only, "
            f"'{ranks.first_of(texts)}': there is nothing to tell apart"
        )
    if different == known or (different > FEW_CLASSES and 2 * different > known):
        units, numbers = f"{table.unit}s", _are_numbers(counts["value"])
        raise TableError(
            f"{table.name}: {different:,} different labels for {known:,} {units} in column "
            f"'{target}' (--target): classes are learnt from several {units} each; "
            + ("is it an id?", f"to predict a number, use --task {_of_numbers(table)}")[numbers]
        )
    return sorted(ranks.unique_of(counts["value"]), key=_natural)


def find_labels(table: Table, target: str, between: str) -> list[str]:
    """The labels that occur in lists, numbers by their size and then words."""
    if not between and not are_lists(table.column(target, "--target")):
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds no lists: labels are written as "
            '["red", "blue"], and [] if there are none, or as red;blue; one class of each is '
            "learnt by --task classification"
        )
    _, tags, _ = tags_of(table, target, "--target", between)
    counts = ranks.counts_of(tags)
    different = ranks.total(len(counts))
    if not different:
        raise _empty(table, target)
    if different > MOST_LABELS:
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds {different:,} different labels, of "
            f"which {MOST_LABELS:,} can be learnt: keep the most frequent ones"
        )
    return sorted(ranks.unique_of(counts["value"]), key=_natural)


def are_lists(values: pl.Series) -> bool:
    """Whether a column holds lists, or texts that are written so."""
    if not is_text(values):
        return isinstance(values.dtype, pl.List | pl.Array)
    there = cells_of(values).drop_nulls()
    return ranks.size_of(there) > 0 and ranks.all_of(bracketed(there))


def _are_numbers(classes: pl.Series) -> bool:
    return not ranks.any_of(find(classes, NUMBERS)[1])


def _of_numbers(table: Table) -> str:
    """The task that predicts a number of what the rows of a table are."""
    return "graph-regression" if table.unit == "graph" else "regression"


def _empty(table: Table, target: str) -> TableError:
    return TableError(f"{table.name}: column '{target}' (--target) is empty: nothing to learn")


def read_labels(table: Table, target: str, classes: list[str]) -> tuple[np.ndarray, list[str]]:
    """The class of each node [N], -1 where it is not known; and what to say about them."""
    written = table.texts(target, "--target")
    texts = without_missing(written)
    names = pl.Series(classes, dtype=pl.String)
    labels = positions(texts, names)
    counts = ranks.added(np.bincount(labels[labels >= 0], minlength=len(classes)))
    missing, others = ranks.nulls_of(texts), ranks.count_of(labels < 0)
    sizes = ", ".join(f"{name} {count:,}" for name, count in zip(classes, counts, strict=True))
    named = f" ({sizes})" if len(classes) <= CLASSES_NAMED else ""
    notes = [
        f"{table.name}: {counted(table.count, table.unit)}, {int(counts.sum()):,} with a label, "
        f"{len(classes):,} classes{named}; {missing:,} to be predicted"
    ]
    with ranks.alone():
        numbers = len(classes) > FEW_CLASSES and _are_numbers(names)
    if numbers:
        notes.append(
            f"the classes of '{target}' are numbers, and each counts for itself: to predict a "
            f"number, use --task {_of_numbers(table)}"
        )
    words = written.filter(texts.is_null() & written.is_not_null())
    if number := ranks.size_of(words):
        some = ", ".join(f"'{word}'" for word in ranks.unique_of(words))
        notes.append(f"{counted(number, 'label')} {some}: taken as not known")
    if unseen := others - missing:
        notes.append(f"{counted(unseen, table.unit)} with a label that the model does not know")
    return labels, notes


def read_tags(
    table: Table, target: str, names: list[str], between: str
) -> tuple[np.ndarray, list[str]]:
    """1 for the labels of each node, 0 for others, [N, C], NaN where they are not known."""
    rows, tags, missing = tags_of(table, target, "--target", between)
    places = positions(tags, pl.Series(names, dtype=pl.String))
    there, labels = places >= 0, np.zeros((len(table), len(names)), np.float32)
    labels[rows[there], places[there]] = 1
    labels[missing] = np.nan
    counts = ranks.added(np.nansum(labels, 0).astype(int))
    sizes = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
    named = f" ({sizes})" if len(names) <= CLASSES_NAMED else ""
    known, unseen = ranks.count_of(~missing), ranks.count_of(~there)
    notes = [
        f"{table.name}: {counted(table.count, table.unit)}, {known:,} with a list of labels, "
        f"{len(names):,} labels{named}; {table.count - known:,} to be predicted"
    ]
    if between:
        notes.append(f"the labels of '{target}' are split at '{between}'")
    if unseen:
        notes.append(f"{counted(unseen, 'label')} that the model does not know")
    return labels, notes


def read_numbers(
    table: Table, target: str, reading: Reading | None
) -> tuple[np.ndarray, list[str]]:
    """The number of each node [N], NaN where it is not known."""
    values = numbers_of(table, target, "--target", reading)
    numbers = values.fill_null(math.nan).to_numpy(writable=True)
    there, told, skewed = numbers[~np.isnan(numbers)], "", False
    if known := ranks.total(len(there)):
        least, median, most = quantiles(there, (0, 0.5, 1))
        told = f" (from {least:g} to {most:g}, the median is {median:g})"
        skewed = bool(least > 0 and most > SKEWED * median)
    notes = [
        f"{table.name}: {counted(table.count, table.unit)}, {known:,} with a number{told}; "
        f"{table.count - known:,} to be predicted"
    ]
    if reading is not None and (words := reading.words()):
        notes.append(f"the values of '{target}' are {words}")
    if skewed:
        notes.append(f"the numbers of '{target}' are very uneven: --log-target may help")
    return numbers, notes


def rare(labels: np.ndarray, classes: list[str], unit: str) -> list[str]:
    """A line about the classes that have one node, or other unit, only, if there are any."""
    counts = ranks.added(np.bincount(labels[labels >= 0], minlength=len(classes)))
    once = [f"'{classes[number]}'" for number in np.flatnonzero(counts == 1)]
    if not once:
        return []
    some = ", ".join(once[:3]) + (", ..." if len(once) > 3 else "")
    many = f"classes with one {unit} each" if len(once) > 1 else f"class with one {unit}"
    return [f"{len(once):,} {many} ({some}): too few to split, for training only"]


def read_split(
    table: Table, column: str, labelled: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The masks train, val and test [N] of a column, and what to say about them.

    Nodes that are not labelled, by a mask [N], are in no mask.
    """
    texts = table.texts(column, "--split-column").str.to_lowercase()
    known = [word for words in PARTS.values() for word in words]
    if (row := table.first(texts.is_not_null() & ~texts.is_in(known))) is not None:
        raise TableError(
            f"{table.place(row)}: column '{column}' (--split-column) holds {texts[row]!r}; it may "
            "hold train, val, test, or nothing"
        )
    masks = {part: texts.is_in(words).fill_null(False).to_numpy() for part, words in PARTS.items()}
    unlabelled = ranks.total(sum(int((mask & ~labelled).sum()) for mask in masks.values()))
    masks = {part: mask & labelled for part, mask in masks.items()}
    counts = {part: ranks.count_of(mask) for part, mask in masks.items()}
    for part, count in counts.items():
        if not count:
            raise TableError(
                f"{table.name}: column '{column}' (--split-column) has no {table.unit} with a "
                f"label for '{part}': each of train, val and test needs some"
            )
    sizes = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    notes = [f"split by column '{column}': {sizes}"]
    if unlabelled:
        notes.append(f"{counted(unlabelled, table.unit)} of the split without a label, in no part")
    return masks, notes


def _natural(text: str) -> tuple[int, float, str]:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return (0, value, text) if math.isfinite(value) else (1, 0.0, text)
