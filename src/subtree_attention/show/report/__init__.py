"""A run as one HTML page that needs nothing else: `sta report RUN`."""

from .findings import Findings, gather
from .page import REPORT, check_target, render, write

__all__ = ["REPORT", "Findings", "check_target", "gather", "render", "write"]
