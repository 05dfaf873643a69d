"""What the operators ask of their inputs, and how these are made ready: once, before a backend."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from .. import _check, feature_maps
from ..feature_maps import FeatureMap
from ..graph import Graph

FULL = (torch.float32, torch.float64)
"""What is computed in."""


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """Autocast off: a caller's must not reach the products inside."""
    device = tensor.device.type
    if not torch.compiler.is_compiling() and not torch.is_autocast_enabled(device):
        return nullcontext()  # a context of autocast's costs the host as much as a kernel
    return torch.autocast(device, enabled=False)


def is_watched(tensor: Tensor) -> bool:
    """Whether somebody wants to see operators: a compiler, a mode, a transform, other tensors."""
    return (
        torch.compiler.is_compiling()
        or not (type(tensor) is Tensor or type(tensor) is nn.Parameter)
        or tensor.device.type not in ("cpu", "cuda")
        or torch._C._len_torch_dispatch_stack() > 0
        or feature_maps.transformed()
        or torch._C._get_tracing_state() is not None
    )


def joined(parts: Sequence[Tensor]) -> Tensor | None:
    """The tensor [N, W] whose rows these parts [N, H, .] are, one after the other, if they are."""
    first, width, place = parts[0], sum(part.size(1) * part.size(2) for part in parts), 0
    start, size = first.data_ptr(), first.element_size()
    for part in parts:
        whole = part.stride() == (width, part.size(2), 1)
        if not whole or part.data_ptr() != start + place * size:
            return None
        place += part.size(1) * part.size(2)
    rows = len(first)
    if first.untyped_storage().nbytes() != rows * width * size:
        return None
    return first.as_strided((rows, width), (width, 1), 0)


def check_eps(eps: float) -> float:
    """Return `eps` if it is a finite number of at least 0."""
    return _check.number("eps", eps)


def check_state_bytes(state_bytes: int | None) -> int | None:
    """Return `state_bytes` if it is a number of bytes, or no bound."""
    if state_bytes is None:
        return None
    return _check.integer("state_bytes", state_bytes, 1, sys.maxsize)


def check_graph(graph: Graph) -> None:
    """Refuse what is no Graph."""
    if not isinstance(graph, Graph):
        raise TypeError(
            f"graph must be a subtree_attention.Graph, got {type(graph).__name__}: "
            "Graph(edge_index, num_nodes) makes one"
        )


_WHOLE = {
    "exact": "the exact softmax similarity, which needs powers of the matrix",
    "entries": "entries of edges (edge features, or weights that learn)",
    "exported": "torch.export, torch.func and forward-mode derivatives",
    "root": "the attention of single roots",
    "along_edges": "attention weights along edges",
    "batch": "a batch of many graphs",
    "memory": "a budget of memory, which each rank would plan otherwise,",
}


def refuse_on_a_part(**asked: bool) -> None:
    """Refuse what is asked of a part of a graph and needs the whole of it."""
    for name, is_asked in asked.items():
        if is_asked:
            raise NotImplementedError(
                f"{_WHOLE[name]} cannot be had of a part of a graph: use the whole Graph in one "
                "process"
            )


def check_heads(
    query: Tensor, key: Tensor, value: Tensor, graph: Graph | None = None
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Query, key and value as [N, H, .], and whether they came without a head axis.

    With a graph, they must lie on its nodes.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        _check.floating(name, tensor)
        if tensor.dim() not in (2, 3):
            raise ValueError(
                f"{name} must have shape [N, H, channels] or [N, channels], "
                f"got {_check.shape(tensor)}"
            )
        if graph is not None:
            check_on_graph(name, tensor, graph)
    if query.shape != key.shape:
        raise ValueError(
            f"query and key must have the same shape, got {_check.shape(query)} "
            f"and {_check.shape(key)}"
        )
    if 0 in (query.size(-1), value.size(-1)):
        raise ValueError(
            f"a head needs channels, got queries {_check.shape(query)} and values "
            f"{_check.shape(value)}"
        )
    if query.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "query and value must have the same number of nodes and heads, got "
            f"{_check.shape(query)} and {_check.shape(value)}"
        )
    if value.dim() == 2:
        return query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), True
    return query, key, value, False


def check_on_graph(name: str, tensor: Tensor, graph: Graph) -> None:
    """Refuse what does not lie on the graph's nodes, or on another device."""
    if tensor.size(0) != graph.num_nodes:
        raise ValueError(
            f"{name} has {tensor.size(0)} rows, but the graph has {graph.num_nodes} nodes"
        )
    if tensor.device != graph.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but the graph is on {graph.device}: "
            "move it with graph.to(device)"
        )


def check_hop_weights(hop_weights: Tensor | None, hops: int, heads: int) -> Tensor | None:
    """Hop weights as [K + 1, H]."""
    if hop_weights is None:
        return None
    _check.floating("hop_weights", hop_weights)
    if hop_weights.shape == (hops + 1,):
        return hop_weights[:, None].expand(hops + 1, heads)
    if hop_weights.shape != (hops + 1, heads):
        raise ValueError(
            f"hop_weights must have shape [{hops + 1}] or [{hops + 1}, {heads}] for {hops} hops "
            f"and {heads} heads, got {_check.shape(hop_weights)}"
        )
    return hop_weights


def check_beta(beta: Tensor | None, hops: int, heads: int) -> Tensor | None:
    """Powers of denominators as [K, H]."""
    if beta is None:
        return None
    _check.floating("beta", beta)
    if beta.shape == (hops,):
        return beta[:, None].expand(hops, heads)
    if beta.shape != (hops, heads):
        raise ValueError(
            f"beta must have shape [{hops}] or [{hops}, {heads}] for {hops} hops and {heads} "
            f"heads, got {_check.shape(beta)}"
        )
    return beta


def check_power(beta: float | Tensor, key: Tensor) -> Tensor:
    """The power of one hop's denominators as [H], for keys [N, H, d]."""
    if not isinstance(beta, Tensor):
        return key.new_full((key.size(1),), _check.number("beta", beta, -math.inf))
    _check.floating("beta", beta)
    if beta.shape not in ((), (key.size(1),)):
        raise ValueError(
            f"beta of one hop is a number or has shape [{key.size(1)}], got {_check.shape(beta)}"
        )
    return beta.to(key).expand(key.size(1))


def check_hop_shapes(
    hop_weights: Tensor | None,
    gate: Tensor | None,
    beta: Tensor | None,
    hops: int,
    heads: int,
) -> None:
    """Refuse hop weights, logits of a gate and powers of denominators that do not fit: kernels read
    them as they are."""
    each, table = (hops + 1, heads), ((hops + 1,), (hops + 1, 1), (hops + 1, heads))
    if hop_weights is not None and hop_weights.shape not in (table if gate is not None else [each]):
        raise ValueError(
            f"hop weights of {hops} hops and {heads} heads have shape {list(each)}, "
            f"got {_check.shape(hop_weights)}"
        )
    if gate is not None and gate.shape != (hops, heads):
        raise ValueError(
            f"a gate of {hops} hops and {heads} heads has logits {[hops, heads]}, "
            f"got {_check.shape(gate)}"
        )
    if beta is not None and beta.shape != (hops, heads):
        raise ValueError(
            f"beta of {hops} hops and {heads} heads has shape {[hops, heads]}, "
            f"got {_check.shape(beta)}"
        )


def one_dtype(
    query: Tensor, key: Tensor, value: Tensor, hop_weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The widest dtype of the inputs, float32 at least."""
    given = [query, key, value] + ([] if hop_weights is None else [hop_weights])
    if value.dtype in FULL and all(tensor.dtype == value.dtype for tensor in given):
        return query, key, value, hop_weights
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    weights = None if hop_weights is None else hop_weights.to(dtype)
    return query.to(dtype), key.to(dtype), value.to(dtype), weights


def map_features(
    feature_map: str | FeatureMap, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    """phi(q), phi(k): [N, H, d] -> [N, H, m]; q and k themselves for the exact softmax."""
    if feature_maps.is_softmax(feature_map):
        return query, key
    phi = feature_maps.fixed(feature_map)
    mapped_query, mapped_key = phi(query), phi(key)
    for features, given in ((mapped_query, query), (mapped_key, key)):
        feature_maps.check_output(features, given)
        # A look at values makes a GPU wait, so there a user's map is trusted.
        user_defined = not feature_maps.built_in(feature_map)
        if user_defined and features.device.type == "cpu" and not torch.compiler.is_compiling():
            feature_maps.check_non_negative(features)
    return mapped_query.to(query.dtype), mapped_key.to(key.dtype)
