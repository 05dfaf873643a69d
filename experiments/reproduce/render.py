"""Tables and figures from the records, without training: what a reader can check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.reproduce import figures, tables
from experiments.reproduce.experiments import EXPERIMENTS
from experiments.reproduce.markup import RENDERERS
from experiments.reproduce.store import Store
from experiments.reproduce.theorem import FILE
from experiments.reproduce.theorem.drawing import draw
from subtree_attention.io import read_json, write_bytes

PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "table1": (("table1", "paired"), ()),
    "table2": (("table2",), ()),
    "table3": (("table3",), ()),
    "hops": (("hops",), ("hops",)),
    "deep": (("deep",), ("deep",)),
    "gpr": ((), ("gpr", "gates")),
    "robustness": (("robustness",), ("robustness",)),
}
"""What is asked for -> its tables and its figures."""

Say = Callable[[str], object]


def render(what: str, store: Store, say: Say) -> list[Path]:
    """Write the tables (Markdown, LaTeX, CSV) and figures (SVG, PNG) of an experiment.

    What there are no runs for is said, not drawn.
    """
    if what == "theorem":
        return _render_theorem(store, say)
    records = [record for name in EXPERIMENTS for record in store.read(name)]
    files = []
    for name in PARTS[what][0]:
        table = tables.TABLES[name](records)
        for suffix, written in RENDERERS.items():
            path = store.folder / f"{name}{suffix}"
            write_bytes(path, written(table).encode())
            files.append(path)
    for name in PARTS[what][1]:
        try:
            files += figures.FIGURES[name](records, store.folder / name)
        except (figures.NothingToDraw, ModuleNotFoundError) as reason:
            say(f"{name} is not drawn: {reason}")
    return files


def _render_theorem(store: Store, say: Say) -> list[Path]:
    path = store.folder / FILE
    if not path.exists():
        say("theorem is not drawn: nothing was measured yet")
        return []
    try:
        return draw(read_json(path)["records"], store.folder / "theorem")
    except ModuleNotFoundError as reason:
        say(f"theorem is not drawn: {reason}")
        return []
