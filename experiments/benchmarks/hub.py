"""How exact float32 is at a hub: a star of 100,000 leaves, against the same walk in float64.

    python -m experiments.benchmarks.hub --out results/hub-cpu.json

The largest error of a level relative to its largest entry, over some random inputs and both
transitions, for every backend that runs here.
"""

import torch
from torch import Tensor

from experiments.benchmarks.script import leave, parser
from subtree_attention import Graph, subtree_attention
from subtree_attention.ops.backends import BACKENDS, choose
from subtree_attention.runs.environment import choose_device

HOPS, CHANNELS = 3, (8, 4)
"""K, and the channels of keys and values."""


def walk(inputs: list[Tensor], graph: Graph, backend: str) -> Tensor:
    """All levels, [K + 1, N, 1, c]."""
    query, key, value = inputs
    return subtree_attention(query, key, value, graph, HOPS, eps=0.0, backend=backend)


def errors(
    leaves: int, seed: int, transition: str, backend: str, device: torch.device
) -> list[float]:
    """Of levels 1 to K."""
    spokes = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    graph = Graph(torch.cat([spokes, spokes.flip(0)], dim=1), transition=transition)
    random = torch.Generator().manual_seed(seed)
    d, c = CHANNELS
    inputs = [torch.randn(leaves + 1, 1, width, generator=random) for width in (d, d, c)]
    exact = walk([x.double() for x in inputs], graph, "torch")
    found = walk([x.to(device) for x in inputs], graph.to(device), backend).cpu()
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True)][
        1:
    ]


def main() -> None:
    arguments = parser(__doc__, leaves=100_000, seeds=3, device="auto").parse_args()
    device, result = choose_device(arguments.device), {}
    for backend in BACKENDS:
        try:
            choose(backend, device, torch.float32)
        except (ValueError, RuntimeError, ImportError) as reason:
            print(f"{backend}: {reason}")
            continue
        runs = [
            errors(arguments.leaves, seed, transition, backend, device)
            for seed in range(arguments.seeds)
            for transition in ("rw", "sym")
        ]
        result[backend] = {f"level {k + 1}": max(run[k] for run in runs) for k in range(HOPS)}
        print(backend, result[backend])
    leave(arguments.out, {"leaves": arguments.leaves, "largest error": result}, device)


if __name__ == "__main__":
    main()
