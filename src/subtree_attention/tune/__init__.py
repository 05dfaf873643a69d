"""The search for a recipe: spaces, a study on disk that processes share, the search, its report.

Needs Optuna: `pip install "subtree-attention[tune]"`.
"""

from .loop import search, search_own
from .space import SPACES
from .study import Plan, Study

__all__ = ["SPACES", "Plan", "Study", "search", "search_own"]
