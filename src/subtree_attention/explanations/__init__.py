"""Why a prediction was made: the exact parts of a root's logits, by hop, head and source node."""

from .explainer import Explainer, explain
from .explanation import GLOBAL, Explanation, Level, Rest, Source
from .pyg import STAExplainer
from .walks import Walk

__all__ = [
    "GLOBAL",
    "Explainer",
    "Explanation",
    "Level",
    "Rest",
    "STAExplainer",
    "Source",
    "Walk",
    "explain",
]
