"""What one rank holds of a graph: the edges into and out of its nodes."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _check
from ..adjacency import (
    check_constant,
    check_ends,
    check_extremes,
    from_edge_index,
    weight_extremes,
)
from ..compressed import Pattern, index_dtype, row_pointers
from ..graph import Graph, as_device
from ..transition import TRANSITIONS, Scales, scales_of
from .exchange import Exchange
from .groups import Mesh, as_mesh
from .parts import Partition


class Shared(NamedTuple):
    """How a graph is shared with other ranks.

    `there` and `back` bring rows of others before a hop along the matrix and along its transpose;
    None where nobody shares the nodes. `most_nodes` and `most_edges` are those of the largest
    part: by them all ranks decide alike.
    """

    mesh: Mesh
    there: Exchange | None
    back: Exchange | None
    most_nodes: int
    most_edges: int


class Side(NamedTuple):
    """The rows of a matrix that a part owns: entries, which nodes its columns are, and how many of
    those come from each part."""

    pattern: Pattern
    columns: Tensor
    receives: list[int]


class Edges(NamedTuple):
    """Sources and targets [2, E] by their numbers in the whole graph, and weights [E] or None."""

    ends: Tensor
    weight: Tensor | None

    def chosen(self, mask: Tensor) -> Edges:
        return Edges(self.ends[:, mask], None if self.weight is None else self.weight[mask])

    def and_loops(self, nodes: Tensor) -> Edges:
        """With a loop of weight 1 at these nodes."""
        ends = torch.cat([self.ends, nodes.expand(2, -1)], dim=1)
        if self.weight is None:
            return Edges(ends, None)
        return Edges(ends, torch.cat([self.weight, self.weight.new_ones(len(nodes))]))


class PartGraph(Graph):
    """What one rank holds of a graph, and walks on together with others.

    To a layer it is a :class:`Graph` of the nodes that the rank owns: row i of all that goes in and
    comes out is node `nodes[i]`. :meth:`of` cuts a whole Graph, :meth:`from_edges` takes edges of
    which no rank has all.

    Attributes:
        nodes: `[n]`, the numbers of the owned nodes in the whole graph, ascending.
        partition: who owns the others.
        shared: with whom it is walked on.
    """

    nodes: Tensor
    partition: Partition
    shared: Shared

    def __init__(self, *given: Any, **more: Any) -> None:
        raise TypeError(
            "a PartGraph is made by PartGraph.of(graph, partition, mesh) or PartGraph.from_edges"
            "(edge_index, partition, mesh)"
        )

    @classmethod
    def of(cls, graph: Graph, partition: Partition, mesh: Any) -> PartGraph:  # type: ignore[override]
        """The part of a whole graph that is this rank's.

        Args:
            graph: the whole graph, the same on every rank.
            partition: of its nodes.
            mesh: as :func:`subtree_attention.mesh` makes it, or a process group that shares the
                nodes; or the number of a part, to look at it without walking on it.
        """
        _check.kind("graph", graph, Graph, "a Graph")
        _check_nodes(partition, graph.num_nodes)
        found = as_mesh(mesh, partition.parts)
        whole = Edges(graph.edge_index, graph._receive.edge_weight)
        owners = partition.owner.to(graph.device)[whole.ends]
        mine = owners == found.nodes.rank
        sizes = partition.sizes, torch.bincount(owners[1], minlength=partition.parts)
        most = [int(size.max()) for size in sizes]
        part = object.__new__(cls)
        how = partition, found, graph.transition, graph.self_loops
        part._set_part(whole.chosen(mine[1]), whole.chosen(mine[0]), *how, most)
        by_source, by_target = graph._scales()
        part._part_scales = (
            (_rows_of(by_source, part._columns), _rows_of(by_target, part.nodes)),
            (_rows_of(by_target, part._columns_back), _rows_of(by_source, part.nodes)),
        )
        return part

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        partition: Partition,
        mesh: Any,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
    ) -> PartGraph:
        """The part of a graph that no rank has all of: each brings some of its edges.

        Edges travel to the ranks that own their ends. Every rank calls it. The order of parallel
        edges is that of the ranks.

        Args:
            edge_index: `[2, E_r]`, edges that this rank brings, by their numbers in the whole
                graph; none twice. Ranks that share heads bring the same ones.
            partition: of the nodes.
            mesh: as in :meth:`of`.
            edge_weight: `[E_r]`; all ranks bring weights, or none does.
            transition: as in :class:`Graph`, like `self_loops`.
        """
        if transition is not None:
            _check.known("transition", transition, TRANSITIONS)
        _check.flag("self_loops", self_loops)
        _check.kind("partition", partition, Partition, "a Partition")
        found = as_mesh(mesh, partition.parts)
        ends, weight = _read_together(found, edge_index, edge_weight)
        if not found.nodes.alone:
            ends = ends.to(found.nodes.device(ends.device))
            weight = None if weight is None else weight.to(ends.device)
        _check_together(found, ends, weight, partition.num_nodes, transition)
        owners = partition.owner.to(ends.device)[ends].long()
        sides = []
        for owner in (owners[1], owners[0]):
            given = [ends.t().contiguous(), *([] if weight is None else [weight])]
            came = found.nodes.to_owners(owner, *given)
            sides.append(Edges(came[0].t(), came[1] if len(came) > 1 else None))
        part = object.__new__(cls)
        part._set_part(sides[0], sides[1], partition, found, transition, self_loops)
        part._exchange_scales()
        return part

    def _set_part(
        self,
        into: Edges,
        out: Edges,
        partition: Partition,
        mesh: Mesh,
        transition: str | None,
        self_loops: bool,
        most: list[int] | None = None,
    ) -> None:
        """Of the edges into and out of the owned nodes; all but the entries' scales."""
        rank, device = mesh.nodes.rank, into.ends.device
        self.partition, self.transition, self.self_loops = partition, transition, self_loops
        self.nodes = partition.nodes(rank).to(device)
        self.num_nodes = len(self.nodes)
        if self_loops:
            without = _without_loop(into.ends, self.nodes)
            into, out = into.and_loops(without), out.and_loops(without)
        owner, sides = partition.owner.to(device), []
        for (here, there), weight in ((into.ends.flip(0), into.weight), out):
            sides.append(_side(here, there, weight, self.nodes, owner, partition.parts, rank))
        self._receive, self._columns, comes = sides[0]
        self._sent, self._columns_back, comes_back = sides[1]
        self._given, self._order = self._receive.col.numel(), None
        exchanges: list[Exchange | None] = [None, None]
        if not mesh.nodes.alone:
            goes, goes_back = (
                _sent(here, there, self.nodes, owner, partition.parts, rank)
                for here, there in (out.ends, into.ends.flip(0))
            )
            exchanges = [
                Exchange(mesh.nodes, *goes, comes),
                Exchange(mesh.nodes, *goes_back, comes_back),
            ]
        if most is None:
            own = torch.tensor([self.num_nodes, self._receive.col.numel()], device=device)
            most = mesh.nodes.gathered(own).amax(0).tolist()
        self.shared = Shared(mesh, exchanges[0], exchanges[1], *most)

    def _exchange_scales(self) -> None:
        """What a transition multiplies entries by: that of others' nodes comes from them."""
        by_source, by_target = scales_of(self.transition, self._send, self._receive)
        self._part_scales = (
            (_exchanged(by_source, self.shared.there), by_target),
            (_exchanged(by_target, self.shared.back), by_source),
        )

    def _scales_along(self, transpose: bool) -> Scales:
        return self._part_scales[int(transpose)]

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]`: sources and targets of the edges into the owned nodes, by their numbers in the
        whole graph."""
        return torch.stack(
            [self._columns[self._receive.col.long()], self.nodes[self._receive.rows()]]
        )

    @property
    def halo(self) -> Tensor:
        """The nodes of others that send to those of this part, by owner and number, `[h]`."""
        return self._columns[self.num_nodes :]

    def with_self_loops(self) -> PartGraph:
        """As :meth:`Graph.with_self_loops`; every rank calls it."""
        return self if self.self_loops else self.cached("self-loops", _looped)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PartGraph:
        """The same part on another device; itself if it is there already."""
        device = as_device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device == self.device:
            return self
        move: Any = partial(_moved, device=device, non_blocking=non_blocking)
        moved = object.__new__(type(self))
        state = {name: move(each) for name, each in self.__getstate__().items()}
        moved.__dict__.update(state)
        return moved

    def dense(self, *_: Any) -> Tensor:
        raise _whole_graph_only("a dense matrix")

    def to_scipy(self, *_: Any) -> Any:
        raise _whole_graph_only("a scipy matrix")

    def subgraph(self, nodes: Tensor) -> Graph:
        raise _whole_graph_only("a subgraph")

    def without(self, *_: Any, **__: Any) -> Graph:
        raise _whole_graph_only("leaving out nodes and edges")

    def has_edge(self, *_: Any) -> bool:
        raise _whole_graph_only("looking for an edge")

    @property
    def is_symmetric(self) -> bool:
        raise _whole_graph_only("whether edges lead both ways")

    def entries(
        self, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
    ) -> Tensor:
        if edge_weight is not None:
            raise _whole_graph_only("edge weights that come with a call, or learn,")
        return self.matrix(dtype).weight

    def _make_what_compilers_ask(self) -> None:
        """A part is not compiled."""

    def __repr__(self) -> str:
        mesh = self.shared.mesh
        return (
            f"PartGraph(num_nodes={self.num_nodes} of {self.partition.num_nodes}, "
            f"num_edges={self.num_edges}, transition={self.transition!r}, "
            f"part={mesh.nodes.rank} of {mesh.nodes.size}, "
            f"heads={mesh.heads.rank} of {mesh.heads.size})"
        )


def _whole_graph_only(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} needs the whole graph on one rank: use its Graph")


def _check_nodes(partition: Partition, num_nodes: int) -> None:
    _check.kind("partition", partition, Partition, "a Partition")
    if partition.num_nodes != num_nodes:
        raise ValueError(
            f"the partition is one of {partition.num_nodes} nodes, but the graph has {num_nodes}"
        )


def _read_together(
    mesh: Mesh, edge_index: Tensor, edge_weight: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The edges that this rank brings; what is none is refused on all ranks."""
    failure, ends, weight = None, torch.empty(2, 0, dtype=torch.long), None
    try:
        ends, weight, _ = from_edge_index(edge_index, edge_weight)
        check_constant(weight)
    except (TypeError, ValueError) as error:
        failure = error
    refused = mesh.nodes.gathered(torch.tensor([int(failure is not None)])).flatten()
    if failure is not None:
        raise failure
    if bool(refused.any()):
        ranks = refused.nonzero().flatten().tolist()
        raise ValueError(f"ranks {ranks} bring what are no edges: they say why")
    return ends, weight


def _check_together(
    mesh: Mesh, ends: Tensor, weight: Tensor | None, num_nodes: int, transition: str | None
) -> None:
    """Refuse what any rank brings on all of them: else the others would wait for it."""
    low, high = ends.aminmax() if ends.numel() else (ends.new_zeros(()), ends.new_full((), -1))
    total = torch.zeros(3, dtype=torch.float64, device=ends.device)
    total[1] = torch.inf
    if weight is not None and weight.numel():
        total = weight_extremes(weight)
    given = torch.tensor([float(weight is not None), ends.size(1) > 0], device=ends.device).double()
    mine = torch.cat([low.double()[None], high.double()[None], total, given])
    found = mesh.nodes.gathered(mine).cpu()
    check_ends([int(found[:, 0].min()), int(found[:, 1].max())], num_nodes)
    extremes = [float(found[:, 2].sum()), float(found[:, 3].min()), float(found[:, 4].min())]
    weighted, has_edges = found[:, 5] > 0, found[:, 6] > 0
    if bool(weighted.any()) and not bool(weighted.all()):
        lacking = (~weighted).nonzero().flatten().tolist()
        raise ValueError(
            f"some ranks bring edge weights, but ranks {lacking} do not: also a rank without edges "
            "brings them, an edge_weight of shape [0]"
        )
    if bool(weighted.any()) and bool(has_edges.any()):
        check_extremes(extremes, weight, transition)


def _side(
    here: Tensor,
    there: Tensor,
    weight: Tensor | None,
    nodes: Tensor,
    owner: Tensor,
    parts: int,
    rank: int,
) -> Side:
    """Rows of the nodes that are here, [n], from entries whose row is `here` and whose column is
    `there`, by number.

    Entries of a row keep the order that they have in the whole graph, so that sums have it too.
    """
    total = max(len(owner), 1)
    order = torch.add(there, here, alpha=total).argsort(stable=True)
    here, there = here[order], there[order]
    others = there[owner[there] != rank]
    halo = torch.add(others, owner[others].long(), alpha=total).unique()
    comes = torch.bincount(halo // total, minlength=parts).tolist()
    columns = torch.cat([nodes, halo % total])
    dtype = index_dtype(len(columns), len(order))
    place = torch.full((total,), -1, dtype=dtype, device=nodes.device)
    place[columns] = torch.arange(len(columns), dtype=dtype, device=nodes.device)
    rowptr = row_pointers(place[here], len(nodes))
    weight = None if weight is None else weight.index_select(0, order)
    return Side(Pattern(rowptr, place[there], weight), columns, comes)


def _sent(
    here: Tensor, there: Tensor, nodes: Tensor, owner: Tensor, parts: int, rank: int
) -> tuple[Tensor, list[int]]:
    """Which of the owned rows go to others, by rank and number, and how many to each: those that
    have an entry with a node of theirs."""
    total = max(len(owner), 1)
    to = owner[there].long()
    pairs = torch.add(here, to, alpha=total)[to != rank].unique()
    goes = torch.bincount(pairs // total, minlength=parts).tolist()
    return torch.searchsorted(nodes, pairs % total), goes


def _without_loop(ends: Tensor, nodes: Tensor) -> Tensor:
    """Those of the owned nodes that have no loop."""
    loops = ends[1, ends[0] == ends[1]]
    return nodes[~torch.isin(nodes, loops)]


def _looped(part: Graph) -> PartGraph:
    """See `PartGraph.with_self_loops`."""
    assert isinstance(part, PartGraph)
    looped, sides = object.__new__(PartGraph), []
    for pattern, columns in (
        (part._receive, part._columns),
        (part._send, part._columns_back),
    ):
        ends = torch.stack([columns[pattern.col.long()], part.nodes[pattern.rows()]])
        sides.append(Edges(ends, pattern.edge_weight))
    into, out = sides[0], sides[1]._replace(ends=sides[1].ends.flip(0))
    how = part.partition, part.shared.mesh, part.transition, True
    looped._set_part(into, out, *how)
    looped._exchange_scales()
    return looped


def _rows_of(scale: Tensor | None, nodes: Tensor) -> Tensor | None:
    return None if scale is None else scale[nodes]


def _exchanged(scale: Tensor | None, exchange: Exchange | None) -> Tensor | None:
    return scale if scale is None or exchange is None else exchange(scale)


def _moved(value: Any, device: torch.device, non_blocking: bool) -> Any:
    """Tensors wherever they are, but those of a partition, on another device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=non_blocking)
    if isinstance(value, Exchange):
        return value.to(device)
    if isinstance(value, Mesh):
        return value
    if isinstance(value, tuple):
        moved = [_moved(each, device, non_blocking) for each in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
