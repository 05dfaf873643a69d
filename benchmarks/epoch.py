"""Time and memory of an epoch against the edge-wise formulation, in one run.

    python benchmarks/epoch.py cora                  # table, and results/epoch-cora-cpu.json
    python benchmarks/epoch.py photo --device cuda

An epoch is one training step and one evaluation forward over the whole graph, with the paper's
hyper-parameters. The two are timed in turns, because machines are noisy; nothing is reported
unless both compute the same function.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from edgewise import EdgewiseSTAGNN
from timing import seconds
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.train.folder import environment, write_json
from subtree_attention.train.loop import choose_device, prepare
from subtree_attention.train.metrics import LOSSES


def make_epoch(
    model: sta.STAGNN, data: Data, graph: sta.Graph, config: sta.Config
) -> Callable[[], None]:
    """A function that runs one epoch."""
    optimizer = torch.optim.Adam(model.parameter_groups(config.weight_decay), lr=config.lr)

    def epoch() -> None:
        model.train()
        optimizer.zero_grad()
        logits = model(data.x, graph)
        LOSSES[config.loss](logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(data.x, graph)

    return epoch


def relative_error(ours: sta.STAGNN, other: sta.STAGNN, data: Data, graph: sta.Graph) -> float:
    """|ours - other| / |other| of the logits, without dropout."""
    ours.eval(), other.eval()
    with torch.no_grad():
        a, b = ours(data.x, graph), other(data.x, graph)
    return float((a - b).norm() / b.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", nargs="?", default="cora")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="default: results/epoch-GRAPH-DEVICE.json")
    arguments = parser.parse_args()

    device, config = choose_device(arguments.device), sta.recipe(arguments.graph)
    data = prepare(config).to(str(device))
    graph = sta.Graph(data.edge_index, data.num_nodes, transition=config.transition)
    sizes = {"in_channels": data.x.size(1), "out_channels": int(data.y.max()) + 1}
    torch.manual_seed(0)
    ours = sta.STAGNN(**sizes, **config.model_settings()).to(device)
    edgewise = EdgewiseSTAGNN(**sizes, **config.model_settings()).to(device)
    edgewise.load_state_dict(ours.state_dict())
    error = relative_error(ours, edgewise, data, graph)
    if not error < 1e-4:
        raise SystemExit(f"not the same function: relative difference {error:.2e}")

    epochs = {
        "subtree_attention": make_epoch(ours, data, graph, config),
        "edge-wise": make_epoch(edgewise, data, graph, config),
    }
    times: dict[str, list[float]] = {name: [] for name in epochs}
    for number in range(arguments.rounds + 2):
        for name, epoch in epochs.items():
            taken = seconds(epoch, device)
            if number >= 2:  # the first two warm up
                times[name].append(1e3 * taken)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["edge-wise"] / medians["subtree_attention"]
    print(f"{config.graph} ({config.hops} hops, {config.heads} heads) on {device.type}:")
    for name, median in medians.items():
        print(f"  {name:<20} {median:8.1f} ms an epoch")
    print(f"  {ratio:.1f} times faster; outputs differ by {error:.1e}")
    out = arguments.out or Path(f"results/epoch-{config.graph}-{device.type}.json")
    write_json(
        out,
        {
            "config": config.to_dict(),
            "milliseconds": times,
            "median": medians,
            "ratio": ratio,
            "relative_difference": error,
            "environment": environment(device),
        },
    )
    print(f"  written to {out}")


if __name__ == "__main__":
    main()
