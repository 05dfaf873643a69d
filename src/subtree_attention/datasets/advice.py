"""What a person should look at before a model is trained on tables: it is said, no more.

Only columns that nobody asked for are set apart: those of one value, and one that holds a split.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import scipy.sparse
from torch import Tensor

from . import leaks
from .features import is_csr, to_scipy
from .tables import ranks
from .tables.columns import Category, Number, Text
from .tables.infer import FEW_ROWS_EACH, MANY_VALUES
from .tables.labels import PARTS
from .tables.lazy import pl
from .tables.readings import NAMED_MONTH
from .tables.schema import TableSchema
from .tables.table import Table, counted
from .tables.values import PLACEHOLDERS

NAMED = 10
"""Columns that are named of a kind of advice; the rest is counted."""
ID_WORDS = {
    *("id", "ids", "uid", "uuid", "guid", "key", "code", "codes", "isbn", "ean", "sku", "iban"),
    *("zip", "zipcode", "plz", "postcode", "postal", "postleitzahl", "phone", "tel", "fax"),
}
"""Words in the name of a column whose numbers are names."""
LAST_WORDS = ID_WORDS | {"no", "nr"}
"""The same, at the end of it."""
HEAD = 1000
"""Rows that are looked at first."""
LEAST_ROWS = 20
"""Of fewer, different whole numbers are no sign of anything."""
SPLIT = "holds train, val and test: a split, if --split-column names it"
LINKS_SPLIT = "holds train, val and test, but links are split at random"
MASK = "is a mask of a split: --split-column is one column with train, val and test"
SAME = "holds one value only"
"""Why a column is set apart."""
NO_CLASS = {*PLACEHOLDERS, "not known", "missing", "undefined", "tbd", "unlabeled", "unlabelled"}
"""Names of classes, in lower case, that may stand for none."""
EVEN = 0.99
"""Squared correlation of the sorted numbers with their ranks from which on steps are even."""


class Graph(Protocol):
    """What advice is given on: a `Dataset`, or what a rank has read of one."""

    @property
    def x(self) -> Tensor: ...
    @property
    def y(self) -> Tensor: ...
    @property
    def edge_index(self) -> Tensor: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def schema(self) -> TableSchema | None: ...
    @property
    def batch(self) -> Tensor | None: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_units(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def known(self) -> Tensor: ...


def set_apart(table: Table, taken: Collection[str], links: bool = False) -> dict[str, str]:
    """Columns that are not to be features unasked, and why: a split, and those of one value.

    If nothing else is there, columns of one value stay: with them a model sees the edges at least.
    """
    frame = table.frame
    names = [name for name in frame.columns if name not in taken]
    plain = [name for name in names if not frame.schema[name].is_nested()]
    splits = [name for name in plain if _is_split(frame[name])]
    masks = [name for name in plain if _is_mask(name, frame)]
    rest = [name for name in names if name not in {*splits, *masks}]
    same = [name for name in rest if name in plain and _one_value(frame[name])]
    same = same if len(same) < len(rest) else []
    reasons = (splits, LINKS_SPLIT if links else SPLIT), (masks, MASK), (same, SAME)
    return {name: why for some, why in reasons for name in some}


def _is_split(values: pl.Series) -> bool:
    """Whether it holds train and val or test, and nothing else."""
    if values.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return False
    some = ranks.head(values, HEAD).drop_nulls().cast(pl.String)
    if ranks.n_unique_of(some) > LEAST_ROWS:  # other columns are told by a few values
        return False
    words = set(ranks.unique_of(values.drop_nulls().cast(pl.String).str.to_lowercase())) - {""}
    parts = {part for part, known in PARTS.items() if words & set(known)}
    others = words - {word for known in PARTS.values() for word in known}
    return "train" in parts and len(parts) > 1 and not others


def _is_mask(name: str, frame: pl.DataFrame) -> bool:
    """Whether it is train_mask, val_mask or test_mask, as PyG has them."""
    part, _, rest = name.lower().rpartition("_")
    known = any(part in words for words in PARTS.values())
    if not known or rest != "mask":
        return False
    words = frame[name].drop_nulls().unique().cast(pl.String).str.to_lowercase()
    return ranks.all_of(words.is_in(["true", "false", "0", "1", "0.0", "1.0"]))


def _one_value(values: pl.Series) -> bool:
    if ranks.size_of(values) < 2 or ranks.nulls_of(values):
        return False
    return ranks.all_of(values == ranks.first_of(values))


def advise(data: Graph, tables: Collection[Table], settled: Collection[str] = ()) -> list[str]:
    """What to look at, in words.

    Args:
        data: the graph that the tables became.
        tables: of the nodes and, if there is one, of the graphs.
        settled: columns whose kind the user has named.
    """
    schema = data.schema
    assert schema is not None
    words = [*_splits(data), *isolated(data)]
    for table, part in zip(tables, (schema, schema.graphs), strict=False):
        if part is not None:
            columns = [c.name for c in part.columns if isinstance(c, Number)]
            ids = (_id_words(table, name) for name in columns if name not in settled)
            words += _some([line for line in ids if line], "columns that look like ids")
            texts = [c.name for c in part.columns if isinstance(c, Category | Text)]
            words += _some([line for n in texts if (line := _dates(table, n))], "columns of dates")
    if schema.target is not None and ranks.any_of(data.known.numpy()):
        words += [*_no_classes(data), *_leaks(data)]
    return words


def _no_classes(data: Graph) -> list[str]:
    """Classes whose name says that none is known."""
    if data.target != "class":
        return []
    counts = ranks.added(np.bincount(data.y[data.y >= 0].numpy(), minlength=len(data.classes)))
    return [
        f"'{name}' is a class here, of {counted(int(count), data.unit)}: if it means that the "
        "class is not known, leave these cells empty"
        for name, count in zip(data.classes, counts, strict=True)
        if name.strip().lower() in NO_CLASS
    ]


def _dates(table: Table, name: str) -> str:
    """That a column of texts looks like dates with the names of months; empty if it does not."""
    values = table.frame[name]
    if values.dtype != pl.String:
        return ""
    some = ranks.head(values.drop_nulls(), HEAD)
    if ranks.share_of(some.str.contains(NAMED_MONTH)) <= 0.5:
        return ""
    example = ranks.first_of(some)
    return (
        f"column '{name}' looks like dates, such as '{example}', which are not read as dates: "
        "write them as 2024-01-05"
    )


def _splits(data: Graph) -> list[str]:
    schema = data.schema
    assert schema is not None
    parts = [part for part in (schema, schema.graphs) if part is not None]
    found = [name for part in parts for name, why in part.left_out.items() if why == SPLIT]
    return [
        f"column '{name}' holds train, val and test, and is no feature: to train on that split, "
        f"use --split-column {name}"
        for name in found
    ]


def isolated(data: Graph, first: int = 0) -> list[str]:
    """A line about the nodes from number `first` on that have no edge to another, if any."""
    nodes = data.num_nodes - first
    linked = getattr(data, "linked", None)  # where the edges themselves are not in memory
    if linked is None:
        source, dest = data.edge_index.numpy()
        others = source != dest
        ends = np.concatenate([source[others], dest[others]])
        alone = nodes - _linked(ends, data.num_nodes, first)
    else:
        alone = nodes - int(linked[first:].sum())
    if not alone:
        return []
    have = "has" if alone == 1 else "have"
    known = "its own columns" if alone == 1 else "their own columns"
    what = f"{known} are" if data.x.size(1) else "nothing is"
    return [
        f"{alone:,} of {counted(nodes, 'node')} ({100 * alone / nodes:.1f} %) {have} no edge to "
        f"another: {what} all that the model can know of {'it' if alone == 1 else 'them'}"
    ]


def _linked(ends: np.ndarray, num_nodes: int, first: int) -> int:
    """How many nodes from number `first` on are ends [n], of which each rank has some."""
    seen = np.zeros(num_nodes, bool)
    seen[ends] = True
    if ranks.size() > 1:  # a node is counted by one of those who have seen it
        nodes = np.flatnonzero(seen)
        nodes = ranks.route_rows(nodes, nodes % ranks.size())
        seen[:] = False
        seen[nodes] = True
    return ranks.count_of(seen[first:])


# -------------------------------------------------------------------------------------------- ids


def _id_words(table: Table, name: str) -> str:
    """Why a column of numbers looks like an id, and what to do; empty if it does not."""
    values = table.frame[name]
    if not (values.dtype.is_integer() or values.dtype.is_float() or values.dtype == pl.String):
        return ""
    some = replace(table, frame=ranks.head(values, HEAD).to_frame())
    if not _whole(some.texts(name, "--features")):  # most columns are told by their first rows
        return ""
    texts = table.texts(name, "--features").drop_nulls()
    rows = ranks.size_of(texts)
    if rows < LEAST_ROWS or not _whole(texts):
        return ""
    numbers = texts.cast(pl.Int64)
    different = ranks.n_unique_of(numbers)
    leave = f"leave it out (--leave-out {name})"
    if different == rows and (_even(numbers.to_numpy()) or _says_id(name)):
        return (
            f"column '{name}' looks like an id ({different:,} different whole numbers), but is "
            f"taken as a number: {leave}"
        )
    if different > 2 and _says_id(name):
        few = different <= min(MANY_VALUES, rows // FEW_ROWS_EACH)
        kind = f"take it as '{name}:category' (--features), or " if few else ""
        return (
            f"column '{name}' looks like a code ({different:,} different whole numbers), but is "
            f"taken as a number, where 20 is twice 10: {kind}{leave}"
        )
    return ""


def _whole(texts: pl.Series) -> bool:
    return ranks.all_of(texts.drop_nulls().str.contains(r"^\d{1,18}$"))


def _says_id(name: str) -> bool:
    """Whether the name has a word of ids: customerId, zip_code, 'account no'."""
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    words = [word.lower() for word in re.findall(r"[A-Za-z]+", apart)]
    return bool(words) and (words[-1] in LAST_WORDS or any(word in ID_WORDS for word in words))


def _even(numbers: np.ndarray) -> bool:
    """Whether different numbers [n] are counted up, also with gaps: in even steps when sorted."""
    ends = ranks.told([int(numbers.min()), int(numbers.max())] if len(numbers) else [])
    least, most = min(e[0] for e in ends if e), max(e[1] for e in ends if e)
    count, start = ranks.total(len(numbers)), ranks.before(len(numbers))
    if most - least < 2 * count:
        return True
    edges = [
        end
        for some in ranks.told(numbers[[0, -1]].tolist() if len(numbers) else [])
        for end in some
    ]
    steps = np.concatenate(
        [np.diff(numbers), np.diff(edges)]
    )  # of a rank, and from one to the next
    rising, falling = (ranks.all_of(pl.Series(some)) for some in (steps >= 0, steps <= 0))
    if not rising and not falling:
        return False
    # The squared correlation with the number of the row; no step is 0 but that of a single row.
    value = (numbers - least) / (most - least) - 0.5
    place = (np.arange(start, start + len(numbers)) / (count - 1)) - 0.5
    sums = [float(s.sum()) for s in (value, place, value * value, place * place, value * place)]
    v, p, vv, pp, vp = (sum(each) / count for each in zip(*ranks.told(sums), strict=True))
    return bool((vp - v * p) ** 2 > EVEN * (vv - v * v) * (pp - p * p))


# ------------------------------------------------------------------------------------------ leaks


def _leaks(data: Graph) -> list[str]:
    """A line for each column that decides the target alone."""
    schema = data.schema
    assert schema is not None
    x = to_scipy(data.x) if is_csr(data.x) else data.x.numpy()
    if data.batch is not None:  # of many graphs, the means of their nodes
        batch = data.batch.numpy()
        sizes = np.maximum(np.bincount(batch, minlength=data.num_units), 1)
        parts = (1 / sizes[batch], (batch, np.arange(data.num_nodes)))
        pool = scipy.sparse.csr_matrix(parts, shape=(data.num_units, data.num_nodes))
        x = pool @ x
    columns = [*schema.columns, *(schema.graphs.columns if schema.graphs is not None else ())]
    found = leaks.find(columns, x, data.y.numpy())
    return _some([_leak_words(leak, data) for leak in found], "columns that decide the target")


def _leak_words(leak: leaks.Leak, data: Graph) -> str:
    assert data.schema is not None
    by = f" (by '{leak.by}')" if leak.by else ""
    share = "all" if leak.share == 1 else f"{min(100 * leak.share, 99.9):.1f} %"
    beside = f"; the largest class is {100 * leak.base:.1f} %"
    if data.target == "number":
        share = f"{min(100 * leak.share, 99.9):.1f} %"
        told, beside = f"the order of the numbers of '{data.schema.target}' to {share}", ""
    elif data.target == "labels":
        told = f"the label '{data.classes[int(leak.of)]}' of {share} of the {data.unit}s"
        beside = f"; always the same answer is right for {100 * leak.base:.1f} %"
    else:
        told = f"{share} of the classes" if leak.share < 1 else "all classes"
    remedy = "take that word out, or leave the column out" if leak.by else "leave it out"
    return (
        f"column '{leak.column}' alone tells {told}{by}{beside}: if it is known only afterwards, "
        f"{remedy} (--leave-out {leak.column})"
    )


def _some(lines: list[str], what: str) -> list[str]:
    """The first of some lines, and how many more there are."""
    more = len(lines) - NAMED
    return [*lines[:NAMED], *([f"and {more:,} more {what}"] if more > 0 else [])]
