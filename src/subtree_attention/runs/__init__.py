"""Saved runs: the folder that training leaves behind, and what is asked of it."""

from .answering import Answering, UnknownNode
from .blocks import Blocks, predict_in_blocks
from .links import LinkPredictions, predict_links
from .predicted import Predicted
from .predictions import Predictions, predict
from .saved import SavedRun, Scores, evaluate, open, open_all
from .what_if import WhatIf

__all__ = [
    "Answering",
    "Blocks",
    "LinkPredictions",
    "Predicted",
    "Predictions",
    "SavedRun",
    "Scores",
    "UnknownNode",
    "WhatIf",
    "evaluate",
    "open",
    "open_all",
    "predict",
    "predict_in_blocks",
    "predict_links",
]
