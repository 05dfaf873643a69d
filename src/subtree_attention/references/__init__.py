"""References: what an analyst would use instead, on the same split, to be compared with.

None of them is a model of ours. Labels of validation and test units are used for nothing but
their scores, and validation scores to choose how strongly a model is held back.
"""

from .compare import compare
from .comparison import Comparison, Reference
from .stacking import STACKED, Fitted, check, fitted, stackable

__all__ = [
    "STACKED",
    "Comparison",
    "Fitted",
    "Reference",
    "check",
    "compare",
    "fitted",
    "stackable",
]
