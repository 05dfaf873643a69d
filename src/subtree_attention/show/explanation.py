"""An explanation in words and numbers: as a dictionary, and on a terminal as a tree and a table.

What is shown is what is in the dictionary. Ids and labels are data: they are never read as markup,
and what a terminal would obey is taken out of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree
from torch import Tensor
from torch_geometric.data import Data

from .. import _check
from ..explanations.explainer import Explainer
from ..explanations.explanation import GLOBAL, Explanation, Level
from ..runs.evaluate import load_data
from ..runs.folder import best_run, config_of, load
from ..runs.predict import graph_of, new_graph

SPLITS = {"train_mask": "train", "val_mask": "val", "test_mask": "test"}
BAR = 20
"""Characters of the longest bar."""


class Names:
    """What people call the nodes and classes of a graph: by number where they have no names.

    Args:
        data: with `ids` (a str for each node), `classes` (a str for each class), `y` and masks, as
            far as there are any.
        num_classes: C.
    """

    def __init__(self, data: Data, num_classes: int) -> None:
        self.num_nodes: int = data.num_nodes
        self.ids: list[str] | None = data.get("ids")
        self.classes = [f"class {cls}" for cls in range(num_classes)]
        if "classes" in data:
            self.classes = [str(name) for name in data["classes"]]
        self._labels: Tensor | None = data.get("y")
        self._masks = {name: data[mask] for mask, name in SPLITS.items() if mask in data}

    def find(self, name: str) -> int:
        """The number of a node; near ids if there is none of that name."""
        if self.ids is None:
            if name.isdecimal() and int(name) < self.num_nodes:
                return int(name)
            raise ValueError(
                f"there is no node '{name}': this graph has nodes 0 to {self.num_nodes - 1}"
            )
        if name in self.ids:
            return self.ids.index(name)
        near = get_close_matches(name, self.ids, n=3, cutoff=0.7)
        hint = " Near: " + ", ".join(f"'{other}'" for other in near) if near else ""
        raise ValueError(f"there is no node '{name}' among {self.num_nodes:,} ids.{hint}")

    def find_class(self, name: str) -> int:
        """The number of a class, by its name or number."""
        if name not in self.classes and name.isdecimal() and int(name) < len(self.classes):
            return int(name)
        return self.classes.index(_check.known("class", name, self.classes))

    def id(self, node: int) -> str:
        """What the user calls the node."""
        return str(node) if self.ids is None else str(self.ids[node])

    def label(self, node: int) -> str | None:
        """Its true class; None where that is not known."""
        if self._labels is None or not 0 <= float(self._labels[node]) < len(self.classes):
            return None
        return self.classes[int(self._labels[node])]

    def split(self, node: int) -> str | None:
        """train, val or test; None outside of all."""
        return next((name for name, mask in self._masks.items() if bool(mask[node])), None)

    def describe(self, node: int) -> dict[str, Any]:
        return {"node": self.id(node), "label": self.label(node), "split": self.split(node)}


def to_dict(
    explanation: Explanation,
    names: Names,
    cls: int | None = None,
    top: int = 5,
    hops: int | None = None,
    by: str = "share",
    own_logits: Tensor | None = None,
) -> dict[str, Any]:
    """All that is shown of an explanation, ready for JSON.

    Contributions are pairs: to the logit of the explained class, and to that of its rival, the best
    of the other classes (the runner-up, where the winning class is explained); to one logit only
    where there is a single class.

    Args:
        explanation: of a root.
        names: of its graph.
        cls: the class to explain; by default the predicted one.
        top: nodes to name in each level; the others are added up.
        hops: nodes are named up to this hop only.
        by: see `Level.top`.
        own_logits: `[C]`, what the model itself gives for the root, to be held beside the sum.
    """
    cls = explanation.predicted if cls is None else cls
    rival = explanation.rival(cls)
    pair = [cls] if rival is None else [cls, rival]
    share = torch.softmax(explanation.logits.double(), dim=0)
    levels = []
    for level in explanation.levels:
        shown = top if hops is None or level.hop == GLOBAL or int(level.hop) <= hops else 0
        levels.append(_level(explanation, level, names, pair, shown, by))
    return {
        **names.describe(explanation.root),
        "predicted": names.classes[explanation.predicted],
        "class": names.classes[cls],
        "rival": None if rival is None else names.classes[rival],
        "probability": share[pair].tolist(),
        "logit": explanation.logits[pair].tolist(),
        "model_logit": None if own_logits is None else own_logits[pair].tolist(),
        "bias": explanation.bias[pair].tolist(),
        "levels": levels,
        "classes": names.classes,
        "logits": explanation.logits.tolist(),
    }


def _level(
    explanation: Explanation, level: Level, names: Names, pair: list[int], top: int, by: str
) -> dict[str, Any]:
    sources, rest = level.top(top, by, pair[0])
    return {
        "hop": level.hop,
        "nodes": len(level.nodes),
        "contribution": level.total.sum(0)[pair].tolist(),
        "heads": level.total[:, pair].tolist(),  # [H, 2]
        "sources": [
            {
                **names.describe(source.node),
                "attention": source.attention.tolist(),
                "contribution": source.contribution.sum(0)[pair].tolist(),
                "walk": _walk(explanation, level, source.node, names),
            }
            for source in sources
        ],
        "rest": {
            "nodes": rest.nodes,
            "attention": rest.attention.tolist(),
            "contribution": rest.contribution.sum(0)[pair].tolist(),
        },
    }


def _walk(explanation: Explanation, level: Level, node: int, names: Names) -> dict[str, Any] | None:
    if level.hop == GLOBAL:
        return None
    nodes, probability = explanation.walk(int(level.hop), node)
    return {"nodes": [names.id(step) for step in nodes], "probability": probability}


def of_run(
    run: Path,
    node: str,
    cls: str | None,
    top: int,
    hops: int | None,
    by: str,
    data_dir: Path | None = None,
    mirror: Path | None = None,
    tables: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What `to_dict` says of a node of a run folder, or of new tables (see `predict`)."""
    run = best_run(run)  # once: all that follow would look for it
    model = load(run)
    if tables is None:
        data = load_data(run, data_dir=data_dir, mirror=mirror)
    else:
        data, _ = new_graph(run, **tables)
    names = Names(data, model.conv.out_channels)
    root, explained = names.find(node), None if cls is None else names.find_class(cls)
    graph = graph_of(data, model, config_of(run))
    explanation = Explainer(model, data.x, graph)(root)
    with torch.no_grad():
        own = model(data.x, graph)[root]
    return to_dict(explanation, names, explained, top, hops, by, own)


# ------------------------------------------------------------------------------- on a terminal


def show(report: dict[str, Any]) -> RenderableType:
    """What `to_dict` gives, as a tree of the rooted subtree and a table of hops and heads."""
    tree = Tree(_title(report), guide_style="dim")
    for level in report["levels"]:
        added = _both(level["contribution"], report)
        branch = tree.add(f"[bold]{_name(level)}[/bold]: {_count(level['nodes'])}, {added}")
        if level["sources"]:
            branch.add(_sources(level, report))
    return Group(tree, "", _table(report), "", _sum(report))


def _title(report: dict[str, Any]) -> str:
    """Two lines: what the node is, and how sure the model is of what is explained."""
    label = "its class is not known"
    if report["label"] is not None:
        label = f"it is {plain(report['label'])}"
    split = f" ({report['split']})" if report["split"] else ""
    title = f"[bold]node {plain(report['node'])}[/bold]: predicted {plain(report['predicted'])}"
    won = report["class"] == report["predicted"]
    rival = "runner-up" if won else "against"
    words = [f"logit of {plain(report['class'])}", f"{rival} {plain(report['rival'] or '')}"]
    sure = zip(words, report["logit"], report["probability"], strict=False)
    lines = [f"{what} {logit:.3f} ({100 * share:.1f} %)" for what, logit, share in sure]
    return f"{title}, {label}{split}\n{', '.join(lines)}, before calibration"


def _name(level: dict[str, Any]) -> str:
    return "global attention" if level["hop"] == GLOBAL else f"hop {level['hop']}"


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes:,} nodes"


def _both(pair: list[float], report: dict[str, Any]) -> str:
    """+1.234 for one class, -0.5 for the other."""
    names = [report["class"], report["rival"]][: len(pair)]
    parts = [f"{_signed(value)} for {plain(n)}" for value, n in zip(pair, names, strict=True)]
    return ", ".join(parts)


def _sources(level: dict[str, Any], report: dict[str, Any]) -> Table:
    """The nodes of a level that are named, and the rest as one row."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("walk" if level["hop"] not in (0, GLOBAL) else "node")
    table.add_column("label")
    table.add_column("% of each head", justify="right", no_wrap=True)
    for name in (report["class"], report["rival"])[: len(report["logit"])]:
        table.add_column(plain(name), justify="right", no_wrap=True)
    for source in level["sources"]:
        split = f" ({source['split']})" if source["split"] else ""
        label = "-" if source["label"] is None else plain(source["label"])
        steps = [source["node"]] if source["walk"] is None else source["walk"]["nodes"]
        first, *others = map(plain, steps)
        walk = " → ".join([f"[bold]{first}[/bold]", *others])
        numbers = map(_signed, source["contribution"])
        table.add_row(walk, label + split, _percent(source["attention"]), *numbers)
    rest = level["rest"]
    if rest["nodes"]:
        name = "1 other" if rest["nodes"] == 1 else f"{rest['nodes']:,} others"
        numbers = map(_signed, rest["contribution"])
        table.add_row(name, "", _percent(rest["attention"]), *numbers, style="dim")
    return table


def _table(report: dict[str, Any]) -> Table:
    """How much each hop and head adds to the logit of the explained class."""
    levels = report["levels"]
    heads = len(levels[0]["heads"])
    table = Table(
        title=f"what the logit of {plain(report['class'])} is made of", box=box.SIMPLE_HEAD
    )
    table.add_column("", no_wrap=True)
    for name in [*(f"head {head}" for head in range(1, heads + 1)), "all"]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", min_width=4, max_width=BAR)
    if report["rival"] is not None:
        table.add_column(plain(report["rival"]), justify="right", no_wrap=True)
    longest = max(abs(part[0]) for part in [report["bias"], *(lv["contribution"] for lv in levels)])

    def add(name: str, of_heads: list[str], pair: list[float], bar: RenderableType) -> None:
        table.add_row(name, *of_heads, _signed(pair[0]), bar, *map(_signed, pair[1:]))

    for level in levels:
        of_heads = [_signed(head[0]) for head in level["heads"]]
        bar = _bar(level["contribution"][0], longest)
        add(_name(level), of_heads, level["contribution"], bar)
    add("bias", [""] * heads, report["bias"], _bar(report["bias"][0], longest))
    table.add_section()
    sums = [_signed(sum(level["heads"][head][0] for level in levels)) for head in range(heads)]
    add("logit", sums, report["logit"], "")
    return table


def _sum(report: dict[str, Any]) -> str:
    """That the parts are the whole."""
    line = f"all parts and the bias add up to {report['logit'][0]:.6f}"
    if report["model_logit"] is not None:
        line += f"; the model's own logit is {report['model_logit'][0]:.6f}"
    return line


def _bar(value: float, longest: float) -> Bar:
    """As wide as its column lets it; green adds to the logit, red takes away."""
    return Bar(longest or 1.0, 0, abs(value), color="green" if value >= 0 else "red")


def _signed(value: float) -> str:
    return f"{value:+.3f}"


def _percent(shares: list[float]) -> str:
    return " ".join(f"{100 * share:5.1f}" for share in shares)


def plain(text: str) -> str:
    """A user's text for a terminal: no markup, nothing that a terminal would obey."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return escape(printable)
