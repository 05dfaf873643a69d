"""The operator alone, forward and backward, on real graphs: ours, library products, edge-wise.

    python benchmarks/attention.py                       # five graphs, results/attention-cpu.json
    python benchmarks/attention.py cora --device cuda

Heads, channels and hops are the paper's for each graph. All versions are timed in turns; a version
whose result is wrong (against float64) is not reported.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from edgewise import edgewise_attention
from timing import seconds
from torch import Tensor

import subtree_attention as sta
from subtree_attention.data.features import csr_tensor
from subtree_attention.ops import backends, recurrence
from subtree_attention.train.folder import environment, write_json
from subtree_attention.train.loop import choose_device

GRAPHS = ("cora", "pubmed", "photo", "physics", "computer")
EPS, TOLERANCE = 1e-5, 1e-5
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class LibraryProduct(torch.autograd.Function):
    """A X by the library's CSR product (MKL, cuSPARSE), with A and its transpose at hand."""

    @staticmethod
    def forward(ctx, state: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.transpose = transpose
        return matrix @ state

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def, override]
        return ctx.transpose @ grad, None, None


def library_attention(graph: sta.Graph, hops: int, dtype: torch.dtype) -> Attention:
    """One library product per hop on the state with the ones column, by plain autograd."""
    size = (graph.num_nodes, graph.num_nodes)
    matrix, transpose = (
        csr_tensor(*m[:3], size) for m in (graph.matrix(dtype), graph.transpose(dtype))
    )

    def attend(query: Tensor, key: Tensor, value: Tensor, weights: Tensor) -> Tensor:
        state, out = recurrence.first_state(key, value), value * weights[0, :, None]
        for hop in range(1, hops + 1):
            walked = LibraryProduct.apply(state.flatten(1), matrix, transpose)
            state = walked.view_as(state)
            level = recurrence.quotient(recurrence.read(query, state), EPS)
            out = out + level * weights[hop, :, None]
        return out

    return attend


def versions(graph: sta.Graph, hops: int, device: torch.device) -> dict[str, Attention]:
    """Name -> attention on phi(q), phi(k), value, hop weights."""
    table: dict[str, Attention] = {}
    for name, backend in backends.BACKENDS.items():
        if not backend.refusal(device, torch.float32):
            table[name] = lambda q, k, v, w, name=name: backends.run(  # type: ignore[misc]
                q, k, v, w, graph, hops, EPS, name
            )
    table["library products"] = library_attention(graph, hops, torch.float32)
    table["edge-wise"] = lambda q, k, v, w: edgewise_attention(q, k, v, graph, hops, w, EPS)
    return table


def outcome(attend: Attention, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    """The output and the gradients of all inputs."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def measure(name: str, device: torch.device, rounds: int) -> dict[str, object]:
    """Milliseconds and error of every version on one graph."""
    config, data = sta.recipe(name), sta.datasets.load(name)
    graph = sta.Graph(data.edge_index, data.num_nodes).to(device)
    heads, classes = config.heads, int(data.y.max()) + 1
    torch.manual_seed(0)
    shapes = [(data.num_nodes, heads, config.hidden_channels // heads)] * 2
    query, key = (torch.rand(shape, dtype=torch.float64, device=device) for shape in shapes)
    value = torch.randn(data.num_nodes, heads, classes, dtype=torch.float64, device=device)
    weights = torch.randn(config.hops + 1, heads, dtype=torch.float64, device=device)
    exact_inputs, grad = [query, key, value, weights], torch.randn_like(value)
    inputs = [tensor.float() for tensor in exact_inputs]
    exact = outcome(
        lambda *tensors: backends.run(*tensors, graph, config.hops, EPS, "torch"),
        [tensor.double() for tensor in inputs],
        grad.float().double(),
    )

    table, errors = versions(graph, config.hops, device), {}
    for version, attend in table.items():
        got = outcome(attend, inputs, grad.float())
        errors[version] = max(
            float((a.double() - b).norm() / b.norm()) for a, b in zip(got, exact, strict=True)
        )
        if not errors[version] < TOLERANCE:
            raise SystemExit(f"{version} is wrong on {name}: relative error {errors[version]:.1e}")
    times: dict[str, list[float]] = {version: [] for version in table}
    for number in range(rounds + 1):
        for version, attend in table.items():
            taken = seconds(lambda attend=attend: outcome(attend, inputs, grad.float()), device)
            if number:  # the first warms up
                times[version].append(1e3 * taken)
    return {"milliseconds": times, "relative_error": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="default: results/attention-DEVICE.json")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    results = {name: measure(name, device, arguments.rounds) for name in arguments.graphs}

    medians = {
        name: {v: statistics.median(t) for v, t in result["milliseconds"].items()}  # type: ignore[attr-defined]
        for name, result in results.items()
    }
    ours = backends.choose("auto", device, torch.float32)
    print(f"operator, forward and backward, milliseconds on {device.type} (ours: {ours})")
    columns = list(next(iter(medians.values())))
    print(f"{'graph':<12}" + "".join(f"{column:>18}" for column in columns))
    for name, row in medians.items():
        print(f"{name:<12}" + "".join(f"{row[column]:>18.1f}" for column in columns))
    ratios = {}
    for column in columns:
        logs = [math.log(row[column] / row[ours]) for row in medians.values()]
        ratios[column] = math.exp(statistics.mean(logs))
    print(f"{'x ours':<12}" + "".join(f"{ratios[column]:>18.2f}" for column in columns))
    out = arguments.out or Path(f"results/attention-{device.type}.json")
    summary = {"ours": ours, "geometric_mean_ratio": ratios, "median": medians}
    write_json(out, {**summary, "graphs": results, "environment": environment(device)})
    print(f"written to {out}")


if __name__ == "__main__":
    main()
