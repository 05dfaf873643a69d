"""Layers and the model: global attention, the STA layer, and STAGNN."""

from .conv import STAConv
from .global_attention import global_attention
from .model import STAGNN

__all__ = ["STAGNN", "STAConv", "global_attention"]
