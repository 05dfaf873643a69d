"""Why a prediction was made: the exact parts of a root's logits, by hop, head and source node.

`pyg.STAExplainer` is the same for PyG, which only that module imports.
"""

from .attribution import Attribution, Attributor, Ring
from .changes import Changes
from .columns import Columns
from .explainer import Explainer, explain, explainer_of
from .explanation import (
    CORRECTION,
    GLOBAL,
    REFERENCE,
    RESIDUAL,
    Explanation,
    Level,
    Portion,
    Rest,
    Source,
)
from .flows import Flows
from .walks import Walk

__all__ = [
    "CORRECTION",
    "GLOBAL",
    "REFERENCE",
    "RESIDUAL",
    "Attribution",
    "Attributor",
    "Changes",
    "Columns",
    "Explainer",
    "Explanation",
    "Flows",
    "Level",
    "Portion",
    "Rest",
    "Ring",
    "Source",
    "Walk",
    "explain",
    "explainer_of",
]
