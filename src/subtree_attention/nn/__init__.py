"""Layers and the model: global attention, the STA layer, and STAGNN."""

from .conv import STAConv
from .everywhere import GlobalAttention, global_attention
from .head_mix import HeadMix
from .models import STAGNN, parameter_groups

__all__ = [
    "STAGNN",
    "GlobalAttention",
    "HeadMix",
    "STAConv",
    "global_attention",
    "parameter_groups",
]
