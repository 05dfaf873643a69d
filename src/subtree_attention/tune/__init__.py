"""The search for a recipe: spaces, a study on disk that processes share, the search, its report.

Needs Optuna: `pip install "subtree-attention[tune]"`.
"""

from .loop import search
from .space import SPACES
from .study import Task

__all__ = ["SPACES", "Task", "search"]
