"""Kernels do one hop of one block of states; the loops over hops are `walk.py`'s.

A kernel is a class. Its class side says where it can run, what its matrices are made of and what it
can keep; an object of it is one forward or one backward pass over some heads and value columns.
States are the kernel's own affair, but for their first axis: a row for each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...compressed import CSR
from ...graph import Graph

Exchange = Callable[[Tensor], Tensor]
"""From rows that a partition owns to the columns that its matrix needs: [R, ...] -> [C, ...]."""

Place = Callable[[int], Any]
"""Room for the state of a hop."""


Pass = Callable[..., Sequence[Tensor | None]]
"""A walk forward or backward: from tensors to what it makes of them."""


class Sizes(NamedTuple):
    """N nodes, H heads of d key channels and e = c + 1 columns, K hops; bytes of a number, and of a
    number in a state."""

    nodes: int
    heads: int
    channels: int
    columns: int
    hops: int
    item: int
    state_item: int

    @staticmethod
    def of(key: Tensor, value: Tensor, hops: int, state_dtype: torch.dtype) -> Sizes:
        nodes, heads, channels = key.shape
        items = value.element_size(), state_dtype.itemsize
        return Sizes(nodes, heads, channels, value.size(2) + 1, hops, *items)

    @property
    def readouts(self) -> int:
        """Numbers that are read out in a hop: N H e."""
        return self.nodes * self.heads * self.columns

    def part(self, heads: slice, values: slice) -> Sizes:
        """Of some heads and value columns, which bring a column of ones of their own."""
        columns = values.stop - values.start + 1
        return self._replace(heads=heads.stop - heads.start, columns=columns)


@dataclass(frozen=True)
class Operands:
    """What the operator is applied to.

    Shapes: `query`, `key` [N, H, d], `value` [N, H, c], `hop_weights` [K + 1, H] or None; with a
    `gate` [K, H], whose softmax over heads multiplies them from hop 1 on, also [K + 1] or
    [K + 1, 1], for all heads. `beta` [K, H] are the powers of the denominators, None: 1.
    `state_dtype` is what states are rounded to between hops. `phi` is the feature map that the
    kernel is to apply, one of its `maps`; `""` where query and key are phi(q), phi(k) >= 0 already.
    `most_rows` are the nodes of the rank that has most, by which kernels decide whatever changes
    the number of exchanges; None: nobody else walks.
    """

    hops: int
    eps: float
    state_dtype: torch.dtype
    query: Tensor
    key: Tensor
    value: Tensor
    hop_weights: Tensor | None = None
    gate: Tensor | None = None
    beta: Tensor | None = None
    phi: str = ""
    most_rows: int | None = None

    @property
    def others(self) -> list[Tensor]:
        """What is given besides query, key and value, in the order of the fields."""
        given = self.hop_weights, self.gate, self.beta
        return [tensor for tensor in given if tensor is not None]

    def power(self, hop: int) -> Tensor | None:
        """The beta of a hop [H]."""
        return None if self.beta is None else self.beta[hop - 1]

    @cached_property
    def sizes(self) -> Sizes:
        return Sizes.of(self.key, self.value, self.hops, self.state_dtype)

    def part(self, heads: slice, values: slice) -> Operands:
        """The operator on some heads and value columns."""
        return replace(
            self,
            query=self.query[:, heads],
            key=self.key[:, heads],
            value=self.value[:, heads, values],
            hop_weights=None if self.hop_weights is None else self.hop_weights[:, heads],
            beta=None if self.beta is None else self.beta[:, heads],
        )


class Kept(NamedTuple):
    """What the forward pass leaves for the backward pass: states, and read-outs [K, N, H, e]; or
    room for these that the backward pass fills, if they are `unread`."""

    states: Tensor | None = None
    readouts: Tensor | None = None
    unread: bool = False


class Kernel:
    """One pass over some heads and value columns, in steps that `walk.py` calls in this order.

    Forward, for each of `blocks`:
        `first(exchange, place)`: S_0 on the columns of the matrix, or None for its factors;
        `step(matrix, old, new, hop)`: S_m = A S_(m-1), read out.
    `finish()`: the weighted sum over hops [N, H, c], or all levels [K + 1, N, H, c].

    Backward, after `turn(grad)` and inside `two_walks`, for each of `blocks`:
        `first`, and `step_for_query(matrix, old, new, hop)`: S_m = A S_(m-1), dq += S_m dR_m; or
        `read_kept()` where states are kept. Read-outs that are `unread` are made on the way, too.
    After `turn_back()`, for each of `blocks`:
        `last_gradient(exchange, place)`: G_K = q (x) dR_K on the columns, or None for its factors;
        `step_back(transpose, old, new, hop)`, K - 1 .. 1: G_m = A^T G_(m+1) + q (x) dR_m;
        `home(transpose, old)`: dS_0 = A^T G_1, and what keys and values get of it.
    `gradients()`: of query, key and value, and of hop weights, gate and beta as far as there are.

    A step takes the state on the columns of its matrix, room for the new one (None where nobody
    will ask for it) and the hop, and returns the state on the rows. `kept_state(hop)` is where the
    state of a hop is kept.
    """

    summary: ClassVar[str]
    """One line for `sta info`."""

    maps: ClassVar[tuple[str, ...]] = ()
    """Feature maps that it applies itself, faster than torch would; gradients are then of what was
    mapped."""

    gates: ClassVar[bool] = False
    """Whether it takes a gate's logits; others get hop weights that are gated already."""

    rooms: ClassVar[int] = 2
    """States that are there at a time while it walks, for those who count bytes."""

    reads_lying: ClassVar[bool] = False
    """Whether a state must lie somewhere, all columns and that of the last hop too, where
    `step_for_query` makes read-outs."""

    of_edge: ClassVar[int] = 16
    """Numbers of a state whose gather takes as long as finding out along which edge."""

    takes_rows_apart: ClassVar[bool] = False
    """Whether rows of queries, keys and values may be parts of a wider tensor's."""

    @staticmethod
    def refusal(device: torch.device, dtype: torch.dtype) -> str | None:
        """Why it cannot run there, if it cannot."""
        return None

    @staticmethod
    def matrices(graph: Graph, dtype: torch.dtype, both: bool) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors that A is made of, and its transpose's if both are asked for."""
        return [*graph.matrix(dtype)], [*graph.transpose(dtype)] if both else []

    @staticmethod
    def matrix(tensors: Sequence[Tensor]) -> Any:
        """A matrix of such tensors, as the steps take it."""
        return CSR(*tensors)

    @staticmethod
    def repeated(work: Pass, sizes: Sizes, matrices: Sequence[Tensor]) -> Pass:
        """A pass that is done again and again, of tensors of the same sizes on the same matrices:
        as it is, or made faster."""
        return work

    @staticmethod
    def kept_hops(hops: int) -> range:
        """The hops whose states can be kept for the backward pass."""
        return range(0)

    @staticmethod
    def most_kept_bytes(sizes: Sizes, num_edges: int) -> float:
        """Up to how many bytes of states keeping them is faster than walking again."""
        return 0

    # What those who count bytes have to know of it, from sizes alone.

    @staticmethod
    def columns_together(sizes: Sizes) -> int:
        """Columns of a state that walk at a time."""
        return sizes.columns

    @staticmethod
    def unkept_readouts(sizes: Sizes) -> int:
        """Of how many hops read-outs are there at a time where none are kept."""
        return 1

    @staticmethod
    def grad_readouts(sizes: Sizes) -> float:
        """Of how many hops gradients of read-outs are there at a time."""
        return 1

    @staticmethod
    def planes(sizes: Sizes) -> int:
        """How often gradients of queries, or of keys, are there besides themselves."""
        return 0

    @staticmethod
    def empty(numbers: int, like: Tensor) -> Tensor:
        """Memory for what is kept, flat."""
        return like.new_empty(numbers)

    def __init__(self, operands: Operands, kept: Kept) -> None:
        self.operands, self.kept = operands, kept

    def blocks(self, matrix: Any) -> Iterable[Any]:
        """Columns of the states that walk together, each with rooms and steps of its own."""
        return [self]

    def room(self) -> Any:
        """Room for a state, if it takes any."""
        return None

    def two_walks(self, matrix: Any) -> AbstractContextManager[AbstractContextManager[Any]]:
        """Around both walks of the backward pass; gives a context for the first one."""
        return nullcontext(nullcontext())

    def read_kept(self) -> None:
        """dq += S_m dR_m of the kept states, unless it is added on the way back."""

    def turn_back(self) -> None:
        """The first walk is done."""
