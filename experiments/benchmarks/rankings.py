"""Who says which edges and nodes made an answer: methods that rank them for a root.

Edges are pairs of nodes, since the graphs are undirected: a pair is cut in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import GNNExplainer
from torch_geometric.nn import MessagePassing

from experiments.benchmarks.answers import Answers
from subtree_attention import STAGNN, Explainer, Graph

Ranking = Callable[[int], Tensor]
"""A root -> a score for each pair [P] or node [N]; what scores above 0 made the answer."""

KINDS = ("edges", "nodes")
BLOCK = 512
"""Removals that are computed at a time."""
STEPS = 16
"""Points of the integral of Integrated Gradients, by Gauss and Legendre."""
MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


class Subject:
    """A trained STAGNN and its graph, as an explainer sees them.

    Attributes:
        inputs: `[N, hidden]`, what the first linear map makes of the features, before its bias. A
            factor for a node does the same to that as to its features.
        logits, predicted: `[N, C]` and `[N]`, of the whole graph.
        pairs: `[2, P]`, the edges without their direction; `pair_of` [E] is the pair of each.
    """

    def __init__(self, model: STAGNN, x: Any, edge_index: Tensor) -> None:
        if model.smoothing:
            raise ValueError("the hidden layer must be of single nodes: smoothing=0")
        self.model, self.edge_index = model.requires_grad_(False).eval(), edge_index
        self.bias: Any = model.lin.bias
        self.inputs = model.lin(x) - self.bias
        self.graph = Graph(edge_index, self.num_nodes)
        self.logits = model.conv(self.hidden(self.inputs), self.graph)
        self.predicted = self.logits.argmax(-1)
        ordered = edge_index.sort(0).values
        self.pairs, self.pair_of = ordered.unique(dim=1, return_inverse=True)

    def hidden(self, inputs: Tensor) -> Tensor:
        return F.relu(inputs + self.bias)

    @property
    def num_nodes(self) -> int:
        return len(self.inputs)

    @cached_property
    def explainer(self) -> Explainer:
        """Ours, of the layer."""
        return Explainer(self.model.conv, self.hidden(self.inputs), self.graph)

    @cached_property
    def answers(self) -> Answers:
        """Of single roots: quick."""
        return Answers(self.model.conv, self.hidden(self.inputs), self.edge_index)

    def answer(self, root: int, pairs: Tensor) -> Tensor:
        """Probabilities of a root [C] where there are only some pairs, a mask [P]: the graph is
        built of their edges and the model run on it, whole."""
        left = Graph(self.edge_index[:, pairs[self.pair_of]], self.num_nodes)
        return self.model.conv(self.hidden(self.inputs), left)[root].softmax(-1)

    def touching(self, nodes: Tensor) -> Tensor:
        """Which pairs have one of these nodes, a mask [P]."""
        chosen = torch.zeros(self.num_nodes, dtype=torch.bool)
        chosen[nodes] = True
        return chosen[self.pairs].any(0)

    def cut(self, kind: str, units: Tensor) -> Tensor:
        """The edges that go with some pairs or nodes, in both directions, [2, p]."""
        pairs = self.pairs[:, units if kind == "edges" else self.touching(units)]
        loops = pairs[0] == pairs[1]
        return torch.cat([pairs, pairs.flip(0)[:, ~loops]], 1)

    def candidates(self, kind: str, root: int) -> Tensor:
        """What may matter to a root: pairs of which a node reaches it (degrees count, too), or the
        nodes of these; ascending."""
        pairs = self.touching(torch.from_numpy(self.answers.reach(root)))
        if kind == "edges":
            return pairs.nonzero().flatten()
        nodes = self.pairs[:, pairs].unique()
        return nodes[nodes != root]

    def summed(self, of_edges: Tensor) -> Tensor:
        """Scores of edges [E] as scores of pairs [P]."""
        return of_edges.new_zeros(self.pairs.size(1)).index_add(0, self.pair_of, of_edges)

    def at_ends(self, of_nodes: Tensor) -> Tensor:
        """Scores of nodes [N] as scores of pairs [P]: of both ends, as GraphFramEx does it."""
        return of_nodes[self.pairs].sum(0)


def rankings(subject: Subject, kind: str, epochs: int, lr: float) -> dict[str, Ranking]:
    """All methods but ours; `epochs` and `lr` are those of GNNExplainer."""
    of_nodes: dict[str, Ranking] = {
        "PageRank": partial(pagerank, subject),
        "Saliency": partial(saliency, subject),
        "Integrated Gradients": partial(integrated_gradients, subject),
    }
    methods: dict[str, Ranking] = {"Occlusion": partial(occlusion, subject, kind)}
    for name, rank in of_nodes.items():
        methods[name] = partial(_at_ends, subject, rank) if kind == "edges" else rank
    methods["Edge gradient"] = partial(edge_gradient, subject, kind)
    methods["GNNExplainer"] = partial(gnn_explainer, subject, kind, epochs, lr)
    methods["Random"] = partial(chance, subject, kind)
    return methods


def ours(subject: Subject, kind: str) -> dict[str, Ranking]:
    """The exact sum in several forms, of which one is chosen on validation nodes."""
    by = {"Flows": partial(flows, subject, kind)}
    if kind == "nodes":
        by["Contributions"] = partial(contributions, subject)
    named: dict[str, Ranking] = {}
    for name, rank in by.items():
        named |= {name: partial(rank, False), f"{name}, contrast": partial(rank, True)}
    return named


# ---------------------------------------------------------------------------------------------ours


def contributions(subject: Subject, contrast: bool, root: int) -> Tensor:
    """What each node adds to the predicted logit, or to its distance from the next class."""
    why = subject.explainer(root)
    return why.importance(why.predicted, why.rival(why.predicted) if contrast else None)


def flows(subject: Subject, kind: str, contrast: bool, root: int) -> Tensor:
    """What comes over each edge, or over those that leave a node: its own part, and what passes."""
    why = subject.explainer(root)
    over = why.edges(why.predicted, why.rival(why.predicted) if contrast else None)
    if kind == "edges":
        return subject.summed(over.of(subject.edge_index))
    return over.added.new_zeros(subject.num_nodes).index_add(0, over.edge_index[0], over.added)


def search(subject: Subject, kind: str, count: int, most: int, root: int) -> Tensor:
    """Flows as a screen, then exact removals, one after the other.

    Of the `most` first by the size of their flow, that one is taken whose removal, with all that
    were taken before, leaves the predicted class the least probable; `count` times, as long as that
    falls.
    """
    size = flows(subject, kind, True, root).abs()
    if kind == "nodes":
        size[root] = 0
    left = size.topk(min(most, len(size))).indices
    left = left[size[left] > 0]
    chosen, scores = left[:0], torch.zeros_like(size)
    falls_to = float(subject.logits[root].softmax(-1)[subject.predicted[root]])
    for place in range(count):
        if not len(left):
            break
        sets = [torch.cat([chosen, unit[None]]) for unit in left]
        probable = _without(subject, kind, root, sets)
        least = int(probable.argmin())
        if float(probable[least]) >= falls_to:
            break
        falls_to, scores[left[least]] = float(probable[least]), count - place
        chosen = torch.cat([chosen, left[least, None]])
        left = torch.cat([left[:least], left[least + 1 :]])
    return scores


# -------------------------------------------------------------------------------------------others


def occlusion(subject: Subject, kind: str, root: int) -> Tensor:
    """How much less probable the prediction is without each pair or node, alone."""
    units = subject.candidates(kind, root)
    scores = torch.zeros(subject.pairs.size(1) if kind == "edges" else subject.num_nodes)
    before = float(subject.logits[root].softmax(-1)[subject.predicted[root]])
    for block in units.split(BLOCK) if len(units) else ():  # an isolated root has none
        after = _without(subject, kind, root, block[:, None].unbind(0))
        scores[block] = (before - after).float()
    return scores


def _without(subject: Subject, kind: str, root: int, sets: Any) -> Tensor:
    """The probability of the predicted class without each of some sets of pairs or nodes, [B]."""
    logits = subject.answers.without(root, [subject.cut(kind, units) for units in sets])
    return logits.softmax(-1)[:, subject.predicted[root]]


def pagerank(subject: Subject, root: int) -> Tensor:
    """Personalised to the root, by networkx, as GraphFramEx does it; [N]."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(subject.num_nodes))
    graph.add_edges_from(subject.pairs.t().tolist())
    found = networkx.pagerank(graph, personalization={root: 1})
    return torch.tensor([found[node] for node in range(subject.num_nodes)])


def saliency(subject: Subject, root: int) -> Tensor:
    """The gradient of the predicted logit, summed over the features of each node, [N].

    That says not whether a node speaks for the class, so that only the order counts.
    """
    inputs = subject.inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_logit(subject, inputs, root), inputs)
    summed = gradient @ subject.model.lin.weight.sum(1)
    return summed - summed.min()


def integrated_gradients(subject: Subject, root: int) -> Tensor:
    """From features of 0 to what they are, all nodes together: [N], summed over features.

    A node's sum is the derivative by what all its features are multiplied with.
    """
    places, weights = np.polynomial.legendre.leggauss(STEPS)
    total = torch.zeros(subject.num_nodes)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        scale = torch.full((subject.num_nodes, 1), place, dtype=torch.float32).requires_grad_()
        logit = _logit(subject, subject.inputs * scale, root)
        total += weight * torch.autograd.grad(logit, scale)[0][:, 0]
    return total


def edge_gradient(subject: Subject, kind: str, root: int) -> Tensor:
    """The derivative of the prediction's log-probability by the weight of each edge.

    That is removal to the first order, with all that it does to the degrees; for a node it is that
    of all its edges.
    """
    weight = torch.ones(subject.edge_index.size(1), requires_grad=True)
    logits = subject.answers(root, weight=weight)
    (gradient,) = torch.autograd.grad(logits.log_softmax(-1)[subject.predicted[root]], weight)
    of_pairs = subject.summed(gradient)
    if kind == "edges":
        return of_pairs
    of_nodes = of_pairs.new_zeros(subject.num_nodes)
    return of_nodes.index_add(0, subject.pairs.flatten(), of_pairs.repeat(2))


class OfRoot(MessagePassing):
    """The subject as PyG's explainers want it: inputs [N, hidden] -> logits [N, C], all the root's.

    Edge masks of PyG act in `MessagePassing` layers, which ours is not. So this is one, and what
    PyG sets as its edge mask becomes the weights of the edges.
    """

    def __init__(self, subject: Subject, root: int) -> None:
        super().__init__()
        self.subject, self.root = subject, root

    def forward(self, inputs: Tensor, edge_index: Tensor) -> Tensor:
        mask: Any = self._edge_mask
        weight = mask.sigmoid() if self.explain and self._apply_sigmoid else mask
        logits = self.subject.answers(self.root, self.subject.hidden(inputs), weight)
        return logits.expand(len(inputs), -1)


def gnn_explainer(subject: Subject, kind: str, epochs: int, lr: float, root: int) -> Tensor:
    """PyG's, with a mask of edges (as edge weights) or of nodes (on their features)."""
    masks = {"edge_mask_type": "object"} if kind == "edges" else {"node_mask_type": "object"}
    explain = PyGExplainer(
        OfRoot(subject, root),
        algorithm=GNNExplainer(epochs=epochs, lr=lr),
        explanation_type="model",
        model_config=MODEL,
        **masks,
    )
    torch.manual_seed(root)  # masks begin at random
    found = explain(subject.inputs, subject.edge_index, index=root)
    return subject.summed(found.edge_mask) if kind == "edges" else found.node_mask[:, 0]


def chance(subject: Subject, kind: str, root: int) -> Tensor:
    """Any pairs or nodes of the computation graph; the same for the same root."""
    units = subject.candidates(kind, root)
    scores = torch.zeros(subject.pairs.size(1) if kind == "edges" else subject.num_nodes)
    scores[units] = torch.rand(len(units), generator=torch.Generator().manual_seed(root))
    return scores


def _logit(subject: Subject, inputs: Tensor, root: int) -> Tensor:
    return subject.answers(root, subject.hidden(inputs))[subject.predicted[root]]


def _at_ends(subject: Subject, rank: Ranking, root: int) -> Tensor:
    return subject.at_ends(rank(root))
