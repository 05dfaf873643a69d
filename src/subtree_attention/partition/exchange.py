"""Rows of nodes that others own, brought here before a hop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .groups import Ranks

SENT_AS_THEY_ARE = (torch.float32, torch.float64)
"""Other types travel as bytes, which every backend takes."""

Empty = Callable[[int, Tensor], Tensor]


def _fresh(numbers: int, like: Tensor) -> Tensor:
    return like.new_empty(numbers)


class Travelling:
    """Rows on their way; `wait` for them before they are used."""

    def __init__(self, rows: Tensor, work: Any, sent: Tensor) -> None:
        self.rows, self.work = rows, work
        self.sent = sent  # must live as long as they travel

    def wait(self) -> Tensor:
        """The columns of a matrix: rows that are owned, then those that came."""
        self.work.wait()
        return self.rows


class Exchange:
    """From rows that a part owns to the columns that its matrix needs: [n, ...] -> [n + h, ...].

    Args:
        ranks: who owns the others.
        send: `[s]`, which rows are sent, those for rank 0 first.
        sends: how many go to each rank.
        receives: how many come from each rank: h in all.

    Attributes:
        sent_bytes: what was sent to others so far, in bytes.
        calls: how often.
    """

    def __init__(
        self, ranks: Ranks, send: Tensor, sends: Sequence[int], receives: Sequence[int]
    ) -> None:
        self.ranks, self.send = ranks, send
        self.sends, self.receives = [*sends], [*receives]
        self.sent_bytes = self.calls = 0

    def start(self, rows: Tensor, empty: Empty = _fresh) -> Travelling:
        """Send rows and go on; every rank does so, with rows of the same shape and type.

        `empty` gives memory, flat, for so many numbers as those of a tensor.
        """
        self.ranks._check_reachable()
        own, came, width = len(rows), sum(self.receives), rows.shape[1:].numel()
        columns = empty((own + came) * width, rows).view(-1, *rows.shape[1:])
        sent = empty(len(self.send) * width, rows).view(-1, *rows.shape[1:])
        torch.index_select(rows, 0, self.send, out=sent)
        self.sent_bytes += sent.nbytes
        self.calls += 1
        ends, sizes = (columns[own:], sent), (self.receives, self.sends)
        if rows.dtype not in SENT_AS_THEY_ARE:
            ends = columns[own:].view(torch.uint8), sent.view(torch.uint8)
        group = self.ranks.group
        work = dist.all_to_all_single(*ends, *sizes, group=group, async_op=True)
        columns[:own] = rows  # while the others travel
        return Travelling(columns, work, sent)

    def __call__(self, rows: Tensor) -> Tensor:
        return self.start(rows).wait()

    def to(self, device: torch.device) -> Exchange:
        return Exchange(self.ranks, self.send.to(device), self.sends, self.receives)
