"""Label propagation: what is shown spreads along edges, and columns are not looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse

from .aims import Shown
from .neighbours import Neighbours

ALPHAS = (0.5, 0.8, 0.9, 0.98)
"""How much comes from neighbours in a step; the rest is what is shown of a node itself."""
STEPS = 50


def propagate(
    graph: Neighbours, shown: Shown, kind: str, score: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Outputs [N, C] with the best validation score over `ALPHAS`; larger is better."""
    root = scipy.sparse.diags(1 / np.sqrt(np.where(graph.degrees > 0, graph.degrees, 1)))
    steps = (root @ graph.links @ root).astype(np.float32).tocsr()
    candidates = (_spread(steps, shown, alpha, kind) for alpha in ALPHAS)
    return max(candidates, key=score)


def _spread(steps: scipy.sparse.csr_matrix, shown: Shown, alpha: float, kind: str) -> np.ndarray:
    """Values and weights spread alike, so that their quotient is a mean: [N, C]."""
    start = np.concatenate([shown.values, shown.weight], 1)
    state = start
    for _ in range(STEPS):
        state = alpha * (steps @ state) + (1 - alpha) * start
    columns = shown.values.shape[1]
    little = 1e-12  # whoever is reached by nothing gets what is usual
    share = (state[:, :columns] + little * shown.prior) / (state[:, columns:] + little)
    if kind == "number":
        return share
    share = np.clip(share.astype(np.float64), 1e-6, 1 - 1e-6)
    return np.log(share) if kind == "class" else np.log(share / (1 - share))
