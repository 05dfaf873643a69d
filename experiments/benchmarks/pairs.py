"""STAGNN by our operator and edge by edge, epoch by epoch from the same start, on the CPU.

    python -m experiments.benchmarks.pairs cora --epochs 200 --out results/pairs-cora.json

In float64 losses agree to all digits that count and scores to the last one, so the formulations are
the same model. In float32 they agree until roundings have grown; from then on the two runs are two
samples of the same thing.
"""

import torch

from experiments.benchmarks.script import leave, parser
from experiments.reproduce.experiments import EDGEWISE, PaperJob
from experiments.reproduce.records import OURS
from subtree_attention import datasets
from subtree_attention.nn import as_features
from subtree_attention.train.recipes import recipe
from subtree_attention.train.run import Material


def epochs_of(model: str, graph: str, seed: int, epochs: int, dtype: torch.dtype) -> torch.Tensor:
    """Loss and scores on training, validation and test nodes: [epochs, 4]."""
    config = recipe(graph)
    data = datasets.load(graph).encoded(config.data.encoding)
    material = Material(data, config, torch.device("cpu"))
    material.x = as_features(data.features.to(dtype))
    job = PaperJob("table1", data.name, model, "", seed, config)
    trainer = material.trainer(job.build(material).to(dtype), material.problem(seed), False)
    rows: list[list[float]] = []
    for epoch in range(epochs):
        trainer.epoch()
        rows += trainer.read(since=epoch)
    return torch.tensor(rows, dtype=torch.float64)


def compared(graph: str, seed: int, epochs: int, dtype: torch.dtype) -> dict[str, object]:
    """How far the losses are apart, and from which epoch on a score is not the same."""
    ours, edgewise = (epochs_of(m, graph, seed, epochs, dtype) for m in (OURS, EDGEWISE))
    apart = (ours[:, 0] - edgewise[:, 0]).abs() / edgewise[:, 0].abs()
    other = (ours[:, 1:] != edgewise[:, 1:]).any(1).nonzero().flatten()
    return {
        "largest_relative_difference_of_losses": float(apart.max()),
        "first_epoch_with_another_score": int(other[0]) + 1 if other.numel() else None,
        "losses": {OURS: ours[:, 0].tolist(), EDGEWISE: edgewise[:, 0].tolist()},
    }


def main() -> None:
    arguments = parser(__doc__, "graph", epochs=100, seed=0).parse_args()
    chosen = {name: getattr(arguments, name) for name in ("graph", "seed", "epochs")}
    result: dict[str, object] = {**chosen}
    for dtype in (torch.float64, torch.float32):
        name = str(dtype).removeprefix("torch.")
        result[name] = found = compared(**chosen, dtype=dtype)
        apart = found["largest_relative_difference_of_losses"]
        first = found["first_epoch_with_another_score"] or "none"
        print(f"{name}: losses differ by at most {apart:.1e}, first other score at epoch: {first}")
    leave(arguments.out, result)


if __name__ == "__main__":
    main()
