"""An explanation in words and numbers: as a dictionary, and on a terminal as a tree and a table.

What is shown is what is in the dictionary. Ids and labels are data: they are never read as markup,
and what a terminal would obey is taken out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ..runs import SavedRun, WhatIf
from ..tasks.answers import Answers, OfClasses, OfLabels, OfNames, OfNumbers
from .changes import parse
from .inputs import columns
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


def of_run(
    run: SavedRun,
    node: str,
    cls: str | None = None,
    rather: str | None = None,
    changes: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """What `to_dict` says of a node and classes or a label of a run, all by name; after changes, if
    there are any: see `changes.parse`."""
    if run.task.unit != "node":
        raise ValueError(
            "pairs of nodes are not explained, only nodes and graphs: 'sta predict' says how "
            "probable a pair is, and 'sta report' shows the pairs that are most surely wrong"
        )
    root, find = run.dataset.find(node), run.dataset.find_class
    explained, other = (None if name is None else find(name) for name in (cls, rather))
    changed = run.what_if(node, **parse(run, changes)) if changes else None
    explanation = run.explainer(root) if changed is None else changed.after
    return to_dict(run, explanation, explained, **options, rather=other, changed=changed)


def to_dict(
    run: SavedRun,
    explanation: Explanation,
    cls: int | None = None,
    top: int = 5,
    hops: int | None = None,
    by: str = "share",
    rather: int | None = None,
    changed: WhatIf | None = None,
) -> dict[str, Any]:
    """All that is shown of an explanation, ready for JSON.

    Contributions are pairs: to the logit of the explained class, and to that of its rival, the best
    of the other classes (the runner-up, where the winning class is explained); to one logit only
    where classes are no rivals: of a label, or of a number, on the scale that was learnt.
    "attention" are shares of the weights of each head; what these sum to is "weights" of a level,
    None where the read-out is a mean and they sum to 1. Where the model is not linear given its
    attention it is an attribution, "exact" is false, there are neither heads nor shares, "residual"
    is what is missing of each logit, and the "bias" are the logits of an input of zeros. "beside"
    is by name what is added to the logits beside the model. "columns" are what features add to the
    logit, see `inputs.columns`; with "rather" to how far it is before that of the rival. "what_if"
    says what was changed, what stays as trained, and what is predicted before and after; all else
    is then of after, and the model has no logits of its own to hold it against.

    Args:
        run: whose model and graph it is of.
        explanation: of a root.
        cls: the class or label to explain; by default see `output`.
        top: nodes to name in each level; the others are added up.
        hops: nodes are named up to this hop only.
        by: see `Level.top`.
        rather: the class that it might be rather, which is then the rival.
        changed: whose `after` this is.
    """
    root, classes = explanation.root, run.dataset.classes
    about = output(run, root, cls)
    cls, scale, center = about.index, about.scale, about.center
    rival = _rival(run, explanation, cls, rather)
    pair = [cls] if rival is None else [cls, rival]
    answers, unit = (run.answers, root) if changed is None else (changed.answers, 1)
    own = scale * run.logits[root, pair] + center if changed is None else None

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
        sources, rest = level.top(top if named else 0, by, cls, pair, rather)
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
        "predicted": answers.told(unit),
        "exact": explanation.exact,
        "residual": [scale * explanation.residual(each) for each in pair],
        "class": about.name,
        "rival": None if rival is None else classes[rival],
        "rather": rather is not None,
        **_sureness(answers, unit, pair),
        "logit": (scale * explanation.logits[pair] + center).tolist(),
        "model_logit": None if own is None else own.tolist(),
        "bias": (scale * explanation.bias[pair] + center).tolist(),
        "beside": {name: added[pair].tolist() for name, added in explanation.beside.items()},
        "levels": [level_of(level) for level in explanation.levels],
        "columns": columns(run, explanation, cls, rather, scale=scale),
        "what_if": None if changed is None else _what_if(changed, scale, center),
        "classes": list(classes),
        "logits": (scale * explanation.logits + center).tolist(),
    }


def _rival(run: SavedRun, explanation: Explanation, cls: int, rather: int | None) -> int | None:
    """The class that another is compared with, where classes are rivals."""
    if rather is None:
        return explanation.rival(cls) if run.task.kind == "class" else None
    if run.task.kind != "class":
        raise ValueError("only of classes can it be asked why one rather than another")
    if rather == cls:
        name = run.dataset.classes[cls]
        raise ValueError(f"'{name}' is the class that is explained: name another to compare with")
    return rather


def _sureness(answers: Answers, unit: int, pair: list[int]) -> dict[str, Any]:
    """The probabilities of what is explained; or of a number its interval."""
    if isinstance(answers, OfNumbers):
        return {"probability": None, "interval": _interval(answers, unit)}
    assert isinstance(answers, OfNames)
    return {"probability": answers.probabilities[unit, pair].tolist()}


def _interval(answers: OfNumbers, unit: int) -> list[float]:
    return [float(answers.low[unit]), float(answers.high[unit])]


def _what_if(changed: WhatIf, scale: float, center: float) -> dict[str, Any]:
    answers, pair = changed.answers, (changed.before, changed.after)

    def said(unit: int) -> dict[str, Any]:
        told = {
            "predicted": answers.told(unit),
            "logits": (scale * pair[unit].logits + center).tolist(),
            "probabilities": None,
        }
        if isinstance(answers, OfNumbers):
            return {**told, "interval": _interval(answers, unit)}
        return {**told, "probabilities": changed.probabilities[unit].tolist()}

    about = {"changes": changed.told, "kept": changed.kept}
    return {**about, "before": said(0), "after": said(1)}


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
    parts: list[RenderableType] = [tree, "", _table(told), *_features(told)]
    parts = parts if told["what_if"] is None else [*_changed(told), "", *parts]
    last = [line for line in (_sum(told), mostly_beside(told)) if line]
    return Group(*parts, "", *last)


CLASSES = 8
"""Whose probabilities are shown before and after changes: those that are most probable."""


def _changed(told: dict[str, Any]) -> list[RenderableType]:
    """What was changed, what is said before and after, and what stays as trained."""
    made = told["what_if"]
    before, after = made["before"], made["after"]
    changes = "; ".join(map(plain, made["changes"]))
    first = f"[bold]what if: {changes}[/bold]"
    kept = f"[dim]as trained: {plain('; '.join(made['kept']))}[/dim]"
    if before["probabilities"] is None:
        said = [f"{plain(each['predicted'])}" for each in (before, after)]
        return [first, f"predicted {said[0]} before, {said[1]} after", kept]
    pairs = list(zip(before["probabilities"], after["probabilities"], strict=True))
    order = sorted(range(len(pairs)), key=lambda at: -max(pairs[at]))[:CLASSES]
    table = numbers(("", "before", "after", "change"), texts=("",), box=SIMPLE_HEAD)
    for place in order:
        one, other = pairs[place]
        shown = f"{percent(one, 1)} %", f"{percent(other, 1)} %", f"{100 * (other - one):+.1f}"
        table.add_row(plain(told["classes"][place]), *shown)
    said = [plain(each["predicted"]) for each in (before, after)]
    same = f"predicted {said[0]} before and after"
    moved = f"predicted {said[0]} before, [bold]{said[1]}[/bold] after"
    return [first, same if said[0] == said[1] else moved, table, kept]


def _features(told: dict[str, Any]) -> list[RenderableType]:
    """The columns and words that add most to what is explained."""
    found, (cls, *rival) = told["columns"], _pair(told)
    of = f"how far {cls} is before {rival[0]}" if told["rather"] else f"the logit of {cls}"
    of = cls if told["probability"] is None else of
    given = "" if found["linear"] else ", given which units of the hidden layer are active"
    given = given if told["exact"] else ", attributed by integrated gradients"
    table = numbers(("", "the node itself", "all nodes"), texts=("",), box=SIMPLE_HEAD)
    for each in found["named"]:
        name = plain(short(each["name"], NAME))
        table.add_row(name, signed(each["own"]), signed(each["all"]))
    rest = found["rest"]
    if rest["features"]:
        row = counted(rest["features"], "other"), signed(rest["own"]), signed(rest["all"])
        table.add_row(*row, style="dim")
    last = "biases" if told["exact"] else "biases, and missing"
    table.add_row(last, "", signed(found["bias"]))
    return [f"[italic]which columns add to {of}{given}[/italic]", table]


def _sum(told: dict[str, Any]) -> str:
    """What the parts add up to, beside what the model says."""
    logit, own = _main(told["logit"], told), told["model_logit"]
    whose = "the prediction's" if told["beside"] else "the model's own"
    what = "output" if told["probability"] is None else "logit"
    what = "difference" if told["rather"] else what
    said = f"; {whose} {what} is {_main(own, told):.6f}" if own else ""
    beside = "".join(f", the {name}" for name in told["beside"])
    if told["exact"]:
        return f"all parts{beside} and the bias add up to {logit:.6f}{said}"
    missing = _main(told["residual"], told)
    return (
        "attribution, not exact: this model is not linear given its attention. Integrated "
        f"gradients from an input of zeros{beside} add up to {logit - missing:.6f}{said}, so "
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
        digits = 6 if abs(value) < 1e5 else 12  # of times, for one, the last ones differ
        value, low, high = (f"{number:.{digits}g}" for number in (value, low, high))
        line = f"{name}: {value}; the interval of the prediction is {low} to {high}"
        return f"{title}, {label}{_part(told)}\n{line}"
    rival = "runner-up" if told["class"] == told["predicted"] else "against"
    whose = ("logit of", "rather than" if told["rather"] else rival)
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
    more = ["difference"] * told["rather"]
    table = numbers((*texts, *heads, *_columns(told), *more), texts=texts, **look)

    def add(name: str, label: str, part: dict[str, Any], style: str | None = None) -> None:
        shares = [" ".join(f"{percent(share, 1):>5}" for share in part["attention"])] * len(heads)
        added = [*part["contribution"], *[_main(part["contribution"], told)] * len(more)]
        table.add_row(name, label, *shares, *map(signed, added), style=style)

    for source in level["sources"]:
        label = "-" if source["label"] is None else plain(short(source["label"]))
        others = [] if source["walk"] is None else source["walk"]["nodes"][1:]
        walk = [f"[bold]{_called(source)}[/bold]", *map(plain, others)]
        add(" → ".join(walk), label + _part(source), source)
    if level["rest"]["nodes"]:
        add(counted(level["rest"]["nodes"], "other"), "", level["rest"], "dim")
    return table


def _main(pair: list[float], told: dict[str, Any]) -> float:
    """What is added to the explained logit, or to how far that is before another."""
    return pair[0] - pair[1] if told["rather"] else pair[0]


def _table(told: dict[str, Any]) -> Table:
    """How much each hop and head adds to the output that is explained."""
    levels, cls, names = told["levels"], plain(told["class"]), _columns(told)
    heads = len(levels[0]["heads"])
    rest = slice(0) if told["rather"] else slice(1, None)  # both logits stand in the tree above
    headings = ("", *(f"head {head}" for head in range(1, heads + 1)), "all", "", *names[rest])
    of = cls if told["probability"] is None else f"the logit of {cls}"
    title = f"what {of} {'is made of' if told['exact'] else 'is attributed to'}"
    if told["rather"]:
        title = f"why {' rather than '.join(_pair(told))}: the difference of their logits"
    look: Any = {"title": title, "box": SIMPLE_HEAD}
    table = numbers(headings, texts=("",), no_wrap=True, **look)
    name, bars = table.columns[0], table.columns[heads + 2]
    name.no_wrap, bars.min_width, bars.max_width = True, 4, BAR
    beside = told["beside"]
    parts = [told["bias"], *beside.values(), *(lv["contribution"] for lv in levels)]
    longest = max(abs(_main(part, told)) for part in parts)

    def add(name: str, of_heads: list[str], pair: list[float], bar: bool = True) -> None:
        # As wide as its column lets it; green adds to the logit, red takes away.
        main = _main(pair, told)
        color = "green" if main >= 0 else "red"
        drawn = Bar(longest or 1.0, 0, abs(main), color=color) if bar else ""
        table.add_row(name, *of_heads, signed(main), drawn, *map(signed, pair[rest]))

    for level in levels:
        of_heads = [signed(_main(head, told)) for head in level["heads"]]
        add(_name(level), of_heads, level["contribution"])
    for name, pair in beside.items():
        add(name, [""] * heads, pair)
    add("bias" if told["exact"] else "input of zeros", [""] * heads, told["bias"])
    if not told["exact"]:
        add("missing", [""] * heads, told["residual"])
    table.add_section()
    sums = [
        signed(sum(_main(level["heads"][head], told) for level in levels)) for head in range(heads)
    ]
    whole = "difference" if told["rather"] else "logit" if told["probability"] else "sum"
    add(whole, sums, told["logit"], bar=False)
    return table
