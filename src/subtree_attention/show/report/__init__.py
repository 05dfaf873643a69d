"""A run as one HTML page that needs nothing else: `sta report RUN`."""

from .findings import Findings, gather
from .page import render, write

__all__ = ["Findings", "gather", "render", "write"]
