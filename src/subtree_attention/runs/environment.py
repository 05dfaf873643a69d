"""Where a run is made: its device, and what its numbers depend on besides its configuration."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .._check import without_passwords
from ..graph import as_device
from ..ops.backends import choose


def choose_device(device: str) -> torch.device:
    """The device by name; "auto" is a GPU where there is one."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = as_device(device)
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device '{device}' is not supported: use cpu, cuda or auto")
    return chosen


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run depend on besides its configuration."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([_program(), *map(without_passwords, sys.argv[1:])]),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "backend": choose("auto", device, torch.float32),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


_PACKAGES = (
    "subtree-attention",
    "torch",
    "torch-geometric",
    "numpy",
    "scipy",
    "safetensors",
    "numba",
    "scikit-learn",
    "lightgbm",
    "polars",
    "optuna",
)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _program() -> str:
    """What was called, without where it lies on this machine."""
    program = Path(sys.argv[0])
    if program.name != "__main__.py":
        return program.name
    package = program.parent.name
    return "sta" if package == "subtree_attention" else f"python -m {package}"


@cache
def _commit() -> str | None:
    """The commit that this package runs from: `STA_COMMIT`, or that of the checkout it lies in."""
    if os.environ.get("STA_COMMIT"):
        return os.environ["STA_COMMIT"]
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=10
        ).stdout.strip()

    try:
        if not git("ls-files", here.name):  # installed inside somebody else's repository
            return None
        return git("describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
