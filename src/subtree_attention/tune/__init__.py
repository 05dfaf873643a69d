"""The search for a recipe: spaces, a study on disk that processes share, the search, its report.

Needs Optuna: `pip install "subtree-attention[tune]"`.
"""

from .loop import search
from .proposals import Proposals
from .space import SPACES
from .study import Plan, Study

__all__ = ["SPACES", "Plan", "Proposals", "Study", "search"]
