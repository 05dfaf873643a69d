"""Why a graph got its prediction, in words and numbers: which of its nodes count most."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from ..explanations.graphs import explain_graph
from ..runs import SavedRun
from .explanation import brief, output
from .tables import numbers
from .text import counted, percent, plain, signed


def of_run(run: SavedRun, graph: str, cls: str | None = None, top: int = 5) -> dict[str, Any]:
    """All that is shown of a graph of a run, by its name, ready for JSON.

    "adds" is what the output loses if the node is left out of the pooling; the nodes that change it
    most, either way, come first. Nothing adds up: an MLP follows.

    Args:
        run: whose model it is, and whose graphs.
        graph: its id, or its number where graphs have no ids.
        cls: the class to explain; by default the predicted one.
        top: nodes to name.
    """
    data, unit = run.dataset, run.dataset.find_unit(graph)
    about = output(run, unit, None if cls is None else data.find_class(cls))
    model: Any = run.model
    inputs = run.problem.to(run.device).inputs
    x = data.features.to(run.device)
    found = explain_graph(model, x, run.graph, inputs["batch"], unit)
    added = (about.scale * found.added[:, about.index].double()).cpu()
    first = added.abs().argsort(descending=True, stable=True)[:top]
    told = brief(run, unit)
    return {
        "graph": told.pop("node"),
        **told,
        "class": about.name,
        "output": about.scale * float(found.outputs[about.index]) + about.center,
        "nodes": len(added),
        "sources": [
            {"node": data.id(int(found.nodes[place])), "adds": float(added[place])}
            for place in first.tolist()
        ],
        "rest": len(added) - len(first),
    }


def show(told: dict[str, Any]) -> RenderableType:
    """What `of_run` gives, as a table of nodes."""
    label = "not known" if told["label"] is None else plain(told["label"])
    sure = "" if told["probability"] is None else f" ({percent(told['probability'], 1)} %)"
    part = f" ({told['split']})" if told["split"] else ""
    title = (
        f"[bold]graph {plain(told['graph'])}[/bold]: predicted {plain(told['predicted'])}{sure}, "
        f"it is {label}{part}\n"
        f"output for {plain(told['class'])}: {told['output']:.4f}, of {counted(told['nodes'])}"
    )
    heading = f"adds to {plain(told['class'])}"
    rows = [(plain(source["node"]), signed(source["adds"])) for source in told["sources"]]
    table = numbers(("node", heading), rows, texts=("node",), box=None)
    rest = f"and {counted(told['rest'], 'other')}; " if told["rest"] else ""
    line = f"{rest}a node adds what the output loses if it is left out of the pooling"
    return Group(title, table, f"[dim]{line}[/dim]")
