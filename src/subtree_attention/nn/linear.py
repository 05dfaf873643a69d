"""The linear map of every layer: of dense or sparse x, and for channels known at first sight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from .. import _check, ops
from ..ops.dropout import drop
from .features import Features, as_features


class Linear(nn.Module):
    """x W^T + b, after dropout on x; initial values as PyTorch's and PyG's `Linear`.

    Args:
        in_channels: columns of x; -1 takes them from the first x that comes.
        out_channels: columns of the result.
        bias: whether to learn b.
        dropout: share of the entries of x to drop in training.

    Shapes:
        - x: `[N, in_channels]`, dense, `torch.sparse_csr` or :class:`SparseFeatures`
        - result: `[N, out_channels]`
    """

    gain = 1.0
    """What initial values are scaled by; whoever sets it resets the parameters."""
    weight: Any  # without a size until in_channels is known
    bias: nn.Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if isinstance(in_channels, tuple | list):
            raise ValueError(
                f"in_channels={in_channels!r}: bipartite layers are not supported, since subtree "
                "attention walks within one set of nodes"
            )
        self.in_channels = _check.integer("in_channels", in_channels, -1)
        if self.in_channels != -1:
            _check.integer("in_channels", in_channels, 1)
        self.out_channels = _check.integer("out_channels", out_channels, 1)
        self.dropout = _check.number("dropout", dropout, below=1)
        self.weight, bias = UninitializedParameter(), _check.flag("bias", bias)
        with self._fits():
            free = nn.Parameter(torch.empty(self.out_channels)) if bias else None
        self.register_parameter("bias", free)
        if self.in_channels != -1:
            self._make(self.in_channels)

    def _make(self, in_channels: int) -> None:
        """The weight, now that its size is known."""
        self.in_channels = in_channels
        with self._fits():
            self.weight.materialize((self.out_channels, in_channels))
        self.reset_parameters()

    def _fits(self) -> AbstractContextManager[None]:
        return _check.fits(f"a map of {self.in_channels:,} to {self.out_channels:,} channels")

    def reset_parameters(self) -> None:
        """Back to fresh initial values, which a weight without a size gets later."""
        if self.in_channels == -1:
            return
        # 1 / sqrt(in_channels) for both, the first to the last digit as PyG computes it.
        bound = self.gain * math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * self.in_channels))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            bound = self.gain / math.sqrt(self.in_channels)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Features) -> Tensor:
        """[N, in_channels] -> [N, out_channels]."""
        if not isinstance(x, Tensor) or x.layout != torch.strided or not x.dim():
            x = as_features(x)
        self.take_size_of(x)
        self.check(x)
        if isinstance(x, Tensor):
            x = drop(x, self.dropout, self.training)
            return F.linear(x, self.weight, self.bias)
        dropout = self.dropout if self.training else 0.0
        out = x.times(self.weight.t().contiguous(), dropout)
        return out if self.bias is None else out + self.bias

    def take_size_of(self, x: Features) -> None:
        """Where the number of columns is not known, it is that of this x."""
        if self.in_channels == -1:
            if not x.size(-1):
                raise ValueError("x has no columns, so this layer cannot take their number from it")
            self._make(x.size(-1))

    def check(self, x: Features) -> None:
        """Refuse an x that does not fit."""
        if x.size(-1) != self.in_channels:
            raise ValueError(f"x has {x.size(-1)} channels, this layer takes {self.in_channels}")
        if x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x is {x.dtype}, but the layer is {self.weight.dtype}")
        if x.device != self.weight.device:
            raise ValueError(f"x is on {x.device}, but the layer is on {self.weight.device}")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # A weight without a size cannot be detached: it is handed on as it is.
        super()._save_to_state_dict(destination, prefix, keep_vars or self.in_channels == -1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if is_lazy(weight):
            self.in_channels, self.weight = -1, UninitializedParameter()
        elif weight is not None and self.in_channels == -1:
            self.in_channels = weight.size(-1)
            self.weight.materialize((self.out_channels, self.in_channels))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, bias={self.bias is not None}"


def project(x: Features, heads: int, *lins: Any) -> list[Tensor]:
    """Several linear maps of the same x, the columns of each shared out to heads: -> [N, H, .].

    Of dense x they are one product instead of several small ones. Maps that are more than a weight
    and a bias (lazy, hooked, dropping, replaced by the user) are called one by one.
    """
    x = as_features(x)
    if not isinstance(x, Tensor) or not all(map(is_plain, lins)):
        return [lin(x).unflatten(-1, (heads, -1)) for lin in lins]
    lins[0].check(x)
    weights = [lin.weight for lin in lins]
    biases = [lin.bias for lin in lins if lin.bias is not None]
    if ops.is_watched(x) or torch.is_autocast_enabled(x.device.type):
        return joint_product(x, heads, weights, biases)[0]
    return [*_JointProduct.apply(x, heads, len(lins), *weights, *biases)]


def joint_product(
    x: Tensor, heads: int, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Several linear maps as one: [N, in] -> [N, H, .] for each; and the weight of that one."""
    weight, bias = torch.cat([*weights]), torch.cat([*biases]) if biases else None
    parts = F.linear(x, weight, bias).split([*map(len, weights)], dim=-1)
    return [part.unflatten(-1, (heads, -1)) for part in parts], weight


def joint_gradients(
    grads: Sequence[Tensor], x: Tensor, weight: Tensor, for_x: bool, with_bias: bool
) -> tuple[Tensor | None, Sequence[Tensor], Sequence[Tensor]]:
    """What `joint_product` gives back to x, if it is asked for, to each weight and to each bias."""
    sizes = [part.size(1) * part.size(2) for part in grads]
    grad = None if torch.is_grad_enabled() else ops.joined(grads)
    if grad is None:
        grad = torch.cat([part.flatten(1) for part in grads], dim=1)
    grad_x = grad @ weight if for_x else None
    return grad_x, (grad.t() @ x).split(sizes), grad.sum(0).split(sizes) if with_bias else ()


class _JointProduct(torch.autograd.Function):
    """`joint_product` in one node: what torch would record of it costs more than the product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, maps: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        weights, biases = tensors[:maps], tensors[maps:]
        ctx.save_for_backward(x, *weights)
        ctx.with_bias = bool(biases)
        return tuple(joint_product(x, heads, weights, biases)[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        how = torch.cat(weights), ctx.needs_input_grad[0], ctx.with_bias
        grad_x, grad_weights, grad_biases = joint_gradients(grads, x, *how)
        return grad_x, None, None, *grad_weights, *grad_biases


def is_plain(lin: Any) -> bool:
    """Whether a module is this linear map of a known size, and nothing else."""
    return type(lin) is Linear and not lin.dropout and lin.in_channels != -1 and is_untouched(lin)


def is_untouched(module: nn.Module) -> bool:
    """Whether nobody hooked anything to a module, or put a `forward` in place of its own."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
    )
