"""An explanation in a notebook: as a picture and a short table, or as the page in the browser.

What is shown stands still: SVG and a table, with neither scripts nor style sheets, so that it is
the same wherever a notebook is read.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from urllib.parse import quote

from markupsafe import Markup

from .. import _check
from ..explanations import Explanation
from ..runs import SavedRun, WhatIf, open
from ..runs.saved import Folder
from ..tasks.answers import OfClasses, OfNames
from .explanation import Output, brief, describe, output
from .subtree import Choice, of_run, strongest, take_apart
from .subtree_svg import subtree_svg
from .text import counted, percent, signed, visible

HOPS, DRAWN, SOURCES = 3, 30, 5
"""Levels and nodes that are drawn, and nodes that are listed."""


def as_svg(
    explanation: Explanation, cls: int | None = None, by: str = "attention", look: str = "light"
) -> str:
    """The rooted subtree as a picture, to be shown or written to a file.

    Args:
        explanation: of any root. One that `SavedRun.explain` gives has names and classes, others
            have numbers.
        cls: the class or label whose logit is taken apart; by default the predicted one.
        by: "attention" or "contribution", which chooses nodes and gives them their size.
        look: "light" or "dark".
    """
    _check.kind("explanation", explanation, Explanation, "an Explanation")
    _check.known("order", by, ("attention", "contribution"))
    _check.known("look", look, ("light", "dark"))
    if not explanation.exact:
        raise ValueError(
            "this network has no single level of attention to draw: its logits are attributed to "
            "nodes, see importance(cls)"
        )
    run, about = explanation.run, _output(explanation, cls)
    choice, classes = Choice(HOPS, None, by, about.index), ()
    if run is None:
        told = take_apart(explanation, choice, DRAWN)
        for node in told["nodes"]:
            node["id"] = str(node.pop("node"))
    else:
        told = of_run(run, explanation, choice, DRAWN)
        classes = tuple(run.dataset.classes) if isinstance(run.answers, OfClasses) else ()
    label = f"the subtree of node {_id(explanation)}"
    return str(subtree_svg(told, classes=classes, by=by, look=look, label=label))


def as_html(explanation: Explanation | WhatIf, cls: int | None = None) -> str:
    """The same with what the logit is made of, as a piece of HTML: what a notebook shows.

    Of a what-if it is what is predicted before and after.
    """
    if isinstance(explanation, WhatIf):
        return _before_and_after(explanation)
    _check.kind("explanation", explanation, Explanation, "an Explanation")
    about = _output(explanation, cls)
    picture = Markup(as_svg(explanation, cls)) if explanation.exact else Markup("")
    row, whole = (
        Markup(f"<tr><{cell}>{{}}</{cell}><{cell}>{{}}</{cell}></tr>").format
        for cell in ("td", "th")
    )
    *parts, last = ((visible(name), signed(adds)) for name, adds in _rows(explanation, about))
    rows = Markup("").join([whole("node", "adds"), *(row(*part) for part in parts), whole(*last)])
    title = visible(_title(explanation, about))
    return str(Markup("<p>{}</p>{}<table>{}</table>").format(title, picture, rows))


def explore(run: SavedRun | Folder, node: str | None = None, *, browser: bool = True) -> str:
    """Open the page of `sta explore` in the browser, at a node; it is served as long as this
    process runs.

    Args:
        run: a run, or its folder.
        node: the id of the root; by default the page begins at its start.
        browser: whether to open it; else only the address is returned.
    """
    with _check.needs("the page", "explore"):
        from .explore.server import server
        from .pages.serving import address, listen, open_browser
    from .explore import Views

    run = run if isinstance(run, SavedRun) else open(run, device="cpu")
    place = (
        "" if node is None else f"#/node/{quote(run.dataset.id(run.dataset.find(node)), safe='')}"
    )
    page = _PAGES.get(run.folder.resolve())
    if page is None:
        views, listening = Views(run), listen(0)
        page = _PAGES[run.folder.resolve()] = f"{address(listening)}/"
        serving = server(views, listening)
        Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True).start()
    if browser:
        open_browser(page + place)
    return page + place


_PAGES: dict[Path, str] = {}
"""Where the pages of runs are, by their folders: each is served once."""


# --------------------------------------------------------------------------------------- in words


def _before_and_after(made: WhatIf) -> str:
    answers, said = made.answers, [visible(made.answers.told(unit)) for unit in (0, 1)]
    row = Markup("<tr><th>{}</th><td>{}</td><td>{}</td></tr>").format
    rows = [row("", "before", "after"), row("predicted", *said)]
    if isinstance(answers, OfNames):
        for name, *pair in zip(answers.names, *made.probabilities, strict=True):
            rows.append(row(visible(name), *(f"{percent(share, 1)} %" for share in pair)))
    title = visible(f"{made.run.dataset.title(made.node)}: {'; '.join(made.told)}")
    kept = visible("; ".join(made.kept))
    table = Markup("").join(rows)
    return str(Markup("<p>{}</p><table>{}</table><p>{}</p>").format(title, table, kept))


def _output(explanation: Explanation, cls: int | None) -> Output:
    if explanation.run is not None:
        return output(explanation.run, explanation.root, cls)
    cls = explanation.predicted if cls is None else cls
    return Output(cls, f"class {cls}")


def _id(explanation: Explanation) -> str:
    run, root = explanation.run, explanation.root
    return str(root) if run is None else run.dataset.id(root)


def _title(explanation: Explanation, about: Output) -> str:
    run, root = explanation.run, explanation.root
    if run is None:
        return f"node {root}: the logit of {about.name}"
    told = brief(run, root)
    name = f"{told['name']} ({told['node']})" if told["name"] else f"node {told['node']}"
    sure = "" if told["probability"] is None else f" with {percent(told['probability'], 1)} %"
    known = "" if told["label"] is None else f", it is {told['label']}"
    part = f" ({told['split']})" if told["split"] else ""
    of = about.name if told["probability"] is None else f"the logit of {about.name}"
    return f"{name}: predicted {told['predicted']}{sure}{known}{part}; what {of} is made of"


def _rows(explanation: Explanation, about: Output) -> list[tuple[str, float]]:
    """The strongest nodes, the others, what belongs to no node, and their sum."""
    found, run = strongest(explanation, about, SOURCES), explanation.run
    rows = [(_named(run, node, node == explanation.root), adds) for node, adds in found.sources]
    if found.others:
        rows.append((counted(found.others, "other node"), found.others_add))
    rows += [*found.parts.items(), (about.name, found.whole)]
    return [(name, adds) for name, (adds,) in rows]


def _named(run: SavedRun | None, node: int, own: bool) -> str:
    """A node by its name or id, with its class."""
    itself = " (the node itself)" if own else ""
    if run is None:
        return f"{node}{itself}"
    told = describe(run, node)
    name = f"{told['name']} ({told['node']})" if told["name"] else told["node"]
    return f"{name}{itself}" + ("" if told["label"] is None else f", {told['label']}")
