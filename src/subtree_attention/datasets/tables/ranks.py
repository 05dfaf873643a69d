"""A table whose rows may lie on several ranks: what is asked of all rows is answered on all alike.

Every rank has some rows of a table, those of rank 0 first, and runs the same code on them. What
decides something is asked here: whether `any_of` the rows is so, how many are, what the first one
holds. Between ranks that takes a message; a process that has the whole table, which is what one
process has unless it is `among` others, answers by itself.

No rank waits for one that has failed: a message begins with whether its sender is well, and all
ranks raise the error of the first one that is not.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import TableError
from .lazy import pl

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

T = TypeVar("T")

SHORT = 248
"""Bytes of a message that go along with its size."""
WORDS = 4000
"""Signs of an error that are told."""
BLOCK = 8 * 2**20
"""Bytes that a rank sends at a time, about, so that rows can go to other ranks without a copy of
all of them."""
PIVOTS = 2048
"""Values of each rank that narrow down where those of a certain rank in order are."""
_FAILED = -1
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (TableError, ValueError, TypeError, ImportError, MemoryError)
}
"""Errors that are raised as such on other ranks too."""


class Lost(RuntimeError):
    """Another rank does not answer any more."""


class _Elsewhere(Exception):
    """Another rank will say what is wrong; `announced` if that is known to all already."""

    def __init__(self, announced: bool) -> None:
        self.announced = announced


class _Ranks:
    """The processes of a group, and what they can do together."""

    def __init__(self, group: ProcessGroup | None) -> None:
        import torch.distributed

        self._group = group
        self.rank = torch.distributed.get_rank(group)
        self.size = torch.distributed.get_world_size(group)

    def exchange(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, in their order."""
        heads = self._gather(_head(len(message), message))
        sizes = [int.from_bytes(head[:8], "little", signed=True) for head in heads]
        if _FAILED in sizes:
            raise _Elsewhere(announced=True)
        if max(sizes) <= SHORT:
            return [head[8 : 8 + size] for head, size in zip(heads, sizes, strict=True)]
        whole = self._gather(message.ljust(max(sizes), b"\0"))
        return [each[:size] for each, size in zip(whole, sizes, strict=True)]

    def deal(self, messages: list[bytes]) -> list[bytes]:
        """A message to each rank for one from each, in their order."""
        import torch

        own = np.array([len(message) for message in messages], np.int64)
        sizes = np.stack([np.frombuffer(all, np.int64) for all in self.exchange(own.tobytes())])
        arriving = sizes[:, self.rank].tolist()
        sent = _bytes(b"".join(messages))
        received = torch.empty(sum(arriving), dtype=torch.uint8)
        splits = arriving, own.tolist()
        self._call(torch.distributed.all_to_all_single, received, sent, *splits)
        ends = list(accumulate(arriving, initial=0))
        return [received[a:b].numpy().tobytes() for a, b in pairwise(ends)]

    def failure(self, error: Exception) -> Exception:
        """The error of the first rank that has one, on every rank."""
        if not isinstance(error, _Elsewhere) or not error.announced:
            self._gather(_head(_FAILED))
        said = (
            ""
            if isinstance(error, _Elsewhere)
            else json.dumps(_in_words(error), ensure_ascii=False)
        )
        told = [each.rstrip(b"\0") for each in self._gather(said.encode().ljust(8 * WORDS, b"\0"))]
        rank = next(rank for rank, words in enumerate(told) if words)
        if rank == self.rank:
            return error
        kind, words = json.loads(told[rank])
        if kind in _KINDS:
            return _KINDS[kind](words)
        return RuntimeError(f"rank {rank} has failed: {kind}: {words}")

    def _gather(self, message: bytes) -> list[bytes]:
        """Equally long messages of all ranks."""
        import torch

        sent = _bytes(message)
        received = [torch.empty_like(sent) for _ in range(self.size)]
        self._call(torch.distributed.all_gather, received, sent)
        return [each.numpy().tobytes() for each in received]

    def _call(self, collective: Callable[..., Any], *parts: Any) -> None:
        try:
            collective(*parts, group=self._group)
        except RuntimeError as error:
            words = re.sub(r"^\[[^\]]*\] *", "", next(iter(str(error).splitlines()), ""))
            raise Lost(
                f"rank {self.rank} cannot reach another rank any more ({words}): what that one "
                "said, if anything, is the reason"
            ) from None


_current: ContextVar[_Ranks | None] = ContextVar("ranks", default=None)


@contextmanager
def among(group: ProcessGroup | None) -> Iterator[None]:
    """Within it, a table has rows on all ranks of a group; they leave it together.

    An error of one rank is raised on all of them.
    """
    ranks = _Ranks(group)
    token = _current.set(ranks)
    failed = None
    try:
        try:
            yield
            ranks.exchange(b"")  # nobody has failed since
        except Lost:
            raise
        except Exception as error:
            failed = ranks.failure(error)
    finally:
        _current.reset(token)
    if failed is not None:
        raise failed


@contextmanager
def alone() -> Iterator[None]:
    """Within it, a process answers by itself: for values that all ranks have alike."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def are_there() -> bool:
    """Whether a process is `among` others, if perhaps as the only one."""
    return _current.get() is not None


def rank() -> int:
    """The number of this process."""
    ranks = _current.get()
    return 0 if ranks is None else ranks.rank


def size() -> int:
    """How many processes there are."""
    ranks = _current.get()
    return 1 if ranks is None else ranks.size


# ------------------------------------------------------------------------------ what all ranks say


def told(value: T) -> list[T]:
    """What each rank says, in their order: a value that JSON can hold."""
    ranks = _current.get()
    if ranks is None:
        return [value]
    return [json.loads(each) for each in ranks.exchange(json.dumps(value).encode())]


def total(number: int) -> int:
    """The sum of a number of each rank."""
    return sum(told(int(number)))


def before(number: int) -> int:
    """The sum of a number of each rank before this one."""
    return sum(told(int(number))[: rank()])


def any_of(mask: pl.Series | np.ndarray) -> bool:
    """Whether a mask is true anywhere."""
    return any(told(bool(mask.any())))


def all_of(mask: pl.Series) -> bool:
    """Whether a mask is true everywhere."""
    return all(told(bool(mask.all())))


def count_of(mask: pl.Series | np.ndarray) -> int:
    """How often a mask is true."""
    return total(int(mask.sum()))


def share_of(mask: pl.Series) -> float:
    """How much of a mask is true, from 0 to 1; 0 if it is empty."""
    counts = told([int(mask.sum()), len(mask)])
    return sum(true for true, _ in counts) / max(1, sum(rows for _, rows in counts))


def size_of(values: pl.Series) -> int:
    """How many values there are."""
    return total(len(values))


def nulls_of(values: pl.Series) -> int:
    """How many values are missing."""
    return total(values.null_count())


def first_of(values: pl.Series) -> Any:
    """The first value, on all ranks; None if there is none."""
    if _current.get() is None:
        return values[0] if len(values) else None
    firsts = gathered(_named(values.head(1)))["value"]
    return firsts[0] if len(firsts) else None


def head(values: pl.Series, count: int) -> pl.Series:
    """The first values of all, as far as they are here."""
    if _current.get() is None:
        return values.head(count)
    return values.head(max(0, count - before(min(count, len(values)))))


def row_of(mask: pl.Series) -> int | None:
    """The first row that is true; None if none is.

    Who has it is to raise an error that names it: others do not go on.
    """
    row = next(iter(mask.arg_true()), None)
    found = told(row is not None)
    if not any(found):
        return None
    if found.index(True) != rank():
        raise _Elsewhere(announced=False)
    return row


def largest(values: np.ndarray) -> np.ndarray:
    """The largest of each rank's values, place by place; all ranks have as many."""
    return np.max(_stacked(values), axis=0)


def added(values: np.ndarray) -> np.ndarray:
    """The sum of the ranks' values, place by place; all ranks have as many."""
    return np.sum(_stacked(values), axis=0)


def _stacked(values: np.ndarray) -> np.ndarray:
    ranks = _current.get()
    if ranks is None:
        return values[None]
    messages = ranks.exchange(np.ascontiguousarray(values).tobytes())
    return np.stack([np.frombuffer(m, values.dtype).reshape(values.shape) for m in messages])


# ---------------------------------------------------------------------- values and their counts


def gathered(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of all ranks, on all ranks."""
    return frame if _current.get() is None else pl.concat(some for (some,) in frames([frame]))


def gathered_rows(rows: np.ndarray) -> np.ndarray:
    """The rows of all ranks' arrays [n, d], on all ranks."""
    ranks = _current.get()
    if ranks is None:
        return rows
    messages = ranks.exchange(np.ascontiguousarray(rows).tobytes())
    return np.frombuffer(b"".join(messages), rows.dtype).reshape(-1, *rows.shape[1:])


def counts_of(values: pl.Series) -> pl.DataFrame:
    """Different values and their counts, as columns `value` and `count`: each on one of the ranks.

    Which one is decided by a hash, so that none has all of them.
    """
    return merged(counts_here(values))


def counts_here(values: pl.Series) -> pl.DataFrame:
    """Different values of this rank and their counts, as columns `value` and `count`."""
    return _named(values).group_by("value").agg(count=pl.len().cast(pl.Int64))


def merged(counts: pl.DataFrame) -> pl.DataFrame:
    """Counts of each rank's values, as those of `counts_of`."""
    if _current.get() is None:
        return counts
    return route(counts, bucket(counts["value"])).group_by("value").agg(pl.col("count").sum())


def unique_of(values: pl.Series) -> list[Any]:
    """The different values, sorted, on all ranks."""
    here = values.unique()
    if _current.get() is None:
        return here.sort().to_list()
    return gathered(_named(here))["value"].unique().sort().to_list()


def n_unique_of(values: pl.Series) -> int:
    """How many different values there are."""
    return values.n_unique() if _current.get() is None else total(counts_of(values).height)


def bucket(values: pl.Series) -> np.ndarray:
    """The rank [n] that is in charge of each value."""
    return (values.hash(seed=0) % size()).cast(pl.Int64).to_numpy()


def refuse_other_hashes() -> None:
    """Refuse ranks of which each would ask another one for the same value."""
    versions = told(pl.__version__)
    found = told(int(pl.Series(["a word"]).hash(seed=0)[0]))
    if any(each != found[0] for each in found):
        raise RuntimeError(
            f"the ranks have polars {', '.join(versions)}, whose hashes differ: install the same "
            "one for all"
        )


def order_statistics(values: np.ndarray, places: Sequence[int]) -> list[float]:
    """The values at some places, from 0, of all in ascending order: exactly, in few messages.

    Every rank tells some of its values, far apart in its own order. The first of them with enough
    values up to it is either the one that is asked for, or bounds where to look again.
    """
    if _current.get() is None:
        return np.partition(values, places)[list(places)].tolist()
    values, at = np.sort(values), np.array(places)
    low, high = np.full(len(at), -np.inf), np.full(len(at), np.inf)  # both exclusive
    found = np.full(len(at), np.nan)
    while np.isnan(found).any():
        starts = np.searchsorted(values, low, "right")
        ends = np.searchsorted(values, high, "left")
        inside = [_apart(values[a:b]) for a, b in zip(starts, ends, strict=True)]
        mine = pl.Series("value", np.unique(np.concatenate(inside)))
        pivots = np.unique(gathered(mine.to_frame())["value"].to_numpy())
        sides = [np.searchsorted(values, pivots, side) for side in ("left", "right")]
        below, until = added(np.stack(sides))
        first = np.minimum(np.searchsorted(until, at, "right"), len(pivots) - 1)
        open_ = np.isnan(found)
        found = np.where(open_ & (below[first] <= at), pivots[first], found)
        low = np.where(first > 0, np.maximum(low, pivots[first - 1]), low)
        high = np.minimum(high, pivots[first])
    return found.tolist()


def _apart(values: np.ndarray) -> np.ndarray:
    """Some of the values, evenly spaced, with the first and the last."""
    if len(values) <= PIVOTS:
        return values
    return values[np.linspace(0, len(values) - 1, PIVOTS).astype(np.int64)]


# --------------------------------------------------------------------------- rows on their way


def route(frame: pl.DataFrame, to: np.ndarray) -> pl.DataFrame:
    """Rows of a frame at the ranks `to` [n]: what arrives, in the order of the ranks and rows.

    They go in blocks, so that beside the rows little is in memory.
    """
    ranks = _current.get()
    if ranks is None:
        return frame
    each = max(1, BLOCK // max(1, int(frame.estimated_size()) // max(1, len(frame))))
    rounds = max(told(-(-len(frame) // each)))
    arrived: list[list[pl.DataFrame]] = [[] for _ in range(ranks.size)]
    for start in range(0, max(1, rounds) * each, each):
        some, goal = frame[start : start + each], to[start : start + each]
        order = np.argsort(goal, kind="stable")
        cuts = np.searchsorted(goal[order], range(ranks.size + 1)).tolist()
        some = some[order]
        parts = [_packed(some[a:b]) for a, b in pairwise(cuts)]
        for rows, part in zip(arrived, ranks.deal(parts), strict=True):
            rows.append(_unpacked(part))
    return pl.concat([part for rows in arrived for part in rows])


def route_rows(rows: Any, to: np.ndarray) -> Any:
    """As `route`, of the rows of an array [n] or [n, d], or of a CSR matrix."""
    if _current.get() is None:
        return rows
    if isinstance(rows, np.ndarray):
        if rows.ndim > 1 and not rows.shape[1]:
            return np.zeros((len(route_rows(to, to)), 0), rows.dtype)
        arrived = route(pl.DataFrame({"row": rows}), to)
        return arrived["row"].to_numpy(writable=True).reshape(-1, *rows.shape[1:])
    lengths = np.diff(rows.indptr)
    entries = pl.DataFrame({"column": rows.indices, "value": rows.data})
    arrived = route(entries, np.repeat(to, lengths))
    starts = np.concatenate([[0], np.cumsum(route_rows(lengths, to))])
    parts = (*(arrived[name].to_numpy(writable=True) for name in ("value", "column")), starts)
    return type(rows)(parts, shape=(len(starts) - 1, rows.shape[1]))


def _named(values: pl.Series) -> pl.DataFrame:
    return values.alias("value").to_frame()


def frames(some: list[pl.DataFrame]) -> list[list[pl.DataFrame]]:
    """The frames of each rank, in their order."""
    ranks = _current.get()
    if ranks is None:
        return [some]
    packed = [_packed(frame) for frame in some]
    sizes = np.array([len(packed), *map(len, packed)], np.int64)
    found = []
    for message in ranks.exchange(sizes.tobytes() + b"".join(packed)):
        start = 8 * (1 + int(np.frombuffer(message[:8], np.int64)[0]))
        ends = accumulate(np.frombuffer(message[8:start], np.int64).tolist(), initial=start)
        found.append([_unpacked(message[a:b]) for a, b in pairwise(ends)])
    return found


def _packed(frame: pl.DataFrame) -> bytes:
    """A frame as the bytes of Arrow; the old layout has the texts of these rows only."""
    file = io.BytesIO()
    frame.write_ipc(file, compat_level=pl.CompatLevel.oldest())
    return file.getvalue()


def _unpacked(message: bytes) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(message))


def _head(size: int, message: bytes = b"") -> bytes:
    """The beginning of a message: its size, and all of it if it is short."""
    inline = message if len(message) <= SHORT else b""
    return size.to_bytes(8, "little", signed=True) + inline.ljust(SHORT, b"\0")


def _in_words(error: Exception) -> tuple[str, str]:
    """What an error is called, and what it says."""
    named = (kind for kind, of in _KINDS.items() if isinstance(error, of))
    return next(named, type(error).__name__), str(error)[:WORDS]


def _bytes(message: bytes) -> Tensor:
    import torch

    return (
        torch.frombuffer(bytearray(message), dtype=torch.uint8)
        if message
        else torch.empty(0, dtype=torch.uint8)
    )
