"""An explanation in words and numbers: as a dictionary, and on a terminal as a tree and a table.

What is shown is what is in the dictionary. Ids and labels are data: they are never read as markup,
and what a terminal would obey is taken out of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.tree import Tree

from ..datasets.targets import in_words
from ..explanations import Explanation
from ..explanations.explanation import GLOBAL, RESIDUAL, Portion, Rest, Source
from ..runs import SavedRun
from ..tasks.answers import OfClasses, OfLabels, OfNumbers
from .tables import numbers
from .text import counted, percent, plain, short, signed

BAR = 20
"""Characters of the longest bar."""
NAME = 32
"""Characters of the longest name."""


def describe(run: SavedRun, node: int) -> dict[str, Any]:
    """The id of a node, its name, its true class, and its part: train, val or test; None where
    there is none or it is not known."""
    label, part = run.dataset.label(node), run.split.part(node)
    id, name = run.dataset.id(node), name_of(run, node)
    return {"node": id, "name": name, "label": label, "split": part}


def brief(run: SavedRun, unit: int) -> dict[str, Any]:
    """The same of a node or any other unit, with what is predicted, and how probable that is."""
    answers, known = run.answers, run.answers.known[unit]
    label = None if known is None else in_words(known)
    told = {"predicted": answers.told(unit), "probability": answers.sure(unit)}
    name = name_of(run, unit) if run.task.unit == "node" else None
    about = {"name": name, "label": label, "split": run.split.part(unit)}
    return {"node": run.unit_ids[unit], **about, **told}


def name_of(run: SavedRun, node: int) -> str | None:
    """What people call a node, where that is not its id."""
    title = run.dataset.title(node)
    return None if title == run.dataset.id(node) else title


@dataclass(frozen=True)
class Output:
    """An output of a model: which one, what it is called, and on which scale it is told.

    A number is told on the scale that was learnt, its own or that of its logarithm: an output of 1
    is `scale` on it, and 0 is `center`.
    """

    index: int
    name: str
    scale: float = 1.0
    center: float = 0.0


def output(run: SavedRun, node: int, cls: int | None = None) -> Output:
    """The output of a node that is explained: a class or label; by default the predicted class, the
    label that is given or missed wrongly or else is most probable, or the number."""
    if isinstance(run.answers, OfNumbers):
        schema, log = run.dataset.schema, run.config.task.log_target
        target = (schema and schema.target) or "number"
        return Output(
            0, f"log {target}" if log else target, run.found["scale"], run.found["center"]
        )
    if cls is None and isinstance(run.answers, OfLabels):
        cls = run.answers.worst(node)
    elif cls is None and isinstance(run.answers, OfClasses):
        cls = int(run.answers.given[node])
    assert cls is not None  # there is nothing but classes, labels and numbers
    return Output(cls, run.task.names(run.dataset)[cls])


def of_run(run: SavedRun, node: str, cls: str | None = None, **options: Any) -> dict[str, Any]:
    """What `to_dict` says of a node and a class or label of a run, both by name."""
    if run.task.unit != "node":
        raise ValueError(
            "pairs of nodes are not explained, only nodes and graphs: 'sta predict' says how "
            "probable a pair is, and 'sta report' shows the pairs that are most surely wrong"
        )
    root, explained = run.dataset.find(node), None if cls is None else run.dataset.find_class(cls)
    return to_dict(run, run.explainer(root), explained, **options)


def to_dict(
    run: SavedRun,
    explanation: Explanation,
    cls: int | None = None,
    top: int = 5,
    hops: int | None = None,
    by: str = "share",
) -> dict[str, Any]:
    """All that is shown of an explanation, ready for JSON.

    Contributions are pairs: to the logit of the explained class, and to that of its rival, the best
    of the other classes (the runner-up, where the winning class is explained); to one logit only
    where classes are no rivals: of a label, or of a number, on the scale that was learnt.
    "attention" are shares of the weights of each head; what these sum to is "weights" of a level,
    None where the read-out is a mean and they sum to 1. Where the model is not linear given its
    attention it is an attribution, "exact" is false, there are neither heads nor shares, "residual"
    is what is missing of each logit, and the "bias" are the logits of an input of zeros. "beside"
    is by name what is added to the logits beside the model.

    Args:
        run: whose model and graph it is of.
        explanation: of a root.
        cls: the class or label to explain; by default see `output`.
        top: nodes to name in each level; the others are added up.
        hops: nodes are named up to this hop only.
        by: see `Level.top`.
    """
    root, classes = explanation.root, run.dataset.classes
    about = output(run, root, cls)
    cls, scale, center = about.index, about.scale, about.center
    rival = explanation.rival(cls) if run.task.kind == "class" else None
    pair = [cls] if rival is None else [cls, rival]

    def part(of: Source | Rest) -> dict[str, Any]:
        added = scale * of.contribution.sum(0)
        return {"attention": of.attention.tolist(), "contribution": added.tolist()}

    def walk(level: Portion, node: int) -> dict[str, Any] | None:
        if isinstance(level.hop, str):
            return None
        nodes, probability = explanation.walk(level.hop, node)
        return {"nodes": [run.dataset.id(step) for step in nodes], "probability": probability}

    def level_of(level: Any) -> dict[str, Any]:
        named = hops is None or isinstance(level.hop, str) or level.hop <= hops
        sources, rest = level.top(top if named else 0, by, cls, pair)
        totals = level.totals(pair)  # [H, 2]
        return {
            "hop": level.hop,
            "nodes": len(level.nodes),
            "weights": None if level.is_mean else level.attention.sum(0).tolist(),  # [H]
            "contribution": (scale * totals.sum(0)).tolist(),
            "heads": (scale * totals).tolist() if explanation.exact else [],
            "sources": [
                {**describe(run, each.node), **part(each), "walk": walk(level, each.node)}
                for each in sources
            ],
            "rest": {"nodes": rest.nodes, **part(rest)},
        }

    return {
        **describe(run, root),
        "predicted": run.answers.told(root),
        "exact": explanation.exact,
        "residual": [scale * explanation.residual(each) for each in pair],
        "class": about.name,
        "rival": None if rival is None else classes[rival],
        **_sureness(run, root, pair),
        "logit": (scale * explanation.logits[pair] + center).tolist(),
        "model_logit": (scale * run.logits[root, pair] + center).tolist(),
        "bias": (scale * explanation.bias[pair] + center).tolist(),
        "beside": {name: added[pair].tolist() for name, added in explanation.beside.items()},
        "levels": [level_of(level) for level in explanation.levels],
        "classes": list(classes),
        "logits": (scale * explanation.logits + center).tolist(),
    }


def _sureness(run: SavedRun, root: int, pair: list[int]) -> dict[str, Any]:
    """The probabilities of what is explained; or of a number its interval."""
    if isinstance(run.answers, OfNumbers):
        low, high = float(run.answers.low[root]), float(run.answers.high[root])
        return {"probability": None, "interval": [low, high]}
    return {"probability": run.probabilities[root, pair].tolist()}


# ------------------------------------------------------------------------------- on a terminal


def show(told: dict[str, Any]) -> RenderableType:
    """What `to_dict` gives, as a tree of the rooted subtree and a table of hops and heads."""
    tree = Tree(_title(told), guide_style="dim")
    for level in told["levels"]:
        pairs = zip(level["contribution"], _pair(told), strict=True)
        added = ", ".join(f"{signed(value)} for {name}" for value, name in pairs)
        branch = tree.add(
            f"[bold]{_name(level)}[/bold]: {counted(level['nodes'])}{_weights(level)}, {added}"
        )
        if level["sources"]:
            branch.add(_sources(level, told))
    last = [line for line in (_sum(told), mostly_beside(told)) if line]
    return Group(tree, "", _table(told), "", *last)


def _sum(told: dict[str, Any]) -> str:
    """What the parts add up to, beside what the model says."""
    logit, own = told["logit"][0], told["model_logit"][0]
    whose = "the prediction's" if told["beside"] else "the model's own"
    said = f"{whose} {'output' if told['probability'] is None else 'logit'} is {own:.6f}"
    beside = "".join(f", the {name}" for name in told["beside"])
    if told["exact"]:
        return f"all parts{beside} and the bias add up to {logit:.6f}; {said}"
    missing = told["residual"][0]
    return (
        "attribution, not exact: this model is not linear given its attention. Integrated "
        f"gradients from an input of zeros{beside} add up to {logit - missing:.6f}; {said}, so "
        f"{signed(missing)} is missing"
    )


MOSTLY = 0.8
"""Share of what decides from which on one part is said to decide."""


def mostly_beside(told: dict[str, Any]) -> str:
    """That what stands beside the model decides alone, if so: then levels and nodes say little.

    What decides between two classes is how far a part puts one before the other.
    """

    def weight(pair: list[float]) -> float:
        return abs(pair[0] - sum(pair[1:]))

    levels = (weight(level["contribution"]) for level in told["levels"])
    beside = {name: weight(pair) for name, pair in told["beside"].items()}
    whole = sum(levels) + sum(beside.values()) + weight(told["bias"])
    name = max(beside, key=lambda name: beside[name], default="")
    if not name or beside[name] < MOSTLY * whole:
        return ""
    share = percent(beside[name] / whole, 0)
    return f"{share} % of what decides here is the {name}: the nodes above explain little of it"


def _pair(told: dict[str, Any]) -> list[str]:
    """The explained class, and its rival if there is one."""
    return [plain(name) for name in (told["class"], told["rival"]) if name is not None]


def _columns(told: dict[str, Any]) -> list[str]:
    """As `_pair`, for the heads of columns."""
    return [plain(short(name)) for name in (told["class"], told["rival"]) if name is not None]


def _title(told: dict[str, Any]) -> str:
    """Two lines: what the node is, and how sure the model is of what is explained."""
    label = "its class is not known" if told["label"] is None else f"it is {plain(told['label'])}"
    title = f"[bold]node {_called(told)}[/bold]: predicted {plain(told['predicted'])}"
    if told["probability"] is None:
        label, (low, high) = label.replace("class", "number"), told["interval"]
        name, value = plain(told["class"]), told["logit"][0]
        line = f"{name}: {value:.6g}; the interval of the prediction is {low:.6g} to {high:.6g}"
        return f"{title}, {label}{_part(told)}\n{line}"
    whose = ("logit of", "runner-up" if told["class"] == told["predicted"] else "against")
    numbers = zip(whose, _pair(told), told["logit"], told["probability"], strict=False)
    lines = [f"{of} {name}: {logit:.3f} ({percent(p, 1)} %)" for of, name, logit, p in numbers]
    return f"{title}, {label}{_part(told)}\n{', '.join(lines)}; probabilities are calibrated"


def _called(node: dict[str, Any]) -> str:
    """The id, and the name beside it if there is one."""
    id, name = plain(node["node"]), node["name"]
    return id if name is None else f"{id} {plain(short(name, NAME))}"


def _part(node: dict[str, Any]) -> str:
    return f" ({node['split']})" if node["split"] else ""


NAMES = {GLOBAL: "global attention", RESIDUAL: "residual"}
"""Of levels that are no hops."""


def _name(level: dict[str, Any]) -> str:
    return NAMES.get(level["hop"]) or f"hop {level['hop']}"


def _weights(level: dict[str, Any]) -> str:
    """What the weights of each head sum to, where that is not 1."""
    if level["weights"] is None:
        return ""
    return f" (weights sum to {' '.join(f'{weight:.3g}' for weight in level['weights'])})"


def _sources(level: dict[str, Any], told: dict[str, Any]) -> Table:
    """The nodes of a level that are named, and the rest as one row."""
    texts = ("walk" if level["hop"] not in (0, *NAMES) else "node", "label")
    look: Any = {"no_wrap": True, "box": None, "pad_edge": False, "header_style": "dim"}
    heads = ["% of each head"] if told["exact"] else []
    table = numbers((*texts, *heads, *_columns(told)), texts=texts, **look)

    def add(name: str, label: str, part: dict[str, Any], style: str | None = None) -> None:
        shares = [" ".join(f"{percent(share, 1):>5}" for share in part["attention"])] * len(heads)
        table.add_row(name, label, *shares, *map(signed, part["contribution"]), style=style)

    for source in level["sources"]:
        label = "-" if source["label"] is None else plain(short(source["label"]))
        others = [] if source["walk"] is None else source["walk"]["nodes"][1:]
        walk = [f"[bold]{_called(source)}[/bold]", *map(plain, others)]
        add(" → ".join(walk), label + _part(source), source)
    if level["rest"]["nodes"]:
        add(counted(level["rest"]["nodes"], "other"), "", level["rest"], "dim")
    return table


def _table(told: dict[str, Any]) -> Table:
    """How much each hop and head adds to the output that is explained."""
    levels, cls, (_, *rival) = told["levels"], plain(told["class"]), _columns(told)
    heads = len(levels[0]["heads"])
    headings = ("", *(f"head {head}" for head in range(1, heads + 1)), "all", "", *rival)
    of = cls if told["probability"] is None else f"the logit of {cls}"
    made = "is made of" if told["exact"] else "is attributed to"
    look: Any = {"title": f"what {of} {made}", "box": SIMPLE_HEAD}
    table = numbers(headings, texts=("",), no_wrap=True, **look)
    name, bars = table.columns[0], table.columns[heads + 2]
    name.no_wrap, bars.min_width, bars.max_width = True, 4, BAR
    beside = told["beside"]
    parts = [told["bias"], *beside.values(), *(lv["contribution"] for lv in levels)]
    longest = max(abs(part[0]) for part in parts)

    def add(name: str, of_heads: list[str], pair: list[float], bar: bool = True) -> None:
        # As wide as its column lets it; green adds to the logit, red takes away.
        color = "green" if pair[0] >= 0 else "red"
        drawn = Bar(longest or 1.0, 0, abs(pair[0]), color=color) if bar else ""
        table.add_row(name, *of_heads, signed(pair[0]), drawn, *map(signed, pair[1:]))

    for level in levels:
        add(_name(level), [signed(head[0]) for head in level["heads"]], level["contribution"])
    for name, pair in beside.items():
        add(name, [""] * heads, pair)
    add("bias" if told["exact"] else "input of zeros", [""] * heads, told["bias"])
    if not told["exact"]:
        add("missing", [""] * heads, told["residual"])
    table.add_section()
    sums = [signed(sum(level["heads"][head][0] for level in levels)) for head in range(heads)]
    add("logit" if told["probability"] else "sum", sums, told["logit"], bar=False)
    return table
