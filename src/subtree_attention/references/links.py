"""References of links: how many neighbours two nodes share, on the links of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse

from .neighbours import Neighbours

if TYPE_CHECKING:
    from ..tasks import Problem

PART = 50_000
"""Pairs that are looked at together."""


def scored(problem: Problem) -> Iterator[tuple[str, str, Callable[[], np.ndarray]]]:
    """Names, words, and what gives logits [P, 2] of the pairs of a problem."""
    graph, pairs = Neighbours.of(problem.dataset), problem.inputs["pairs"].cpu().numpy()
    links = graph.links.astype(bool).astype(np.float32)
    counts = np.asarray(links.sum(1)).ravel()
    weights = {
        "common_neighbours": ("common neighbours", np.ones_like(counts)),
        "adamic_adar": ("Adamic-Adar", 1 / np.log(np.maximum(counts, 2))),
        "resource_allocation": ("resource allocation", 1 / np.maximum(counts, 1)),
    }
    for name, (words, weight) in weights.items():
        yield name, words, partial(_shared, links, pairs, weight)
    products = counts[pairs[0]] * counts[pairs[1]]
    yield "degrees", "product of degrees", lambda: _logits(np.log1p(products))


def _shared(links: scipy.sparse.csr_matrix, pairs: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The sum of weights [N] of the neighbours that the nodes of pairs [2, P] share."""
    weighted = (links @ scipy.sparse.diags(weight.astype(np.float32))).tocsr()
    found = [
        np.asarray(weighted[source].multiply(links[target]).sum(1)).ravel()
        for start in range(0, pairs.shape[1], PART)
        for source, target in [pairs[:, start : start + PART]]
    ]
    return _logits(np.concatenate([*found, np.zeros(0)]))


def _logits(scores: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(scores), scores], 1).astype(np.float64)
