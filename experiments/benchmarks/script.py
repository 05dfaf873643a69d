"""What the benchmarks share: their options, the paper's graphs, and the file that each leaves."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch

from subtree_attention import datasets
from subtree_attention.config import Config
from subtree_attention.datasets import Dataset
from subtree_attention.io import write_json
from subtree_attention.runs.environment import environment

CPU = torch.device("cpu")

# Those that train longest come first: meanwhile the others are prepared.
GRAPHS = ["computer", "cs", "physics", "pubmed", "photo", "actor", "deezer", "cora", "citeseer"]


def prepare(config: Config) -> Dataset:
    """The graph of a configuration, with its encoding."""
    return datasets.load(config.data.graph).encoded(config.data.encoding)


def parser(about: str | None, *names: str, **options: Any) -> ArgumentParser:
    """The command line of a benchmark.

    Args:
        about: the docstring of its module.
        names: what must be given, in this order.
        options: their defaults, or a default and a line of help for each.
    """
    made = ArgumentParser(description=(about or "").partition("\n")[0])
    for name in names:
        made.add_argument(name)
    for name, value in options.items():
        default, line = value if isinstance(value, tuple) else (value, None)
        made.add_argument(f"--{name}", type=type(default), default=default, help=line)
    made.add_argument("--out", type=Path, required=True, help="the JSON file of the results")
    return made


def leave(out: Path, result: dict[str, Any], device: torch.device = CPU, **more: Any) -> None:
    """Write the results, and what they depend on besides the code."""
    write_json(out, {**result, "environment": environment(device) | more})
    print(f"written to {out}")
