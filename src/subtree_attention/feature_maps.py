r"""Feature maps: :math:`\mathrm{sim}(q, k) = \phi(q) \cdot \phi(k)` with :math:`\phi \ge 0`.

A feature map takes [..., d] to [..., m] and must not be negative: attention weights are shares.
Those with random projections are modules, so their projections are saved with the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import _check

FeatureMap = Callable[[Tensor], Tensor]


def transformed() -> bool:
    """Whether somebody may ask for more than a gradient: `torch.func`, or forward-mode derivatives.

    A compiler sees to that by itself.
    """
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _elu_plus_one(x: Tensor) -> Tensor:
    """exp(x) up to 0 and x + 1 above, each by itself: elu(x) + 1 would lose exp(x) beside its 1."""
    # Some versions lose the gradient of what is written in place, and vmap cannot write there.
    if torch.compiler.is_compiling() or transformed():
        return x.clamp(max=0).exp() + x.clamp(min=0)
    return x.clamp(max=0).exp_().add_(x.clamp(min=0))


class _EluPlusOne(torch.autograd.Function):
    """elu(x) + 1, which tells its gradient from its result: x is not kept for it."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _elu_plus_one(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        return grad * phi.clamp(max=1)  # exp(x) below 0, where it is phi itself; 1 above


def elu(x: Tensor) -> Tensor:
    """elu(x) + 1, the paper's choice."""
    _check.floating("x", x)
    asked = x.requires_grad and torch.is_grad_enabled()
    return _EluPlusOne.apply(x) if asked and not transformed() else _elu_plus_one(x)


relu, softplus = F.relu, F.softplus  # max(x, 0); log(1 + exp(x)), smooth and positive everywhere


class _Unit(torch.autograd.Function):
    """`_unit`, which tells its gradient from its result and the length: x is not kept for it."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return _unit(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
        phi, length = ctx.saved_tensors
        along = (grad * phi).sum(-1, keepdim=True)
        # Across phi only, which stays as long as it is; then exp(x) below 0 and 1 above.
        return (grad - along * phi) / length * (phi * length).clamp(max=1)


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """elu(x) + 1 over its length, and the length, which is never 0."""
    phi = _elu_plus_one(x)
    length = phi.norm(dim=-1, keepdim=True).clamp(min=SHORTEST)
    return phi / length, length


SHORTEST = 1e-30
"""Where all features of a node vanish, `unit` leaves them so instead of dividing by 0."""


def unit(x: Tensor) -> Tensor:
    """(elu(x) + 1) / |elu(x) + 1|: similarities are cosines between 0 and 1.

    Then a read-out that is not divided by its denominator stays within the plain walk of the
    values, however deep layers are stacked.
    """
    _check.floating("x", x)
    asked = x.requires_grad and torch.is_grad_enabled()
    watched = transformed() or torch.compiler.is_compiling()
    return _Unit.apply(x)[0] if asked and not watched else _unit(x)[0]


def softmax(x: Tensor) -> Tensor:
    """Stands for the similarity exp(q.k / sqrt(d)) itself, which no finite map gives.

    The operators evaluate it exactly instead of mapping queries and keys; it cannot be called.
    """
    raise TypeError(
        "the exact softmax similarity has no finite feature map: SoftmaxFeatures approximates it"
    )


def is_softmax(feature_map: str | FeatureMap) -> bool:
    """Whether this is the exact softmax similarity, by name or as `build` gives it."""
    return feature_map is softmax or (isinstance(feature_map, str) and feature_map == "softmax")


def name_of(feature_map: str | FeatureMap) -> str:
    """The name of a map that is plain and ours, by name or as `build` gives it; "" of others."""
    if isinstance(feature_map, str):
        return feature_map
    return next((name for name, plain in _PLAIN.items() if plain is feature_map), "")


class _RandomFeatures(nn.Module):
    r"""exp(w.x - r |x|^2) over block-orthogonal Gaussian directions w.

    With inputs scaled by :math:`d^{-1/4}`, r = 1/2 estimates the softmax kernel without bias and
    r = 1 the RBF kernel: both are positive, so denominators are too. Meant for scaled inputs of
    length up to about 10: beyond, the features of float32 fade to 0.

    Args:
        channels: d, the width of a query or key.
        num_features: m, the number of random directions; the error shrinks like 1/sqrt(m).
    """

    norm_factor: float
    projection: Tensor

    def __init__(self, channels: int, num_features: int = 128) -> None:
        super().__init__()
        self.channels = _check.integer("channels", channels, 1)
        self.num_features = _check.integer("num_features", num_features, 1)
        with _check.fits(f"a feature map of {channels:,} to {num_features:,} channels"):
            self.register_buffer("projection", torch.empty(num_features, channels))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new directions from torch's global generator.

        They are orthogonal within blocks of as many as channels, which estimates the kernel with
        less variance than independent ones, and as long as Gaussian vectors.
        """
        rows, columns = self.projection.shape
        blocks = torch.randn(math.ceil(rows / columns), columns, columns)
        orthogonal, upper = torch.linalg.qr(blocks)
        signs = upper.diagonal(dim1=-2, dim2=-1).sign()  # makes them uniform over rotations
        directions = (orthogonal * signs.unsqueeze(-2)).mT.flatten(0, 1)[:rows]
        norms = torch.randn(rows, columns).norm(dim=1, keepdim=True)
        self.projection.copy_(directions * norms)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., m]."""
        _check.floating("x", x)
        if not x.dim() or x.size(-1) != self.channels:
            got = x.size(-1) if x.dim() else "none"
            raise ValueError(f"this feature map was made for {self.channels} channels, got {got}")
        x = x * self.channels**-0.25
        log_features = x @ self.projection.to(x.dtype).t()
        log_features = log_features - self.norm_factor * x.square().sum(-1, keepdim=True)
        return log_features.exp() / math.sqrt(self.num_features)

    def extra_repr(self) -> str:
        return f"{self.channels}, num_features={self.num_features}"


class SoftmaxFeatures(_RandomFeatures):
    r"""Positive random features of the softmax kernel :math:`\exp(q \cdot k / \sqrt d)`."""

    norm_factor = 0.5


class RBFFeatures(_RandomFeatures):
    r"""Positive random features of the RBF kernel :math:`\exp(-|q - k|^2 / (2 \sqrt d))`."""

    norm_factor = 1.0


_PLAIN: dict[str, FeatureMap] = {"elu": elu, "relu": relu, "softplus": softplus, "unit": unit}


def _whatever_the_width(plain: FeatureMap) -> Callable[[int], FeatureMap]:
    return lambda channels: plain


FEATURE_MAPS: dict[str, Callable[[int], FeatureMap]] = {
    **{name: _whatever_the_width(plain) for name, plain in _PLAIN.items()},
    "softmax-features": SoftmaxFeatures,
    "rbf-features": RBFFeatures,
    "softmax": _whatever_the_width(softmax),
}
"""Name -> a function that makes the map for keys of the given width."""

RANDOM = ("softmax-features", "rbf-features")


def build(feature_map: str | FeatureMap, channels: int) -> FeatureMap:
    """The feature map of a layer whose queries and keys are `channels` wide.

    A callable of the user's is tried once on a small sample and refused if it is negative there.
    """
    _check.integer("channels", channels, 1)
    if isinstance(feature_map, str):
        return FEATURE_MAPS[_check.known("feature map", feature_map, FEATURE_MAPS)](channels)
    if not callable(feature_map):
        raise TypeError(
            f"feature_map must be a name ({', '.join(FEATURE_MAPS)}) or a function of a tensor, "
            f"got {feature_map!r}"
        )
    if feature_map is softmax:
        return softmax
    sample = torch.linspace(-3, 3, 8 * channels).view(8, 1, channels)
    if isinstance(feature_map, nn.Module):
        tensors = [*feature_map.parameters(), *feature_map.buffers()]
        sample = sample.to(next((t for t in tensors if t.is_floating_point()), sample))
    with torch.no_grad():
        features = feature_map(sample)
    check_output(features, sample)
    check_non_negative(features)
    return feature_map


def built_in(feature_map: str | FeatureMap) -> bool:
    """Whether a map is one of ours, which are never negative."""
    ours = isinstance(feature_map, str | _RandomFeatures)
    return ours or feature_map in _PLAIN.values()


def fixed(feature_map: str | FeatureMap) -> FeatureMap:
    """The feature map of one functional call: random maps must come as modules."""
    if isinstance(feature_map, str) and feature_map in RANDOM:
        raise ValueError(
            f"'{feature_map}' draws random projections, which one call would throw away: build "
            "the module once (subtree_attention.feature_maps) and pass that"
        )
    return feature_map if callable(feature_map) else build(feature_map, 1)


def check_output(features: Tensor, x: Tensor) -> None:
    """Refuse what is not [..., m], m at least 1, for an input of [..., d]."""
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.shape[:-1] != x.shape[:-1] or not features.size(-1):
        got = _check.shape(features) if is_tensor else type(features).__name__
        raise ValueError(
            f"a feature map takes {_check.shape(x)} to [..., m] with m of at least 1, "
            f"this one gave {got}"
        )


def check_non_negative(features: Tensor) -> None:
    """Refuse negative features. It looks at values: not for a compiled or captured step."""
    if bool((features < 0).any()):
        raise ValueError(
            "a feature map must not be negative (attention weights are shares of a whole), but "
            f"this one gave {float(features.detach().min()):.4g}"
        )
