"""A run that was never trained: a model with fresh weights on a graph, without any folder."""

from pathlib import Path

import torch
from torch import Tensor

from subtree_attention import STAGNN, Config, Dataset, Graph, SavedRun
from subtree_attention.datasets import Split
from subtree_attention.tasks import Problem


def made_run(
    model: STAGNN, dataset: Dataset, train: Tensor | None = None, temperature: float = 1.0
) -> SavedRun:
    """All that is asked of a run.

    Args:
        model: of whatever weights.
        dataset: its graph.
        train: mask [N] of the training nodes; the others are in no part. By default all are.
        temperature: of its probabilities.
    """
    run = SavedRun(Path("nowhere"), torch.device("cpu"))
    none = torch.zeros(dataset.num_nodes, dtype=torch.bool)
    run.config, run.found = Config.of(dataset.name), {"temperature": temperature}
    run.model, run.dataset = model.eval(), dataset
    split = Split(~none if train is None else train, none, none)
    run.problem = Problem(dataset, dataset.y, split, {})
    run.graph = Graph.from_data(dataset, "rw")
    with torch.no_grad():
        run.logits = model(dataset.features, run.graph).double().numpy()
    return run
