"""The labels of the nodes as classes, and the column that says which part of a split each is in."""

from __future__ import annotations

import math

import numpy as np

from .lazy import pl
from .read import Table, TableError, counted, positions
from .values import without_missing

CLASSES_NAMED = 10
PARTS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
FEW_CLASSES = 20
"""More classes than this, and on average fewer than two nodes for each, are no classes."""


def find_classes(table: Table, target: str) -> list[str]:
    """The classes that occur, numbers by their size and then words."""
    texts = without_missing(table.texts(target, "--target"))
    classes = sorted(texts.drop_nulls().unique().to_list(), key=_natural)
    if not classes:
        raise TableError(f"{table.name}: column '{target}' (--target) is empty: nothing to learn")
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
            f"'{target}' (--target): classes are learnt from several {units} each, and numbers are "
            "not predicted; is it a number or an id?"
        )
    return classes


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
    words = written.filter(texts.is_null() & written.is_not_null())
    if len(words):
        some = ", ".join(f"'{word}'" for word in words.unique().sort().to_list())
        notes.append(f"{counted(len(words), 'label')} {some}: taken as not known")
    unseen = int((labels < 0).sum()) - texts.null_count()
    if unseen:
        notes.append(f"{counted(unseen, table.unit)} with a label that the model does not know")
    return labels, notes


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
    table: Table, column: str, labels: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The masks train, val and test [N] of a column, and what to say about them.

    Nodes without a label are in no mask.
    """
    texts = table.texts(column, "--split-column").str.to_lowercase()
    known = [word for words in PARTS.values() for word in words]
    if (row := table.first(texts.is_not_null() & ~texts.is_in(known))) is not None:
        raise TableError(
            f"{table.place(row)}: column '{column}' (--split-column) holds {texts[row]!r}; it may "
            "hold train, val, test, or nothing"
        )
    masks = {part: texts.is_in(words).fill_null(False).to_numpy() for part, words in PARTS.items()}
    unlabelled = sum(int((mask & (labels < 0)).sum()) for mask in masks.values())
    masks = {part: mask & (labels >= 0) for part, mask in masks.items()}
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
