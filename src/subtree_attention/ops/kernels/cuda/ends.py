"""The two ends of a walk on a GPU (`ends.cu`): feature map and ones before it, levels after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log2
from typing import Any

import torch
from torch import Tensor

from .. import Operands
from . import launch
from .compiler import Module
from .layout import padded

_ARGUMENTS = launch.structure(  # as in ends.cu
    pointers="query key value phi_query phi_key ones ungated logits gated readouts hop_weights "
    "beta out grad grad_readouts grad_value products grad_weights beta_products grad_ungated "
    "grad_logits dot phi given grad_phi",
    doubles="eps",
    ints="hops first_hop all_hops columns rows query_row key_row value_row grad_row dot_planes "
    "given_row",
)
MAPS = ("", "elu", "unit")
"""Feature maps by their numbers in ends.cu; the first is none."""
REALS = {torch.float32: "float", torch.float64: "double"}
"""Types as CUDA C++ calls them."""


@dataclass(frozen=True)
class Gradients:
    """Room for what the quotient rule gives: of the read-outs [K, N, H, padded c + 1], and of the
    values as far as hop 0 goes; and room for the gradients of query and key.

    Those of query, key and value are parts of the rows of one tensor, as a layer's projection has
    them: it takes them back without a copy.
    """

    readouts: Tensor
    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True)
class Products:
    """What each node gives to the gradients of hop weights [K + 1, N, H] and beta [K, N, H], as far
    as there are."""

    weights: Tensor | None
    beta: Tensor | None


class Dots:
    """A gradient [N, H, d] in the making: a plane for each slice of columns, `filled` of them hold
    something already."""

    def __init__(self, planes: Tensor) -> None:
        self.planes, self.filled = planes, 0


class Ends:
    """Both ends of one pass.

    Attributes:
        query: phi(q) [N, H, d].
        key: phi(k) [N, H, d].
        ones: [V | 1] [N, H, padded c + 1].
    """

    def __init__(self, operands: Operands) -> None:
        query, key, value = operands.query, operands.key, operands.value
        self.nodes, self.heads, self.values = value.shape
        self.width, self.rows = self.values + 1, self.nodes * self.heads
        self.map = operands.phi
        if not self.map:
            query, key = aligned(query), aligned(key)
        query, key, value = (_with_whole_rows(given) for given in (query, key, value))
        self.query, self.key = query, key
        if self.map:
            self.query, self.key = query.new_empty(query.shape), key.new_empty(key.shape)
        self.ones = value.new_empty(self.nodes, self.heads, padded(self.width))
        self.group = _group(self.values)
        sizes = self.heads, query.size(2), self.width, self.group
        self.kernels = launch.Bound(
            _module(value.dtype, *sizes, self.map, value.device),
            _ARGUMENTS,
            ones=self.ones,
            eps=operands.eps,
            rows=self.rows,
            all_hops=operands.hops,
        )
        self.beta = None if operands.beta is None else operands.beta.contiguous()
        self.given_weights, self.gate = operands.hop_weights, operands.gate
        self.hop_weights = self._weigh()
        entries = self.ones.numel() + (2 * query.numel() if self.map else 0)
        mapped: dict[str, Any] = {"phi_query": self.query, "phi_key": self.key} if self.map else {}
        self._launch(
            "prepare",
            entries,
            query=query,
            key=key,
            value=value,
            query_row=query.stride(0),
            key_row=key.stride(0),
            value_row=value.stride(0),
            **mapped,
        )
        self.given_query, self.given_key = query, key

    def _weigh(self) -> Tensor | None:
        """Hop weights [K + 1, H], gated if there is a gate."""
        weights, gate = self.given_weights, self.gate
        if weights is None or gate is None:
            return None if weights is None else weights.contiguous()
        self.given_weights, self.gate = weights.contiguous(), gate.contiguous()
        table = weights.new_empty(weights.size(0), self.heads)
        self._launch("gate", weights.size(0), **self._gate(), gated=table)
        return table

    def _gate(self) -> dict[str, Any]:
        assert self.given_weights is not None
        columns = self.given_weights.size(1) if self.given_weights.dim() > 1 else 1
        return {"ungated": self.given_weights, "logits": self.gate, "columns": columns}

    def combine(self, readouts: Tensor, out: Tensor, first_hop: int) -> None:
        """Add the levels of some hops to `out`; hop 0 comes with hop 1."""
        self._launch(
            "combine",
            self.rows * self.values,
            readouts=readouts,
            hop_weights=self.hop_weights,
            beta=self.beta,
            out=out,
            hops=readouts.size(0),
            first_hop=first_hop,
        )

    def room(self, hops: int) -> Gradients:
        """Room for the gradients of all hops."""
        return Gradients(self.ones.new_empty(hops, *self.ones.shape), *self._in_one())

    def room_for_products(self, hops: int) -> Products:
        """Of all hops, likewise."""
        like, nodes = self.ones, self.ones.shape[:2]
        return Products(
            None if self.hop_weights is None else like.new_empty(hops + 1, *nodes),
            None if self.beta is None else like.new_empty(hops, *nodes),
        )

    def backward(
        self, grad: Tensor, readouts: Tensor, to: Gradients, products: Products, hops: range
    ) -> None:
        """The quotient rule for some hops, of the read-outs of all of them."""
        self._launch(
            "combine_backward",
            self.rows * self.group,
            len(hops),
            first_hop=hops.start,
            readouts=readouts,
            hop_weights=self.hop_weights,
            beta=self.beta,
            grad=grad,
            grad_readouts=to.readouts,
            grad_value=to.value,
            grad_row=to.value.stride(0),
            products=products.weights,
            beta_products=products.beta,
        )

    def of_others(self, products: Products) -> list[Tensor]:
        """Gradients of hop weights, gate and beta as far as there are."""
        weights, beta = products.weights, products.beta
        others = [] if weights is None else self._ungated(self._summed(weights))
        return others if beta is None else [*others, self._summed(beta)]

    def _summed(self, products: Tensor) -> Tensor:
        """Sums over nodes: [hops, N, H] -> [hops, H]."""
        sums = products.new_empty(len(products), self.heads)
        if sums.numel():
            parts: dict[str, Any] = {"products": products, "grad_weights": sums}
            self.kernels("sum_products", (self.heads, len(products), 1), 256, **parts)
        return sums

    def _ungated(self, grad_weights: Tensor) -> list[Tensor]:
        """Gradients of the hop weights, and of the gate's logits if there are any."""
        if self.gate is None or self.given_weights is None:
            return [grad_weights]
        ungated, logits = torch.empty_like(self.given_weights), torch.empty_like(self.gate)
        parts: dict[str, Any] = {"grad_ungated": ungated, "grad_logits": logits}
        parts |= {"grad_weights": grad_weights, **self._gate()}
        self._launch("gate_backward", len(grad_weights), **parts)
        return [ungated, logits]

    def _in_one(self) -> list[Tensor]:
        """Room for the gradients of query and key [N, H, d] and value [N, H, c], row by row."""
        channels = self.query.size(2)
        widths = channels, channels, self.values
        sizes = [self.heads * width for width in widths]
        parts = self.ones.new_empty(self.nodes, sum(sizes)).split(sizes, dim=1)
        shape = self.nodes, self.heads
        return [part.view(*shape, width) for part, width in zip(parts, widths, strict=True)]

    def unmap_query(self, dots: Dots, grad: Tensor) -> None:
        """Put the gradient of the queries into `grad` [N, H, d]; `dots` is that of phi(q)."""
        self._unmap(dots, self.query, self.given_query, grad)

    def unmap_key(self, dots: Dots, grad: Tensor) -> None:
        """As of the queries."""
        self._unmap(dots, self.key, self.given_key, grad)

    def _unmap(self, dots: Dots, phi: Tensor, given: Tensor, grad: Tensor) -> None:
        parts: dict[str, Any] = {"dot": dots.planes, "dot_planes": dots.filled, "phi": phi}
        parts |= {"given": given, "given_row": given.stride(0)}
        self._launch("unmap", phi.numel(), **parts, grad_phi=grad, grad_row=grad.stride(0))

    def _launch(self, name: str, entries: int, times: int = 1, **parts: Any) -> None:
        if entries:
            self.kernels(name, (ceil(entries / 256), times, 1), 256, **parts)


def _group(values: int) -> int:
    """Lanes that share a row of the read-outs in the backward pass."""
    return min(32, 2 ** ceil(log2(max(values, 1))))


@cache  # asked for in every pass
def _module(
    dtype: torch.dtype,
    heads: int,
    channels: int,
    width: int,
    group: int,
    map: str,
    device: torch.device,
) -> Module:
    return launch.module("ends.cu", macros(dtype, heads, channels, width, group, map), device)


def macros(
    dtype: torch.dtype, heads: int, channels: int, width: int, group: int, map: str
) -> launch.Macros:
    """What the source is specialised by."""
    sizes = {"HEADS": heads, "CHANNELS": channels, "WIDTH": width, "PADDED": padded(width)}
    return (("REAL", REALS[dtype]), *sizes.items(), ("GROUP", group), ("MAP", MAPS.index(map)))


def _with_whole_rows(tensor: Tensor) -> Tensor:
    """[N, H, d] with the numbers of a row beside each other; rows may be further apart."""
    _, heads, channels = tensor.shape
    whole = tensor.stride(2) == 1 and (heads == 1 or tensor.stride(1) == channels)
    return tensor if whole else tensor.contiguous()


def aligned(tensor: Tensor) -> Tensor:
    """The tensor where its rows can be loaded 16 bytes at a time."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
