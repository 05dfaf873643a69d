"""How faithful explanations are on Cora: STA's exact parts, GNNExplainer, near nodes, chance.

    python -m experiments.benchmarks.fidelity --out results/fidelity.json

Each method ranks the nodes around a test node; the first k are its explanation. As in PyG's
`fidelity`, a node is taken away by setting its features to 0, which is also what GNNExplainer
learns with. That is no home game for STA's parts: a node without features still has keys and
values (their biases) and still draws attention, whereas the parts are exact for the attention as it
is. The root keeps its own features all along: the question is which other nodes matter.

- without: the k nodes lose their features. The more predictions change, the better (fidelity+).
- only: all other nodes lose theirs. The fewer predictions change, the better (fidelity-).

Beside the share of predictions that change stands the mean fall of the predicted class's
probability, and the paired difference of that fall with its standard error over the roots (of one
model on one split). GNNExplainer is PyG's, with node masks.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, GNNExplainer
from torch_geometric.utils import k_hop_subgraph

import subtree_attention as sta
from experiments.benchmarks.script import leave, parser
from subtree_attention import STAGNN, STAExplainer, fit, recipe

SIZES = (1, 5, 10, 20, 50)
LEARNING_RATES = (0.01, 0.1)  # of GNNExplainer: PyG's default, and one that moves its mask further
MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
Ranking = Callable[[int], Tensor]
"""A root -> [N], the larger the more important."""


def main() -> None:
    epochs = (100, "of GNNExplainer, for each node")
    options = parser(__doc__, nodes=(30, "test nodes that are explained"), epochs=epochs)
    arguments = options.parse_args()
    config = recipe("cora", runs=1)
    with tempfile.TemporaryDirectory() as folder:
        score = fit(config, Path(folder) / "run", device="cpu").mean
        run = sta.open(Path(folder) / "run")
        model: Any = run.model
        data = run.dataset.to_pyg(run.split)
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
        "nearest": lambda root: nearness(data, root, config.model.hops),
        "random": lambda root: torch.rand(data.num_nodes),
    }
    results = {name: measure(model, data, roots, rank) for name, rank in methods.items()}
    ours, *others = results
    differences = {name: compare(results[ours], results[name]) for name in others}
    print_table(results)
    print_differences(differences)
    about = {"graph": "cora", "test": score, "nodes": roots, "sizes": SIZES}
    about |= {"gnn_explainer_epochs": arguments.epochs, "config": config.to_dict()}
    leave(arguments.out, {**about, "methods": results, "differences": differences})


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
    """For each size, the share of roots that change and every root's fall; seconds of a ranking."""
    changed = torch.zeros(2, len(SIZES), len(roots))  # without, only
    fallen, seconds = torch.zeros_like(changed), 0.0
    for column, root in enumerate(roots):
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
                changed[row, place, column] = int(after.argmax()) != predicted
                fallen[row, place, column] = float(before[predicted] - after[predicted])
    parts = {
        part: {
            "changed": rounded(changed[row].mean(1)),
            "fallen": rounded(fallen[row].mean(1)),
            "fallen_each": [rounded(falls) for falls in fallen[row]],
        }
        for row, part in enumerate(("without", "only"))
    }
    return {**parts, "seconds": seconds / len(roots)}


def compare(ours: dict, other: dict) -> dict:
    """Ours less the other's fall on the same roots: mean and standard error, for each size."""
    result = {}
    for part in ("without", "only"):
        falls = (torch.tensor(method[part]["fallen_each"]) for method in (ours, other))
        difference = next(falls) - next(falls)
        error = difference.std(1) / difference.size(1) ** 0.5
        result[part] = {"mean": rounded(difference.mean(1)), "standard_error": rounded(error)}
    return result


def rounded(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]


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


def print_differences(differences: dict) -> None:
    for part in ("without", "only"):
        print(f"{part}: fall of STAExplainer less that of the other, and its standard error")
        for name, parts in differences.items():
            pairs = zip(parts[part]["mean"], parts[part]["standard_error"], strict=True)
            print(f"  {name:<22}" + "".join(f"{m:>8.3f} ({e:.3f})" for m, e in pairs))


if __name__ == "__main__":
    main()
