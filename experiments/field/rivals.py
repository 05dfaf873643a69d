"""What the new model is compared with: deep residual stacks of GCN, SAGE and GAT, an MLP, GIN, GPS.

Each is called as `model(x, graph)` and gives logits [N, out_channels] of x [N, F], dense or sparse.
They are undirected models with a loop at every node, which each makes of the edges by itself, and
nothing in a step waits for the host. Settings are a dataclass in `MODELS`, so a configuration names
a rival as it names ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GPSConv, MixHopConv

from experiments import baselines
from experiments.baselines import Entered, looped_edges, walked
from subtree_attention import _check
from subtree_attention.config import MODELS, Settings, option
from subtree_attention.graph import Graph
from subtree_attention.nn import BUILDERS, Linear
from subtree_attention.nn.block import NORMS
from subtree_attention.nn.features import Features, dropped

# ------------------------------------------------------------------------------------ one layer


def looped(graph: Graph, transition: str) -> Graph:
    """The same edges with a loop at every node, made once for a graph."""
    return graph.cached(("looped", transition), partial(_looped, transition=transition))


def _looped(graph: Graph, transition: str) -> Graph:
    return Graph(graph.edge_index, graph.num_nodes, transition=transition, self_loops=True)


def _neighbours(graph: Graph) -> Graph:
    """The edges as they are, each with weight 1: a step adds up the neighbours."""
    return Graph(graph.edge_index, graph.num_nodes, transition=None)


class GCNLayer(nn.Module):
    """PyG's GCNConv, D^-1/2 (A + I) D^-1/2 x W + b, by our sparse product."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias = nn.Parameter(self.lin.weight.new_zeros(out_channels))

    def forward(self, x: Features, graph: Graph, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is not None:  # in the order of the edges, of which the loops are made
            edge_weight = edge_weight.index_select(0, graph.edge_order)
        return walked(self.lin(x), looped(graph, "sym"), edge_weight) + self.bias


class SAGELayer(nn.Module):
    """PyG's SAGEConv: a map of the mean over neighbours and, by its loop, the node; and one of the
    node itself.

    The mean is taken behind the map, which is the same and narrower where x is wide.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l = Linear(in_channels, out_channels)
        self.lin_r = Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        return walked(self.lin_l(x), looped(graph, "mean")) + self.lin_r(x)


class GATLayer(nn.Module):
    """PyG's GATConv with one head."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        conv = GATConv(in_channels, out_channels, add_self_loops=False, bias=False)
        self.conv = Entered(conv, dropout=0.0)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        return self.conv(x, *graph.cached("looped edges", looped_edges))


class GINLayer(nn.Module):
    """PyG's GINConv with eps = 0: an MLP of a node and the sum of its neighbours."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.enter = Linear(in_channels, out_channels, bias=False)  # the norm would take it off
        self.norm = nn.BatchNorm1d(out_channels)
        self.leave = Linear(out_channels, out_channels)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        sent = self.enter(x)  # the first map of the MLP is linear: it may come before the sum
        summed = sent + walked(sent, graph.cached("neighbours", _neighbours))
        return self.leave(F.relu(self.norm(summed)))


class PlainLayer(nn.Module):
    """A linear map, which does not look at the graph."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(in_channels, out_channels)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        return self.lin(x)


# ------------------------------------------------------------------------------------ deep stacks


class Stack(nn.Module):
    """Layers, each with a linear residual if asked for, a norm, ReLU and dropout; a linear head.

    Args:
        layer: makes a layer of its numbers of channels.
        in_channels: columns of x.
        out_channels: number of logits.
        layers: how many.
        hidden_channels: their width.
        dropout: share dropped behind each of them.
        norm: "layer", "batch" or "none".
        residual: add a linear map of a layer's input to its output.
        enter: a linear map and dropout before the first layer.
        jump: let the head see the sum of all layers' outputs, and not the last alone.
        input_dropout: share dropped of what the first layer sees.
    """

    def __init__(
        self,
        layer: Callable[[int, int], nn.Module],
        in_channels: int,
        out_channels: int,
        layers: int,
        hidden_channels: int,
        dropout: float,
        norm: str,
        residual: bool,
        enter: bool = False,
        jump: bool = False,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout, self.input_dropout, self.jump = dropout, input_dropout, jump
        self.enter = Linear(in_channels, hidden_channels) if enter else None
        first = hidden_channels if enter else in_channels
        widths = [first, *[hidden_channels] * (layers - 1)]
        self.layers = nn.ModuleList(layer(width, hidden_channels) for width in widths)
        self.norms = nn.ModuleList(NORMS[norm](hidden_channels) for _ in widths)
        beside = widths if residual else []
        self.residuals = nn.ModuleList(Linear(width, hidden_channels) for width in beside)
        self.leave = Linear(hidden_channels, out_channels)

    def forward(self, x: Features, graph: Graph, *weights: Tensor) -> Tensor:
        """Logits [N, out_channels]."""
        if self.enter is not None:
            x = F.dropout(self.enter(x), self.dropout, self.training)
        x = dropped(x, self.input_dropout, self.training)
        seen = []
        for place, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            out = layer(x, graph, *weights)
            if self.residuals:
                out = out + self.residuals[place](x)
            x = F.dropout(F.relu(norm(out)), self.dropout, self.training)
            seen.append(x)
        return self.leave(sum(seen) if self.jump else x)


class GCN(Stack):
    """A stack of GCN layers, which weigh edges."""

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(GCNLayer, *sizes, **options)

    def forward(self, x: Features, graph: Graph, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, graph, *([] if edge_weight is None else [edge_weight]))


@dataclass(frozen=True)
class StackSettings(Settings):
    """The options of `Stack`."""

    layers: int = option(2, "Layers.", least=1)
    hidden_channels: int = option(64, "Their width.", least=1)
    dropout: float = option(0.5, "Dropout behind a layer.", below=1)
    input_dropout: float = option(0.0, "Dropout on what the first layer sees.", below=1)
    norm: str = option("layer", "Behind a layer", words={name: name for name in NORMS})
    residual: bool = option(False, "Linear residuals.")
    enter: bool = option(False, "A linear map first.")
    jump: bool = option(False, "The head sees all layers.")


@dataclass(frozen=True)
class GCNSettings(StackSettings):
    name: ClassVar[str] = "deep-gcn"
    title: ClassVar[str] = "GCN"


@dataclass(frozen=True)
class SAGESettings(StackSettings):
    name: ClassVar[str] = "deep-sage"
    title: ClassVar[str] = "SAGE"


@dataclass(frozen=True)
class GATSettings(StackSettings):
    name: ClassVar[str] = "deep-gat"
    title: ClassVar[str] = "GAT"


@dataclass(frozen=True)
class GINSettings(StackSettings):
    name: ClassVar[str] = "deep-gin"
    title: ClassVar[str] = "GIN"


@dataclass(frozen=True)
class MLPSettings(StackSettings):
    name: ClassVar[str] = "mlp"
    title: ClassVar[str] = "MLP"


# ------------------------------------------------------------------------------------------- GPS


class _GPSLayer(GPSConv):
    """PyG's GPSConv on one graph, without the mask of a batch, for which the host would wait."""

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        local = self.norm1(self._dropped(self.conv(x, graph)) + x)
        whole = x[None]
        if self.attn_type == "multihead":
            everywhere = self.attn(whole, whole, whole, need_weights=False)[0][0]
        else:
            everywhere = self.attn(whole)[0]
        out = local + self.norm2(self._dropped(everywhere) + x)
        return self.norm3(out + self.mlp(out))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class GPS(nn.Module):
    """Layers of PyG's GPSConv, GCN and attention over all nodes, between two linear maps.

    Args:
        in_channels: columns of x.
        out_channels: number of logits.
        layers: how many.
        hidden_channels: their width.
        heads: of the attention.
        dropout: share dropped in each.
        attention: "performer", which is linear in the nodes, or "multihead".
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: int,
        hidden_channels: int,
        heads: int,
        dropout: float,
        attention: str,
    ) -> None:
        super().__init__()
        if hidden_channels % heads:
            raise ValueError(f"hidden_channels={hidden_channels} must be a multiple of {heads=}")
        options: dict[str, Any] = {"dropout": dropout}
        if attention == "performer":
            options["head_channels"] = hidden_channels // heads
        self.enter = Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            _GPSLayer(
                hidden_channels,
                GCNLayer(hidden_channels, hidden_channels),
                heads,
                dropout,
                attn_type=attention,
                attn_kwargs=options,
            )
            for _ in range(layers)
        )
        self.leave = Linear(hidden_channels, out_channels)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        """Logits [N, out_channels]."""
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x, graph)
        return self.leave(x)


@dataclass(frozen=True)
class GPSSettings(Settings):
    """The options of `GPS`."""

    name: ClassVar[str] = "gps"
    title: ClassVar[str] = "GPS"
    layers: int = option(3, "Layers.", least=1)
    hidden_channels: int = option(64, "Their width.", least=1)
    heads: int = option(4, "Attention heads.", least=1)
    dropout: float = option(0.3, "Dropout.", below=1)
    attention: str = option(
        "performer",
        "Over all nodes",
        words={"performer": "linear in the nodes", "multihead": "of all pairs"},
    )


# ---------------------------------------------------------------------------------------- MixHop


@dataclass(frozen=True)
class MixHopSettings(Settings):
    """The options of `MixHop` with the powers 0 to `powers`."""

    name: ClassVar[str] = "mixhop"
    title: ClassVar[str] = "MixHop"
    layers: int = option(2, "Layers.", least=1)
    hidden_channels: int = option(64, "Width of each power.", least=1)
    dropout: float = option(0.5, "Dropout.", below=1)
    powers: int = option(2, "Highest power of the adjacency.", least=1)


class MixHopLayer(MixHopConv):
    """PyG's MixHopConv, whose steps are our sparse product."""

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        outs = [self.lins[0](x)]
        for lin in self.lins[1:]:
            x = walked(x, looped(graph, "sym"))
            outs.append(lin(x))
        return torch.cat([outs[power] for power in self.powers], dim=-1) + self.bias


class MixHop(baselines.MixHop):
    """That of the paper's tables, on our sparse product."""

    layer = MixHopLayer

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: int,
        hidden_channels: int,
        dropout: float,
        powers: int,
    ) -> None:
        some = range(powers + 1)
        super().__init__(in_channels, out_channels, hidden_channels, layers, some, dropout)
        self.edges = baselines.Once(lambda graph: (graph,))


RIVALS: dict[type[Any], Callable[..., nn.Module]] = {
    GCNSettings: GCN,
    SAGESettings: partial(Stack, SAGELayer),
    GATSettings: partial(Stack, GATLayer),
    GINSettings: partial(Stack, GINLayer),
    MLPSettings: partial(Stack, PlainLayer),
    GPSSettings: GPS,
    MixHopSettings: MixHop,
}
for settings, build in RIVALS.items():
    MODELS[settings.name], BUILDERS[settings.name] = settings, build


def model_of(title: str) -> type[Settings]:
    """The settings of a model by what tables call it."""
    titles = {settings.title: settings for settings in MODELS.values()}
    return titles[_check.known("model", title, titles)]
