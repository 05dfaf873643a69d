"""A table that a CPU fills in seconds: two models on the embedded graph."""

from collections.abc import Iterator
from typing import Any

import subtree_attention as sta
from experiments.field.studies import Study
from tests.experiments.reproduce.synthetic import record

CONFIG = sta.recipe("digits", encoding=0, epochs=2, runs=2)


def trials(graph: str, model: str) -> Iterator[dict[str, Any]]:
    for width in (2, 3, 4, 5, 6, 7):
        yield {"hidden_channels": width, "lr": 0.01}


SPACES = {"GCN": trials, "MLP": trials}
STUDY = Study("tiny", "Two models", {"digits": CONFIG}, ("GCN", "MLP"), spaces=SPACES)


def records_of(
    study: Study, model: str, scores: list[float], best: int = 0, graph: str = "digits"
) -> list[Any]:
    """Made-up records: all trials, of which one is the best, and its runs with these scores."""
    jobs = study.trials(graph, model)
    of = {"experiment": study.name, "graph": graph, "model": model, "split": "B"}
    found = [
        record(
            **of,
            variant=job.variant,
            seed=0,
            val=0.9 if place == best else 0.5,
            test=scores[0],
            config=job.config.to_dict(),
        )
        for place, job in enumerate(jobs)
    ]
    chosen, config = jobs[best].variant, jobs[best].config.to_dict()
    return found + [
        record(**of, variant=chosen, seed=seed, test=score, config=config)
        for seed, score in enumerate(scores)
        if seed
    ]
