"""What was measured of Theorem 1, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from experiments.reproduce.theorem.walks import LOOKS_PER_DOUBLING
from subtree_attention.runs.environment import environment

COLUMNS = (
    "graph", "nodes", "lambda_2", "lambda_N", "gap", "epsilon = eta",
    "K0", "k: sum", "K1", "k: relative", "k: STA", "K0 / k", "K1 / k: relative", "K1 / k: STA",
)  # fmt: skip
"""What the rows of `table` hold."""


def report(records: list[dict[str, Any]]) -> dict[str, Any]:
    """What the JSON file holds; its environment is that of the last measurement."""
    return {
        "experiment": "theorem",
        "note": "Columns of A^k are those of a sample of start nodes, listed in each record; "
        "attention is that of random queries, keys and values, which average out: the columns are "
        "the harder case. A measured k is the first that was "
        f"looked at, {LOOKS_PER_DOUBLING} times while k doubles.",
        "records": records,
        "table": {"columns": list(COLUMNS), "rows": table(records)},
        "sentences": [sentence(record) for record in records],
        "environment": environment(torch.device("cpu")),
    }


def table(records: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Rows of `COLUMNS`: two bounds and three measured k for each graph and tolerance."""
    return [_row(record, tolerance) for record in records for tolerance in record["epsilon"]]


def _row(record: dict[str, Any], tolerance: str) -> list[str]:
    first, second = record["epsilon"][tolerance], record["eta"][tolerance]
    total, relative = first["measured_sum"], second["measured_relative"]
    K0, K1, attention = first["bound"], second["bound"], second["measured_attention"]
    eigenvalues = [f"{record[name]:.4f}" for name in ("lambda_2", "lambda_N")]
    about = [record["graph"], f"{record['nodes']:,}", *eigenvalues, f"{record['gap']:.2g}"]
    ratios = [_ratio(K0, total), _ratio(K1, relative), _ratio(K1, attention)]
    return [*about, tolerance, *map(_hops, (K0, total, K1, relative, attention)), *ratios]


def sentence(record: dict[str, Any]) -> str:
    """Where the claim holds on a graph, where its bound is loose, and where it cannot hold."""
    return f"{record['graph']}: {_where(record)}. {_verdict(record)}"


def holds(record: dict[str, Any]) -> bool | None:
    """Whether every distance got within its tolerance by the paper's K; None if never seen.

    None stands for a graph that is bipartite or whose K lies beyond the last hop walked.
    """
    measured = {
        "epsilon": ("measured_sum", "measured_entry"),
        "eta": ("measured_relative", "measured_attention"),
    }
    pairs = [
        (bounds["bound"], bounds[name])
        for part, names in measured.items()
        for bounds in record[part].values()
        for name in names
    ]
    late = (record["cap"] >= K if k is None else k > K for K, k in pairs if K is not None)
    if any(late):
        return False
    return None if any(None in pair for pair in pairs) else True


def _where(record: dict[str, Any]) -> str:
    """What was measured: the whole graph or its largest component."""
    if record["components"] == 1:
        return f"connected, {record['nodes']:,} nodes"
    return (
        f"{record['components']:,} components, between which no walk mixes; in the largest, "
        f"{record['nodes']:,} nodes ({record['share_of_nodes']:.0%})"
    )


def _verdict(record: dict[str, Any]) -> str:
    if record["bipartite"]:
        return (
            "It is bipartite (lambda_N = -1): walks of even and of odd length end on different "
            "sides, A^k does not converge, and the claim cannot hold."
        )
    gap = f"gap {record['gap']:.2g}{', badly conditioned' * record['badly_conditioned']}"
    tolerance, first = list(record["epsilon"].items())[-1]
    second = record["eta"][tolerance]
    outcome = {
        True: "The claim holds",
        False: "The claim does NOT hold",
        None: f"Not seen within {record['cap']:,} hops",
    }[holds(record)]
    walk, attention = second["measured_relative"], second["measured_attention"]
    parts = [
        f"the sampled columns of A^k are within epsilon of pi, summed over nodes, from hop "
        f"{_hops(first['measured_sum'])} on, where K0 = {_hops(first['bound'])}"
        f"{_looseness(first['bound'], first['measured_sum'])}",
        f"their entries are within eta pi from hop {_hops(walk)} on and STA_k of random values "
        f"keeps the ratio from hop {_hops(attention)} on, where K1 = {_hops(second['bound'])}"
        f"{_looseness(second['bound'], walk, attention)}",
    ]
    return f"{outcome} ({gap}): at {tolerance}, {'; '.join(parts)}.{_shallow(record)}"


def _shallow(record: dict[str, Any], hops: int = 10) -> str:
    """How near global attention is at the largest K that the paper's recipes train with."""
    found = record["curves"]["attention"]
    if hops not in found["hops"]:
        return ""
    at = found["hops"].index(hops)
    return (
        f" At {hops} hops eta is still {found['largest'][at]:.2f} at the farthest node, "
        f"{found['median'][at]:.3f} at the median."
    )


def _looseness(bound: int | None, *measured: int | None) -> str:
    """(2.3 times as many), or with two of them (2.3 and 7.2 times as many)."""
    if not bound or not all(measured):
        return ""
    return f" ({' and '.join(_ratio(bound, k) for k in measured)} times as many)"


def _hops(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _ratio(bound: int | None, measured: int | None) -> str:
    return f"{bound / measured:.1f}" if bound and measured else "-"
