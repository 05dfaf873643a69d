"""Who takes part: ranks that share the nodes of a graph, and ranks that share its heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _check

NODES, HEADS = "nodes", "heads"
"""Names of a mesh's dimensions."""


class Ranks:
    """Ranks that do something together, and which of them this one is; a single one is alone.

    Args:
        group: of torch.distributed; None: alone, or `rank` of `size` that cannot be reached.
        rank: of this one, where there is no group.
        size: how many there are, where there is no group.
    """

    def __init__(self, group: Any = None, rank: int = 0, size: int = 1) -> None:
        self.group = group
        self.rank = rank if group is None else dist.get_rank(group)
        self.size = size if group is None else dist.get_world_size(group)

    @property
    def alone(self) -> bool:
        return self.size == 1

    def device(self, device: torch.device) -> torch.device:
        """Where tensors must lie to be sent: NCCL takes those of a GPU only."""
        self._check_reachable()
        if device.type == "cpu" and dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return device

    def _check_reachable(self) -> None:
        if self.group is None:
            raise RuntimeError(
                f"this is part {self.rank} of {self.size}, cut without a process group: give the "
                "group or the mesh instead of a rank to walk on it"
            )

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, the same bits on all of them; a new tensor."""
        if self.alone:
            return tensor.clone()
        sent = tensor.detach().to(self.device(tensor.device), copy=True)
        sent = sent.contiguous()
        dist.all_reduce(sent, group=self.group)
        return sent.to(tensor.device)

    def gathered(self, tensor: Tensor) -> Tensor:
        """What each rank has, one after the other: [...] -> [ranks, ...]."""
        if self.alone:
            return tensor.detach()[None]
        sent = tensor.detach().to(self.device(tensor.device)).contiguous()
        found = sent.new_empty(self.size, *sent.shape)
        dist.all_gather([*found], sent, group=self.group)
        return found.to(tensor.device)

    def broadcast(self, tensor: Tensor) -> Tensor:
        """What the first rank has."""
        if self.alone:
            return tensor
        sent = tensor.detach().to(self.device(tensor.device), copy=True).contiguous()
        dist.broadcast(sent, group=self.group, group_src=0)
        return sent.to(tensor.device)

    def to_owners(self, owner: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Rows `[n, ...]` to the ranks that own them, `[n]`: what came here, by rank and in order.

        Every rank calls it, with as many tensors.
        """
        if self.alone:
            return [*tensors]
        order = owner.argsort(stable=True)
        counts = torch.bincount(owner, minlength=self.size)
        here = self.device(counts.device)
        sent, came = counts.to(here), torch.empty_like(counts, device=here)
        dist.all_to_all_single(came, sent, group=self.group)
        sizes = came.tolist(), sent.tolist()
        found = []
        for tensor in tensors:
            rows = tensor.index_select(0, order).to(here)
            into = rows.new_empty(sum(sizes[0]), *rows.shape[1:])
            dist.all_to_all_single(into, rows, *sizes, group=self.group)
            found.append(into.to(tensor.device))
        return found


class Summed(torch.autograd.Function):
    """The sum over ranks, of which each has the gradient of its own share of a loss."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.summed(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.summed(grad), None


class Mesh(NamedTuple):
    """The ranks that this one shares nodes with, and those that it shares heads with."""

    nodes: Ranks
    heads: Ranks


def as_mesh(given: Any, parts: int) -> Mesh:
    """What a rank shares with whom: of a DeviceMesh, a group for nodes, or the number of a part.

    Nodes that nobody shares are one part.
    """
    if isinstance(given, Mesh):
        found = given
    elif isinstance(given, int) and not isinstance(given, bool):
        found = Mesh(Ranks(None, _check.index("part", given, parts), parts), Ranks())
    elif isinstance(given, dist.ProcessGroup):
        found = Mesh(Ranks(given), Ranks())
    else:
        found = _of_device_mesh(given)
    if found.nodes.size != parts:
        raise ValueError(
            f"the partition has {parts} parts, but {found.nodes.size} ranks share the nodes: make "
            "a partition of as many parts"
        )
    return found


def _of_device_mesh(given: Any) -> Mesh:
    names = getattr(given, "mesh_dim_names", None)
    if not isinstance(names, tuple) or not {*names} <= {NODES, HEADS}:
        raise TypeError(
            f"a mesh is a DeviceMesh whose dimensions are named {NODES!r}, {HEADS!r} or both, as "
            f"subtree_attention.mesh makes it, got {_check.said(given)}"
        )
    groups = {name: Ranks(given.get_group(name)) for name in names}
    return Mesh(groups.get(NODES, Ranks()), groups.get(HEADS, Ranks()))


def mesh(nodes: int = 1, heads: int = 1, device: str | None = None) -> Any:
    """A mesh of all ranks, for :func:`subtree_attention.parallelize`.

    Args:
        nodes: how many ranks share the nodes of the graph.
        heads: how many ranks share the heads and value columns of each of those parts.
        device: `"cpu"` or `"cuda"`, what a mesh is made for; by default what the process group's
            backend is for: NCCL's is a GPU, that of gloo a CPU.

    Returns:
        A `torch.distributed.DeviceMesh` of `[nodes, heads]`.
    """
    from torch.distributed.device_mesh import init_device_mesh

    sizes = _check.integer("nodes", nodes, 1), _check.integer("heads", heads, 1)
    if not dist.is_initialized():
        raise RuntimeError(
            "there is no process group: start with torchrun, and call "
            "torch.distributed.init_process_group() first"
        )
    ranks = dist.get_world_size()
    if sizes[0] * sizes[1] != ranks:
        raise ValueError(f"a mesh of {nodes} x {heads} ranks, but there are {ranks}")
    if device is None:
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    _check.known("device", device, ["cpu", "cuda"])
    return init_device_mesh(device, sizes, mesh_dim_names=(NODES, HEADS))


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of some tensors, one after the other."""
    return torch.cat([tensor.flatten() for tensor in tensors])
