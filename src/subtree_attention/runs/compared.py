"""What references reached beside run 0: OUT/references.json, computed once and kept.

Before they are there, the file says that they are asked for: whoever goes on after a stop knows it.
"""

from __future__ import annotations

from pathlib import Path

from .. import io
from ..references import Comparison
from ..upgrade import FORMAT, upgrade
from . import folder as files

ASKED = "asked"


def write(out: Path, comparison: Comparison) -> None:
    """Keep it; it is in the list of the folder from the end of all runs on."""
    io.write_json(out / files.REFERENCES, {"format": FORMAT, **comparison.to_dict()})


def ask(out: Path) -> None:
    """They are to be there before anything is trained."""
    if not (out / files.REFERENCES).exists():
        io.write_json(out / files.REFERENCES, {"format": FORMAT, ASKED: True})


def asked(out: Path) -> bool:
    """Whether they are there, or to be there."""
    there = (out / files.REFERENCES).exists() and not files.is_done(out)
    return there or files.REFERENCES in files.listed(out)


def read(out: Path) -> Comparison | None:
    """What `write` wrote; None if there is nothing that counts."""
    path, names = out / files.REFERENCES, files.listed(out)
    if path.name in names:
        files.check_listed(path)
    elif files.is_done(out) or not path.exists():
        return None
    try:
        content = upgrade("comparison", io.read_json(path))
        if content == {"format": FORMAT, ASKED: True}:
            return None
        return Comparison.from_dict(content)
    except (TypeError, ValueError) as error:
        raise io.FileError(f"{path} does not say what references reached: {error}") from None
