"""Made-up records: one at a time for numbers by hand, or enough of them for every figure."""

import math
import random
from typing import Any

from experiments.reproduce.records import Record

PLAIN: dict[str, Any] = {
    "experiment": "table1",
    "graph": "cora",
    "model": "STAGNN",
    "variant": "",
    "at": None,
    "kind": None,
    "seed": 0,
    "split": "A",
    "metric": "accuracy",
    "train": 0.9,
    "val": 0.8,
    "test": 0.8,
    "best_epoch": 10,
    "epochs": 210,
    "seconds": 1.5,
    "device": "some device",
    "commit": "0123456789abcdef",
    "peak_bytes": None,
    "hop_weights": None,
    "gates": None,
    "config": {},
    "settings": {},
}
NO_SCORES: dict[str, Any] = dict.fromkeys(("train", "val", "test", "best_epoch"))
"""Of a run that diverged at once."""
LEVELS = {"cora": 0.88, "citeseer": 0.77, "deezer": 0.735, "actor": 0.38}


def record(**changes: Any) -> Record:
    return Record.from_json({**PLAIN, **changes})


def runs(scores: list[float], **changes: Any) -> list[Record]:
    """A run for each score, with seeds 0, 1, ..."""
    return [record(seed=seed, test=score, **changes) for seed, score in enumerate(scores)]


def everything() -> list[Record]:
    """Runs of every experiment that look like real ones; some are missing on purpose."""
    dice = random.Random(0)

    def some(level: float, count: int, **changes: Any) -> list[Record]:
        metric = "roc_auc" if changes["graph"] == "deezer" else "accuracy"
        scores = [level + dice.gauss(0, 0.008) for _ in range(count)]
        return runs(scores, metric=metric, **changes)

    records = []
    for graph, level in LEVELS.items():
        for model, loss in {"STAGNN": 0, "GCN": 0.012, "GAT": 0.008}.items():
            records += some(level - loss, 5, graph=graph, model=model)
        for variant, loss in {"gpr": 0, "sum": 0.01, "concat": 0.02, "attention": 0.015}.items():
            if (graph, variant) != ("actor", "attention"):
                records += some(level - loss, 5, experiment="hops", graph=graph, variant=variant)
    records += _table_b(some)
    records += _deep(some, dice)
    records += _robustness(some)
    records += _gated(dice)
    return records


def _table_b(some: Any) -> list[Record]:
    records = []
    for graph, level in {"pubmed": 0.905, "computer": 0.917}.items():
        where = {"graph": graph, "split": "B"}
        records += some(level, 10, **where)
        records += some(level - 0.03, 3, model="GCN", **where)
        for variant in ("GA only", "1 hop + GA", "3 hops + GA"):
            records += some(level, 10, experiment="table2", variant=variant, **where)
        for variant in ("gate plain", "gate none"):
            records += some(level, 10, experiment="table3", variant=variant, **where)
    return records


def _deep(some: Any, dice: random.Random) -> list[Record]:
    losses = {"STAGNN": 0.004, "GCN": 0.11, "GAT": 0.1, "APPNP": 0.02, "GPRGNN": 0.03}
    records = []
    for graph in ("cora", "actor"):
        for model, loss in losses.items():
            for K in (3, 5, 10, 25, 50, 75, 100):
                level = LEVELS[graph] - loss * math.log(K / 3) / 2
                where = {"experiment": "deep", "graph": graph, "model": model, "at": K}
                found = some(
                    level, 5, variant=f"K={K}", peak_bytes=int(4e6 * (5 + K * 20 * loss)), **where
                )
                if model == "STAGNN":
                    found = [_weighted(run, K, dice) for run in found]
                records += found
    return records


def _weighted(run: Record, hops: int, dice: random.Random) -> Record:
    fall = 0.5 if run.graph == "cora" else 0.05
    shift = dice.gauss(0, 0.03)
    low = 1 - 0.06 * math.log(hops) * (run.graph == "cora") + shift
    weights = [low + fall * math.exp(-k / 8) for k in range(hops + 1)]
    return Record(**{**vars(run), "hop_weights": weights})


def _robustness(some: Any) -> list[Record]:
    records = []
    for graph in ("cora", "actor"):
        for kind, slope in {
            "edges added": 0.3,
            "edges removed": 0.15,
            "noisy features": 0.2,
        }.items():
            for model, more in {"STAGNN": 0, "GCN": 0.1, "GAT": 0.05}.items():
                for at in (0.0, 0.1, 0.2, 0.4):
                    where = {"experiment": "robustness", "graph": graph, "model": model, "at": at}
                    level = LEVELS[graph] * (1 - (slope + more) * at)
                    records += some(level, 3, kind=kind, variant=f"{kind} {at:g}", **where)
    return records


def _gated(dice: random.Random) -> list[Record]:
    records = []
    for graph, (K, H) in {"cora": (10, 4), "actor": (3, 4), "photo": (3, 8), "cs": (3, 6)}.items():
        gates = [[1.0] * H]
        for _ in range(K):
            powers = [math.exp(dice.gauss(0, 0.5)) for _ in range(H)]
            gates.append([power / sum(powers) for power in powers])
        split = "A" if graph in LEVELS else "B"
        level = LEVELS.get(graph, 0.95)
        records.append(record(graph=graph, split=split, test=level, gates=gates))
    return records
