"""How well one column alone tells the target: one that nearly decides it is often known only
afterwards.

Each row is told from others with a like value, never from itself, so that chance tells no more than
the largest class does, however many different values there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from .tables import ranks
from .tables.columns import Category, Column, Tags, Text

ROWS = 20_000
"""Rows with a known target that are looked at, drawn at random if there are more."""
LEAST_ROWS = 20
"""Of fewer, chance could tell a lot."""
EACH, GROUPS = 10, 50
"""Rows of a group of numbers that are next to each other; fewer if there were fewer groups."""
SUPPORT, TRUST = 5, 0.8
"""Rows that have a word at least, and the share of one class in them, for it to tell anything."""
DECIDES = 0.9
"""Share of the mistakes of always saying the largest class that a column spares, if it decides."""
ORDERS = 0.97
"""Share of the variance of ranks that a column explains, if it decides a number."""
LABELS = 20
"""The most frequent labels are looked at."""
WIDE = 64
"""Columns of a block of numbers that are looked at."""
DENSE = 4_000_000
"""Counts of words by classes that are held at a time."""


class Leak(NamedTuple):
    """A column that decides the target, by its share of right answers or of variance.

    `by` is the word that does it alone, if one does; `of` the label that is told, if labels are.
    """

    column: str
    share: float
    base: float
    by: str = ""
    of: str = ""


Block: TypeAlias = Any
"""The features [n, width] of a column: an array, or a sparse matrix."""


def find(columns: list[Column], x: Block, y: np.ndarray) -> list[Leak]:
    """The columns that decide the target, the clearest first.

    Args:
        columns: one after the other as in x.
        x: [N, F].
        y: [N], a class (-1: not known) or a number, or [N, C] labels (NaN: not known).
    """
    floating = y.dtype.kind == "f"
    known = ~np.isnan(y) if floating else y >= 0
    rows = np.flatnonzero(known.all(1) if y.ndim == 2 else known)
    count, start = ranks.total(len(rows)), ranks.before(len(rows))
    if count < LEAST_ROWS:
        return []
    if count > ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(count, ROWS, replace=False)) - start
        rows = rows[chosen[(chosen >= 0) & (chosen < len(rows))]]
    nowhere = np.zeros(len(rows), np.int64)  # the first rank looks for all
    x, y = ranks.route_rows(x[rows], nowhere), ranks.route_rows(y[rows], nowhere)
    with ranks.alone():
        found = _find(columns, x, y) if len(y) else []
    return [Leak(**leak) for leak in ranks.told([leak._asdict() for leak in found])[0]]


def _find(columns: list[Column], x: Block, y: np.ndarray) -> list[Leak]:
    """`find` in rows that are all looked at."""
    floating = y.dtype.kind == "f"
    if not isinstance(x, np.ndarray):
        x = x.tocsc()
    target = _Labels(y) if y.ndim == 2 else _Number(y) if floating else _Class(y)
    found, start = list[Leak](), 0
    for column in columns:
        block = x[:, start : start + column.width]
        start += column.width
        found += target.told_by(column, block)
    return sorted(found, key=lambda leak: leak.base - leak.share)


# --------------------------------------------------------------------------------------- groups


def _groups(column: Column, block: Block) -> Iterator[np.ndarray]:
    """Groups [n] of rows with a like value, by their numbers: of a category each value, of numbers
    those next to each other; what is missing is a group too."""
    if isinstance(column, Category):
        place = np.arange(1, column.width + 1, dtype=np.float64)
        yield np.asarray((block > 0) @ place).ravel().astype(np.int64)
        return
    if isinstance(column, Tags | Text):
        return
    flagged = bool(getattr(column, "flagged", False))
    values = block if isinstance(block, np.ndarray) else block[:, : WIDE + 1].toarray()
    missing = values[:, -1] > 0 if flagged else np.zeros(len(values), bool)
    for number in values[:, : values.shape[1] - flagged][:, :WIDE].T:
        each = min(EACH, max(2, len(number) // GROUPS))
        _, inverse, counts = np.unique(number, return_inverse=True, return_counts=True)
        group = ((np.cumsum(counts) - counts) // each)[inverse]  # ties stay together
        yield np.where(missing, group.max() + 1, group)


def _words(column: Column, block: Block) -> scipy.sparse.csr_matrix | None:
    """1 where a row has a word or tag, [n, width]."""
    if not isinstance(column, Tags | Text):
        return None
    there = scipy.sparse.csr_matrix(block)
    return scipy.sparse.csr_matrix((np.ones(there.nnz), there.indices, there.indptr), there.shape)


# -------------------------------------------------------------------------------------- targets


class _Class:
    def __init__(self, y: np.ndarray) -> None:
        self.y, self.rows = y, len(y)
        self.classes = int(y.max()) + 1
        self.sizes = np.bincount(y, minlength=self.classes)
        self.base = self.sizes.max() / self.rows

    def told_by(self, column: Column, block: Block) -> list[Leak]:
        found = [
            Leak(column.name, self._of_groups(some), self.base) for some in _groups(column, block)
        ]
        if (words := _words(column, block)) is not None:
            found += [
                Leak(column.name, share, self.base, by)
                for share, by in self._of_words(column, words)
            ]
        best = max(found, key=lambda leak: leak.share, default=None)
        return [best] if best and best.share - self.base >= DECIDES * (1 - self.base) > 0 else []

    def _of_groups(self, groups: np.ndarray) -> float:
        """Share of the rows whose class is that of most others of their group; of a row that is
        alone in it, the largest class is said."""
        pairs, counts = np.unique(groups * self.classes + self.y, return_counts=True)
        group = pairs // self.classes
        order = np.lexsort((-counts, group))
        group, counts, pairs = group[order], counts[order], pairs[order]
        first = np.flatnonzero(np.diff(group, prepend=-1))  # of each group the class of most rows
        second = np.append(counts[1:], 0)[first]
        second = np.where(np.append(group[1:], -1)[first] == group[first], second, 0)
        most = counts[first]
        alone = (most == 1) & (second == 0)
        right = most[most - 1 > second].sum()
        right += (pairs[first][alone] % self.classes == self.sizes.argmax()).sum()
        return float(right / self.rows)

    def _of_words(
        self, column: Column, words: scipy.sparse.csr_matrix
    ) -> Iterator[tuple[float, str]]:
        """Share of the rows that are told by whether they have one word; and by their best word."""
        one_hot = scipy.sparse.csr_matrix((np.ones(self.rows), (np.arange(self.rows), self.y)))
        if words.shape[1] * self.classes <= DENSE:
            having = np.asarray((words.T @ one_hot).todense())  # [words, classes]
            right = having.max(1) + (self.sizes - having).max(1)
            best = int(right.argmax())
            yield float(right[best] / self.rows), column.values[best]  # type: ignore[union-attr]
        # What the first half of the rows, in no order, has learnt is asked of the second half.
        order = np.random.default_rng(0).permutation(self.rows)
        learnt, asked = order[: self.rows // 2], order[self.rows // 2 :]
        counts = scipy.sparse.csr_matrix(words[learnt].T @ one_hot[learnt])
        support = np.asarray(counts.sum(1)).ravel()
        said = np.asarray(counts.argmax(1)).ravel()
        trust = np.asarray(counts.max(1).todense()).ravel() / (support + 1)
        trust[(support < SUPPORT) | (trust < TRUST)] = 0
        told = words.multiply(trust[None]).tocsr()
        best_word = np.asarray(told.argmax(1)).ravel()
        silent = np.asarray(told.max(1).todense()).ravel() == 0  # of these, what most of them are
        rest = np.bincount(self.y[learnt][silent[learnt]], minlength=self.classes).argmax()
        answers = np.where(silent, rest, said[best_word])[asked]
        yield float((answers == self.y[asked]).mean()), ""


class _Number:
    def __init__(self, y: np.ndarray) -> None:
        _, inverse, counts = np.unique(y, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - counts / 2)[inverse]  # the same for the same number
        self.y = ranks - ranks.mean()
        self.total = float((self.y**2).sum())

    def told_by(self, column: Column, block: Block) -> list[Leak]:
        shares = [self._explained(groups) for groups in _groups(column, block)]
        best = max(shares, default=0.0)
        return [Leak(column.name, best, 0.0)] if best >= ORDERS else []

    def _explained(self, groups: np.ndarray) -> float:
        """Share of the variance that the mean of the others of each group explains."""
        if not self.total:
            return 0.0
        _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
        sums = np.bincount(inverse, self.y)[inverse]
        others = counts[inverse] - 1
        told = np.where(others > 0, (sums - self.y) / np.maximum(others, 1), 0.0)
        return 1 - float(((self.y - told) ** 2).sum()) / self.total


class _Labels:
    def __init__(self, y: np.ndarray) -> None:
        order = np.argsort(-y.sum(0), kind="stable")[:LABELS]
        self.y, self.places = y[:, order].astype(np.float64), order
        self.sizes = self.y.sum(0)
        self.base = np.maximum(self.sizes, len(y) - self.sizes)

    def told_by(self, column: Column, block: Block) -> list[Leak]:
        rows, found = len(self.y), dict[int, Leak]()
        for right, words in self._right(column, block):
            for label in np.flatnonzero(right - self.base >= DECIDES * (rows - self.base)).tolist():
                if self.base[label] < rows:  # else there is nothing to tell
                    shares = right[label] / rows, self.base[label] / rows
                    by = column.values[words[label]] if words is not None else ""  # type: ignore[union-attr]
                    found.setdefault(label, Leak(column.name, *shares, by, str(self.places[label])))
        return list(found.values())

    def _right(
        self, column: Column, block: Block
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Rows of which each label is told, [C]; and by which word."""
        rows = len(self.y)
        for groups in _groups(column, block):
            _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
            member = scipy.sparse.csr_matrix((np.ones(rows), (inverse, np.arange(rows))))
            having, many = member @ self.y, counts[:, None]
            right = having * (2 * (having - 1) > many - 1)  # a row is told by the others
            right = right + (many - having) * (2 * having <= many - 1)
            yield right.sum(0), None
        if (words := _words(column, block)) is not None:
            having, many = words.T @ self.y, np.asarray(words.sum(0)).T  # [words, C], [words, 1]
            without = self.sizes - having
            right = np.maximum(having, many - having)
            right += np.maximum(without, rows - many - without)
            best = right.argmax(0)
            yield right[best, np.arange(len(best))], best
