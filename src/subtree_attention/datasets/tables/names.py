"""The ids of the nodes and their numbers: those of the rows, one after the other.

Where the rows lie on several ranks, none has all ids: a hash says who knows the number of which.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from . import ranks
from .lazy import pl
from .table import Table, TableError, positions

ROWS = 2**18
"""Texts that are looked up at a time."""


@dataclass(frozen=True)
class Names:
    """The ids of the nodes.

    Attributes:
        ids: those of the rows that are here, as texts.
        start: the number of the first of them.
        count: how many there are on all ranks.
        known: `value` and `number` of those that this rank knows, by number; None where every id
            is the number of its row.
    """

    ids: pl.Series
    start: int
    count: int
    known: pl.DataFrame | None

    @classmethod
    def of(cls, ids: pl.Series) -> Names:
        start, count = ranks.before(len(ids)), ranks.size_of(ids)
        frame = pl.DataFrame({"value": ids}).with_row_index("number", offset=start)
        frame = frame.select("value", pl.col("number").cast(pl.Int64))
        if ranks.size() > 1 and ranks.all_of(ids == frame["number"].cast(pl.String)):
            return cls(ids, start, count, None)
        return cls(ids, start, count, ranks.route(frame, ranks.bucket(ids)))

    def find(self, texts: pl.Series) -> np.ndarray:
        """The number [n] of the node that each text names, -1 where none is called so."""
        if self.known is None:
            return self._by_number(texts)
        if ranks.size() == 1:
            return positions(texts, self.known["value"])
        blocks = range(0, max(ranks.told(len(texts))), ROWS)
        found = [self._ask(texts[start : start + ROWS]) for start in blocks]
        return np.concatenate([*found, np.zeros(0, np.int64)])

    def find_numbers(self, numbers: np.ndarray) -> np.ndarray | None:
        """As `find`, of ids [n] that are whole numbers; None where not all ids of nodes are."""
        if ranks.are_there() or (places := self._places) is None:
            return None
        least, known, place = places
        if known is None:  # a table that says it: at each number its place, or -1
            inside = (numbers >= least) & (numbers < least + len(place))
            return np.where(inside, place[np.where(inside, numbers - least, 0)], -1)
        at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        return np.where(known[at] == numbers, place[at], -1)

    @cached_property
    def _places(self) -> tuple[int, np.ndarray | None, np.ndarray] | None:
        """Where ids that are whole numbers stand: the least of them, and a table from it on; or if
        they are far apart, all in ascending order, and the place of each."""
        numbers = self.ids.cast(pl.Int64, strict=False)
        if not len(numbers) or not (numbers.cast(pl.String) == self.ids).fill_null(False).all():
            return None
        known, order = numbers.to_numpy(), np.arange(len(numbers))
        least, most = int(known.min()), int(known.max())
        if most - least < 4 * len(known):
            table = np.full(most - least + 1, -1, np.int64)
            table[known - least] = order
            return least, None, table
        order = np.argsort(known)
        return least, known[order], order

    def _by_number(self, texts: pl.Series) -> np.ndarray:
        found = []
        for start in range(0, len(texts), ROWS):
            some = texts[start : start + ROWS]
            numbers = some.cast(pl.Int64, strict=False)
            right = (numbers.cast(pl.String) == some) & numbers.is_between(0, self.count - 1)
            found.append(numbers.set(~right, None).fill_null(-1).to_numpy())
        return np.concatenate([*found, np.zeros(0, np.int64)])

    def _ask(self, texts: pl.Series) -> np.ndarray:
        """Those who know the numbers."""
        assert self.known is not None
        asked = texts.drop_nulls().unique()
        here = pl.lit(ranks.rank(), dtype=pl.Int32).alias("rank")
        heard = ranks.route(asked.alias("value").to_frame().with_columns(here), ranks.bucket(asked))
        answers = heard.join(self.known, on="value", maintain_order="left")
        told = ranks.route(answers.select("value", "number"), answers["rank"].to_numpy())
        found = texts.alias("value").to_frame()
        found = found.join(told, on="value", how="left", maintain_order="left")
        return found["number"].fill_null(-1).to_numpy(writable=True)


def read_names(table: Table, column: str, option: str = "; another column: --id") -> Names:
    """The ids, each there once."""
    ids = table.texts(column, "--id")
    if (row := table.first(ids.is_null())) is not None:
        raise TableError(f"{table.place(row)}: the id (column '{column}') is empty")
    names = Names.of(ids)
    if names.known is None:
        return names
    twice = names.known.filter(names.known["value"].is_duplicated())
    if not (count := ranks.total(len(twice))):
        return names
    pairs = twice.group_by("value", maintain_order=True).agg(pl.col("number").head(2)).head(1)
    found = [(*row["number"], row["value"]) for row in pairs.to_dicts()]
    first, second, value = min(pair for some in ranks.told(found) for pair in some)
    places = [_place(table, names, number) for number in (second, first)]
    raise TableError(
        f"{places[0]}: the id {value!r} is that of {places[1]} too; ids must be different "
        f"({count:,} rows share theirs{option})"
    )


def _place(table: Table, names: Names, number: int) -> str:
    """Where a row of any rank is."""
    row = number - names.start
    said = ranks.told(table.place(row) if 0 <= row < len(table) else "")
    return next(place for place in said if place)
