"""Saved runs: the folder that training leaves behind, and what is asked of it."""

from .predictions import Predictions, predict
from .saved import SavedRun, open, open_all
from .scores import Scores, evaluate

__all__ = ["Predictions", "SavedRun", "Scores", "evaluate", "open", "open_all", "predict"]
