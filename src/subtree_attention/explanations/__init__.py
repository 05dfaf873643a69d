"""Why a prediction was made: the exact parts of a root's logits, by hop, head and source node.

`pyg.STAExplainer` is the same for PyG, which only that module imports.
"""

from .explainer import Explainer, explain
from .explanation import GLOBAL, Explanation, Level, Rest, Source
from .walks import Walk

__all__ = [
    "GLOBAL",
    "Explainer",
    "Explanation",
    "Level",
    "Rest",
    "Source",
    "Walk",
    "explain",
]
