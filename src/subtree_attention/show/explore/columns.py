"""What the user's table said of a node: as it was written, or else read back from its features.

A run of an older version, or on a store, keeps features and how columns became them, not the table.
Then numbers, categories and tags come back whole, of a text only the words that were kept.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from ...datasets import Dataset
from ...datasets.features import is_csr, to_scipy
from ...datasets.tables.columns import Category, Column, Matrix, Number, Tags, Text, Vector
from ...explanations import Changes
from ..text import short

WORDS = 8
"""Words of a text, or tags, that are told."""

NUMBERS = 4
"""Numbers of a vector that are told."""

COLUMNS = 12
"""Columns that are told."""

LETTERS = 200
"""Letters of a cell that are told, unless more are asked for."""

MISSING = "missing"


class Columns:
    """Tells the columns of a node, and its degree.

    Args:
        dataset: a graph; with a schema if it was made of tables.
    """

    def __init__(self, dataset: Dataset) -> None:
        x = dataset.features
        self._x = to_scipy(x) if is_csr(x) else x.numpy()
        self._ends = dataset.edge_index.numpy()
        self._degree = np.bincount(self._ends[1], minlength=dataset.num_nodes)
        self._columns: tuple[Column, ...] = dataset.schema.columns if dataset.schema else ()
        self._told = dataset.told

    def __call__(self, node: int, letters: int = LETTERS) -> list[tuple[str, str]]:
        """Names and values, as texts of so many letters at most."""
        written = {} if self._told is None else self._told.columns
        if written:
            some = islice(written.items(), COLUMNS)
            told = [(name, short(texts[node], letters) or MISSING) for name, texts in some]
        else:
            told = self._from_features(node)
        if (more := len(written or self._columns) - COLUMNS) > 0:
            told.append(("more columns", str(more)))
        return [*told, ("degree", str(self._degree[node]))]

    def degree(self, node: int, changes: Changes) -> str:
        """Of a node after changes, as a text."""
        sources = self._ends[0, self._ends[1] == node]
        gone = [*changes.nodes, *(source for source, target in changes.edges if target == node)]
        return str(np.count_nonzero(~np.isin(sources, gone)))

    def _from_features(self, node: int) -> list[tuple[str, str]]:
        row, start, told = self._row(node), 0, []
        for column in self._columns[:COLUMNS]:
            told.append((column.name, _value(column, row[start : start + column.width])))
            start += column.width
        return told or [("features", _count(row))]

    def _row(self, node: int) -> np.ndarray:
        row = self._x[[node]]
        return (row if isinstance(row, np.ndarray) else row.toarray())[0]


def _value(column: Column, block: np.ndarray) -> str:
    match column:
        case Number():
            missing = column.flagged and block[1] > 0
            return MISSING if missing else f"{column.original(block[0]):.6g}"
        case Vector():
            if column.flagged and block[-1] > 0:
                return MISSING
            mean, std = column.mean[:NUMBERS], column.std[:NUMBERS]
            more = ", …" if len(column.mean) > NUMBERS else ""
            return ", ".join(f"{number:.4g}" for number in block[: len(mean)] * std + mean) + more
        case Category():
            return column.values[block.argmax()] if block.any() else MISSING
        case Tags() | Text():
            return _words(column.values, block)
        case Matrix():
            return _count(block)


def _words(words: list[str], block: np.ndarray) -> str:
    """Those that weigh most, in the order of their weight."""
    found = np.argsort(-block, kind="stable")[: np.count_nonzero(block)]
    more = ", …" if len(found) > WORDS else ""
    return ", ".join(words[place] for place in found[:WORDS]) + more or "none"


def _count(block: np.ndarray) -> str:
    return f"{np.count_nonzero(block):,} of {len(block):,} not zero"
