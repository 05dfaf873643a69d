"""The operator alone, forward and backward: ours, library products, edge by edge.

Every version gets the same phi(q), phi(k), values and hop weights and gives back the output and
the gradients of all four; a plain float64 walk says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from experiments.attentions import Attention, EdgewiseAttention, LibraryAttention, edge_tensor_bytes
from experiments.bench import memory
from experiments.bench.measure import TOLERANCE, Run, Version, relative_error
from subtree_attention.graph import Graph
from subtree_attention.ops import backends, library

OURS = "ours"
ROUNDED = 3e-2
"""What is asked of states in bfloat16, whose roundings are 2^-9: a gradient of a quotient is a
difference, which is several times smaller than what is rounded."""


@dataclass(frozen=True)
class Task:
    """One call of the operator.

    Shapes: `inputs` are phi(q), phi(k) [N, H, d], value [N, H, c] and hop weights [K + 1, H];
    `grad` [N, H, c] is what arrives from behind.
    """

    graph: Graph
    hops: int
    eps: float
    inputs: list[Tensor]
    grad: Tensor

    @property
    def channels(self) -> tuple[int, int, int]:
        """Heads H, key channels d and value channels c."""
        return *self.inputs[0].shape[1:], self.inputs[2].size(-1)

    def outcome(self, attend: Attention, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """The output and the gradients of all inputs."""
        leaves = [tensor.to(dtype).detach().requires_grad_() for tensor in self.inputs]
        out = attend(*leaves, self.graph, self.hops, self.eps)
        return [out.detach(), *torch.autograd.grad(out, leaves, self.grad.to(dtype))]

    def state_numbers(self) -> int:
        """The size of the state that walks: N H d (c + 1)."""
        heads, keys, values = self.channels
        return self.graph.num_nodes * heads * keys * (values + 1)

    def needed_bytes(self) -> int:
        """What the algorithm moves at the least, forward and backward, in float32.

        A pass of K hops gathers a neighbour's factors, H (d + c + 1) numbers an edge, at its first
        hop (the state is still an outer product) and the state, H d (c + 1) numbers an edge, at
        the others, and writes the state of every node at each. There are three such passes:
        forward, the states again in the backward, and their gradients on the transposed graph; a
        backend that keeps the states of the first pass moves less.
        Indices, read-outs and the input itself are not counted; a cache may serve gathers faster
        than memory does, so the share of the copy bandwidth can exceed 1.
        """
        heads, keys, values = self.channels
        if self.hops == 0:
            return 0
        at_an_edge = keys + values + 1 + (self.hops - 1) * keys * (values + 1)
        gathered = self.graph.num_edges * heads * at_an_edge
        written = self.hops * self.state_numbers()
        return 3 * 4 * (gathered + written)


def make_task(
    graph: Graph, hops: int, heads: int, key_channels: int, value_channels: int, eps: float
) -> Task:
    """Random inputs on a graph; queries and keys are positive, as after a feature map."""
    torch.manual_seed(0)
    nodes, device = graph.num_nodes, graph.device
    query, key = (torch.rand(nodes, heads, key_channels, device=device) for _ in range(2))
    value, grad = (torch.randn(nodes, heads, value_channels, device=device) for _ in range(2))
    weights = torch.randn(hops + 1, heads, device=device)
    return Task(graph, hops, eps, [query, key, value, weights], grad)


def exact(task: Task) -> list[Tensor]:
    """The outcome in float64."""
    if not memory.fits(6 * 8 * task.state_numbers(), task.graph.device):
        raise MemoryError
    return task.outcome(partial(library.run, backend="torch"), torch.float64)


def our_version(task: Task, backend: str, checked: bool) -> Version:
    """Ours alone; without the check where float64 would take too long."""
    attend = partial(library.run, backend=backend)
    captured = task.graph.device.type == "cuda"  # or small sizes would only show the host's part
    return _version(OURS, attend, task, exact(task) if checked else None, captured=captured)


def versions(task: Task, backend: str) -> list[Version]:
    """Ours first, then whatever else can run here."""
    make = partial(_version, task=task, truth=exact(task))
    ours = partial(library.run, backend=backend)
    table = [make(OURS, ours)]
    if task.graph.device.type == "cuda":
        table.append(make("ours, captured", ours, captured=True))
    for name, other in backends.BACKENDS.items():
        if name != backend and not other.refusal(task.graph.device, torch.float32):
            table.append(make(f"backend {name}", partial(library.run, backend=name)))
    if task.graph.device.type == "cuda":
        rounded = partial(library.run, backend=backend, states="bfloat16")
        table.append(make("ours, bfloat16 states", rounded, tolerance=ROUNDED))
    table.append(make("library products", LibraryAttention(task.graph)))
    needs = edge_tensor_bytes(task.graph, *task.channels)
    return [*table, make("edge-wise", EdgewiseAttention(task.graph), needs_bytes=needs)]


def _version(
    name: str,
    attend: Attention,
    task: Task,
    truth: list[Tensor] | None,
    needs_bytes: int = 0,
    tolerance: float = TOLERANCE,
    captured: bool = False,
) -> Version:
    call = partial(task.outcome, attend)
    build = partial(_captured, call) if captured else partial(_repeated, call)
    if truth is None:
        return Version(name, build, needs_bytes=needs_bytes)

    def error() -> float:
        return relative_error(task.outcome(attend), truth)

    return Version(name, build, error, tolerance, needs_bytes=needs_bytes)


def _repeated(call: Callable[[], object]) -> Run:
    def run(times: int) -> None:
        for _ in range(times):
            call()

    return run


def _captured(call: Callable[[], object]) -> Run:
    """The call as a CUDA graph, as it is in a captured epoch: the time without the host's part."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()  # makes what is made once
    with torch.cuda.graph(graph, stream=stream):
        call()
    return _repeated(graph.replay)
