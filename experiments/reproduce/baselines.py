"""The models that STAGNN is compared with, made of PyG's layers and trained by our trainer.

Each is called as `model(x, graph)` and gives logits [N, C], where x [N, F] is dense or
`torch.sparse_csr`. They take the edges of the graph without weights and bring their own
normalisation, which is prepared at the first call and kept as long as the same graph comes.

    chosen = baseline("gat")
    model = chosen.build(in_channels, classes, chosen.at_depth(10))
    Trainer(model, data, graph, config, chosen.capturable)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GPSConv,
    JumpingKnowledge,
    MixHopConv,
    SimpleConv,
)
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from subtree_attention import _check
from subtree_attention.graph import Graph
from subtree_attention.nn.linear import SparseLinear, check_dropout

Build = Callable[[int, int, Mapping[str, Any]], nn.Module]


@dataclass(frozen=True)
class Baseline:
    """A model and how it is trained.

    Attributes:
        name: as tables print it.
        build: `(in_channels, classes, settings)` -> the model; settings that are left out have the
            values of `settings`, those that do not exist are an error.
        settings: all settings. `lr` and `weight_decay` are for the optimiser, the others for the
            model.
        capturable: whether an epoch can be recorded as a CUDA graph: nothing waits for the host
            after the first call.
        recipe: the settings in words.
    """

    name: str
    build: Build
    settings: Mapping[str, Any]
    capturable: bool
    recipe: str

    def at_depth(self, depth: int) -> dict[str, Any]:
        """The settings with that many hops (APPNP, GPRGNN) or layers (all others; of SGFormer and
        Polynormer, those over the edges)."""
        return {**self.settings, "hops" if "hops" in self.settings else "layers": depth}


def baseline(name: str) -> Baseline:
    """A baseline by its name in `BASELINES`."""
    return BASELINES[_check.known("baseline", name, BASELINES)]


# ------------------------------------------------------------------- what is prepared only once

Source = TypeVar("Source")
Made = TypeVar("Made")


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


class Edges(NamedTuple):
    """Edges [2, E] and their weights [E], as PyG's layers take them."""

    edge_index: Tensor
    edge_weight: Tensor


def normalised_edges(graph: Graph) -> Edges:
    """D^-1/2 (A + I) D^-1/2, PyG's normalisation of GCN."""
    return Edges(*gcn_norm(graph.edge_index, None, graph.num_nodes, dtype=torch.float32))


def looped_edges(graph: Graph) -> Tensor:
    """The edges [2, E] with exactly one loop at every node, as GATConv makes them by itself."""
    plain, _ = remove_self_loops(graph.edge_index)
    return add_self_loops(plain, num_nodes=graph.num_nodes)[0]


def dense_features(x: Tensor) -> Tensor:
    """[N, F] as layers take it that know dense features only."""
    return x if x.layout == torch.strided else x.to_dense()


def take_sparse(conv: Any, dropout: float) -> None:
    """Let the linear map inside a layer take sparse x too, after dropout; its values stay."""
    lin = SparseLinear(conv.lin.in_channels, conv.lin.out_channels, bias=False, dropout=dropout)
    lin.load_state_dict(conv.lin.state_dict())
    conv.lin = lin


# --------------------------------------------------------------------------------- convolutions


class GCN(nn.Module):
    """`layers` of PyG's GCNConv, with ReLU and dropout between them and dropout on x.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self, in_channels: int, classes: int, *, hidden: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (layers - 1), classes]
        self.convs = _gcn_layers(widths, dropout)
        self.dropout, self.edges = dropout, Once(normalised_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edges = self.edges(graph)
        *inner, last = self.convs
        for conv in inner:
            x = F.dropout(F.relu(conv(x, *edges)), self.dropout, self.training)
        return last(x, *edges)


class GAT(nn.Module):
    """`layers` of PyG's GATConv: `heads` concatenated ones, ELU between, one head in the last.

    Dropout acts on the features before every layer and on the attention weights.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        layers: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        each = _share(hidden, heads)
        # The loops are in the edges already: PyG would mask and add them anew in every call.
        options = {"dropout": dropout, "add_self_loops": False}
        widths = [in_channels, *[hidden] * (layers - 1)]
        convs = [GATConv(width, each, heads, **options) for width in widths[:-1]]
        convs.append(GATConv(widths[-1], classes, 1, concat=False, **options))
        take_sparse(convs[0], dropout)
        self.convs = nn.ModuleList(convs)
        self.dropout, self.edges = dropout, Once(looped_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edge_index = self.edges(graph)
        *inner, last = self.convs
        for conv in inner:
            x = F.dropout(F.elu(conv(x, edge_index)), self.dropout, self.training)
        return last(x, edge_index)


class JKNet(nn.Module):
    """GCN layers whose outputs are all looked at: concatenated or their maximum, by PyG's
    JumpingKnowledge, and one linear map.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self, in_channels: int, classes: int, *, hidden: int, layers: int, jump: str, dropout: float
    ) -> None:
        super().__init__()
        _check.known("jump", jump, ("cat", "max"))
        self.convs = _gcn_layers([in_channels, *[hidden] * layers], dropout)
        self.jump = JumpingKnowledge(jump)
        self.lin = nn.Linear(hidden * layers if jump == "cat" else hidden, classes)
        self.dropout, self.edges = dropout, Once(normalised_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edges, seen = self.edges(graph), []
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, *edges)), self.dropout, self.training)
            seen.append(x)
        return self.lin(self.jump(seen))


class MixHop(nn.Module):
    """PyG's MixHopConv, each power of the adjacency with `hidden` channels of its own.

    A linear map comes first, because the layer walks with the features as they are: as wide and
    dense as they come, an edge tensor of them would not fit on large graphs.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        layers: int,
        powers: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        wide = len(powers) * hidden
        self.enter = SparseLinear(in_channels, hidden, dropout=dropout)
        # As in GAT; what is left of the normalisation does not ask the host.
        self.convs = nn.ModuleList(
            MixHopConv(width, hidden, list(powers), add_self_loops=False)
            for width in [hidden, *[wide] * (layers - 1)]
        )
        self.leave = nn.Linear(wide, classes)
        self.dropout, self.edges = dropout, Once(looped_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edge_index, x = self.edges(graph), self.enter(x)
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, edge_index)), self.dropout, self.training)
        return self.leave(x)


def _gcn_layers(widths: list[int], dropout: float) -> nn.ModuleList:
    """GCN layers from each width to the next, for normalised edges; the first drops its x."""
    convs = [GCNConv(*pair, normalize=False) for pair in pairwise(widths)]
    take_sparse(convs[0], dropout)
    return nn.ModuleList(convs)


# ---------------------------------------------------------------------- predict, then propagate


class APPNP(nn.Module):
    """An MLP, then `hops` steps of personalised PageRank by PyG's APPNP.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        hops: int,
        alpha: float,
        dropout: float,
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

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        hops: int,
        alpha: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, hidden, classes, dropout)
        self.propagate = SimpleConv(aggr="sum")
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


class MLP(nn.Module):
    """Two linear maps with ReLU between, dropout before each: [N, in_channels] -> [N, classes]."""

    def __init__(self, in_channels: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.enter = SparseLinear(in_channels, hidden, dropout=dropout)
        self.leave = SparseLinear(hidden, classes, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(F.relu(self.enter(x)))


# ----------------------------------------------------------------------------------- transformers


class GraphGPS(nn.Module):
    """PyG's GPSConv: GCN and Performer attention side by side, between two linear maps.

    The attention's random projection is drawn once.

    Shapes: x [N, in_channels] -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        layers: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        attention = {"head_channels": _share(hidden, heads), "dropout": dropout}
        self.enter = SparseLinear(in_channels, hidden, dropout=dropout)
        self.convs = nn.ModuleList(
            GPSConv(
                hidden,
                GCNConv(hidden, hidden, normalize=False),
                heads,
                dropout,
                attn_type="performer",
                attn_kwargs=attention,
            )
            for _ in range(layers)
        )
        self.leave = nn.Linear(hidden, classes)
        self.edges = Once(normalised_edges)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        edges, x = self.edges(graph), self.enter(x)
        for conv in self.convs:
            x = conv(x, edges.edge_index, edge_weight=edges.edge_weight)
        return self.leave(x)


class SGFormer(nn.Module):
    """PyG's SGFormer on a single graph: GCN layers and global attention, averaged.

    Shapes: x [N, in_channels], made dense once -> [N, classes].
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        layers: int,
        attention_layers: int,
        heads: int,
        graph_weight: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.model = pyg.models.SGFormer(
            in_channels,
            hidden,
            classes,
            trans_num_layers=attention_layers,
            trans_num_heads=heads,
            trans_dropout=dropout,
            gnn_num_layers=layers,
            gnn_dropout=dropout,
            graph_weight=graph_weight,
        )
        self.edges, self.dense = Once(normalised_edges), Once(dense_features)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return _run(self.model, self.dense(x), self.edges(graph))


class Polynormer(nn.Module):
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

    Shapes: x [N, in_channels], made dense once -> [N, classes].
    """

    steps: Tensor

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        hidden: int,
        layers: int,
        attention_layers: int,
        in_dropout: float,
        dropout: float,
        local_epochs: int,
    ) -> None:
        super().__init__()
        self.model = pyg.models.Polynormer(
            in_channels,
            hidden,
            classes,
            local_layers=layers,
            global_layers=attention_layers,
            in_dropout=in_dropout,
            dropout=dropout,
            global_dropout=dropout,
        )
        self.local_epochs = local_epochs
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))
        self.edges, self.dense = Once(normalised_edges), Once(dense_features)

    @property
    def attends_globally(self) -> bool:
        """Whether the second phase has begun; on a GPU the host waits for the answer."""
        return int(self.steps) > self.local_epochs

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        if self.training:
            self.steps += 1
        self.model._global = self.attends_globally
        return _run(self.model, self.dense(x), self.edges(graph))


def _run(model: Any, x: Tensor, edges: Edges) -> Tensor:
    """Logits [N, classes] of a model of PyG that wants a batch vector and returns log-softmax.

    Log-softmax would do as logits, since its softmax is the same. It is centred, which changes no
    softmax either, because a loss by columns (`binary`) needs logits of both signs.
    """
    for module in model.modules():
        if isinstance(module, GCNConv):
            # What `cached=True` would keep, but of this graph and not of the first that came.
            module._cached_edge_index = edges
    logs = model(x, edges.edge_index, edges.edge_index.new_zeros(x.size(0)))
    return logs - logs.mean(-1, keepdim=True)


def _share(hidden: int, heads: int) -> int:
    """Channels of a head."""
    if hidden % heads:
        raise ValueError(f"hidden={hidden} must be a multiple of heads={heads}")
    return hidden // heads


# ------------------------------------------------------------------------------------- the table

_TRAINING = ("lr", "weight_decay")
_COUNTS = ("hidden", "layers", "attention_layers", "hops", "heads", "local_epochs")
_SHARES = ("dropout", "in_dropout")


def _baseline(
    model: Callable[..., nn.Module], capturable: bool, recipe: str, **settings: Any
) -> Baseline:
    name = model.__name__

    def build(in_channels: int, classes: int, changes: Mapping[str, Any]) -> nn.Module:
        for key in changes:
            _check.known(f"setting of {name}", key, settings)
        chosen = {**settings, **changes}
        for key in _COUNTS:
            if key in chosen:
                _check.integer(key, chosen[key], 1)
        for key in _SHARES:
            if key in chosen:
                check_dropout(chosen[key])
        of_model = {key: value for key, value in chosen.items() if key not in _TRAINING}
        return model(in_channels, classes, **of_model)

    return Baseline(name, build, settings, capturable, recipe)


# Not captured: PyG's global attention picks the nodes of a batch by a mask, which asks the host how
# many there are; SGFormer and Polynormer also look for the largest number in the batch vector.
BASELINES: dict[str, Baseline] = {
    "gcn": _baseline(
        GCN,
        True,
        "Two GCN layers, 64 hidden channels, dropout 0.5, Adam with lr 0.01 and weight decay 5e-4.",
        hidden=64,
        layers=2,
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "gat": _baseline(
        GAT,
        True,
        "Two GAT layers, 8 heads of 8 channels and then one head, dropout 0.6 on features and "
        "attention, Adam with lr 0.005 and weight decay 5e-4.",
        hidden=64,
        layers=2,
        heads=8,
        dropout=0.6,
        lr=0.005,
        weight_decay=5e-4,
    ),
    "appnp": _baseline(
        APPNP,
        True,
        "An MLP with 64 hidden channels, then 10 steps of personalised PageRank with restart 0.1, "
        "dropout 0.5, Adam with lr 0.01 and weight decay 5e-4.",
        hidden=64,
        hops=10,
        alpha=0.1,
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "gprgnn": _baseline(
        GPRGNN,
        True,
        "An MLP with 64 hidden channels, then a learned sum over 10 hops that starts as "
        "personalised PageRank with restart 0.1, dropout 0.5, Adam with lr 0.01 and weight decay "
        "5e-4 on all but the hop weights.",
        hidden=64,
        hops=10,
        alpha=0.1,
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "jknet": _baseline(
        JKNet,
        True,
        "Four GCN layers of 64 channels, all concatenated, and a linear map, dropout 0.5, Adam "
        "with lr 0.01 and weight decay 5e-4.",
        hidden=64,
        layers=4,
        jump="cat",
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "mixhop": _baseline(
        MixHop,
        True,
        "A linear map to 64 channels, two MixHop layers with 64 channels for each of the powers 0, "
        "1 and 2, and a linear map, dropout 0.5, Adam with lr 0.01 and weight decay 5e-4.",
        hidden=64,
        layers=2,
        powers=[0, 1, 2],
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "graphgps": _baseline(
        GraphGPS,
        False,
        "A linear map to 64 channels, two GPS layers (GCN beside Performer attention with 4 heads, "
        "batch norm), and a linear map, dropout 0.5, Adam with lr 0.001 and weight decay 5e-4.",
        hidden=64,
        layers=2,
        heads=4,
        dropout=0.5,
        lr=0.001,
        weight_decay=5e-4,
    ),
    "sgformer": _baseline(
        SGFormer,
        False,
        "PyG's SGFormer with 64 hidden channels: three GCN layers and two layers of global "
        "attention with one head, averaged, dropout 0.5, Adam with lr 0.01 and weight decay 5e-4.",
        hidden=64,
        layers=3,
        attention_layers=2,
        heads=1,
        graph_weight=0.5,
        dropout=0.5,
        lr=0.01,
        weight_decay=5e-4,
    ),
    "polynormer": _baseline(
        Polynormer,
        False,
        "PyG's Polynormer with 64 hidden channels: seven local layers alone for 100 epochs, then "
        "two layers of global attention on top, dropout 0.15 on x and 0.5 elsewhere, Adam with lr "
        "0.001 and weight decay 5e-5.",
        hidden=64,
        layers=7,
        attention_layers=2,
        in_dropout=0.15,
        dropout=0.5,
        local_epochs=100,
        lr=0.001,
        weight_decay=5e-5,
    ),
}
"""Name -> baseline: published-style settings, the same on every graph. Table 1 trains each with its
weight decay and without, and takes in each run what has the better validation score."""
