"""Small graphs of which it is known what can be learnt."""

import numpy as np
import scipy.sparse
import torch

from subtree_attention.config import NodeClassification
from subtree_attention.datasets import Dataset, Split
from subtree_attention.datasets.features import from_scipy
from subtree_attention.tasks import Problem, of


def circles(nodes: int = 300, classes: int = 2, columns: int = 6, sparse: bool = False, seed=0):
    """Nodes of some classes, linked mostly to their like; columns say a little of the class."""
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=nodes)
    source = random.integers(nodes, size=8 * nodes)
    target = random.integers(nodes, size=8 * nodes)
    kept = (y[source] == y[target]) | (random.random(8 * nodes) < 0.2)
    source, target = source[kept][: 3 * nodes], target[kept][: 3 * nodes]
    ends = np.unique(np.stack([[*source, *target], [*target, *source]]), axis=1)
    x = random.normal(size=(nodes, columns)).astype(np.float32)
    x[:, 0] += y
    if sparse:
        matrix = scipy.sparse.random(nodes, columns, 0.02, format="csr", rng=random)
        matrix.data[:] = 1
        x = from_scipy(matrix)
    else:
        x = torch.from_numpy(x)
    return Dataset(x, torch.from_numpy(ends), torch.from_numpy(y))


def problem(data: Dataset, settings=None, seed: int = 0):
    """A task and its problem on a random split of 60, 20 and 20 %."""
    task = of(settings or NodeClassification())
    order = np.random.default_rng(seed).permutation(data.num_units)
    parts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    masks = [torch.zeros(len(order), dtype=torch.bool) for _ in parts]
    for mask, part in zip(masks, parts, strict=True):
        mask[part] = True
    return task, Problem(data, task.target(data), Split(*masks), task.inputs(data))
