"""The graph that messages walk on: any adjacency in, a transition matrix and its transpose out.

Row i of the transition matrix A receives, column j sends. `Graph` keeps A and its transpose in
compressed rows (`compressed.py`), built once, with the entries that `transition.py` computes; the
operator needs nothing else of a graph. The transpose of a graph that comes in compressed rows is
built when it is first asked for: a walk without gradients, or a sampler, never does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from . import _check
from ._remembered import Remembered
from ._tracing import exporting, uncompiled, untraced
from .adjacency import (
    check_constant,
    check_ends,
    check_extremes,
    check_weight_shape,
    count_nodes,
    ends_of,
    read_adjacency,
    weight_extremes,
)
from .compressed import (
    CSR,
    Pattern,
    compressed,
    edges_with_loops,
    index_dtype,
    rows_with_loops,
    transposed,
)
from .transition import TRANSITIONS, Scales, entries_of, scaled, scales_of

if TYPE_CHECKING:
    import scipy.sparse

T = TypeVar("T")

_MADE = "_made_"
"""How attributes begin that can be made again."""


class Graph:
    r"""A graph and its transition matrix :math:`\hat A`, ready to be walked on.

    Edges follow PyG: messages go from `edge_index[0]` (sources) to `edge_index[1]` (targets), and
    parallel edges add up.

    Args:
        edge_index: `[2, E]` integer tensor, PyG `EdgeIndex`, `SparseTensor` or `torch.sparse`
            matrix (rows are targets, as PyG's `adj_t`), or scipy sparse matrix (rows are sources,
            as in PyG's `from_scipy_sparse_matrix`).
        num_nodes: number of nodes; by default what the adjacency implies. On a GPU the host waits
            for a build once, and once more to learn this number.
        edge_weight: `[E]` weights; not with a matrix, which brings its own. They are constants:
            no gradient flows into them. :meth:`entries` is for weights that learn.
        transition: `"rw"` (the paper's :math:`A D^{-1}`), `"sym"`, `"mean"`, or None, which takes
            the edge weights as they are: any transition matrix.
        self_loops: add a loop of weight 1 to every node that has none.

    Example:
        >>> graph = Graph(torch.tensor([[0, 1, 1], [1, 0, 2]]))
        >>> graph
        Graph(num_nodes=3, num_edges=3, transition='rw')
    """

    shared: Any = None
    """How a part of a graph is shared with other ranks; None: it is a whole graph."""
    stands_for: tuple[str | None, bool] | None = None
    """Of a sample: transition and self-loops of the graph whose walk its weights estimate."""

    def __init__(
        self,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
    ) -> None:
        if exporting():
            raise TypeError(
                "a Graph looks at the values of its edges, and while torch.export traces there are "
                "none: make it before, or give the edge_index to the layer"
            )
        if transition is not None:
            _check.known("transition", transition, TRANSITIONS)
        how = edge_index, num_nodes, edge_weight, transition, _check.flag("self_loops", self_loops)
        build = _build_uncompiled if torch.compiler.is_compiling() else Graph._build
        build(self, *how)

    def _build(
        self,
        edge_index: Any,
        num_nodes: int | None,
        edge_weight: Tensor | None,
        transition: str | None,
        self_loops: bool,
    ) -> None:
        with torch.inference_mode(False):  # a graph outlives the mode in which it was made
            if isinstance(edge_index, Graph):
                raise TypeError("this is a Graph already: pass it on as it is")
            edges, weight, implied = read_adjacency(edge_index, edge_weight)
            num_nodes = count_nodes(edges, num_nodes, implied)
            check_constant(weight)
            with _check.fits(f"a graph of {num_nodes:,} nodes"):
                given = edges, weight
                walked = edges_with_loops(*given, num_nodes) if self_loops else given
                receive, rows, order = compressed(*walked, num_nodes)
                self._set(receive, rows, transition, self_loops)
                self._given: int = edges.size(1)
                self._order: Tensor | None = order
                self._ask(edges, weight)
        self._make_what_compilers_ask()

    @classmethod
    def of(
        cls,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
    ) -> Graph:
        """The graph of these edges, built once: the same tensors get the same graph again.

        It is remembered as long as `edge_index` and `edge_weight` live, and built anew after a
        change in place that torch counts. A change through `.data` or NumPy, which share memory
        behind torch's back, is not seen: make a new tensor then, or a :class:`Graph`. Tensors of an
        inference mode and matrices are not remembered, nor more than 8 graphs of an edge_index and
        1,024 tensors at a time: the oldest goes first.
        """
        find = _find_uncompiled if torch.compiler.is_compiling() else _find
        return find(cls, edge_index, num_nodes, edge_weight, transition, self_loops)

    @classmethod
    def from_data(cls, data: Any, transition: str | None = "rw", self_loops: bool = False) -> Graph:
        """The graph of a `Dataset` or a PyG `Data`: its `edge_index` and `edge_weight` if it has
        one, or its `adj_t`, as `ToSparseTensor` makes it; of a store, its compressed rows."""
        if (rows := getattr(data, "compressed_rows", None)) is not None:
            rowptr, col, weight = rows
            return cls.from_csr(rowptr, col, weight, transition, self_loops)
        if not hasattr(data, "edge_index") or not hasattr(data, "num_nodes"):
            raise TypeError(f"a graph is a Dataset or a PyG Data, got {type(data).__name__}")
        edges, weight = data.edge_index, getattr(data, "edge_weight", None)
        if edges is None and getattr(data, "adj_t", None) is not None:
            edges, weight = data.adj_t, None
        if edges is None:
            raise ValueError("the graph has no edges: it needs edge_index, or adj_t")
        return cls(edges, data.num_nodes, weight, transition, self_loops)

    @classmethod
    def from_csr(
        cls,
        rowptr: Tensor,
        col: Tensor,
        edge_weight: Tensor | None = None,
        transition: str | None = "rw",
        self_loops: bool = False,
    ) -> Graph:
        """The graph of an adjacency in compressed rows, whose values nobody checks.

        Tensors of int32 are taken as they are, also those that lie in a file (`datasets.Store`):
        nothing is copied or sorted. The transpose is made when it is first asked for, which
        gradients do.

        Args:
            rowptr: `[N + 1]`; the entries of row i, which receives, are `rowptr[i]` to
                `rowptr[i + 1]`.
            col: `[E]`, the senders, ascending within a row. Parallel edges add up.
            edge_weight: `[E]`, finite, and not negative with a transition.
            transition: as in :class:`Graph`.
            self_loops: likewise; the entries are then copied.
        """
        if transition is not None:
            _check.known("transition", transition, TRANSITIONS)
        if _check.whole("rowptr", rowptr).dim() != 1 or not rowptr.numel():
            raise ValueError(f"rowptr must have shape [N + 1], got {_check.shape(rowptr)}")
        if _check.whole("col", col).dim() != 1:
            raise ValueError(f"col must have shape [E], got {_check.shape(col)}")
        if edge_weight is not None:
            check_weight_shape(edge_weight, col.numel())
        graph, dtype = object.__new__(cls), index_dtype(rowptr.numel() - 1, col.numel())
        with torch.inference_mode(False), _check.fits(f"a graph of {col.numel():,} edges"):
            receive, order = Pattern(rowptr.to(dtype), col.to(dtype), edge_weight), None
            if _check.flag("self_loops", self_loops):
                receive, order = rows_with_loops(receive)
            graph._set(receive, None, transition, self_loops)
            graph._given, graph._order = col.numel(), order
        graph._make_what_compilers_ask()
        return graph

    def _set(
        self, receive: Pattern, rows: Tensor | None, transition: str | None, self_loops: bool
    ) -> None:
        """Of a matrix whose entries stand in these rows, [E]; None: the transpose comes later."""
        self.num_nodes, self.transition = receive.num_rows, transition
        self.self_loops, self._receive = self_loops, receive
        self._sent = None if rows is None else receive.transposed(rows)

    @property
    def _send(self) -> Pattern:
        """Where the entries of the transpose are: made with the graph, or now."""
        return self.cached("send", _sent_of) if self._sent is None else self._sent

    def _ask(self, edges: Tensor, weight: Tensor | None) -> None:
        """Check the edges and weights of which this was made, and cut off what only filled up.

        On a GPU the host waits for an answer, so it asks once, for all that it wants to know. Until
        then nothing depends on the values being good ones: a sort takes any.
        """
        survey, nothing = SURVEYS.get(self.device.type), edges.new_empty(0)
        questions = [
            ends_of(edges),
            nothing if weight is None else weight_extremes(weight).view(torch.int64),
            self._receive.rowptr[-1:],
            nothing if survey is None else survey(self),
        ]
        sizes = [question.numel() for question in questions]
        ends, extremes, num_edges, surveyed = torch.cat(questions).cpu().split(sizes)
        check_ends(ends.tolist(), self.num_nodes)
        check_extremes(extremes.view(torch.float64).tolist(), weight, self.transition)
        if (entries := num_edges.item()) < self.num_edges:
            self._receive, self._sent = self._receive.first(entries), self._send.first(entries)
            self._order = None if self._order is None else self._order[:entries]
        if survey is not None:
            self.__dict__[_attribute("survey")] = surveyed

    @property
    def walks_by(self) -> tuple[str | None, bool]:
        """Its transition, and whether loops were added; of a sample, those that it stands for."""
        return self.stands_for or (self.transition, self.self_loops)

    def stand_for(self, walks_by: tuple[str | None, bool] | None, added: Tensor) -> None:
        """Be a sample of a graph that walks by this; some edges, `[E]`, are loops that were added:
        no row of what is known of edges is theirs."""
        self.stands_for = walks_by
        if walks_by is None or walks_by[1]:
            places = torch.arange(self.num_edges, device=self.device)
            self._order = places.where(~added.to(self.device), self._given)

    @property
    def num_edges(self) -> int:
        """Number of directed edges, added self-loops included."""
        return self._receive.col.numel()

    @property
    def entry_counts(self) -> tuple[int, int]:
        """Entries of :meth:`matrix` and of :meth:`transpose`; only a part has not as many."""
        back = self._receive if self._sent is None else self._sent
        return self._receive.col.numel(), back.col.numel()

    @property
    def device(self) -> torch.device:
        return self._receive.col.device

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]`: sources and targets, in the order of :meth:`matrix`'s entries."""
        return torch.stack([self._receive.col, self._receive.rows()]).long()

    @property
    def is_weighted(self) -> bool:
        """Whether its edges came with weights."""
        return self._receive.edge_weight is not None

    @property
    def given_edges(self) -> int:
        """Number of edges that the graph was made of: without added self-loops, and of a subgraph,
        those of the whole."""
        return self._given

    @property
    def edge_order(self) -> Tensor:
        """`[E]`: where each edge of :attr:`edge_index` stood in the edge_index that came, or in the
        (coalesced) entries of a matrix; `given_edges` for a loop that was added.

        `torch.cat([features, of_a_loop])[graph.edge_order]` are the features of the edges as they
        are walked on.
        """
        if self._order is None:
            return torch.arange(self.num_edges, device=self.device)
        return self._order.long().clamp(max=self._given)

    @property
    def rowptrs(self) -> tuple[Tensor, Tensor]:
        """`[N + 1]` each: the row pointers of :meth:`matrix` and of :meth:`transpose`."""
        return self._receive.rowptr, self._send.rowptr

    def matrix(self, dtype: torch.dtype = torch.float32) -> CSR:
        r""":math:`\hat A`, rows receive."""
        _check.kind("dtype", dtype, torch.dtype, "a torch.dtype")
        make = partial(_entries, dtype=dtype, transpose=False)
        return CSR(*self._receive[:2], self.cached(("entries", dtype), make))

    def transpose(self, dtype: torch.dtype = torch.float32) -> CSR:
        r""":math:`\hat A^T`, rows send."""
        _check.kind("dtype", dtype, torch.dtype, "a torch.dtype")
        make = partial(_entries, dtype=dtype, transpose=True)
        return CSR(*self._send[:2], self.cached(("entries back", dtype), make))

    def entries(
        self, dtype: torch.dtype = torch.float32, edge_weight: Tensor | None = None
    ) -> Tensor:
        r"""The entries of :math:`\hat A`, `[E]`, in the order of :attr:`edge_index`.

        Args:
            dtype: of the result, which is rounded once, from float64.
            edge_weight: weights of the edges that came, `[given_edges]`, in the place of the
                graph's own; a loop that was added has weight 1. Gradients flow through the
                transition into them.
        """
        if edge_weight is None:
            return self.matrix(dtype).weight
        _check.kind("dtype", dtype, torch.dtype, "a torch.dtype")
        check_weight_shape(edge_weight, self.given_edges)
        watched = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
        if edge_weight.device.type == "cpu" and not watched:
            # A GPU would have to be waited for: there they are taken as they are.
            check_extremes(
                weight_extremes(edge_weight.detach()).tolist(), edge_weight, self.transition
            )
        weight = edge_weight.to(self.device, torch.float64)
        if self.num_edges > self.given_edges or self._order is not None:
            weight = torch.cat([weight, weight.new_ones(1)]).index_select(0, self.edge_order)
        order = self.cached("order of the transpose", transpose_order)
        receive = self._receive._replace(edge_weight=weight)
        send = self._send._replace(edge_weight=weight.index_select(0, order))
        return scaled(receive, scales_of(self.transition, send, receive)).to(dtype)

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        r""":math:`\hat A` as a dense [N, N] matrix, for definitions and tests."""
        out = torch.zeros(self.num_nodes, self.num_nodes, dtype=dtype, device=self.device)
        source, target = self.edge_index
        return out.index_put_((target, source), self.matrix(dtype).weight, accumulate=True)

    def to_scipy(self, entries: Tensor | None = None) -> scipy.sparse.csr_array:
        r""":math:`\hat A` in float64 and on the CPU; parallel edges are added up, zeros stay.

        Args:
            entries: `[E]`, what it has in the place of its own entries.
        """
        import scipy.sparse

        own = self.matrix(torch.float64)
        given = own if entries is None else (*own[:2], entries.detach().double())
        rowptr, col, weight = (t.cpu().numpy() for t in given)
        size = (self.num_nodes, self.num_nodes)
        matrix = scipy.sparse.csr_array((weight, col, rowptr), size, copy=True)
        matrix.sum_duplicates()
        return matrix

    def subgraph(self, nodes: Tensor) -> Graph:
        """The graph of some nodes and the edges between them, in the order in which they are given.

        Node i of it is `nodes[i]`. The transition is the same kind, of the subgraph's own degrees:
        an edge that leaves it counts no more. Loops that were added stay.

        Args:
            nodes: `[n]` different indices, or a mask `[N]`.
        """
        expected = "nodes must be whole numbers [n] or a mask [N]"
        try:
            nodes = torch.as_tensor(nodes, device=self.device)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise TypeError(f"{expected}, got {_check.said(nodes)}") from None
        if nodes.dim() != 1 or nodes.is_floating_point() or nodes.is_complex():
            raise TypeError(f"{expected}, got {nodes.dtype} {_check.shape(nodes)}")
        if nodes.dtype == torch.bool:
            if len(nodes) != self.num_nodes:
                raise ValueError(f"a mask of {len(nodes)} nodes, but there are {self.num_nodes}")
            nodes = nodes.nonzero().flatten()
        nodes = nodes.long()
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < self.num_nodes:
            raise ValueError(
                f"nodes must be between 0 and {self.num_nodes - 1}, "
                f"got {int(nodes.min())} to {int(nodes.max())}"
            )
        numbers = torch.arange(nodes.numel(), device=self.device)
        place = torch.full((self.num_nodes,), -1, device=self.device)
        place[nodes] = numbers
        if not torch.equal(place[nodes], numbers):
            raise ValueError("nodes must be different, but one is there twice")
        source, target = place[self.edge_index]
        inside = (source >= 0) & (target >= 0)
        weight = self._receive.edge_weight
        weight = None if weight is None else weight[inside]
        part = object.__new__(Graph)
        with torch.inference_mode(False):
            edges = torch.stack([source[inside], target[inside]])
            receive, rows, order = compressed(edges, weight, nodes.numel())
            part._set(receive, rows, self.transition, self.self_loops)
            part._given, part._order = self._given, self.edge_order[inside][order].to(order.dtype)
        part._make_what_compilers_ask()
        return part

    def without(self, nodes: Iterable[int], edges: Iterable[tuple[int, int]] = ()) -> Graph:
        """The same graph without the edges of some nodes, and without some more edges.

        Nodes keep their numbers. The transition is the same kind, of the degrees that are left.
        Where loops were added, a loop that is cut makes room for an added one.

        Args:
            nodes: whose edges all go.
            edges: (source, target), of which all parallel ones go.
        """
        rowptr, col, weight = self._receive
        kept, order = torch.ones_like(col, dtype=torch.bool), self.edge_order
        if gone := [_check.index("node", node, self.num_nodes) for node in nodes]:
            is_gone = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.device)
            is_gone[gone] = True
            kept &= ~(is_gone[col] | is_gone[self._receive.rows()])
        for source, target in edges:
            if not self.has_edge(source, target):
                raise ValueError(f"there is no edge from {source} to {target}")
            found = self._between(source, target)
            kept[found] = False
            if source == target and self.self_loops and source not in gone:
                loop = found[:1]
                kept[loop], order = True, order.index_fill(0, loop, self._given)
                weight = None if weight is None else weight.index_fill(0, loop, 1.0)
        part = object.__new__(Graph)
        with torch.inference_mode(False):
            before = torch.cat([kept.new_zeros(1), kept]).cumsum(0, dtype=rowptr.dtype)
            left = kept.nonzero().flatten()  # once: torch is slow with masks
            weight = None if weight is None else weight.index_select(0, left)
            receive = Pattern(before[rowptr.long()], col.index_select(0, left), weight)
            part._set(receive, None, self.transition, self.self_loops)
            part._given, part._order = self._given, order.index_select(0, left)
        part._make_what_compilers_ask()
        return part

    def has_edge(self, source: int, target: int) -> bool:
        """Whether there is an edge from one node to another; loops that were added do not count."""
        found = self._between(source, target)
        given = found if self._order is None else found[self._order[found] < self._given]
        return len(given) > 0

    def _between(self, source: int, target: int) -> Tensor:
        """Where the edges from one node to another stand in :attr:`edge_index`, [n]."""
        source, target = (_check.index("node", end, self.num_nodes) for end in (source, target))
        first, last = self._receive.rowptr[target : target + 2].tolist()
        return first + (self._receive.col[first:last] == source).nonzero().flatten()

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge is there in both directions, with the same weight."""
        return self.cached("symmetric", _is_symmetric)

    def with_self_loops(self) -> Graph:
        """The same graph with a loop of weight 1 at every node that has none, made once.

        `entries` takes weights of the edges that came to this graph, as before.
        """
        return self if self.self_loops else self.cached("self-loops", _looped)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Graph:
        """The same graph on another device; itself if it is there already."""
        device = as_device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device == self.device:
            return self
        move: Any = partial(_moved, device=device, non_blocking=non_blocking)
        moved = object.__new__(Graph)
        moved.num_nodes, moved.transition = self.num_nodes, self.transition
        moved.self_loops, moved.stands_for = self.self_loops, self.stands_for
        moved._receive = Pattern(*map(move, self._receive))
        moved._sent = None if self._sent is None else Pattern(*map(move, self._sent))
        moved._given, moved._order = self._given, move(self._order)
        # As they are: another device may add up in another order.
        moved.__dict__[_attribute("scales")] = tuple(map(move, self._scales()))
        moved._make_what_compilers_ask()
        return moved

    def cached(self, key: Hashable, make: Callable[[Graph], T]) -> T:
        """`make(graph)`, made once: what somebody derives from a graph and wants to find again.

        It may ask the host, also where `torch.compile` meets it first. `make` is a function of a
        module, or a partial of one; the key says what it makes.
        """
        return getattr(self, self._made(key, make, torch.compiler.is_compiling()))

    @untraced
    def _made(self, key: Hashable, make: Callable[[Graph], Any], compiling: bool) -> str:
        """The attribute in which it is kept: a dictionary would be to a compiler what it was when
        that looked first."""
        name = _attribute(key)
        if compiling and not exporting():
            _ASKED_BY_COMPILERS[self.device.type, name] = key, make
        if name not in self.__dict__:
            # Kept for later calls, which may train and compute: not as tensors of an inference
            # mode, nor as those without values that an export traces with, nor as those of a
            # transform (torch.func), which end with it.
            plain = _disable_current_modes(), temporarily_clear_interpreter_stack()
            with torch.inference_mode(False), plain[0], plain[1]:
                self.__dict__[name] = make(self)
        return name

    def _make_what_compilers_ask(self) -> None:
        """Make what compiled code asked of other graphs on such a device, at once.

        Compiled code that finds something missing is compiled anew: with this for the first graph,
        and not for each.
        """
        for (device, _), (key, make) in list(_ASKED_BY_COMPILERS.items()):
            if device == self.device.type:
                self.cached(key, make)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of before the transpose could come later have it under another name.
        self.__dict__.update({"_sent" if n == "_send" else n: part for n, part in state.items()})
        self._make_what_compilers_ask()

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles leave out what can be computed again."""
        return {name: part for name, part in vars(self).items() if not name.startswith(_MADE)}

    def __repr__(self) -> str:
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"transition={self.transition!r})"
        )

    def _scales(self) -> Scales:
        """What a transition multiplies an edge by: [N] by source, [N] by target, in float64."""
        return self.cached("scales", _scales)

    def _scales_along(self, transpose: bool) -> Scales:
        """The same by column and by row of the matrix or of its transpose."""
        by_source, by_target = self._scales()
        return (by_target, by_source) if transpose else (by_source, by_target)


SURVEYS: dict[str, Callable[[Graph], Tensor]] = {}
"""By kind of device: integers [n] that kernels there want to know of a graph on the host. They are
asked for with the rest when it is built, so that the host waits once, and cached as "survey"."""


_GRAPHS: Remembered[Graph] = Remembered(most=8, most_tensors=1024)


def _find(kind: type[Graph], edge_index: Any, num_nodes: Any, edge_weight: Any, *how: Any) -> Graph:
    if getattr(edge_index, "is_cuda", False) and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a CUDA graph that is captured with an edge_index would replay on the edges of now, "
            "and perhaps on freed memory: make a Graph before, pass it instead, and keep it"
        )
    make = partial(kind, edge_index, num_nodes, edge_weight, *how)
    return _GRAPHS(make, edge_index, edge_weight, (kind, num_nodes, how))


_BEFORE = "a Graph is made of the values of its edges: make it before, and pass it as edge_index"
_find_uncompiled = uncompiled(_find, _BEFORE)
_build_uncompiled = uncompiled(Graph._build, _BEFORE)


_ASKED_BY_COMPILERS: dict[tuple[str, str], tuple[Hashable, Callable[[Graph], Any]]] = {}
"""Kind of device, attribute -> what compiled code asked `Graph.cached` for there."""


@cache  # asked for in every call of the operator
def _attribute(key: Hashable) -> str:
    return _MADE + re.sub(r"\W+", "_", str(key))


def as_device(device: Any) -> torch.device:
    """A device by its name: one that this machine has."""
    _check.kind("device", device, (str, torch.device), "cpu, cuda or auto")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {_check.said(device)}: use cpu, cuda or auto") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device '{device}' was asked for, but torch sees no GPU: use cpu or auto")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no device '{device}': torch sees {torch.cuda.device_count()}")
    return chosen


def transpose_order(graph: Graph) -> Tensor:
    """Where the entries of a graph's transpose stand in its matrix, [E]."""
    return transposed(*graph._receive[:2], graph.num_nodes)[2]


def _looped(graph: Graph) -> Graph:
    """See `Graph.with_self_loops`."""
    if graph.self_loops:  # what compiled code asked of another graph is made of every graph
        return graph
    weight = graph._receive.edge_weight
    if graph._sent is None:
        looped = Graph.from_csr(*graph._receive, graph.transition, True)
    else:
        looped = Graph(graph.edge_index, graph.num_nodes, weight, graph.transition, True)
    came = torch.cat([graph.edge_order, graph.edge_order.new_tensor([graph.given_edges])])
    looped._given, looped._order = graph.given_edges, came[looped.edge_order]
    return looped


def _sent_of(graph: Graph) -> Pattern:
    """See `Graph._send`."""
    if graph._sent is not None:  # what compiled code asked of another graph is made of every graph
        return graph._sent
    with _check.fits(f"the transpose of a graph of {graph.num_edges:,} edges"):
        return graph._receive.transposed(graph._receive.rows())


def _is_symmetric(graph: Graph) -> bool:
    """See `Graph.is_symmetric`."""
    there, back = graph._receive, graph._send
    if not torch.equal(there.rowptr, back.rowptr) or not torch.equal(there.col, back.col):
        return False
    if there.edge_weight is None or back.edge_weight is None:
        return True
    return torch.equal(there.edge_weight, back.edge_weight)


def _scales(graph: Graph) -> Scales:
    later = graph._sent is None and graph.device.type == "cpu"  # a GPU adds up by chance
    return scales_of(graph.transition, None if later else graph._send, graph._receive)


def _entries(graph: Graph, dtype: torch.dtype, transpose: bool) -> Tensor:
    """The entries of a graph's matrix or of its transpose, [E], rounded once from float64."""
    pattern = graph._send if transpose else graph._receive
    return entries_of(pattern, graph._scales_along(transpose), dtype)


def _moved(tensor: Tensor | None, device: torch.device, non_blocking: bool) -> Tensor | None:
    return None if tensor is None else tensor.to(device, non_blocking=non_blocking)
