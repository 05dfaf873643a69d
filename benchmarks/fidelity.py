"""How faithful explanations are on Cora: STA's exact parts, GNNExplainer, near nodes, chance.

    python benchmarks/fidelity.py --out results/fidelity.json

Each method ranks the nodes around a test node; the first k are its explanation. As in PyG's
`fidelity`, a node is taken away by setting its features to 0, which is also what GNNExplainer
learns with. That is no home game for STA's parts: a node without features still has keys and
values (their biases) and still draws attention, whereas the parts are exact for the attention as it
is. The root keeps its own features all along: the question is which other nodes matter.

- without: the k nodes lose their features. The more predictions change, the better (fidelity+).
- only: all other nodes lose theirs. The fewer predictions change, the better (fidelity-).

Beside the share of predictions that change stands the mean fall of the predicted class's
probability. GNNExplainer is PyG's, with node masks.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, GNNExplainer
from torch_geometric.utils import k_hop_subgraph

from subtree_attention import STAGNN, STAExplainer, fit, load, load_data, recipe
from subtree_attention.train.folder import environment, write_json

SIZES = (1, 5, 10, 20, 50)
LEARNING_RATES = (0.01, 0.1)  # of GNNExplainer: PyG's default, and one that moves its mask further
MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
Ranking = Callable[[int], Tensor]
"""A root -> [N], the larger the more important."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=30, help="test nodes that are explained")
    parser.add_argument("--epochs", type=int, default=100, help="of GNNExplainer, for each node")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    config = recipe("cora", runs=1)
    with tempfile.TemporaryDirectory() as folder:
        score = fit(config, Path(folder) / "run", device="cpu").mean
        model, data = load(Path(folder) / "run"), load_data(Path(folder) / "run")
    data.x = data.x.to_dense()  # GNNExplainer multiplies it with its mask
    model.conv.cached = True  # the same graph in every call

    torch.manual_seed(0)
    test = data.test_mask.nonzero().flatten()
    roots = test[torch.randperm(len(test))[: arguments.nodes]].tolist()
    methods = {"STAExplainer": by_algorithm(model, data, STAExplainer())}
    for lr in LEARNING_RATES:
        algorithm = GNNExplainer(epochs=arguments.epochs, lr=lr)
        methods[f"GNNExplainer, lr {lr}"] = by_algorithm(model, data, algorithm)
    methods |= {
        "nearest": lambda root: nearness(data, root, config.hops),
        "random": lambda root: torch.rand(data.num_nodes),
    }
    results = {name: measure(model, data, roots, rank) for name, rank in methods.items()}
    print_table(results)
    write_json(
        arguments.out,
        {
            "graph": "cora",
            "test": score,
            "nodes": roots,
            "sizes": SIZES,
            "gnn_explainer_epochs": arguments.epochs,
            "methods": results,
            "config": config.to_dict(),
            "environment": environment(torch.device("cpu")),
        },
    )
    print(f"written to {arguments.out}")


def by_algorithm(model: STAGNN, data: Data, algorithm: ExplainerAlgorithm) -> Ranking:
    """Node masks of a PyG algorithm."""
    explainer = Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        node_mask_type="object",
        model_config=MODEL,
    )
    return lambda root: explainer(data.x, data.edge_index, index=root).node_mask[:, 0]


def nearness(data: Data, root: int, hops: int) -> Tensor:
    """The nearest nodes first, those of a level in random order."""
    near = torch.rand(data.num_nodes)
    for hop in range(1, hops + 1):
        near[k_hop_subgraph(root, hop, data.edge_index, num_nodes=data.num_nodes)[0]] += 1
    return near


@torch.no_grad()
def probabilities(model: STAGNN, data: Data, root: int, present: Tensor) -> Tensor:
    """[C] at the root when only some nodes have features, [N]."""
    return model(data.x * present[:, None], data.edge_index)[root].softmax(-1)


def measure(model: STAGNN, data: Data, roots: list[int], rank: Ranking) -> dict:
    """The mean over the roots, for each size, and the seconds that a ranking takes."""
    changed = torch.zeros(2, len(SIZES))  # without, only
    fallen, seconds = torch.zeros(2, len(SIZES)), 0.0
    for root in roots:
        started = time.perf_counter()
        importance = rank(root)
        seconds += time.perf_counter() - started
        importance[root] = -torch.inf
        order = importance.argsort(descending=True)
        before = probabilities(model, data, root, torch.ones(data.num_nodes))
        predicted = int(before.argmax())
        for place, size in enumerate(SIZES):
            chosen = torch.zeros(data.num_nodes)
            chosen[order[:size]] = 1
            chosen[root] = 1
            without = 1 - chosen
            without[root] = 1
            for row, present in enumerate((without, chosen)):
                after = probabilities(model, data, root, present)
                changed[row, place] += int(after.argmax()) != predicted
                fallen[row, place] += float(before[predicted] - after[predicted])
    return {
        "without": {"changed": mean(changed[0], roots), "fallen": mean(fallen[0], roots)},
        "only": {"changed": mean(changed[1], roots), "fallen": mean(fallen[1], roots)},
        "seconds": seconds / len(roots),
    }


def mean(sums: Tensor, roots: list[int]) -> list[float]:
    return [round(value / len(roots), 6) for value in sums.tolist()]


def print_table(results: dict) -> None:
    for part, better in (("without", "more is better"), ("only", "less is better")):
        print(f"{part} the k nodes: predictions changed, and fall of probability ({better})")
        print(f"  {'k':<22}" + "".join(f"{size:>14}" for size in SIZES))
        for name, result in results.items():
            pairs = zip(result[part]["changed"], result[part]["fallen"], strict=True)
            cells = "".join(f"{100 * share:>7.0f} % {fall:>5.2f}" for share, fall in pairs)
            print(f"  {name:<22}{cells}")
    print("seconds for an explanation")
    for name, result in results.items():
        print(f"  {name:<22}{result['seconds']:.4f}")


if __name__ == "__main__":
    main()
