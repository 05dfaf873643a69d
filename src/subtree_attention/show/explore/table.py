"""The levels of a subtree as a table, to be taken elsewhere."""

from __future__ import annotations

import csv
import io
from typing import Any

from ...datasets.tables.cells import escaped

COLUMNS = ("level", "id", "name", "predicted", "class", "attention", "contribution", "walk")


def table_of(view: dict[str, Any]) -> str:
    """CSV of what `Views.node` gives: a row for each node, and one for the rest of each level.

    Texts are the user's: what a spreadsheet would take for a formula gets an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for level in view["levels"]:
        if level["rest"] is None:
            continue
        nodes = [node for node in view["nodes"] if node["hop"] == level["hop"]]
        writer.writerows(_row(node) for node in nodes)
        if rest := level["rest"]["nodes"]:
            writer.writerow(_row({**level["rest"], "hop": level["hop"], "id": f"{rest} others"}))
    return out.getvalue()


def _row(node: dict[str, Any]) -> list[Any]:
    texts = [node.get(name) or "" for name in ("name", "predicted", "label")]
    walk = " > ".join(node.get("walk", ()))
    return [
        node["hop"],
        *map(escaped, [node["id"], *texts]),
        node["attention"],
        node["contribution"],
        escaped(walk),
    ]
