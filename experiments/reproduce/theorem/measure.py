"""Theorem 1 on one graph: its bounds, and the hops from which on the distances are within them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from experiments.reproduce.theorem.spectrum import (
    extreme_eigenvalues,
    largest_component,
    spectral_gap,
    stationary,
    two_colourable,
)
from experiments.reproduce.theorem.walks import (
    KEY_CHANNELS,
    VALUE_CHANNELS,
    attention_curve,
    settled,
    start_nodes,
    walk_curve,
)
from subtree_attention import datasets

TOLERANCES = (0.1, 0.01)
"""What epsilon and eta are set to."""

CAP = 2**14
"""Most hops walked."""

BADLY_CONDITIONED = 2e-3
"""A gap below this is called bad: from 2,200 nodes on, K1 at eta = 0.1 then exceeds 10,000 hops."""

STARTS = 8
"""Start nodes j whose columns of A^k are walked."""

MARGIN = 5
"""The walk ends when its distance is so many times below the smallest tolerance."""


def measure(graph: str, **options: Any) -> dict[str, Any]:
    """Theorem 1 on a graph of `datasets.names()`; for the rest see `measure_edges`."""
    data, title = datasets.load(graph), datasets.info(graph).title
    return measure_edges(data.edge_index, data.num_nodes, name=title, **options)


def measure_edges(
    edge_index: Tensor,
    num_nodes: int,
    name: str = "graph",
    tolerances: Iterable[float] = TOLERANCES,
    cap: int = CAP,
    starts: int = STARTS,
    seed: int = 0,
) -> dict[str, Any]:
    """Theorem 1 on the largest component of any undirected graph.

    Args:
        edge_index: [2, E], both directions of every edge; self-loops are allowed.
        num_nodes: N.
        name: what the graph is called in tables.
        tolerances: values of epsilon and eta, between 0 and 1.
        cap: most hops walked.
        starts: how many columns of A^k are walked; those that look worst are among them.
        seed: of the remaining start nodes, and of queries, keys and values.

    Returns:
        A record that JSON can hold. `nodes`, `edges` (directed) and `self_loops` are those of the
        component, `epsilon` and `eta` hold by tolerance the `bound` and the first hop from which
        on each distance is within it (None: not up to the last hop walked), and `curves` the
        distances themselves by hop:

        - `walk`: over the sampled start nodes j and all i, the largest `sum` over i of
          |A^k_ij - pi_i|, the largest `entry` |A^k_ij - pi_i|, and the largest `relative` one,
          |A^k_ij - pi_i| / pi_i.
        - `attention`: over all nodes and channels, the smallest eta that the ratio STA_k / SA
          allows, |STA_k - SA| / (STA_k + SA): its `largest` and its `median`.
    """
    began = time.perf_counter()
    tolerances = sorted(tolerances, reverse=True)
    component, components = largest_component(edge_index, num_nodes)
    bipartite = two_colourable(component)
    spectrum = extreme_eigenvalues(component)
    gap = spectral_gap(spectrum, bipartite)
    sample = start_nodes(component, spectrum, starts, seed)
    floor = tolerances[-1] / MARGIN
    with ThreadPoolExecutor(2) as pool:  # scipy's products let go of the interpreter
        walks = pool.submit(walk_curve, component, sorted(sample), cap, floor)
        attentions = pool.submit(attention_curve, component, cap, floor, seed)
    walk, attention = walks.result(), attentions.result()
    source, target = component.edge_index
    n, smallest_pi = component.num_nodes, float(stationary(component).min())
    return {
        "graph": name,
        "nodes": n,
        "edges": component.num_edges,
        "self_loops": int((source == target).sum()),
        "components": components,
        "share_of_nodes": n / num_nodes,
        "lambda_2": spectrum.lambda_2,
        "lambda_N": spectrum.lambda_N,
        "residual": spectrum.residual,
        "gap": gap,
        "bipartite": bipartite,
        "badly_conditioned": gap < BADLY_CONDITIONED,
        "badly_conditioned_below": BADLY_CONDITIONED,
        "smallest_pi": smallest_pi,
        "epsilon": {
            str(epsilon): {
                "bound": first_bound(epsilon, n, gap),
                "measured_sum": settled(walk, "sum", epsilon),
                "measured_entry": settled(walk, "entry", epsilon),
            }
            for epsilon in tolerances
        },
        "eta": {
            str(eta): {
                "bound": second_bound(eta, n, gap),
                "sharper_bound": sharper_bound(eta, smallest_pi, gap),
                "measured_relative": settled(walk, "relative", eta),
                "measured_attention": settled(attention, "largest", eta),
                "measured_median_attention": settled(attention, "median", eta),
            }
            for eta in tolerances
        },
        "start_nodes": sample,
        "cap": cap,
        "seed": seed,
        "channels": {"key": KEY_CHANNELS, "value": VALUE_CHANNELS},
        "curves": {"walk": walk, "attention": attention},
        "seconds": round(time.perf_counter() - began, 2),
    }


def first_bound(epsilon: float, num_nodes: int, gap: float) -> int | None:
    """K0 = log(N / epsilon) / gap, rounded up; None without a gap."""
    return math.ceil(math.log(num_nodes / epsilon) / gap) if gap > 0 else None


def second_bound(eta: float, num_nodes: int, gap: float) -> int | None:
    """K1 = 2 log(N / eta) / gap, rounded up; None without a gap."""
    return math.ceil(2 * math.log(num_nodes / eta) / gap) if gap > 0 else None


def sharper_bound(eta: float, smallest_pi: float, gap: float) -> int | None:
    """The k with (1 - gap)^k / pi_min <= eta: as K1, without the two roundings up of the paper."""
    if gap <= 0:
        return None
    rate = -math.log1p(-gap) if gap < 1 else math.inf
    return max(1, math.ceil(math.log(1 / (eta * smallest_pi)) / rate))
