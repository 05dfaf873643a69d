"""What a client may ask: the body of a request, checked piece by piece before anything is done.

Every mistake is a `Refused` with the status of the answer and what is wrong, in words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import _check

MOST_BYTES = 16 * 2**20
"""Of a body."""
MOST_IDS, MOST_NODES, MOST_EDGES = 10_000, 1_000, 100_000
"""Of one request."""
CELLS = (str, int, float, bool, type(None))


class Refused(Exception):
    """A request that gets no answer: the status, and the words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """Either nodes of the graph by their ids, or new nodes and their edges."""

    ids: list[str] | None = None
    nodes: list[dict[str, Any]] | None = None
    edges: list[dict[str, Any]] | None = None


def parse(body: bytes) -> Asked:
    """What a body asks."""
    content = _json(body)
    if not isinstance(content, dict):
        raise Refused(400, 'the body must be an object, such as {"ids": ["a"]}')
    unknown = sorted(content.keys() - {"ids", "nodes", "edges"})
    if unknown:
        raise Refused(400, f"unknown {_check.said(unknown[0])}: known are ids, nodes and edges")
    if ("ids" in content) == ("nodes" in content):
        raise Refused(400, "ask either for ids, of nodes of the graph, or for nodes, new ones")
    if "ids" in content:
        if "edges" in content:
            raise Refused(400, "edges are those of new nodes: leave them out beside ids")
        return Asked(ids=_ids(content["ids"]))
    nodes = _rows("nodes", content["nodes"], MOST_NODES)
    if not nodes:
        raise Refused(400, "nodes must not be empty")
    return Asked(nodes=nodes, edges=_rows("edges", content.get("edges", []), MOST_EDGES))


def _json(body: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        return json.loads(body.decode(), parse_constant=refuse)
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:  # that of the decoder too
        raise Refused(400, f"the body is not valid JSON: {error}") from None


def _ids(given: Any) -> list[str]:
    if not isinstance(given, list) or not given:
        raise Refused(400, "ids must be a list of at least one id")
    if len(given) > MOST_IDS:
        raise Refused(413, f"{len(given):,} ids are more than {MOST_IDS:,}: ask in parts")
    for id in given:
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise Refused(400, f"an id must be a text or a whole number, got {_check.said(id)}")
    return [str(id) for id in given]


def _rows(what: str, given: Any, most: int) -> list[dict[str, Any]]:
    """Rows of a table: an object each, of plain values."""
    if not isinstance(given, list):
        raise Refused(400, f"{what} must be a list of objects, got {_check.said(given)}")
    if len(given) > most:
        raise Refused(413, f"{len(given):,} {what} are more than {most:,}: ask in parts")
    for number, row in enumerate(given):
        if not isinstance(row, dict):
            raise Refused(400, f"{what}[{number}] must be an object, got {_check.said(row)}")
        for name, cell in row.items():
            if not (isinstance(cell, CELLS) or (isinstance(cell, list) and _plain(cell))):
                raise Refused(
                    400,
                    f"{what}[{number}] has {_check.said(cell)} in {_check.said(name)}: a value is "
                    "a text, a number, true, false, null, or a list of such",
                )
    return given


def _plain(cells: list[Any]) -> bool:
    return all(isinstance(cell, CELLS) for cell in cells)
