"""References beside run 0: computed once, before anything is trained, and kept in its folder."""

from __future__ import annotations

from pathlib import Path

import torch

from ..references import Comparison, compare
from ..references.compare import MOST_SECONDS
from ..runs import compared
from ..tasks import Problem
from .run import Material
from .watch import Watch


def beside(
    folder: Path, material: Material, problem: Problem, watch: Watch, wanted: bool | None
) -> Comparison | None:
    """What references reach on the split of run 0; None if nobody asks, now or before.

    Args:
        folder: of all runs.
        material: graph and task.
        problem: of run 0.
        watch: told of them, if they are wanted.
        wanted: whether they are computed, if they are not there; None as it was before a stop.
    """
    found = compared.read(folder)
    wanted = compared.asked(folder) if wanted is None else wanted
    if found is None and wanted:
        watch.say(f"references on the split of run 0, at most {MOST_SECONDS:g} s")
        found = compare(material.dataset, material.task, problem.to(torch.device("cpu")))
        compared.write(folder, found)
    if found is not None and wanted:
        watch.compared(found, material.task.metric)
    return found
