"""Training: configuration, recipes, the loop, metrics, and the folder that a run leaves behind."""

from .config import Config
from .evaluate import load_data
from .folder import load
from .loop import fit
from .predict import predict
from .recipes import recipe

__all__ = ["Config", "fit", "load", "load_data", "predict", "recipe"]
