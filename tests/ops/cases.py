"""What the tests of operator, graph and layers share: graphs, inputs and the reference result."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from subtree_attention import Graph, feature_maps
from subtree_attention.ops import definition

FLOAT64_ERROR = 1e-10
"""Float64 rounds at 1.1e-16; sums of some hundred products over up to seven hops, divided by
denominators that may be a thousandth of a typical one, stay well below 1e6 roundings."""


@dataclass
class Edges:
    """A graph before it becomes a `Graph`: [2, E], N and weights [E] or None."""

    index: Tensor
    num_nodes: int
    weight: Tensor | None = None

    def graph(self, transition: str | None = "rw", device: str = "cpu", **options: bool) -> Graph:
        return Graph(self.index, self.num_nodes, self.weight, transition, **options).to(device)

    def dense(self) -> Tensor:
        """The adjacency, rows receive: [N, N]."""
        out = torch.zeros(self.num_nodes, self.num_nodes, dtype=torch.float64)
        for edge, (source, target) in enumerate(self.index.t().tolist()):
            out[target, source] += 1.0 if self.weight is None else float(self.weight[edge])
        return out


def random_edges(num_nodes: int, num_edges: int, seed: int = 0, weighted: bool = False) -> Edges:
    """A directed graph in which self-loops, parallel edges and isolated nodes may occur."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    weight = torch.rand(num_edges, generator=generator) + 0.1 if weighted else None
    return Edges(index, num_nodes, weight)


def _undirected() -> Edges:
    half = random_edges(9, 14, seed=1).index
    return Edges(torch.cat([half, half.flip(0)], dim=1), 9)


def _hubs() -> Edges:
    """Two nodes that hear from all and speak to all, many times: rows far longer than the rest."""
    nodes = torch.arange(40)
    pairs = [(nodes, torch.full_like(nodes, hub)) for hub in (0, 17)] * 3
    out = torch.cat([torch.stack(pair) for pair in pairs], dim=1)
    return Edges(torch.cat([out, out.flip(0)], dim=1), 40)


def _no_edges(num_nodes: int) -> Edges:
    return Edges(torch.empty(2, 0, dtype=torch.long), num_nodes)


EDGES: dict[str, Edges] = {
    "undirected": _undirected(),
    "directed": random_edges(11, 37),
    "directed-weighted": random_edges(13, 41, seed=2, weighted=True),
    "parallel-edges": Edges(torch.tensor([[0, 0, 0, 1, 2, 2], [1, 1, 1, 0, 1, 1]]), 3),
    "self-loops": Edges(torch.tensor([[0, 0, 1, 2, 3], [0, 1, 1, 0, 3]]), 5),
    "hubs": _hubs(),
    "isolated-nodes": Edges(random_edges(5, 9, seed=3).index * 2, 12),
    "two-components": Edges(torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]]), 5),
    "no-edges": _no_edges(4),
    "one-node": _no_edges(1),
    "no-nodes": _no_edges(0),
}


def shifted_square(x: Tensor) -> Tensor:
    """A feature map as a user may write one, with more features than channels."""
    return torch.cat([(x + 0.3).square(), x.sigmoid()], dim=-1)


def make_map(name: str, channels: int) -> Callable[[Tensor], Tensor]:
    """A feature map by name; "callable" is a user's function."""
    if name == "callable":
        return shifted_square
    built = feature_maps.FEATURE_MAPS[name](channels)
    if isinstance(built, feature_maps.SoftmaxFeatures | feature_maps.RBFFeatures):
        built = type(built)(channels, 7)
    return built


MAPS = ["elu", "relu", "softplus", "softmax-features", "rbf-features", "callable"]


@dataclass
class Inputs:
    """Query, key, value, hop weights and powers of denominators of one call."""

    query: Tensor
    key: Tensor
    value: Tensor
    hop_weights: Tensor | None = None
    beta: Tensor | None = None

    def all(self) -> list[Tensor]:
        return [t for t in vars(self).values() if t is not None]

    def to(self, *args: torch.dtype | str) -> "Inputs":
        """A copy of its own in another dtype or on another device, asking for gradients."""
        given = {name: t for name, t in vars(self).items() if t is not None}
        return Inputs(
            **{n: t.detach().clone().to(*args).requires_grad_() for n, t in given.items()}
        )


def random_inputs(
    num_nodes: int,
    heads: int | None = 2,
    hops: int | None = None,
    channels: tuple[int, int] = (5, 3),
    per_head: bool = True,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    powers: int | None = None,
) -> Inputs:
    """Normal q, k [N, H, d], v [N, H, c]; heads=None leaves H out; `hops` adds hop weights, and
    `powers` those of so many hops' denominators, normal around 1/2."""
    generator = torch.Generator().manual_seed(seed)
    head = () if heads is None else (heads,)
    shapes = [(num_nodes, *head, c) for c in (channels[0], *channels)]
    if hops is not None:
        shapes.append((hops + 1, heads or 1) if per_head else (hops + 1,))
    drawn = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    inputs = Inputs(*(t.requires_grad_() for t in drawn))
    if powers is not None:
        shape = (powers, heads or 1) if per_head else (powers,)
        beta = 0.5 + 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
        inputs.beta = beta.to(dtype).requires_grad_()
    return inputs


def reference(
    inputs: Inputs,
    graph: Graph,
    hops: int,
    similarity: definition.Similarity,
    eps: float,
    transition: Tensor | None = None,
) -> Tensor:
    """The paper's equation for what `subtree_attention` would return; the transition is the
    graph's, or one for each head [H, N, N]."""
    query, key, value = inputs.query, inputs.key, inputs.value
    squeeze = value.dim() == 2
    if squeeze:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
    transition = graph.dense(value.dtype) if transition is None else transition
    beta = inputs.beta
    if beta is not None:
        beta = (beta if beta.dim() > 1 else beta[:, None]).expand(-1, value.size(1))
    how = similarity, eps, beta
    out = definition.subtree_attention(query, key, value, transition, hops, *how)
    if inputs.hop_weights is not None:
        weights = inputs.hop_weights.reshape(hops + 1, -1).expand(-1, value.size(1))
        out = torch.einsum("knhc,kh->nhc", out, weights)
    return out.squeeze(-2) if squeeze else out


def output_and_gradients(out: Tensor, inputs: list[Tensor], seed: int = 7) -> list[Tensor]:
    """The result, and the gradient of a random weighting of it with respect to every input."""
    generator = torch.Generator().manual_seed(seed)
    weighting = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
    grads = torch.autograd.grad(out, inputs, weighting, allow_unused=True)
    return [
        out,
        *(torch.zeros_like(i) if g is None else g for i, g in zip(inputs, grads, strict=True)),
    ]


def error(actual: Tensor, expected: Tensor) -> float:
    """Largest deviation, relative to the largest entry (or to 1, the scale of the inputs)."""
    assert actual.shape == expected.shape
    if not expected.numel():
        return 0.0
    actual, expected = (t.detach().double().cpu() for t in (actual, expected))
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1))


def assert_all_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Every tensor within `tolerance` of the largest entry of its counterpart."""
    assert len(actual) == len(expected)
    errors = [error(a, e) for a, e in zip(actual, expected, strict=True)]
    # Not by max, which passes over NaN.
    assert all(e <= tolerance for e in errors), f"relative errors {errors} above {tolerance}"


def pairwise(**options: list) -> list[dict]:
    """Combinations in which any two options of different names meet at least once (greedy)."""
    names = list(options)
    open_pairs = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in range(len(options[a]))
        for y in range(len(options[b]))
    }
    combinations = []
    while open_pairs:
        chosen = dict(min(open_pairs))  # one pair that is missing, the rest greedily
        for name in names:
            if name not in chosen:
                chosen[name] = max(
                    range(len(options[name])),
                    key=lambda index: sum(
                        tuple(sorted([(name, index), item], key=lambda i: names.index(i[0])))
                        in open_pairs
                        for item in chosen.items()
                    ),
                )
        open_pairs -= set(itertools.combinations([(n, chosen[n]) for n in names], 2))
        combinations.append({name: options[name][chosen[name]] for name in names})
    return combinations
