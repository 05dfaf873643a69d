"""Blocks of heads and value columns on ranks that have the same nodes: each walks its own.

Heads know nothing of each other, and value columns bring their ones, so a block is the operator on
slices, as a part is (`walk.py`). Outputs and gradients of values are gathered, gradients of what
blocks share are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..partition import Ranks
from . import walk
from .kernels import Operands, Sizes


class Block(NamedTuple):
    """Some heads, some of their value columns, and what is kept of them."""

    heads: slice
    values: slice
    keep: int


def share(heads: int, values: int, rank: int, ranks: int) -> list[tuple[slice, slice]]:
    """A rank's columns of all heads side by side, [H c], in rectangles: the rest of a head, whole
    heads, the beginning of one."""
    first, last = (heads * values * (rank + end) // ranks for end in (0, 1))
    found = []
    while first < last:
        head, column = divmod(first, values)
        count = last - first
        if column or count < values:
            stop = min(column + count, values)
            found.append((slice(head, head + 1), slice(column, stop)))
            first += stop - column
        else:
            found.append((slice(head, head + count // values), slice(0, values)))
            first += count // values * values
    return found


class OnRanks:
    """Forward and backward pass of an operator whose blocks are shared out to ranks.

    Args:
        ranks: who have the same nodes and inputs.
        options: `library.Options`.
        walkables: the matrix, and in training its transpose.
        sizes: of the whole operator.
        agreed: the same with the most nodes that any rank has, and its edges: by them is decided
            what is kept.
    """

    def __init__(
        self,
        ranks: Ranks,
        options: Any,
        walkables: Sequence[walk.Walkable],
        sizes: Sizes,
        agreed: tuple[Sizes, int],
    ) -> None:
        self.ranks, self.options, self.walkables = ranks, options, walkables
        self.sizes, (most, edges) = sizes, agreed
        self.blocks = []
        for part in share(sizes.heads, sizes.columns - 1, ranks.rank, ranks.size):
            how = most.part(*part), edges, options.state_bytes
            keep = min(walk.what_to_keep(options.kernel, *how), options.keep)
            self.blocks.append(Block(*part, keep))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The output on every rank, and what is kept on this one."""
        operands, value = self.options.operands(inputs), inputs[2]
        levels = () if operands.hop_weights is not None else (operands.hops + 1,)
        outs, memory = [value.new_empty(*levels, len(value), 0)], []
        for heads, values, keep in self.blocks:
            how = operands.part(heads, values), self.walkables[0], keep, self.options.state_bytes
            out, kept = walk.forward(self.options.kernel, *how)
            outs.append(out.flatten(-2))
            memory.append(kept)
        out = self._gathered(torch.cat(outs, -1)).view(*levels, *value.shape)
        return out, memory[0] if len(memory) == 1 else torch.cat([value.new_empty(0), *memory])

    def backward(self, grad: Tensor, kept: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients as of `walk.backward`, of all blocks on every rank."""
        operands, found = self.options.operands(inputs), [inputs[2].new_empty(len(inputs[2]), 0)]
        shared = [torch.zeros_like(tensor) for tensor in (*inputs[:2], *inputs[3:])]
        for (heads, values, keep), held in zip(self.blocks, self._kept(kept), strict=True):
            own = self._block(grad, operands, heads, values, keep, held)
            found.append(own[2].flatten(1))
            for total, part in zip(shared, (*own[:2], *own[3:]), strict=True):
                total[:, heads] += part
        sums = self.ranks.summed(torch.cat([tensor.flatten() for tensor in shared]))
        summed = [
            part.view_as(tensor)
            for part, tensor in zip(sums.split([t.numel() for t in shared]), shared, strict=True)
        ]
        value = self._gathered(torch.cat(found, -1)).view_as(inputs[2])
        return summed[0], summed[1], value, *summed[2:]

    def _block(
        self, grad: Tensor, operands: Operands, heads: slice, values: slice, keep: int, held: Tensor
    ) -> tuple[Tensor, ...]:
        how = held, *self.walkables, keep, self.options.state_bytes
        its_grad = grad[..., heads, values].contiguous()
        return walk.backward(self.options.kernel, its_grad, operands.part(heads, values), *how)

    def _kept(self, memory: Tensor) -> list[Tensor]:
        """What is kept of each block."""
        most = self.walkables[0].most_rows
        counts = [
            walk.kept_numbers(
                self.options.kernel, self.sizes.part(*part), keep, self.options.state_bytes, most
            )
            for *part, keep in self.blocks
        ]
        ends = [*accumulate(counts, initial=0)]
        return [memory[start : start + count] for start, count in zip(ends, counts, strict=False)]

    def _gathered(self, columns: Tensor) -> Tensor:
        """The columns of all ranks side by side: [..., N, own] -> [..., N, H c]."""
        total, ranks = self.sizes.heads * (self.sizes.columns - 1), self.ranks.size
        ends = [total * rank // ranks for rank in range(ranks + 1)]
        counts = [stop - start for start, stop in pairwise(ends)]
        filled = torch.nn.functional.pad(columns, (0, max(counts) - columns.size(-1)))
        each = self.ranks.gathered(filled)
        return torch.cat([part[..., :n] for part, n in zip(each, counts, strict=True)], -1)
