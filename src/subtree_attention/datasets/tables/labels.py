"""The target of the nodes as classes, labels or numbers, and the column that says which part of a
split each is in."""

from __future__ import annotations

import math

import numpy as np

from .lazy import pl
from .read import Table, TableError, counted, positions, text_of
from .values import numbers_of, tags_of, without_missing

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


def find_names(kind: str, table: Table, target: str) -> list[str]:
    """The classes or labels that occur, numbers by their size and then words; none of numbers."""
    if kind == "class":
        return find_classes(table, target)
    if kind == "labels":
        return find_labels(table, target)
    if numbers_of(table, target, "--target").drop_nulls().is_empty():
        raise _empty(table, target)
    return []


def read_target(
    kind: str, table: Table, target: str, names: list[str]
) -> tuple[np.ndarray, list[str]]:
    """The target of each node, see `datasets.targets`, and what to say about it."""
    if kind == "number":
        return read_numbers(table, target)
    return (read_labels if kind == "class" else read_tags)(table, target, names)


def find_classes(table: Table, target: str) -> list[str]:
    """The classes that occur, numbers by their size and then words."""
    if are_lists(table.column(target, "--target")):
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds lists, not values: to learn any "
            f"number of labels of each {table.unit}, use --task multilabel"
        )
    texts = without_missing(table.texts(target, "--target"))
    classes = sorted(texts.drop_nulls().unique().to_list(), key=_natural)
    if not classes:
        raise _empty(table, target)
    if len(classes) == 1:
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds one class only, '{classes[0]}': "
            "there is nothing to tell apart"
        )
    known = len(texts) - texts.null_count()
    if len(classes) == known or (len(classes) > FEW_CLASSES and 2 * len(classes) > known):
        units = f"{table.unit}s"
        raise TableError(
            f"{table.name}: {len(classes):,} different labels for {known:,} {units} in column "
            f"'{target}' (--target): classes are learnt from several {units} each; "
            + ("is it an id?", "to predict a number, use --task regression")[_are_numbers(classes)]
        )
    return classes


def find_labels(table: Table, target: str) -> list[str]:
    """The labels that occur in lists, numbers by their size and then words."""
    if not are_lists(table.column(target, "--target")):
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds no lists: labels are written as "
            '["red", "blue"], and [] if there are none; one class of each is learnt by --task '
            "classification"
        )
    _, tags, _ = tags_of(table, target, "--target")
    names = sorted(tags.unique().to_list(), key=_natural)
    if not names:
        raise _empty(table, target)
    if len(names) > MOST_LABELS:
        raise TableError(
            f"{table.name}: column '{target}' (--target) holds {len(names):,} different labels, of "
            f"which {MOST_LABELS:,} can be learnt: keep the most frequent ones"
        )
    return names


def are_lists(values: pl.Series) -> bool:
    """Whether a column holds lists, or texts that are written so."""
    if values.dtype != pl.String:
        return isinstance(values.dtype, pl.List | pl.Array)
    there = without_missing(text_of(values)).drop_nulls()
    return len(there) > 0 and bool(there.str.contains(r"(?s)^\[.*\]$").all())


def _are_numbers(classes: list[str]) -> bool:
    return all(_natural(name)[0] == 0 for name in classes)


def _empty(table: Table, target: str) -> TableError:
    return TableError(f"{table.name}: column '{target}' (--target) is empty: nothing to learn")


def read_labels(table: Table, target: str, classes: list[str]) -> tuple[np.ndarray, list[str]]:
    """The class of each node [N], -1 where it is not known; and what to say about them."""
    written = table.texts(target, "--target")
    texts = without_missing(written)
    labels = positions(texts, pl.Series(classes, dtype=pl.String))
    counts = np.bincount(labels[labels >= 0], minlength=len(classes))
    sizes = ", ".join(f"{name} {count:,}" for name, count in zip(classes, counts, strict=True))
    named = f" ({sizes})" if len(classes) <= CLASSES_NAMED else ""
    notes = [
        f"{table.name}: {counted(len(table), table.unit)}, {int(counts.sum()):,} with a label, "
        f"{len(classes):,} classes{named}; {texts.null_count():,} to be predicted"
    ]
    if len(classes) > FEW_CLASSES and _are_numbers(classes):
        notes.append(
            f"the classes of '{target}' are numbers, and each counts for itself: to predict a "
            "number, use --task regression"
        )
    words = written.filter(texts.is_null() & written.is_not_null())
    if len(words):
        some = ", ".join(f"'{word}'" for word in words.unique().sort().to_list())
        notes.append(f"{counted(len(words), 'label')} {some}: taken as not known")
    unseen = int((labels < 0).sum()) - texts.null_count()
    if unseen:
        notes.append(f"{counted(unseen, table.unit)} with a label that the model does not know")
    return labels, notes


def read_tags(table: Table, target: str, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """1 for the labels of each node, 0 for others, [N, C], NaN where they are not known."""
    rows, tags, missing = tags_of(table, target, "--target")
    places = positions(tags, pl.Series(names, dtype=pl.String))
    there, labels = places >= 0, np.zeros((len(table), len(names)), np.float32)
    labels[rows[there], places[there]] = 1
    labels[missing] = np.nan
    counts = np.nansum(labels, 0).astype(int)
    sizes = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
    named = f" ({sizes})" if len(names) <= CLASSES_NAMED else ""
    known, unseen = int((~missing).sum()), int((~there).sum())
    notes = [
        f"{table.name}: {counted(len(table), table.unit)}, {known:,} with a list of labels, "
        f"{len(names):,} labels{named}; {int(missing.sum()):,} to be predicted"
    ]
    if unseen:
        notes.append(f"{counted(unseen, 'label')} that the model does not know")
    return labels, notes


def read_numbers(table: Table, target: str) -> tuple[np.ndarray, list[str]]:
    """The number of each node [N], NaN where it is not known."""
    values = numbers_of(table, target, "--target")
    numbers = values.fill_null(math.nan).to_numpy(writable=True)
    there, told, skewed = numbers[~np.isnan(numbers)], "", False
    if len(there):
        least, median, most = there.min(), np.median(there), there.max()
        told = f" (from {least:g} to {most:g}, the median is {median:g})"
        skewed = bool(least > 0 and most > SKEWED * median)
    notes = [
        f"{table.name}: {counted(len(table), table.unit)}, {len(there):,} with a number{told}; "
        f"{values.null_count():,} to be predicted"
    ]
    if skewed:
        notes.append(f"the numbers of '{target}' are very uneven: --log-target may help")
    return numbers, notes


def rare(labels: np.ndarray, classes: list[str], unit: str) -> list[str]:
    """A line about the classes that have one node, or other unit, only, if there are any."""
    counts = np.bincount(labels[labels >= 0], minlength=len(classes))
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
    unlabelled = sum(int((mask & ~labelled).sum()) for mask in masks.values())
    masks = {part: mask & labelled for part, mask in masks.items()}
    for part, mask in masks.items():
        if not mask.any():
            raise TableError(
                f"{table.name}: column '{column}' (--split-column) has no {table.unit} with a "
                f"label for '{part}': each of train, val and test needs some"
            )
    sizes = ", ".join(f"{part} {int(mask.sum()):,}" for part, mask in masks.items())
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
