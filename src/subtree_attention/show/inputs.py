"""Which columns made a logit, by their names: of the node itself, and of all that it hears."""

from __future__ import annotations

from typing import Any

import torch

from ..datasets.inputs import Inputs
from ..explanations import Explanation
from ..runs import SavedRun


def columns(
    run: SavedRun,
    explanation: Explanation,
    cls: int,
    rather: int | None = None,
    top: int = 8,
    scale: float = 1.0,
) -> dict[str, Any]:
    """What columns of the table, their words and other features add to a logit, ready for JSON.

    "own" is what those of the node itself add, "all" what those of all nodes do, itself included.
    "named" are the strongest features and "rest" the others; "columns" are the same sums for each
    column of the table. "all" and the "bias" are the logit, less what stands beside the model.
    Where "linear" is false, this is given which units of the hidden layer are active; where "exact"
    is, too, it is an attribution, and the "bias" has what is missing.

    Args:
        run: whose model and graph it is of.
        explanation: of a root.
        cls: the output that is explained.
        rather: a class that it might be rather: all is then of the difference of two logits.
        top: features that are named.
        scale: see `explanation.Output`.
    """
    parts = explanation.columns(cls, rather)
    sums = scale * torch.stack([parts.of(explanation.root), parts.total])  # [2, F]
    shows = sums.size(1) > run.dataset.num_features
    inputs = Inputs(run.dataset, run.dataset.classes if shows else ())
    there = sums.any(0).nonzero().flatten()
    order = sums[:, there].abs().amax(0).argsort(descending=True, stable=True)
    named = there[order[:top]]
    own, whole = (sums.sum(1)).tolist()
    left = sums.sum(1) - sums[:, named].sum(1)

    def told(name: str, pair: torch.Tensor, **more: Any) -> dict[str, Any]:
        return {"name": name, **more, "own": float(pair[0]), "all": float(pair[1])}

    return {
        "exact": explanation.exact,
        "linear": parts.linear,
        "named": [
            told(inputs.called(feature), sums[:, feature], column=inputs.of(feature).name)
            for feature in named.tolist()
        ],
        "rest": told("others", left, features=len(there) - len(named)),
        "columns": [
            told(each.name, sums[:, each.places].sum(1), kind=each.kind) for each in inputs
        ],
        "own": own,
        "all": whole,
        "bias": scale * parts.bias,
    }
