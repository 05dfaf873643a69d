"""Tables and figures from the records, without training: what a reader can check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.reproduce.experiments import EXPERIMENTS
from experiments.reproduce.figures import FIGURES, NothingToDraw
from experiments.reproduce.markup import RENDERERS
from experiments.reproduce.store import Store
from experiments.reproduce.tables import TABLES
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
    "theorem": ((), ("theorem",)),
}
"""What is asked for -> its tables and its figures."""

Say = Callable[[str], object]


def render(what: str, store: Store, say: Say) -> list[Path]:
    """Write the tables (Markdown, LaTeX, CSV) and figures (SVG, PNG) of an experiment, or of all.

    What there are no runs for is said, not drawn.
    """
    records = [record for name in EXPERIMENTS for record in store.read(name)]
    files = []
    for part in PARTS if what == "all" else [what]:
        for name in PARTS[part][0]:
            table = TABLES[name](records)
            for suffix, written in RENDERERS.items():
                files.append(store.folder / f"{name}{suffix}")
                write_bytes(files[-1], written(table).encode())
        for name in PARTS[part][1]:
            try:
                if name == "theorem":
                    files += draw(_measured(store), store.folder / name)
                else:
                    files += FIGURES[name](records, store.folder / name)
            except (NothingToDraw, ModuleNotFoundError) as reason:
                say(f"{name} is not drawn: {reason}")
    return files


def _measured(store: Store) -> list[dict[str, Any]]:
    """What is there of Theorem 1."""
    path = store.folder / FILE
    if not path.exists():
        raise NothingToDraw("nothing was measured yet")
    return read_json(path)["records"]
