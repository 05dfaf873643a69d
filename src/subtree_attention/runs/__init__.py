"""Saved runs: the folder that training leaves behind, and what is asked of it."""

from .links import LinkPredictions, predict_links
from .predictions import Predictions, predict
from .saved import SavedRun, Scores, evaluate, open, open_all

__all__ = [
    "LinkPredictions",
    "Predictions",
    "SavedRun",
    "Scores",
    "evaluate",
    "open",
    "open_all",
    "predict",
    "predict_links",
]
