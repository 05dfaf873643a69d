"""What a client is told, as JSON can hold it: predictions, and the model that is served."""

from __future__ import annotations

import math
from typing import Any

from ..runs.answering import Answering
from ..runs.predicted import Predicted
from ..tasks.answers import OfNames
from . import asked


def predictions(said: Predicted) -> list[dict[str, Any]]:
    """An object for each node: its id, what is predicted, what is known, and how sure it is."""
    numbers = {name: column.tolist() for name, column in said.answers.columns.items()}
    kind = "probabilities" if isinstance(said.answers, OfNames) else "interval"
    more = said.answers.more
    rows = zip(said.ids, said.predicted, said.known, strict=True)
    return [
        {
            "id": id,
            "prediction": predicted,
            "known": known,
            **{name: cells[place] for name, (_, cells) in more.items()},
            kind: {name: column[place] for name, column in numbers.items()},
        }
        for place, (id, predicted, known) in enumerate(rows)
    ]


def model(answering: Answering) -> dict[str, Any]:
    """What is served: what it was trained for, how well, and which columns new nodes have."""
    run, dataset = answering.run, answering.dataset
    schema, result = dataset.schema, run.result
    columns = [] if schema is None else schema.columns
    ends = None if schema is None else schema.ends
    return {
        "graph": run.config.data.graph,
        "model": run.config.model.name,
        "task": run.config.task.word,
        "predicts": run.task.kind,
        "classes": list(answering.names),
        "hops": answering.hops,
        "nodes": dataset.num_nodes,
        "edges": dataset.num_edges,
        "scores": {
            "metric": run.task.metric.name,
            "validation": _number(result.val),
            "test": _number(result.test),
        },
        "new_nodes": {
            "taken": not answering.joins,
            "why_not": answering.joins or None,
            "id": None if schema is None else schema.id,
            "columns": [{"name": column.name, "kind": column.kind} for column in columns],
            "edge": None if ends is None else ends._asdict(),
            "directed": None if schema is None else schema.directed,
        },
        "limits": {
            "bytes": asked.MOST_BYTES,
            "ids": asked.MOST_IDS,
            "nodes": asked.MOST_NODES,
            "edges": asked.MOST_EDGES,
        },
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
