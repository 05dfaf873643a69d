"""Training on many ranks: see `fit_parallel`, and `sta train --parallel`."""

from .fit import fit_parallel
from .job import Elsewhere, Job, RankLost, refuse_many, refuse_outside
from .outline import InPieces, Outline

__all__ = [
    "Elsewhere",
    "InPieces",
    "Job",
    "Outline",
    "RankLost",
    "fit_parallel",
    "refuse_many",
    "refuse_outside",
]
