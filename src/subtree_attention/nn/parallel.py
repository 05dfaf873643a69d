"""A model on many ranks: the same model, its state and its results, on a part of the graph each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import _check, feature_maps
from ..graph import Graph
from ..partition import PartGraph, Partition, Ranks, as_mesh, flat, running_on
from ..partition.groups import Mesh, _of_device_mesh
from .conv import STAConv
from .decoder import LinkNetwork
from .features import Features, SparseFeatures, as_features
from .labels import Labelled
from .norms import BatchNorm
from .pooling import GraphNetwork

PARTITIONS = ("metis", "streaming", "blocks")
"""Ways to share out the nodes of a whole graph."""


def add_up_gradients(model: nn.Module, ranks: Ranks) -> None:
    """Let every rank have the sum of all ranks' gradients: see `Parallel.reduce_gradients`."""
    if ranks.alone:
        return
    learning = [each for each in model.parameters() if each.requires_grad]
    for dtype in dict.fromkeys(each.dtype for each in learning):
        _add_up([each for each in learning if each.dtype == dtype], ranks)


def _add_up(parameters: list[nn.Parameter], ranks: Ranks) -> None:
    """All in one message, with who has any."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has = parameters[0].new_tensor([float(p.grad is not None) for p in parameters])
    sizes = [len(has), *(grad.numel() for grad in grads)]
    had, *sums = ranks.summed(flat([has, *grads])).split(sizes)
    for parameter, total, any_has in zip(parameters, sums, had.tolist(), strict=True):
        if any_has:
            parameter.grad = total.view_as(parameter).clone()


class Parallel(nn.Module):
    """A model that runs on a part of a graph, together with other ranks.

    Called as the model is, with the features of the owned nodes: `parallel(x[parallel.nodes])`
    gives their outputs. A rank's loss is its share of a sum over all nodes; after its `backward()`,
    :meth:`reduce_gradients` adds up the shares. All ranks do the same calls in the same order, also
    one that owns no nodes. `state_dict` is the model's.

    Attributes:
        model: the model itself.
        graph: the :class:`PartGraph` that this rank walks on.
    """

    def __init__(self, model: nn.Module, graph: PartGraph) -> None:
        super().__init__()
        self.model, self.graph = model, graph

    @property
    def mesh(self) -> Mesh:
        return self.graph.shared.mesh

    @property
    def nodes(self) -> Tensor:
        """The numbers of the owned nodes in the whole graph, ascending, `[n]`."""
        return self.graph.nodes

    def forward(self, x: Features, graph: PartGraph | None = None, **more: Any) -> Any:
        """The model's outputs for the owned nodes.

        Args:
            x: `[n, channels]`, dense or sparse, of the owned nodes. Sparse features that come many
                times are best a :class:`SparseFeatures`, which is numbered once.
            graph: another :class:`PartGraph` than that of :func:`parallelize`.
            more: whatever else the model takes.
        """
        part = self.graph if graph is None else graph
        _check.kind("graph", part, PartGraph, "a PartGraph")
        x = as_features(x)
        if x.size(0) != part.num_nodes:
            raise ValueError(f"x has {x.size(0)} rows, but this rank owns {part.num_nodes} nodes")
        if isinstance(x, SparseFeatures):
            number_entries(x, part)
        with running_on(part):
            return self.model(x, part, **more)

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        """Add up the gradients of all ranks' shares of the loss: the same bits on each of them.

        A parameter that no rank has a gradient of stays without one.
        """
        add_up_gradients(self.model, self.mesh.nodes)

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over the ranks that share the nodes, of a loss or a count; no gradient."""
        return self.mesh.nodes.summed(tensor)

    @torch.no_grad()
    def synchronise(self) -> None:
        """Give every rank the parameters, buffers and random generator of the first one."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            alike = [each for each in tensors if each.dtype == dtype]
            first = _of_the_first(self.mesh, flat(alike))
            for each, values in zip(alike, first.split([t.numel() for t in alike]), strict=True):
                each.copy_(values.view_as(each))
        torch.set_rng_state(_of_the_first(self.mesh, torch.get_rng_state()))
        if self.graph.device.type == "cuda":
            device = self.graph.device
            state = _of_the_first(self.mesh, torch.cuda.get_rng_state(device))
            torch.cuda.set_rng_state(state, device)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """Those of the model."""
        yield from getattr(self.model, "no_weight_decay", list)()

    def fills_gpu(self, graph: Graph) -> bool:
        """Whether the model fills a GPU: then nothing gains by running beside it."""
        return getattr(self.model, "fills_gpu", lambda _: False)(graph)

    def state_dict(self, *args: Any, **how: Any) -> Any:
        """The model's, whole on every rank."""
        return self.model.state_dict(*args, **how)

    def load_state_dict(self, state_dict: Any, *args: Any, **how: Any) -> Any:
        """Into the model; every rank loads the same."""
        return self.model.load_state_dict(state_dict, *args, **how)

    def extra_repr(self) -> str:
        return repr(self.graph)


def parallelize(
    model: nn.Module, graph: Graph, mesh: Any, *, how: str | Partition = "metis"
) -> Parallel:
    """Let a model run on many ranks: the same numbers as in one process, to rounding.

    The model itself is not changed, and knows nothing of ranks. Its parameters, and the state of
    torch's random generator, become those of the first rank: dropout is then the same as in one
    process, whatever the number of ranks.

    Args:
        model: :class:`STAGNN`, :class:`STAFormer`, or any module of :class:`STAConv` layers that
            is called as `model(x, graph)`, the same on every rank.
        graph: a whole :class:`Graph`, the same on every rank, which is cut; or the
            :class:`PartGraph` of this rank.
        mesh: as :func:`subtree_attention.mesh` makes it: which ranks share nodes, and which heads.
        how: a whole graph is cut: `"metis"`, `"streaming"`, `"blocks"` (by number), or a
            :class:`Partition` of as many parts as ranks share the nodes.
    """
    _check.kind("model", model, nn.Module, "a model")
    _check.kind("graph", graph, Graph, "a Graph or a PartGraph")
    _check_model(model)
    if not isinstance(graph, PartGraph):
        found = mesh if isinstance(mesh, Mesh) else _of_device_mesh(mesh)
        graph = PartGraph.of(graph, _partition(graph, found.nodes.size, how), found)
    else:
        as_mesh(mesh, graph.partition.parts)
    device = next((each.device for each in model.parameters()), graph.device)
    parallel = Parallel(model, graph.to(device))
    parallel.synchronise()
    return parallel


def _partition(graph: Graph, parts: int, how: str | Partition) -> Partition:
    if isinstance(how, Partition):
        return how
    _check.known("how", how, PARTITIONS)
    if how == "metis":
        return Partition.metis(graph, None, parts)
    if how == "streaming":
        return Partition.streaming([graph.edge_index], graph.num_nodes, parts)
    return Partition.blocks(graph.num_nodes, parts)


def _check_model(model: nn.Module) -> None:
    """Refuse what cannot be the same on many ranks as on one."""
    if any(is_lazy(each) for each in model.parameters()):
        raise ValueError("this model has not seen x yet: make it with in_channels, not with -1")
    for module in model.modules():
        if reason := _problem(module):
            raise NotImplementedError(f"{type(module).__name__} cannot be parallelized: {reason}")


def _problem(module: nn.Module) -> str | None:
    if getattr(module, "budget", None) is not None:
        return (
            "memory= plans by the sizes of one rank, and others would walk in other parts: leave "
            "it out, or share the work among more ranks"
        )
    if isinstance(module, STAConv):
        if module.edge_gate is not None:
            return "features of edges (edge_dim) need the whole graph on one rank"
        if feature_maps.is_softmax(module.feature_map):
            return "the exact softmax similarity needs powers of the whole matrix"
    if isinstance(module, LinkNetwork | GraphNetwork):
        return "it reads pairs of nodes or many graphs; only models of nodes are parallel"
    if isinstance(module, nn.modules.dropout._DropoutNd) and module.p:
        return "it would draw other numbers on every rank: use subtree_attention.nn.Dropout"
    batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    if batch_norm and not isinstance(module, BatchNorm):
        return "its means are those of one rank: use subtree_attention.nn.BatchNorm"
    return None


def _of_the_first(mesh: Mesh, tensor: Tensor) -> Tensor:
    """What the first of all ranks has."""
    return mesh.heads.broadcast(mesh.nodes.broadcast(tensor))


def number_entries(x: SparseFeatures, part: PartGraph) -> None:
    """Let sparse features know which entries of the whole x theirs are; every rank calls it.

    Dropout draws for the entries of the whole x, one after the other.
    """
    if isinstance(x, Labelled):
        if isinstance(x.x, SparseFeatures):
            number_entries(x.x, part)
        return
    if x.starts is not None:
        return
    lengths = x.matrix.rowptr.diff().long()
    counts = torch.zeros(part.partition.num_nodes, dtype=torch.long, device=lengths.device)
    counts = part.shared.mesh.nodes.summed(counts.index_copy_(0, part.nodes, lengths))
    x.starts = (counts.cumsum(0) - counts)[part.nodes]
