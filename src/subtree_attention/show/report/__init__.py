"""Runs as one HTML page that needs nothing else: `sta report RUN`, and `sta report A B`."""

from .compare import COMPARISON, Comparison, compare, render_comparison, show_comparison
from .findings import Findings, gather
from .page import REPORT, check_target, render, write

__all__ = [
    "COMPARISON",
    "REPORT",
    "Comparison",
    "Findings",
    "check_target",
    "compare",
    "gather",
    "render",
    "render_comparison",
    "show_comparison",
    "write",
]
