"""The reference that a model stands on: RUN/reference.safetensors, fitted once and kept."""

from __future__ import annotations

from pathlib import Path

from .. import io
from ..references import Fitted
from ..upgrade import FORMAT
from . import folder as files


def write(run: Path, fitted: Fitted) -> None:
    """Keep it; it is in the list of the run from its end on."""
    io.write_tensors(run / files.REFERENCE, fitted.to_tensors(), {"format": FORMAT})


def read(run: Path, name: str, remedy: str) -> Fitted:
    """What `write` wrote, of the reference that is configured; an error ends with the remedy."""
    path = run / files.REFERENCE
    tensors, _ = io.read_tensors(path, remedy)
    try:
        fitted = Fitted.from_tensors(tensors)
    except (TypeError, ValueError, RuntimeError) as error:
        raise io.FileError(f"{path} holds no reference of ours: {error}") from None
    if fitted.name != name:
        raise io.FileError(f"{path} is '{fitted.name}', and configured is '{name}': {remedy}")
    return fitted
