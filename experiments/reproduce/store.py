"""Where the runs of an experiment lie: one JSON line each, in `FOLDER/EXPERIMENT/GRAPH.jsonl`.

Lines are only ever added, under a lock and synced, so that several processes can write and a killed
one loses nothing but the run it was in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from experiments.reproduce.records import Record
from subtree_attention.io import locked

DEFAULT = Path("results/reproduce")


class Store:
    """The records below a folder."""

    def __init__(self, folder: Path = DEFAULT) -> None:
        self.folder = folder

    def path(self, experiment: str, graph: str) -> Path:
        return self.folder / experiment / f"{graph}.jsonl"

    def read(self, experiment: str) -> list[Record]:
        """All records of an experiment; of several for one run, the latest."""
        graphs = sorted(path.stem for path in (self.folder / experiment).glob("*.jsonl"))
        return [record for graph in graphs for record in self.read_graph(experiment, graph)]

    def read_graph(self, experiment: str, graph: str) -> list[Record]:
        """As `read`, those of one graph."""
        lines = _lines(self.path(experiment, graph))
        return list({record.key: record for record in lines}.values())

    def add(self, record: Record) -> None:
        """Append a record and make sure that it is on disk."""
        path = self.path(record.experiment, record.graph)
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
        with locked(path), path.open("ab+") as file:
            if file.tell() and _last_byte(file) != b"\n":  # a writer was killed in its line
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _lines(path: Path) -> Iterator[Record]:
    """The records of a file; what a killed writer left of a line is no record."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError:
            if number == len(lines) or not line.endswith("}"):
                continue
            raise ValueError(f"{path}, line {number}: not a record") from None
        try:
            yield Record.from_json(content)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)
