"""What loaders share: epochs, their order and their keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import _check
from ..ops.sampling import InEdges, Sampled, key_of
from . import batch as batches
from .ahead import in_order
from .source import Source

if TYPE_CHECKING:
    from torch_geometric.data import Data

MOST_WORKERS = 256


class Loader(ABC):
    """Something to be gone through in batches, again and again; every epoch draws anew.

    Args:
        data: a graph, see `Source`.
        batch_size: units of a batch.
        shuffle: whether they come in another order each epoch.
        drop_last: leave out a last batch that is smaller than the others.
        transition, self_loops: as in `Graph`.
        transform: what is done to a batch, in the thread that makes it.
        num_workers: threads that make batches ahead; 0: they are made when they are asked for.
        prefetch: batches that each of them makes ahead.
        seed: of order and draws; None: each epoch takes one from torch's generator.
    """

    def __init__(
        self,
        data: Any,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        transition: str | None,
        self_loops: bool,
        transform: Callable[[Any], Any] | None,
        num_workers: int,
        prefetch: int,
        seed: int | None,
    ) -> None:
        if transform is not None and not callable(transform):
            raise TypeError(f"transform must be a function, got {_check.said(transform)}")
        self.shuffle, self.transform = _check.flag("shuffle", shuffle), transform
        self.drop_last = _check.flag("drop_last", drop_last)
        self.num_workers = _check.integer("num_workers", num_workers, 0, MOST_WORKERS)
        self.prefetch = _check.integer("prefetch", prefetch, 1)
        self.seed = None if seed is None else _check.integer("seed", seed, 0, _check.MOST_SEED)
        self.source, self.epoch = Source.of(data), 0
        self.edges: InEdges = self.source.in_edges(transition, self_loops)
        self.batch_size = batch_size

    @property
    @abstractmethod
    def count(self) -> int:
        """How many units there are, of which batches have some."""

    @abstractmethod
    def sample(self, which: Tensor, key: int) -> tuple[Sampled, Tensor | None]:
        """What a batch of these units has, and their `input_id` if it has seeds."""

    def __len__(self) -> int:
        whole, rest = divmod(self.count, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Data]:
        key = key_of(self._epoch_seed(), self.epoch)
        self.epoch += 1
        order = torch.arange(self.count)
        if self.shuffle:
            random = torch.Generator().manual_seed(key_of(key) % 2**63)
            order = torch.randperm(self.count, generator=random)
        make = partial(self._made, order.split(self.batch_size), key)
        return in_order(make, len(self), self.num_workers, self.prefetch)

    def _epoch_seed(self) -> int:
        if self.seed is not None:
            return self.seed
        return int(torch.empty((), dtype=torch.int64).random_())

    def _made(self, lots: tuple[Tensor, ...], key: int, number: int) -> Data:
        sampled, input_id = self.sample(lots[number], key_of(key, number))
        batch = batches.made(self.source, sampled, input_id)
        return batch if self.transform is None else self.transform(batch)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} batches)"
