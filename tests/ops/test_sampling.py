"""Samples: what they are made of, and that they estimate the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from subtree_attention import Graph, subtree_attention
from subtree_attention.ops import sampling
from subtree_attention.ops.kernels import cpu_sampling, plain_sampling
from subtree_attention.ops.sampling import InEdges, Sampled, among, key_of, sample

NODES = 60
HOPS = {"numba": cpu_sampling.hop, "torch": plain_sampling.hop}


def edges(seed: int = 0, nodes: int = NODES, count: int = 500, loops: bool = False) -> Tensor:
    """Directed edges between all but the last two nodes, some of them parallel."""
    random = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes - 2, (2, count), generator=random)
    ends = torch.cat([ends, ends[:, :9]], dim=1)
    return ends if loops else ends[:, ends[0] != ends[1]]


def weights(count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(1)) + 0.1


@pytest.fixture(params=HOPS)
def by_each(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Numba, and torch in its place."""
    if request.param == "numba":
        pytest.importorskip("numba")
    monkeypatch.setattr(sampling, "_hop_function", lambda: HOPS[request.param])
    return request.param


def dense(sampled: Sampled, nodes: int = NODES) -> Tensor:
    """The sampled matrix in the places of the whole graph, [N, N] float64."""
    source, target = sampled.edge_index
    out = torch.zeros(nodes, nodes, dtype=torch.float64)
    places = sampled.n_id[target], sampled.n_id[source]
    return out.index_put_(places, sampled.entries.double(), accumulate=True)


def as_sets(sampled: Sampled) -> set[tuple[int, int, float]]:
    """Receiver, edge and entry of each edge, whatever the order of nodes."""
    target = sampled.n_id[sampled.edge_index[1]].tolist()
    return set(zip(target, sampled.e_id.tolist(), sampled.entries.tolist(), strict=True))


# ------------------------------------------------------------------------------- whole rows


CASES: dict[str, Callable[[], Graph]] = {
    "rw": lambda: Graph(edges(), NODES),
    "sym, loops": lambda: Graph(edges(), NODES, transition="sym", self_loops=True),
    "mean": lambda: Graph(edges(loops=True), NODES, transition="mean"),
    "weighted": lambda: Graph(edges(), NODES, weights(edges().size(1))),
    "weighted, some loops": lambda: Graph(
        (e := edges(loops=True)), NODES, weights(e.size(1)), "sym", True
    ),
    "as they are": lambda: Graph((e := edges()), NODES, weights(e.size(1)) - 0.5, None),
}


@pytest.mark.parametrize("case", CASES)
def test_all_neighbours_give_the_operator_itself(case: str, by_each: str) -> None:
    graph, hops = CASES[case](), 3
    random = torch.Generator().manual_seed(2)
    shapes = [(NODES, 2, 4), (NODES, 2, 4), (NODES, 2, 3)]
    inputs = [torch.rand(s, generator=random, dtype=torch.float64) + 0.1 for s in shapes]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    seeds = torch.tensor([5, 11, NODES - 1, 11, 3])

    def outputs(take: Tensor, on: Graph) -> Tensor:
        query, key, value = (tensor[take] for tensor in inputs)
        return subtree_attention(query, key, value, on, hops, feature_map="relu", eps=1e-3)

    sampled = sample(InEdges.of(graph), seeds, [-1] * hops, key=0)
    ours = outputs(sampled.n_id, sampled.graph())[:, : len(seeds)]
    exact = outputs(torch.arange(NODES), graph)[:, seeds]
    # Entries are rounded to float32 in a sample: 6e-8 each, three hops of them.
    torch.testing.assert_close(ours, exact, rtol=2e-6, atol=2e-6)
    grad = torch.rand(exact.shape, generator=random, dtype=torch.float64)
    for own, whole in zip(
        torch.autograd.grad(ours, inputs, grad),
        torch.autograd.grad(exact, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(own, whole, rtol=1e-5, atol=1e-5)


def test_entries_of_whole_rows_have_the_bits_of_the_graph(by_each: str) -> None:
    graph = CASES["weighted, some loops"]()
    sampled = sample(InEdges.of(graph), torch.arange(NODES), [-1], key=0)
    assert torch.equal(sampled.col, graph.matrix().col)
    assert torch.equal(sampled.entries, graph.matrix().weight)
    assert torch.equal(sampled.e_id, graph.edge_order)
    assert sampled.graph().walks_by == ("sym", True)


# -------------------------------------------------------------------------------- structure


@pytest.mark.parametrize("by", sampling.BY)
@pytest.mark.parametrize("replace", [False, True])
def test_it_is_made_as_pyg_makes_it(by: str, replace: bool, by_each: str) -> None:
    ends = edges(loops=True)
    graph = InEdges.of(Graph(ends, NODES))
    fanouts, seeds = [4, 3, 2], torch.tensor([7, 2, 30, 41])
    got = sample(graph, seeds, fanouts, key=5, by=by, replace=replace)
    assert torch.equal(got.n_id[:4], seeds)
    assert len(got.n_id.unique()) == len(got.n_id)
    assert got.batch_size == got.num_sampled_nodes[0] == 4
    assert sum(got.num_sampled_nodes) == len(got.n_id)
    assert sum(got.num_sampled_edges) == len(got.col)
    assert [len(got.num_sampled_nodes), len(got.num_sampled_edges)] == [4, 3]
    source, target = got.edge_index
    named = torch.stack([got.n_id[source], got.n_id[target]])
    assert torch.equal(named, ends[:, got.e_id])
    assert bool((torch.diff(target * len(got.n_id) + source) >= 0).all())
    depth = torch.repeat_interleave(torch.arange(4), torch.tensor(got.num_sampled_nodes))
    assert bool((depth[source] <= depth[target] + 1).all())
    most = torch.tensor([*fanouts, 0])[depth]
    rows = got.rowptr.diff()
    in_loops = torch.bincount(target[source == target], minlength=len(rows))
    assert bool((rows - in_loops <= most).all())
    assert bool((rows[depth == 3] == 0).all())
    if not replace or by == "walk":
        assert len(got.e_id.unique()) == len(got.e_id)
    ends_of = torch.bincount(ends[1], minlength=NODES)[got.n_id]
    own_loops = torch.bincount(ends[1][ends[0] == ends[1]], minlength=NODES)[got.n_id]
    if by == "uniform":
        others = ends_of - own_loops
        taken = most.where(others > 0, 0) if replace else torch.minimum(most, others)
        assert torch.equal(rows, (taken + own_loops).where(depth < 3, 0).to(rows.dtype))


def test_loops_are_kept_and_not_counted(by_each: str) -> None:
    graph = Graph(edges(), NODES, transition="sym", self_loops=True)
    diagonal = graph.dense().diagonal()
    for by in sampling.BY:
        got = sample(InEdges.of(graph), torch.arange(NODES), [2], key=1, by=by)
        source, target = got.edge_index
        loops = source == target
        assert int(loops.sum()) == NODES
        torch.testing.assert_close(got.entries[loops].double(), diagonal, rtol=1e-7, atol=0)


def test_no_seeds_and_seeds_that_come_twice(by_each: str) -> None:
    graph = InEdges.of(Graph(edges(), NODES))
    empty = sample(graph, torch.tensor([], dtype=torch.int64), [3, 3], key=0)
    assert [len(empty.n_id), len(empty.col), empty.num_sampled_nodes] == [0, 0, [0, 0, 0]]
    assert empty.graph().num_nodes == 0
    twice = sample(graph, torch.tensor([4, 9, 4]), [3, 3], key=0)
    assert twice.n_id[:3].tolist() == [4, 9, 4]
    first, _, second = twice.graph().dense()[:3]
    assert torch.equal(first, second)
    assert 2 not in twice.col.tolist()
    alone = sample(graph, torch.tensor([NODES - 1]), [3], key=0)
    assert [len(alone.n_id), len(alone.col)] == [1, 0]


def test_the_same_key_draws_the_same_row_in_any_batch(by_each: str) -> None:
    graph = InEdges.of(Graph(edges(), NODES))
    one = sample(graph, torch.tensor([4, 9]), [3, 3], key=8)
    other = sample(graph, torch.tensor([20, 9, 31]), [3, 3], key=8)
    both = set(one.n_id[:2].tolist()) & set(other.n_id[:3].tolist())
    assert both == {9}
    rows = [{edge for edge in as_sets(got) if edge[0] == 9} for got in (one, other)]
    assert rows[0] == rows[1]
    again = sample(graph, torch.tensor([4, 9]), [3, 3], key=8)
    assert all(torch.equal(getattr(one, n), getattr(again, n)) for n in ("n_id", "col", "entries"))
    assert as_sets(sample(graph, torch.tensor([4, 9]), [3, 3], key=9)) != as_sets(one)


@pytest.mark.parametrize("by", sampling.BY)
def test_threads_change_nothing(by: str) -> None:
    pytest.importorskip("numba")
    graph = InEdges.of(Graph(edges(nodes=3000, count=60_000), 3000))
    before = torch.get_num_threads()
    seeds = torch.arange(0, 3000, 7)
    try:
        found = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(sample(graph, seeds, [5, 40], key=3, by=by))
    finally:
        torch.set_num_threads(before)
    for name in ("n_id", "rowptr", "col", "e_id", "entries"):
        assert all(torch.equal(getattr(found[0], name), getattr(f, name)) for f in found[1:])


def test_calls_at_a_time_do_not_meet() -> None:
    graph = InEdges.of(Graph(edges(nodes=2000, count=20_000), 2000))
    lots = torch.randperm(2000, generator=torch.Generator().manual_seed(0)).split(100)

    def drawn(number: int) -> Sampled:
        return sample(graph, lots[number], [4, 4], key=number)

    alone = [drawn(i) for i in range(20)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(drawn, range(20)))
    assert all(torch.equal(a.n_id, b.n_id) for a, b in zip(alone, together, strict=True))
    assert all(bool((room == -1).all()) for room in graph._rooms)
    assert len(graph._rooms) <= 4


def test_torch_draws_the_same_edges_as_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    graph = InEdges.of(CASES["weighted, some loops"]())
    for replace in (False, True):
        got = []
        for hop in HOPS.values():
            monkeypatch.setattr(sampling, "_hop_function", lambda hop=hop: hop)
            got.append(sample(graph, torch.arange(9), [4, 3], key=2, replace=replace))
        assert as_sets(got[0]) == as_sets(got[1])
        assert got[0].num_sampled_nodes == got[1].num_sampled_nodes


def test_without_numba_torch_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling.NumbaKernel, "refusal", lambda *_: "it is missing")
    assert sampling._hop_function() is plain_sampling.hop
    graph = InEdges.of(Graph(edges(), NODES))
    assert sample(graph, torch.arange(3), [2], key=0).batch_size == 3


# ------------------------------------------------------------------------------ distribution


def _shares(graph: InEdges, fanout: int, draws: int, **how: object) -> Tensor:
    """How often each in-edge of node 0 is drawn, [E]."""
    counts = torch.zeros(graph.num_edges)
    for key in range(draws):
        got = sample(graph, torch.tensor([0]), [fanout], key=key, **how)  # type: ignore[arg-type]
        counts[got.e_id] += 1
    return counts / draws


@pytest.mark.parametrize(("degree", "fanout"), [(12, 5), (60, 40), (900, 40)])
def test_every_edge_is_as_likely(degree: int, fanout: int, by_each: str) -> None:
    """Few draws, many of a short row, and many of a long one go different ways."""
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    graph, draws = InEdges.from_edges(star, degree + 1), 400
    share = _shares(graph, fanout, draws)
    chance = fanout / degree
    assert float(share.sum()) == pytest.approx(fanout, rel=1e-5)
    # z-values of the counts: their squares have mean 1, and a spread of sqrt(2 / degree).
    z = (share - chance) / (chance * (1 - chance) / draws) ** 0.5
    assert float(z.square().mean()) == pytest.approx(1, abs=5 * (2 / degree) ** 0.5)
    assert float(z.abs().max()) < 5


@pytest.mark.parametrize("degree", [40, 1500])
def test_the_walk_draws_in_proportion_to_entries(degree: int, by_each: str) -> None:
    """A row that is gone through, and one that is long enough for blocks; with loops between."""
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    star = torch.cat([star, torch.zeros(2, 2, dtype=torch.int64)], dim=1)
    weight = weights(degree + 2) ** 4
    weight[3] = 0.0
    graph = InEdges.from_edges(star, degree + 1, weight, None)
    total, counts, draws, fanout = float(weight[:degree].sum()), torch.zeros(degree), 600, 30
    for key in range(draws):
        got = sample(graph, torch.tensor([0]), [fanout], key=key, by="walk")
        own = got.e_id < degree
        assert float(got.entries[own].sum()) == pytest.approx(total, rel=1e-5)
        assert int((~own).sum()) == 2
        counts[got.e_id[own]] += got.entries[own] * fanout / total
    expected = draws * fanout * weight[:degree] / total
    assert float(counts[3]) == 0
    z = (counts - expected) / expected.clamp(min=1e-9).sqrt()
    z = z[expected > 5]
    assert float(z.square().mean()) == pytest.approx(1, abs=5 * (2 / len(z)) ** 0.5)


def test_a_hub_is_drawn_from_without_going_through_it() -> None:
    pytest.importorskip("numba")
    degree = 100_000
    star = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    graph = InEdges.from_edges(star, degree + 1, transition="mean")
    for by in sampling.BY:
        got = sample(graph, torch.tensor([0]), [10, 10], key=1, by=by)
        assert len(got.col) <= 10
        assert float(got.entries.sum()) == pytest.approx(1, rel=1e-5)
    whole = sample(graph, torch.tensor([0]), [-1], key=1)
    assert len(whole.col) == degree
    assert bool((whole.col.diff() > 0).all())


def _hops_of(sampled: Sampled, z: np.ndarray, hops: int) -> np.ndarray:
    """What the sampled walk brings to the first seed at each hop, of z [N, c]: [hops, c]."""
    parts = sampled.entries.numpy(), sampled.col.numpy(), sampled.rowptr.numpy()
    matrix = scipy.sparse.csr_array(parts, (len(sampled.n_id),) * 2)
    state, out = z[sampled.n_id.numpy()], []
    for _ in range(hops):
        state = matrix @ state
        out.append(state[0])
    return np.stack(out)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So little at a time is not worth several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _attended(seed: int) -> Tensor:
    """(q.k) [v | 1] of all nodes for the query of one root: numerators and denominator, [N, 3]."""
    random = torch.Generator().manual_seed(seed)
    query, keys = torch.rand(4, generator=random), torch.rand(NODES, 4, generator=random)
    value = torch.randn(NODES, 2, generator=random) + 1
    ones = torch.cat([value, torch.ones(NODES, 1)], dim=1)
    return ((keys @ query)[:, None] * ones).double()


@pytest.mark.parametrize("how", ["uniform", "replace", "walk"])
@pytest.mark.parametrize("transition", ["rw", "sym"])
@pytest.mark.usefixtures("one_thread")
def test_the_walk_of_a_sample_is_right_on_average(how: str, transition: str) -> None:
    """Numerators and denominators of hops 1 and 2, without loops and with them.

    At hop 3 a walk may come back to a row that it has gone through, whose draws are the same ones.
    What is left there, and in the quotient, is small here; it falls as more is drawn.
    """
    ends = torch.cat([edges(), edges().flip(0)], dim=1)  # so that walks do come back
    graph = Graph(ends, NODES, transition=transition, self_loops=how == "walk")
    root, draws, z, matrix = 5, 3000, _attended(0), graph.dense()
    kind = {"by": "walk"} if how == "walk" else {"replace": how == "replace"}
    given = InEdges.of(graph)
    samples = (
        sample(given, torch.tensor([root]), [6, 6, 6], key=key, **kind)  # type: ignore[arg-type]
        for key in range(draws)
    )
    found = torch.from_numpy(np.stack([_hops_of(each, z.numpy(), 3) for each in samples]))
    for hop in range(3):
        exact = (torch.linalg.matrix_power(matrix, hop + 1) @ z)[root]
        values = found[:, hop]
        mean, error = values.mean(0), values.std(0) / draws**0.5
        if hop < 2:
            assert bool(((mean - exact).abs() < 5 * error).all())
        else:
            assert bool(((mean - exact).abs() < 5 * error + 0.03 * exact.abs()).all())
        level, quotient = exact[:2] / exact[2], values[:, :2] / values[:, 2:]
        error = quotient.std(0) / draws**0.5
        bias = (quotient.mean(0) - level).abs()
        assert bool((bias < 5 * error + 0.05 * level.abs()).all())


# ---------------------------------------------------------------------------------- clusters


def test_edges_among_nodes_are_those_of_the_graph() -> None:
    graph = Graph(edges(loops=True), NODES, weights(edges(loops=True).size(1)), "sym")
    nodes = torch.arange(3, 40, 2)
    exact = graph.dense()
    got = among(InEdges.of(graph), nodes, rescale=False)
    inside = torch.zeros(NODES, dtype=torch.bool).index_fill_(0, nodes, True)
    torch.testing.assert_close(dense(got), exact * inside[:, None] * inside, rtol=1e-6, atol=1e-7)
    scaled = dense(among(InEdges.of(graph), nodes))
    off = exact - exact.diag().diag()
    torch.testing.assert_close(scaled.diagonal()[nodes], exact.diagonal()[nodes].float().double())
    left = (off * inside).sum(1)[nodes] > 0
    mass = (scaled - scaled.diag().diag()).sum(1)[nodes]
    torch.testing.assert_close(mass, off.sum(1)[nodes] * left, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="there twice"):
        among(InEdges.of(graph), torch.tensor([1, 1]))


# ------------------------------------------------------------------------------ compressed rows


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("self_loops", [False, True])
def test_edges_in_a_file_are_read_where_they_lie(
    tmp_path: Path, dtype: type, self_loops: bool, monkeypatch: pytest.MonkeyPatch, by_each: str
) -> None:
    monkeypatch.setattr("subtree_attention.ops.in_edges.CHUNK", 64)
    graph = Graph(edges(loops=True), NODES, transition="sym")
    rowptr, col, _ = graph.matrix()
    np.save(tmp_path / "col.npy", col.numpy().astype(dtype))
    mapped = torch.from_numpy(np.load(tmp_path / "col.npy", mmap_mode="c"))
    read = InEdges.from_csr(rowptr, mapped, None, "sym", self_loops)
    assert read.col.data_ptr() == mapped.data_ptr()
    same = InEdges.from_edges(graph.edge_index, NODES, None, "sym", self_loops)
    got, wanted = (sample(g, torch.arange(20), [3, 3], key=4) for g in (read, same))
    assert torch.equal(got.n_id[:20], wanted.n_id[:20])
    torch.testing.assert_close(dense(got), dense(wanted), rtol=1e-6, atol=0)
    whole = sample(read, torch.arange(NODES), [-1], key=0)
    exact = Graph(edges(loops=True), NODES, None, "sym", self_loops)
    torch.testing.assert_close(dense(whole), exact.dense(), rtol=1e-6, atol=0)
    if self_loops:
        assert int((whole.e_id == col.numel()).sum()) == NODES - len(
            set((ends := edges(loops=True))[0][ends[0] == ends[1]].tolist())
        )


def test_weighted_rows_in_chunks_have_the_bits_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtree_attention.ops.in_edges.CHUNK", 50)
    weight = weights(edges().size(1))
    graph = Graph(edges(), NODES, weight, "sym")
    raw = graph._receive
    read = InEdges.from_csr(raw.rowptr, raw.col, raw.edge_weight, "sym")
    by_sender, by_receiver = graph._scales()
    assert read.col_scale is not None
    assert read.row_scale is not None
    assert torch.equal(read.col_scale, by_sender)
    assert torch.equal(read.row_scale, by_receiver)
    known = torch.zeros(NODES, dtype=torch.float64).index_add_(0, edges()[0], weight.double())
    given = InEdges.from_csr(raw.rowptr, raw.col, raw.edge_weight, out_degree=known)
    torch.testing.assert_close(given.col_scale, by_sender.square())


def test_what_does_not_fit_is_refused() -> None:
    rowptr, col, _ = Graph(edges(), NODES).matrix()
    graph, seeds = InEdges.from_csr(rowptr, col), torch.tensor([0])
    with pytest.raises(ValueError, match="seeds must be nodes 0 to 59, got 60 to 60"):
        sample(graph, torch.tensor([60]), [2], key=0)
    with pytest.raises(TypeError, match="seeds must hold integers"):
        sample(graph, torch.tensor([0.5]), [2], key=0)
    with pytest.raises(ValueError, match=r"-1 \(all\) or at least 1"):
        sample(graph, seeds, [2, 0], key=0)
    with pytest.raises(TypeError, match="a number for each hop"):
        sample(graph, seeds, 2, key=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"unknown by 'walks'\. Did you mean 'walk'"):
        sample(graph, seeds, [2], key=0, by="walks")
    with pytest.raises(TypeError, match="must be InEdges"):
        sample(Graph(edges(), NODES), seeds, [2], key=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must ascend within a row"):
        InEdges.from_csr(torch.tensor([0, 2, 2]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="must name nodes 0 to 1, got 0 to 2"):
        InEdges.from_csr(torch.tensor([0, 2, 2]), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="lead from 0 to the 2 edges"):
        InEdges.from_csr(torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="a number an edge"):
        InEdges.from_csr(torch.tensor([0, 1]), torch.tensor([0]), torch.rand(2))


def test_keys_differ() -> None:
    keys = {
        key_of(seed, epoch, batch) for seed in range(4) for epoch in range(4) for batch in (0, 1)
    }
    assert len(keys) == 32
    assert all(0 <= key < 2**64 for key in keys)
