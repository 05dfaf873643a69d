"""What is run on 2 and on 4 ranks: each case compares its part with the whole in one process."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import subtree_attention as sta
from subtree_attention import Graph, PartGraph, Partition
from subtree_attention.nn import KnownLabels, NodeNetwork
from subtree_attention.ops import library
from subtree_attention.ops.kernels import cuda
from subtree_attention.partition import Exchange, Mesh, Ranks
from tests.ops.cases import error, random_edges
from tests.ops.emulated_cuda import emulate

NODES = 41
CPU, GPU = torch.device("cpu"), torch.device("cuda")
ALONE = Mesh(Ranks(), Ranks())
Errors = dict[str, float]


def graph_of(transition: str = "sym", loops: bool = True, weighted: bool = True) -> Graph:
    """Directed, with parallel edges, loops and isolated nodes."""
    return random_edges(NODES, 120, weighted=weighted).graph(transition, self_loops=loops)


def owners(how: str, graph: Graph, parts: int) -> Partition:
    if how == "random":
        drawn = torch.randint(0, parts, (NODES,), generator=torch.Generator().manual_seed(1))
        return Partition(drawn, parts)
    if how == "empty":  # the last part has nothing
        return Partition(torch.arange(NODES) % max(parts - 1, 1), parts)
    if how == "metis":
        return Partition.metis(graph, None, parts)
    if how == "streaming":
        return Partition.streaming([*graph.edge_index.split(17, 1)], NODES, parts)
    return Partition.blocks(NODES, parts)


def emulated(nodes: int, heads: int, how: str, states: str, hops: int) -> Errors:
    """The CUDA kernel with emulated launches, in blocks of columns."""
    with pytest.MonkeyPatch.context() as patch:
        emulate(patch)
        patch.setattr(cuda, "BLOCK_BYTES", 1)
        graph = graph_of()
        part = PartGraph.of(graph, owners(how, graph, nodes), mesh(nodes, heads))
        drawn = [torch.rand(NODES, 3, c, dtype=torch.float64) for c in (4, 4, 25)]
        weights = torch.rand(hops + 1, 3, dtype=torch.float64, requires_grad=True)
        weighting = torch.randn(NODES, 3, 25, dtype=torch.float64)

        def run(graph: Graph, rows: Tensor) -> list[Tensor]:
            given = [each[rows].requires_grad_() for each in drawn]
            out = library.run(*given, weights, graph, hops, 1e-6, "cuda", states)
            return [out, *torch.autograd.grad(out, [*given, weights], weighting[rows])]

        mine, whole = run(part, part.nodes), run(graph, torch.arange(NODES))
        errors = [error(a, b[part.nodes]) for a, b in zip(mine[:4], whole[:4], strict=True)]
        errors.append(error(part.shared.mesh.nodes.summed(mine[4]), whole[4]))
    names = ("out", "query", "key", "value", "weights")
    return dict(zip(names, errors, strict=True))


def mesh(nodes: int, heads: int):
    return sta.mesh(nodes=nodes, heads=heads)


def operator(
    nodes: int,
    heads: int,
    how: str = "random",
    backend: str = "torch",
    hops: int = 3,
    device: torch.device = CPU,
    **options,
) -> Errors:
    graph, beta = graph_of(), options.pop("beta", False)
    part = PartGraph.of(graph, owners(how, graph, nodes), mesh(nodes, heads)).to(device)
    graph, numbers = graph.to(device), {"dtype": torch.float64, "device": device}
    H, own = options.pop("H", 3), part.nodes
    drawn = [torch.randn(NODES, H, c, **numbers) for c in (4, 4, 5)]
    weighted = options.pop("weighted", True)
    extra = {"hop_weights": torch.rand(hops + 1, H, **numbers)} if weighted else {}
    if beta:
        extra["beta"] = torch.rand(hops, H, **numbers)
    shape = (NODES, H, 5) if weighted else (hops + 1, NODES, H, 5)
    weighting, axis = torch.randn(shape, **numbers), 0 if weighted else 1

    def run(graph: Graph, rows: Tensor) -> list[Tensor]:
        given = [each[rows].requires_grad_() for each in drawn]
        more = {name: each.clone().requires_grad_() for name, each in extra.items()}
        how = {"backend": backend, **more, **options}
        out = sta.subtree_attention(*given, graph, hops, **how)
        found = torch.autograd.grad(
            out, [*given, *more.values()], weighting.index_select(axis, rows)
        )
        return [out.detach(), *found]

    mine, whole = run(part, own), run(graph, torch.arange(NODES, device=device))
    rank_sums = [part.shared.mesh.nodes.summed(each) for each in mine[4:]]
    errors = {"out": error(mine[0], whole[0].index_select(axis, own))}
    for name, got, wanted in zip(("query", "key", "value"), mine[1:4], whole[1:4], strict=True):
        errors[name] = error(got, wanted[own])
    for name, got, wanted in zip(extra, rank_sums, whole[4:], strict=True):
        errors[name] = error(got, wanted)
    return errors


class Wanted(nn.Module):
    """A layer of its own, as a model: `model(x, graph)`."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.conv = sta.STAConv(6, 8, **options)

    def forward(self, x, graph: Graph) -> Tensor:
        return self.conv(x, graph)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: Wanted(hops=2, heads=2, transition="sym", dropout=0.3),
    "levels": lambda: Wanted(hops=2, heads=2, aggregation="attention", readout="power"),
    "concat": lambda: Wanted(hops=2, heads=3, aggregation="concat", feature_map="softmax-features"),
    "stagnn": lambda: sta.STAGNN(6, 8, 5, hops=3, heads=2, dropout=0.4, transition="sym"),
    "smooth": lambda: sta.STAGNN(6, 9, 5, 3, 3, 0.5, smoothing=2, global_attention=True),
    "layer-norm": lambda: sta.STAFormer(
        6, 8, 5, layers=2, dropout=0.3, input_dropout=0.2, feed_forward=2, jumping="concat"
    ),
    "batch-norm": lambda: sta.STAFormer(
        6, 8, 5, layers=2, norm="batch", dropout=0.3, feed_forward=1, input_projection=True
    ),
}


def model_case(
    name: str,
    nodes: int,
    heads: int,
    how: str = "random",
    sparse: bool = False,
    dtype: torch.dtype = torch.float64,
    loops: bool = True,
    device: torch.device = CPU,
) -> Errors:
    """Outputs, gradients, running statistics, and three steps of Adam with dropout.

    On a GPU a process without ranks draws other masks, but not a single rank.
    """
    graph = graph_of(loops=loops)
    x = torch.randn(NODES, 6, dtype=dtype).to(device)
    x = x * (torch.rand(NODES, 6) < 0.5).to(device) if sparse else x
    target, trains = torch.randn(NODES, 8, dtype=dtype).to(device), torch.rand(NODES) < 0.5
    trains = trains.to(device)
    torch.manual_seed(5)
    model = MODELS[name]().to(dtype).to(device)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    before = torch.get_rng_state()

    def steps(run, rows: Tensor, model: nn.Module, reduce) -> dict[str, Tensor]:
        given = x[rows].to_sparse_csr() if sparse else x[rows].requires_grad_()
        adam, found = torch.optim.Adam(model.parameters(), 0.01, eps=1e-3), {}
        model.train()
        for step in range(3):
            adam.zero_grad()
            out = run(given)
            share = (out - target[rows, : out.size(1)])[trains[rows]].square().sum()
            (share / trains.sum()).backward()
            reduce()
            if step == 0:
                found["out"] = out.detach()
                found |= {f"grad {key}": p.grad.clone() for key, p in model.named_parameters()}
                if not sparse:
                    found["x"] = given.grad.clone()
            adam.step()
        found |= {f"state {key}": value.clone() for key, value in model.state_dict().items()}
        model.eval()
        with torch.no_grad():
            found["evaluated"] = run(given)
        return found

    alone = sta.parallelize(model, graph, ALONE, how="blocks") if device == GPU else None
    one = alone or (lambda x: model(x, graph))
    whole = steps(one, torch.arange(NODES, device=device), model, lambda: None)
    model.load_state_dict(state)
    model.zero_grad()
    world = mesh(nodes, heads)
    torch.set_rng_state(before)
    if torch.distributed.get_rank():  # the first rank's are everybody's
        torch.manual_seed(7)
        nn.init.zeros_(next(model.parameters()))
    parallel = sta.parallelize(model, graph, world, how=owners(how, graph, nodes))
    own = parallel.nodes
    mine = steps(parallel, own, model, parallel.reduce_gradients)
    same = _same_bits(mine)
    of_nodes = {"out", "x", "evaluated"}
    errors = {
        key: error(mine[key], whole[key][own] if key in of_nodes else whole[key]) for key in whole
    }
    return {**errors, "bits on ranks": 0.0 if same else 1.0}


def _same_bits(found: dict[str, Tensor]) -> bool:
    """Whether gradients and parameters are the same bits on all ranks."""
    shared = [v.double().flatten() for k, v in found.items() if k.startswith(("grad", "state"))]
    everybody = Ranks(torch.distributed.group.WORLD).gathered(torch.cat(shared))
    return bool((everybody == everybody[0]).all())


def shown_labels(nodes: int, heads: int) -> Errors:
    """Which labels a step shows is drawn over all nodes."""
    graph, x = graph_of(), torch.randn(NODES, 6, dtype=torch.float64)
    classes = torch.randint(-1, 4, (NODES,))
    model = NodeNetwork(sta.STAGNN(6 + 5, 8, 4, 2, 2, 0.3, transition="sym").double(), 4)
    before = torch.get_rng_state()
    wanted = model(x, graph, labels=KnownLabels(classes, 0.5)), model.asked
    parallel = sta.parallelize(model, graph, mesh(nodes, heads), how="blocks")
    torch.set_rng_state(before)
    own = parallel.nodes
    got = parallel(x[own], labels=KnownLabels(classes[own], 0.5)), model.asked
    errors = {"out": error(got[0], wanted[0][own])}
    return {**errors, "asked": float((got[1] != wanted[1][own]).sum())}


def from_edges(nodes: int, heads: int, transition: str, loops: bool, weighted: bool) -> Errors:
    """Edges that no rank has all of, against those of a whole graph that is cut: to the bit."""
    graph = graph_of(transition, loops, weighted)
    given = random_edges(NODES, 120, weighted=weighted)
    partition, world = owners("random", graph, nodes), mesh(nodes, heads)
    cut = PartGraph.of(graph, partition, world)
    rank = cut.shared.mesh.nodes.rank
    share = torch.arange(120).tensor_split(nodes)[rank]
    weight = None if given.weight is None else given.weight[share]
    how = {"transition": transition, "self_loops": loops}
    made = PartGraph.from_edges(given.index[:, share], partition, world, weight, **how)
    pairs = [
        *zip(cut.matrix(torch.float64), made.matrix(torch.float64), strict=True),
        *zip(cut.transpose(torch.float64), made.transpose(torch.float64), strict=True),
        (cut.nodes, made.nodes),
        (cut.shared.there.send, made.shared.there.send),
        (cut.edge_index, made.edge_index),
    ]
    if not loops:
        looped = PartGraph.of(graph.with_self_loops(), partition, world)
        again = made.with_self_loops()
        pairs += zip(looped.matrix(), again.matrix(), strict=True)
        pairs += zip(looped.transpose(), again.transpose(), strict=True)
    same = all(torch.equal(*pair) for pair in pairs)
    alike = cut.shared[3:] == made.shared[3:] and repr(cut) == repr(made)
    return {"bits": 0.0 if same and alike else 1.0}


def to_itself(dtype: torch.dtype) -> Errors:
    """Rows that the only rank sends to itself, by NCCL, while other work is queued."""
    world = Ranks(torch.distributed.group.WORLD)
    rows = torch.randn(1000, 3, 5, device=GPU).to(dtype)
    send = torch.randperm(1000, device=GPU)[:700]
    exchange, wanted = Exchange(world, send, [700], [700]), torch.cat([rows, rows[send]])
    travelling = exchange.start(rows)
    torch.randn(2000, 2000, device=GPU).matmul(torch.randn(2000, 2000, device=GPU))
    return {"rows": float(not torch.equal(travelling.wait(), wanted))}


def even_alone(case: Callable[[], Errors]) -> Errors:
    """A case in which a single rank talks to itself, as many do with each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ranks, "alone", property(lambda ranks: ranks.group is None))
        return case()


def traffic(backend: str) -> Errors:
    """Bytes that are sent in each hop, against what the partition says."""
    graph, hops, (H, d, c) = graph_of(), 3, (2, 4, 5)
    partition = owners("random", graph, torch.distributed.get_world_size())
    part = PartGraph.of(graph, partition, torch.distributed.group.WORLD)
    rank, item = part.shared.mesh.nodes.rank, 8
    sends = partition.halo(graph.edge_index)[:, rank].sum() * H * item
    back = partition.halo(graph.edge_index.flip(0))[:, rank].sum() * H * item
    given = [torch.rand(part.num_nodes, H, n, dtype=torch.float64) for n in (d, d, c)]
    given = [each.requires_grad_() for each in given]
    there, home = part.shared.there, part.shared.back
    how = {"backend": backend, "hop_weights": torch.ones(hops + 1, dtype=torch.float64)}
    out = sta.subtree_attention(*given, part, hops, feature_map="relu", **how)
    # Factors of the first state, then states; in parts of a head each.
    forward = sends * (d + c + (hops - 1) * d * (c + 1))
    wrong = {"forward": float(there.sent_bytes - forward), "none": float(home.sent_bytes)}
    out.sum().backward()
    # Plain torch walks once more for the queries; numba keeps its states.
    again = forward if backend == "torch" else 0
    wrong["again"] = float(there.sent_bytes - forward - again)
    wrong["back"] = float(home.sent_bytes - back * (d + c + 1 + (hops - 1) * d * (c + 1)))
    messages = 2 * (2 + hops - 1)
    wrong["messages"] = float(there.calls - messages * (2 if again else 1))
    return {name: abs(each) for name, each in wrong.items()}


Cases = dict[str, Callable[[], Errors]]


EMULATED = (3, "random", "full"), (3, "empty", "full"), (2, "empty", "bfloat16")


def operators(nodes: int, heads: int) -> Cases:
    found: Cases = {}
    for backend in ("torch", "numba"):
        whole, parts = {"beta": True}, {"weighted": False, "hops": 2, "state_bytes": 5000}
        for name, how in (("", whole), ("-levels", parts), ("-no-hop", {"hops": 0})):
            case = partial(operator, nodes, heads, backend=backend, **how)
            found[f"operator-{backend}{name}"] = case
    found["operator-one-head"] = partial(operator, nodes, heads, H=1, how="empty")
    for hops, how, states in EMULATED:
        case = partial(emulated, nodes, heads, how, states, hops)
        found[f"emulated-{how}-{states}"] = case
    return found


def models(nodes: int, heads: int, *names: str) -> Cases:
    return {name: partial(model_case, name, nodes, heads) for name in names or MODELS}


def inputs(nodes: int, heads: int) -> Cases:
    """Sparse x, float32, labels, and edges that nobody has all of."""
    found: Cases = {"shown-labels": partial(shown_labels, nodes, heads)}
    for name in ("stagnn", "layer-norm"):
        found[f"{name}-sparse"] = partial(model_case, name, nodes, heads, sparse=True)
    for name in ("smooth", "batch-norm"):
        case = partial(model_case, name, nodes, heads, dtype=torch.float32)
        found[f"{name}-float32"] = case
    for case in (("sym", True, True), ("rw", False, True), ("mean", False, False)):
        found["edges-" + "-".join(map(str, case))] = partial(from_edges, nodes, heads, *case)
    return found


def partitions(nodes: int) -> Cases:
    found: Cases = {}
    for how in ("metis", "streaming", "blocks", "empty"):
        found[f"smooth-{how}"] = partial(model_case, "smooth", nodes, 1, how, loops=False)
    for backend in ("torch", "numba"):
        found[f"traffic-{backend}"] = partial(traffic, backend)
    return found


def on(mesh: str, cases: Cases) -> Cases:
    return {f"{mesh}-{name}": case for name, case in cases.items()}


CASES: dict[int, Cases] = {
    2: {
        **on("2x1", operators(2, 1) | models(2, 1) | inputs(2, 1) | partitions(2)),
        **on("1x2", operators(1, 2) | models(1, 2, "stagnn", "levels", "batch-norm")),
    },
    4: {
        **on("4x1", models(4, 1, "smooth", "batch-norm") | partitions(4)),
        **on("2x2", operators(2, 2) | models(2, 2) | inputs(2, 2)),
        **on("1x4", models(1, 4, "smooth", "concat")),
    },
}


def on_gpu(nodes: int, heads: int) -> Cases:
    """The kernels themselves, in all blocks that they walk in, and models."""
    found: Cases = {}
    for backend in ("cuda", "torch"):
        whole, parts = {"beta": True}, {"weighted": False, "hops": 2, "state_bytes": 5000}
        for name, how in (("", whole), ("-levels", parts), ("-no-hop", {"hops": 0})):
            case = partial(operator, nodes, heads, backend=backend, device=GPU, **how)
            found[f"operator-{backend}{name}"] = case
    for name in MODELS:
        found[name] = partial(model_case, name, nodes, heads, device=GPU)
    for name in ("stagnn", "layer-norm"):
        case = partial(model_case, name, nodes, heads, sparse=True, device=GPU)
        found[f"{name}-sparse"] = case
    for name in ("smooth", "batch-norm"):
        case = partial(model_case, name, nodes, heads, dtype=torch.float32, device=GPU)
        found[f"{name}-float32"] = case
    return found


CASES_ON_GPU: dict[int, Cases] = {
    2: {**on("2x1", on_gpu(2, 1)), **on("1x2", on_gpu(1, 2))},
    4: on("2x2", on_gpu(2, 2)),
}
"""Ranks that share a GPU, over gloo."""

CASES_BY_NCCL: dict[int, Cases] = {
    1: {
        **{
            f"to-itself-{d}": partial(to_itself, getattr(torch, d)) for d in ("float32", "bfloat16")
        },
        **{name: partial(even_alone, case) for name, case in on_gpu(1, 1).items()},
    }
}
"""A rank that has the GPU to itself, which is all that NCCL allows on one."""
