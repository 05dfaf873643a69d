"""The models that STAGNN is compared with, made of PyG's layers.

`BASELINES` are trained by our trainer. Each is called as `model(x, graph)` and gives logits [N, C],
where x [N, F] is dense or `torch.sparse_csr`. They take the edges of the graph without weights and
bring their own normalisation, which is prepared at the first call and kept as long as the same
graph comes.

    chosen = baseline("gat")
    model = chosen.build(in_channels, classes, chosen.at_depth(10))

`PYG_MODELS` are those of PyG as its users run them, and `SparseGCN` is PyG's GCN on our parts: what
an epoch is timed against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import GATConv, GCNConv, GPSConv, MixHopConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from subtree_attention import _check
from subtree_attention.graph import Graph
from subtree_attention.nn import Linear, SparseFeatures
from subtree_attention.nn.smoothing import walked

# ------------------------------------------------------------------- what is prepared only once

Source = TypeVar("Source")
Made = TypeVar("Made")
Edges = tuple[Any, ...]
"""What a layer takes behind x: of PyG edges [2, E], and weights [E] where it wants them."""


class Once(Generic[Source, Made]):
    """A function that remembers its last result as long as the same object comes in.

    Preparing a graph looks at values, for which the host waits: it must not happen in every epoch.
    """

    def __init__(self, make: Callable[[Source], Made]) -> None:
        self.make = make
        self.last: tuple[Source, Made] | None = None

    def __call__(self, source: Source) -> Made:
        if self.last is None or self.last[0] is not source:
            # Kept for later calls, which may train: not as tensors of an inference mode.
            with torch.inference_mode(False):
                self.last = source, self.make(source)
        return self.last[1]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles leave out what can be made again."""
        return {"make": self.make, "last": None}


def normalised_edges(graph: Graph) -> Edges:
    """D^-1/2 (A + I) D^-1/2, PyG's normalisation of GCN."""
    return gcn_norm(graph.edge_index, None, graph.num_nodes, dtype=torch.float32)


def looped_edges(graph: Graph) -> Edges:
    """The edges with exactly one loop at every node, as PyG's layers make them in every call."""
    plain, _ = remove_self_loops(graph.edge_index)
    return (add_self_loops(plain, num_nodes=graph.num_nodes)[0],)


def dense_features(x: Tensor | SparseFeatures) -> Tensor:
    """[N, F] as layers take it that know dense features only."""
    x = x.tensor if isinstance(x, SparseFeatures) else x
    return x if x.layout == torch.strided else x.to_dense()


# --------------------------------------------------------------------------------- convolutions


class Convolutions(nn.Module):
    """Layers over prepared edges, with an activation and dropout behind them.

    Args:
        prepare: makes of a graph what the layers take behind x.
        activation: behind a layer.
        dropout: behind the activation.
    """

    convs: nn.ModuleList

    def __init__(
        self,
        prepare: Callable[[Graph], Edges],
        dropout: float,
        activation: Callable[[Tensor], Tensor] = F.relu,
    ) -> None:
        super().__init__()
        self.edges, self.dropout, self.activation = Once(prepare), dropout, activation

    def hidden(self, convs: Iterable[nn.Module], x: Tensor, edges: Edges) -> Iterator[Tensor]:
        """x [N, F], and the features [N, hidden] behind each layer."""
        yield x
        for conv in convs:
            x = F.dropout(self.activation(conv(x, *edges)), self.dropout, self.training)
            yield x

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edges = self.edges(graph)
        *inner, last = self.convs
        *_, x = self.hidden(inner, x, edges)
        return last(x, *edges)


class GCN(Convolutions):
    """`layers` of PyG's GCNConv, with ReLU and dropout between them and dropout on x."""

    def __init__(
        self, in_channels: int, classes: int, hidden: int, layers: int, dropout: float
    ) -> None:
        super().__init__(normalised_edges, dropout)
        self.convs = _gcn_layers([in_channels, *[hidden] * (layers - 1), classes], dropout)


class GAT(Convolutions):
    """`layers` of PyG's GATConv: `heads` concatenated ones, ELU between, one head in the last.

    Dropout acts on the features before every layer and on the attention weights.
    """

    def __init__(
        self, in_channels: int, classes: int, hidden: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__(looped_edges, dropout, F.elu)
        options = {"dropout": dropout, "add_self_loops": False}  # the loops are in the edges
        widths = [in_channels, *[hidden] * (layers - 1)]
        each = _share(hidden, heads)
        convs = [GATConv(width, each, heads, **options) for width in widths[:-1]]
        convs.append(GATConv(widths[-1], classes, 1, concat=False, **options))
        self.convs = _taking_sparse(convs, dropout)


class JKNet(Convolutions):
    """GCN layers whose outputs are all looked at: concatenated or their maximum, by PyG's
    JumpingKnowledge, and one linear map.
    """

    def __init__(
        self, in_channels: int, classes: int, hidden: int, layers: int, jump: str, dropout: float
    ) -> None:
        super().__init__(normalised_edges, dropout)
        _check.known("jump", jump, ("cat", "max"))
        self.convs = _gcn_layers([in_channels, *[hidden] * layers], dropout)
        self.jump = pyg.JumpingKnowledge(jump)
        self.lin = nn.Linear(hidden * layers if jump == "cat" else hidden, classes)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        _, *seen = self.hidden(self.convs, x, self.edges(graph))
        return self.lin(self.jump(seen))


class MixHop(Convolutions):
    """PyG's MixHopConv, each power of the adjacency with `hidden` channels of its own.

    A linear map comes first, because the layer walks with the features as they are: as wide and
    dense as they come, an edge tensor of them would not fit on large graphs.
    """

    layer: ClassVar[type[MixHopConv]] = MixHopConv

    def __init__(
        self,
        in_channels: int,
        classes: int,
        hidden: int,
        layers: int,
        powers: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__(looped_edges, dropout)
        wide = len(powers) * hidden
        self.enter = Linear(in_channels, hidden, dropout=dropout)
        # What is left of the normalisation does not ask the host.
        self.convs = nn.ModuleList(
            self.layer(width, hidden, list(powers), add_self_loops=False)
            for width in [hidden, *[wide] * (layers - 1)]
        )
        self.leave = nn.Linear(wide, classes)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        *_, x = self.hidden(self.convs, self.enter(x), self.edges(graph))
        return self.leave(x)


def _gcn_layers(widths: list[int], dropout: float) -> nn.ModuleList:
    """GCN layers from each width to the next, for normalised edges; the first drops its x."""
    return _taking_sparse([GCNConv(*pair, normalize=False) for pair in pairwise(widths)], dropout)


def _taking_sparse(convs: list[Any], dropout: float) -> nn.ModuleList:
    """Layers of which the first takes sparse x too, after dropout; its values stay."""
    return nn.ModuleList([Entered(convs[0], dropout), *convs[1:]])


class Entered(nn.Module):
    """A layer of PyG, which takes tensors only, behind its linear map, which is ours."""

    def __init__(self, conv: Any, dropout: float) -> None:
        super().__init__()
        old = conv.lin
        self.lin = Linear(old.in_channels, old.out_channels, bias=False, dropout=dropout)
        self.lin.load_state_dict(old.state_dict())
        conv.lin = nn.Identity()
        self.conv = conv

    def forward(self, x: Tensor | SparseFeatures, *edges: Any) -> Tensor:
        return self.conv(self.lin(x), *edges)


def _share(hidden: int, heads: int) -> int:
    """Channels of a head."""
    if hidden % heads:
        raise ValueError(f"hidden={hidden} must be a multiple of heads={heads}")
    return hidden // heads


# ---------------------------------------------------------------------- predict, then propagate


class MLP(nn.Module):
    """Two linear maps with ReLU between, dropout before each: [N, in_channels] -> [N, classes]."""

    def __init__(self, in_channels: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.enter = Linear(in_channels, hidden, dropout=dropout)
        self.leave = Linear(hidden, classes, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(F.relu(self.enter(x)))


class APPNP(nn.Module):
    """An MLP, then `hops` steps of personalised PageRank by PyG's APPNP."""

    def __init__(
        self, in_channels: int, classes: int, hidden: int, hops: int, alpha: float, dropout: float
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, hidden, classes, dropout)
        self.propagate = pyg.APPNP(hops, alpha, normalize=False)
        self.edges = Once(normalised_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.propagate(self.mlp(x), *self.edges(graph))


class GPRGNN(nn.Module):
    r"""An MLP, then a learned sum over hops, :math:`\sum_k \gamma_k \hat A^k H`, of
    `"Adaptive Universal Generalized PageRank Graph Neural Network"
    <https://arxiv.org/abs/2006.07988>`_.

    :math:`\gamma` starts as personalised PageRank, :math:`\alpha (1 - \alpha)^k`, the rest of the
    mass in the last hop, and is not decayed.
    """

    def __init__(
        self, in_channels: int, classes: int, hidden: int, hops: int, alpha: float, dropout: float
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, hidden, classes, dropout)
        self.propagate = pyg.SimpleConv(aggr="sum")
        gamma = alpha * (1 - alpha) ** torch.arange(hops + 1, dtype=torch.float32)
        gamma[hops] = (1 - alpha) ** hops
        self.gamma = nn.Parameter(gamma)
        self.dropout, self.edges = dropout, Once(normalised_edges)

    def no_weight_decay(self) -> Iterator[nn.Parameter]:
        """The hop weights, as published."""
        yield self.gamma

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edges = self.edges(graph)
        state = F.dropout(self.mlp(x), self.dropout, self.training)
        out = self.gamma[0] * state
        for hop in range(1, self.gamma.numel()):
            state = self.propagate(state, *edges)
            out = out + self.gamma[hop] * state
        return out


# ----------------------------------------------------------------------------------- transformers


class GraphGPS(nn.Module):
    """PyG's GPSConv: GCN and Performer attention side by side, between two linear maps.

    The attention's random projection is drawn once.
    """

    def __init__(
        self, in_channels: int, classes: int, hidden: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        each = {"head_channels": _share(hidden, heads), "dropout": dropout}
        attention = {"attn_type": "performer", "attn_kwargs": each}
        self.enter = Linear(in_channels, hidden, dropout=dropout)
        self.convs = nn.ModuleList(
            GPSConv(hidden, GCNConv(hidden, hidden, normalize=False), heads, dropout, **attention)
            for _ in range(layers)
        )
        self.leave = nn.Linear(hidden, classes)
        self.edges = Once(normalised_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        (edge_index, edge_weight), x = self.edges(graph), self.enter(x)
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight=edge_weight)
        return self.leave(x)


class WholeModel(nn.Module):
    """A model of PyG that wants a batch vector and returns log-softmax, as the others are called.

    Log-softmax would do as logits, since its softmax is the same. It is centred, which changes no
    softmax either, because a loss by columns (`binary`) needs logits of both signs.

    Shapes: x [N, in_channels], made dense once -> [N, classes].
    """

    NAMES: ClassVar[dict[str, str]]
    """What PyG calls our settings, where it has other names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.edges, self.dense = Once(normalised_edges), Once(dense_features)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        x, edges = self.dense(x), self.edges(graph)
        for module in self.model.modules():
            if isinstance(module, GCNConv):
                # What `cached=True` would keep, but of this graph and not of the first that came.
                module._cached_edge_index = edges
        logs = self.model(x, edges[0], edges[0].new_zeros(x.size(0)))
        return logs - logs.mean(-1, keepdim=True)


class SGFormer(WholeModel):
    """PyG's SGFormer on a single graph: GCN layers and global attention, averaged."""

    NAMES: ClassVar = {
        "layers": "gnn_num_layers",
        "attention_layers": "trans_num_layers",
        "heads": "trans_num_heads",
    }

    def __init__(
        self, in_channels: int, classes: int, hidden: int, dropout: float, **settings: float
    ) -> None:
        named = {self.NAMES.get(name, name): value for name, value in settings.items()}
        drops = {"gnn_dropout": dropout, "trans_dropout": dropout}
        super().__init__(pyg.models.SGFormer(in_channels, hidden, classes, **named, **drops))


class Polynormer(WholeModel):
    """PyG's Polynormer with both of its phases in one run: first its local layers alone, then
    global attention on top.

    The model makes the switch by itself: it counts its forward calls in training mode, one for each
    step of descent, and from step `local_epochs + 1` on the global attention is in. An evaluation
    is in the phase of the weights that it evaluates. The count is a buffer, `steps` [1], so
    it is saved with the weights: the best weights of a run are loaded in the phase in which they
    were the best, and a run that is taken up again is in the right one. The local weights go on
    from where they are (the authors' program goes back to the best ones); those of the attention
    have no gradients before, so the optimiser first moves them then. A run reaches the second
    phase if its patience is at least `local_epochs`.
    """

    steps: Tensor
    NAMES: ClassVar = {"layers": "local_layers", "attention_layers": "global_layers"}

    def __init__(
        self, in_channels: int, classes: int, hidden: int, local_epochs: int, **settings: float
    ) -> None:
        named = {self.NAMES.get(name, name): value for name, value in settings.items()}
        named["global_dropout"] = settings["dropout"]
        super().__init__(pyg.models.Polynormer(in_channels, hidden, classes, **named))
        self.local_epochs = local_epochs
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    @property
    def attends_globally(self) -> bool:
        """Whether the second phase has begun; on a GPU the host waits for the answer."""
        return int(self.steps) > self.local_epochs

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        if self.training:
            self.steps += 1
        self.model._global = self.attends_globally  # type: ignore[assignment]
        return super().forward(x, graph)


# ------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Baseline:
    """A model and how it is trained.

    Attributes:
        model: its class.
        settings: all settings. `lr` and `weight_decay` are for the optimiser, the others for the
            model.
        capturable: whether an epoch can be recorded as a CUDA graph: nothing waits for the host
            after the first call.
    """

    model: type[nn.Module]
    settings: Mapping[str, Any]
    capturable: bool

    @property
    def name(self) -> str:
        """As tables print it."""
        return self.model.__name__

    def at_depth(self, depth: int) -> dict[str, Any]:
        """The settings with that many hops (APPNP, GPRGNN) or layers (all others; of SGFormer and
        Polynormer, those over the edges)."""
        return {**self.settings, "hops" if "hops" in self.settings else "layers": depth}

    def build(self, in_channels: int, classes: int, changes: Mapping[str, Any]) -> nn.Module:
        """The model with some settings changed; one that does not exist is an error."""
        for name in changes:
            _check.known(f"setting of {self.name}", name, self.settings)
        chosen = {**self.settings, **changes}
        for name, value in chosen.items():
            if name in _COUNTS:
                _check.integer(name, value, 1)
            elif name in _SHARES:
                _check.number(name, value, below=1)
        of_model = {name: value for name, value in chosen.items() if name not in TRAINING}
        return self.model(in_channels, classes, **of_model)


TRAINING = ("lr", "weight_decay")
"""Settings of the optimiser, not of the model."""
_COUNTS = ("hidden", "layers", "attention_layers", "hops", "heads", "local_epochs")
_SHARES = ("dropout", "in_dropout")


def baseline(name: str) -> Baseline:
    """A baseline by its name in `BASELINES`."""
    return BASELINES[_check.known("baseline", name, BASELINES)]


def _baseline(model: type[nn.Module], capturable: bool = True, **settings: Any) -> Baseline:
    """With the settings that most have in common."""
    common = {"hidden": 64, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4}
    return Baseline(model, {**common, **settings}, capturable)


# Not captured: PyG's global attention picks the nodes of a batch by a mask, which asks the host how
# many there are; SGFormer and Polynormer also look for the largest number in the batch vector.
BASELINES: dict[str, Baseline] = {
    "gcn": _baseline(GCN, layers=2),
    "gat": _baseline(GAT, layers=2, heads=8, dropout=0.6, lr=0.005),
    "appnp": _baseline(APPNP, hops=10, alpha=0.1),
    "gprgnn": _baseline(GPRGNN, hops=10, alpha=0.1),
    "jknet": _baseline(JKNet, layers=4, jump="cat"),
    "mixhop": _baseline(MixHop, layers=2, powers=[0, 1, 2]),
    "graphgps": _baseline(GraphGPS, False, layers=2, heads=4, lr=0.001),
    "sgformer": _baseline(SGFormer, False, layers=3, attention_layers=2, heads=1, graph_weight=0.5),
    "polynormer": _baseline(
        Polynormer,
        False,
        layers=7,
        attention_layers=2,
        in_dropout=0.15,
        local_epochs=100,
        lr=0.001,
        weight_decay=5e-5,
    ),
}
"""Name -> baseline: published-style settings, the same on every graph. Table 1 trains each with its
weight decay and without, and takes in each run what has the better validation score."""


# --------------------------------------------------------------------- as PyG's users run them

HIDDEN, LAYERS, DROPOUT = 64, 2, 0.5


@dataclass(frozen=True)
class PyGModel:
    """A model of PyG as its users run it, on dense features and edges as they come.

    Attributes:
        build: `(in_channels, classes)` -> the model.
        loss: what fits its outputs.
        takes_batch: whether it wants to know the graph of each node.
    """

    build: Callable[[int, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    takes_batch: bool = False


def _plain(model: Callable[..., nn.Module], **more: Any) -> PyGModel:
    """One of PyG's stacks of layers."""
    return PyGModel(lambda f, c: model(f, HIDDEN, LAYERS, c, dropout=DROPOUT, **more))


def _sgformer(in_channels: int, classes: int) -> nn.Module:
    layers = {"trans_num_layers": LAYERS, "gnn_num_layers": LAYERS}
    return pyg.models.SGFormer(in_channels, HIDDEN, classes, **layers)


def _polynormer(in_channels: int, classes: int) -> nn.Module:
    options = {"local_layers": LAYERS, "global_layers": LAYERS, "dropout": DROPOUT}
    model = pyg.models.Polynormer(in_channels, HIDDEN, classes, **options)
    model._global = True  # PyG leaves it to the user to end the local phase
    return model


PYG_MODELS = {
    "PyG GCN": _plain(pyg.GCN),
    "PyG GAT": _plain(pyg.GAT, heads=8),
    "PyG GraphSAGE": _plain(pyg.GraphSAGE),
    "PyG SGFormer": PyGModel(_sgformer, F.nll_loss, takes_batch=True),
    "PyG Polynormer": PyGModel(_polynormer, F.nll_loss, takes_batch=True),
}


class SparseGCN(nn.Module):
    """PyG's two-layer GCN on our sparse features and prepared products.

    It shows what our way of running an epoch costs without subtree attention. On
    `Graph(edge_index, transition="sym", self_loops=True)` of an undirected graph it is the same
    function as PyG's.

    Shapes: x [N, in_channels], dense or `torch.sparse_csr` -> [N, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        widths = (in_channels, HIDDEN, out_channels)
        self.lins = nn.ModuleList(Linear(*pair, bias=False) for pair in pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in widths[1:])

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        hidden = F.relu(self._layer(0, x, graph))
        return self._layer(1, F.dropout(hidden, DROPOUT, self.training), graph)

    def _layer(self, index: int, x: Tensor, graph: Graph) -> Tensor:
        return walked(self.lins[index](x), graph) + self.biases[index]
