"""Where the runs of an experiment lie: one JSON line each, in `FOLDER/EXPERIMENT/GRAPH.jsonl`.

Lines are only ever added, under a lock and synced, so that several processes can write and a killed
one loses nothing but the run it was in. Each has a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.reproduce.records import Record
from subtree_attention.io import append_line, is_unchecked

DEFAULT = Path("results/reproduce")
CHECKSUM = "crc32"
"""Of a line; records of before have none."""


class Store:
    """The records below a folder."""

    def __init__(self, folder: Path = DEFAULT) -> None:
        self.folder = folder

    def path(self, experiment: str, graph: str) -> Path:
        return self.folder / experiment / f"{graph}.jsonl"

    def experiments(self) -> list[str]:
        """Those of which there are records."""
        return sorted({path.parent.name for path in self.folder.glob("*/*.jsonl")})

    def read(self, experiment: str) -> list[Record]:
        """All records of an experiment; of several for one run, the latest."""
        graphs = sorted(path.stem for path in (self.folder / experiment).glob("*.jsonl"))
        return [record for graph in graphs for record in self.read_graph(experiment, graph)]

    def read_graph(self, experiment: str, graph: str) -> list[Record]:
        """As `read`, those of one graph."""
        lines = _lines(self.path(experiment, graph))
        return list({record.key: record for record in lines}.values())

    def on_graph(self, graph: str) -> list[Record]:
        """Those of one graph, whatever the experiment."""
        return [record for name in self.experiments() for record in self.read_graph(name, graph)]

    def add(self, record: Record) -> None:
        """Append a record and make sure that it is on disk."""
        content = record.to_json()
        line = json.dumps({**content, CHECKSUM: _checksum(content)})
        append_line(self.path(record.experiment, record.graph), line.encode())


def _lines(path: Path) -> Iterator[Record]:
    """The records of a file; what a killed writer left of a line at its end is no record."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip() or not line.endswith(b"\n"):
            continue
        try:
            content = json.loads(line)
            given = content.pop(CHECKSUM, None)
            older = given is None and is_unchecked(content)
            if not older and given != _checksum(content):
                raise ValueError("its checksum is another one")
            yield Record.from_json(content)
        except (ValueError, AttributeError) as error:
            words = f"no record, or a damaged one ({error}): delete the line to make its run again"
            raise ValueError(f"{path}, line {number}: {words}") from None


def _checksum(content: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, allow_nan=False).encode()):08x}"
