"""Saved runs: the folder that training leaves behind, and what is asked of it."""

from .predictions import Predictions, predict
from .saved import SavedRun, Scores, evaluate, open, open_all

__all__ = ["Predictions", "SavedRun", "Scores", "evaluate", "open", "open_all", "predict"]
