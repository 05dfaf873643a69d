"""Batches a second of the neighbour sampler, beside a sampler in plain torch and pyg-lib.

    python -m experiments.benchmarks.sampling --out results/sampling-cpu.json

A planted graph of 10^6 nodes and 10^7 edges; every call draws another batch. `torch` is the sampler
that is taken where Numba is missing: all rows at a time, no sort of whole neighbourhoods.
`loader` is a `NeighborLoader` with all that it makes of a sample: features, labels, a PyG `Data`.
And how far the mean of many samples is from the walk itself, hop by hop.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from experiments.benchmarks.script import leave, parser
from subtree_attention import Dataset, Graph, NeighborLoader, planted
from subtree_attention.ops import sampling
from subtree_attention.ops.kernels import plain_sampling
from subtree_attention.ops.sampling import InEdges, sample

FANOUTS = [10, 10], [5, 5, 5], [4, 3, 2]
BATCHES = 1024, 4096
TIMES = 10
"""Batches of a round."""

Draw = Callable[[int], object]
"""Makes a batch, another for each number."""


def in_torch(*arguments: Any, **how: Any) -> object:
    """The same without Numba."""
    before, sampling._hop_function = sampling._hop_function, lambda: plain_sampling.hop
    try:
        return sample(*arguments, **how)
    finally:
        sampling._hop_function = before


def by_pyg_lib(edges: InEdges, lots: tuple[Tensor, ...], fanouts: list[int]) -> Draw | None:
    """pyg-lib's sampler, where it is installed."""
    try:
        import pyg_lib
    except ImportError:
        return None
    rowptr, col = edges.rowptr.long(), edges.col.long()
    neighbours = partial(pyg_lib.sampler.neighbor_sample, num_neighbors=fanouts)
    return lambda number: neighbours(rowptr, col, lots[number % len(lots)])


def versions(data: Dataset, edges: InEdges, size: int, fanouts: list[int]) -> dict[str, Draw]:
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
    lots = order.split(size)
    loader, numbers = (
        NeighborLoader(data, fanouts, size, order),
        torch.arange(len(order)).split(size),
    )

    def of(draw: Callable[..., object], **how: Any) -> Draw:
        return lambda n: draw(edges, lots[n % len(lots)], fanouts, key=n, **how)

    found: dict[str, Draw | None] = {
        "numba": of(sample),
        "numba, by the walk": of(sample, by="walk"),
        "torch": of(in_torch),
        "loader": lambda n: loader._made(numbers, 0, n % len(lots)),
        "pyg-lib": by_pyg_lib(edges, lots, fanouts),
    }
    return {name: draw for name, draw in found.items() if draw is not None}


def timed(draws: dict[str, Draw], rounds: int) -> dict[str, dict[str, Any]]:
    """Milliseconds of a batch in turns, by the wall and of the processor: others may be at work on
    the machine."""
    found: dict[str, dict[str, Any]] = {name: {"wall": [], "processor": []} for name in draws}
    for draw in draws.values():
        draw(0)
    for number, (name, draw) in product(range(rounds), draws.items()):
        wall, processor = time.perf_counter(), time.process_time()
        for each in range(TIMES):
            draw(number * TIMES + each)
        found[name]["wall"].append((time.perf_counter() - wall) * 1e3 / TIMES)
        found[name]["processor"].append((time.process_time() - processor) * 1e3 / TIMES)
    for name, clocks in found.items():
        rates = {clock: 1e3 / statistics.median(taken) for clock, taken in clocks.items()}
        found[name] = {"batches_per_second": rates, "milliseconds": clocks}
    return found


def rates(data: Dataset, rounds: int) -> dict[str, Any]:
    edges, result = InEdges.from_edges(data.edge_index, data.num_nodes), dict[str, Any]()
    for size, fanouts in product(BATCHES, FANOUTS):
        name = f"batch {size}, {fanouts}"
        result[name] = timed(versions(data, edges, size, fanouts), rounds)
        print(name, {each: found["batches_per_second"] for each, found in result[name].items()})
        result[name]["edges"] = sample(edges, torch.arange(size), fanouts, key=0).col.numel()
    return result


def walked(sampled: sampling.Sampled, z: np.ndarray, hops: int) -> np.ndarray:
    """What a sampled walk brings to the seeds at each hop, of z [N, c]: [hops, B, c]."""
    parts = sampled.entries.numpy(), sampled.col.numpy(), sampled.rowptr.numpy()
    matrix = scipy.sparse.csr_array(parts, (len(sampled.n_id),) * 2)
    states = [z[sampled.n_id.numpy()]]
    for _ in range(hops):
        states.append(matrix @ states[-1])
    return np.stack(states[1:])[:, : sampled.batch_size]


def biases(draws: int) -> dict[str, Any]:
    """Means of many samples against the walk itself: numerators, denominators and their quotient.

    Relative to the size of what is estimated, over 50 roots; `error` is the standard error of such
    a mean, below which a bias cannot be seen, and `spread` that of one sample.
    """
    data = planted(3000, 15_000, classes=4, features=4, seed=1)
    value = np.random.default_rng(0).standard_normal((data.num_nodes, 1)) + 1
    z, result = np.concatenate([value, np.ones_like(value)], 1), dict[str, Any]()
    seeds, matrix = torch.arange(50), Graph.from_data(data).to_scipy()
    exact = [z]
    for _ in range(3):
        exact.append(matrix @ exact[-1])
    whole = np.stack(exact[1:])[:, :50]
    for by, fanouts in product(sampling.BY, ([5, 5, 5], [10, 10, 10])):
        edges = InEdges.of(Graph.from_data(data))
        found = np.stack(
            [walked(sample(edges, seeds, fanouts, key=k, by=by), z, 3) for k in range(draws)]
        )
        quantities = {
            "numerator": (found[..., 0], whole[..., 0]),
            "denominator": (found[..., 1], whole[..., 1]),
            "level": (found[..., 0] / found[..., 1], whole[..., 0] / whole[..., 1]),
        }
        result[f"{by}, {fanouts}"] = {
            name: [_bias(got[:, hop], right[hop], draws) for hop in range(3)]
            for name, (got, right) in quantities.items()
        }
    return result


def _bias(found: np.ndarray, exact: np.ndarray, draws: int) -> dict[str, float]:
    """Of values [draws, B] against [B]; relative to the root mean square of these."""
    size, spread = np.sqrt(np.mean(exact**2)), np.sqrt(found.var(0).mean())
    off = np.sqrt(np.mean((found.mean(0) - exact) ** 2))
    return {
        "bias": float(off / size),
        "error": float(spread / draws**0.5 / size),
        "spread": float(spread / size),
    }


def main() -> None:
    options = parser(__doc__, rounds=7, draws=2000, nodes=10**6, threads=2).parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"biases": biases(options.draws), "rates": {}}
    data = planted(options.nodes, 5 * options.nodes, classes=10, features=32)
    for threads in sorted({1, options.threads}):
        torch.set_num_threads(threads)
        result["rates"][f"threads {threads}"] = rates(data, options.rounds)
    about: dict[str, Any] = {"nodes": data.num_nodes, "edges": data.num_edges}
    try:
        about["pyg-lib"] = version("pyg-lib")
    except PackageNotFoundError:
        about["pyg-lib"] = "not installed: the registry that was at hand has none"
    leave(options.out, {**about, "rounds": options.rounds, "draws": options.draws, **result})


if __name__ == "__main__":
    main()
