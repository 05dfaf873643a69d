"""What the benchmarks share: their options, and the file that each leaves."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch

from subtree_attention.io import write_json
from subtree_attention.runs.environment import environment

CPU = torch.device("cpu")


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
