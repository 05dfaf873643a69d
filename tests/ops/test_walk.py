"""The walk above the kernels: what is kept, parts that bound memory, precision, partitions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

import pytest
import torch

from experiments.bench.memory import peak
from subtree_attention import Graph, subtree_attention
from subtree_attention.compressed import CSR
from subtree_attention.ops import budget, library, walk
from subtree_attention.ops.backends import BACKENDS
from subtree_attention.ops.definition import kernel_similarity
from subtree_attention.ops.kernels import Operands, Sizes, cpu, cuda
from subtree_attention.ops.kernels.cuda.schedule import scheduled
from tests.ops.cases import (
    FLOAT64_ERROR,
    assert_all_close,
    error,
    make_map,
    output_and_gradients,
    random_edges,
    random_inputs,
    reference,
)
from tests.ops.emulated_cuda import emulate

NODES, HOPS = 30, 4


@pytest.fixture(params=BACKENDS)
def any_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every backend on the CPU: `cuda` with emulated kernels."""
    if request.param == "cuda":
        emulate(monkeypatch)
        monkeypatch.setattr(cuda, "BLOCK_BYTES", 1)  # so that columns walk in blocks
    elif BACKENDS[request.param].refusal(torch.device("cpu"), torch.float64):
        pytest.skip("needs Numba")
    return request.param


def both(hops: int, weighted: bool, backend: str, *options, heads: int = 3, channels=(8, 25)):
    """Output and every gradient, of `library.run` and of the definition."""
    graph, phi = random_edges(NODES, 200, weighted=True).graph(), make_map("elu", 1)
    inputs = random_inputs(NODES, heads, hops if weighted else None, channels)
    mapped = (phi(inputs.query), phi(inputs.key), inputs.value, inputs.hop_weights)
    out = library.run(*mapped, graph, hops, 1e-6, backend, *options)
    wanted = reference(inputs, graph, hops, kernel_similarity(phi), 1e-6)
    return output_and_gradients(out, inputs.all()), output_and_gradients(wanted, inputs.all())


class TestWhatIsKept:
    sizes = Sizes.of(torch.empty(10, 2, 8), torch.empty(10, 2, 5), 4, torch.float32)
    readouts, state = 10 * 2 * 6, 10 * 2 * 6 * 8

    def kept(self, backend: str, edges: int = 50, state_bytes=None, **changes: int) -> int:
        """How many numbers training keeps."""
        kernel, sizes = BACKENDS[backend], self.sizes._replace(**changes)
        keep = walk.what_to_keep(kernel, sizes, edges, state_bytes)
        return walk.kept_numbers(kernel, sizes, keep, state_bytes)

    def test_plain_torch_keeps_the_read_outs(self):
        assert self.kept("torch") == 4 * self.readouts

    def test_numba_keeps_the_states_up_to_a_number_of_hops_and_of_bytes(self, monkeypatch):
        assert self.kept("numba") == 4 * (self.state + self.readouts)
        assert self.kept("numba", hops=walk.KEPT_HOPS + 1) == 17 * self.readouts
        monkeypatch.setattr(cpu, "KEPT_BYTES", 4 * 4 * self.state - 1)
        assert self.kept("numba") == 4 * self.readouts

    def test_numba_keeps_more_where_a_hop_gathers_many_times_as_much(self, monkeypatch):
        monkeypatch.setattr(cpu, "KEPT_BYTES", 0)
        assert self.kept("numba", edges=399) == 4 * self.readouts
        assert self.kept("numba", edges=400) == 4 * (self.state + self.readouts)  # E = 10 K N
        monkeypatch.setattr(cpu, "MOST_KEPT_BYTES", 4 * 4 * self.state - 1)
        assert self.kept("numba", edges=400) == 4 * self.readouts

    def test_cuda_keeps_all_but_the_first_and_the_last_state_where_they_are_few_and_small(
        self, monkeypatch
    ):
        assert self.kept("cuda", hops=2) == 2 * self.readouts
        assert self.kept("cuda") == 4 * self.readouts + 2 * self.state
        assert self.kept("cuda", state_item=2) == 4 * self.readouts + self.state
        assert self.kept("cuda", hops=walk.KEPT_HOPS + 1) == 17 * self.readouts
        monkeypatch.setattr(cuda, "KEPT_BYTES", 4 * 2 * self.state - 1)
        assert self.kept("cuda") == 4 * self.readouts

    def test_where_a_hop_fills_a_gpu_they_may_take_a_share_of_what_it_gathers(self, monkeypatch):
        monkeypatch.setattr(cuda, "FILLING_BYTES", 0)
        assert self.kept("cuda", 100, hops=3) == 3 * self.readouts + self.state  # E = 10 N
        assert self.kept("cuda", 99, hops=3) == 3 * self.readouts
        assert self.kept("cuda", 199) == 4 * self.readouts

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_parts_that_bound_the_states_keep_none(self, backend):
        by_heads = 2 * 4 * self.state // 2
        assert self.kept(backend, state_bytes=by_heads) == 4 * self.readouts
        assert self.kept(backend, state_bytes=1) == 4 * 10 * 2 * 5 * 2  # a column and its ones

    def test_nothing_is_kept_in_inference(self):
        kernel = BACKENDS["numba"]
        assert walk.kept_numbers(kernel, self.sizes, walk.NOTHING, None) == 0


class TestParts:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("hops", [0, 1, 3, 20])
    @pytest.mark.parametrize("columns", [0, 9, 30, 60])  # of two states, of 26 a head
    def test_output_and_every_gradient(self, weighted, hops, columns, any_backend):
        state_bytes = max(2 * columns * NODES * 8 * 8, 1)
        got, wanted = both(hops, weighted, any_backend, "full", state_bytes)
        assert_all_close(got, wanted, FLOAT64_ERROR)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("hops", [0, 1, 3, 20])
    @pytest.mark.parametrize("state_bytes", [None, 1, 30 * 2 * NODES * 8 * 8])
    def test_where_nothing_is_kept_it_is_walked_again(
        self, weighted, hops, state_bytes, any_backend, monkeypatch
    ):
        kept = []
        forward = walk.forward
        monkeypatch.setattr(walk, "forward", lambda *a: kept.append(forward(*a)) or kept[-1])
        options = "full", state_bytes, "", None, None, walk.NOTHING
        got, wanted = both(hops, weighted, any_backend, *options)
        assert_all_close(got, wanted, FLOAT64_ERROR)
        assert [memory.numel() for _, memory in kept] == [0]

    def test_where_nothing_is_kept_there_are_three_walks(self, any_backend, monkeypatch):
        """Once forward, once for queries and read-outs, once back."""
        walks = []
        for name in ("_forward", "_walk_for_query", "_walk_back"):
            whole = getattr(walk, name)
            monkeypatch.setattr(
                walk, name, lambda *a, name=name, whole=whole: walks.append(name) or whole(*a)
            )
        both(3, True, any_backend, "full", None, "", None, None, walk.NOTHING)
        in_turn = [name for name, _ in groupby(walks)]  # blocks of columns follow each other
        assert in_turn == ["_forward", "_walk_for_query", "_walk_back"]

    def test_bounds_are_just_enough_for_so_many_parts(self):
        sizes = Sizes(nodes=10, heads=3, channels=4, columns=12, hops=2, item=4, state_item=4)
        found = [len(walk.parts(sizes, bound)) for bound in budget.cuts(sizes)]
        assert found == sorted(set(found))
        assert found == [1, 2, 3, 6, 9, 12, 18, 33]

    @pytest.mark.parametrize("columns", range(1, 60))
    def test_they_cover_every_head_and_column_once_and_keep_the_bound(self, columns):
        sizes = Sizes(nodes=10, heads=3, channels=4, columns=12, hops=2, item=4, state_item=4)
        column = 2 * 10 * 4 * 4
        seen = torch.zeros(3, 11)
        for heads, values in walk.parts(sizes, columns * column):
            seen[heads, values] += 1
            part = sizes.part(heads, values)
            assert part.heads * part.columns <= max(columns, 2)
        assert (seen == 1).all()

    @pytest.mark.parametrize("training", [False, True])
    def test_they_bound_the_memory_of_states(self, training, device, backend):
        nodes, heads, channels, values = 500, 4, 32, 31
        unit = nodes * heads * channels * 4  # queries, or read-outs of a hop; a state is 32 of it
        graph = random_edges(nodes, 5 * nodes).graph(device=device)
        inputs = random_inputs(nodes, heads, 3, (channels, values)).to(torch.float32).to(device)

        def most(state_bytes: int | None) -> int:
            def call() -> None:
                with torch.set_grad_enabled(training):
                    out = subtree_attention(
                        *inputs.all()[:3],
                        graph,
                        3,
                        inputs.hop_weights,
                        backend=backend,
                        state_bytes=state_bytes,
                    )
                if training:
                    torch.autograd.grad(out.sum(), inputs.all())

            call()  # what is compiled or made once does not count
            return peak(call, torch.device(device))[1]

        # Beside states: mapped inputs, copies of a part, read-outs, the output and gradients.
        assert most(6 * unit) <= (6 + 24) * unit
        assert most(None) >= 2 * 32 * unit

    def test_a_bound_must_be_a_number_of_bytes(self):
        graph, inputs = random_edges(5, 9).graph(), random_inputs(5)
        with pytest.raises(ValueError, match="state_bytes must be at least 1, got 0"):
            subtree_attention(*inputs.all(), graph, 1, state_bytes=0)


class TestPrecision:
    def test_on_a_cpu_rounded_states_are_refused(self):
        graph, inputs = random_edges(5, 9).graph(), random_inputs(5)
        with pytest.raises(ValueError, match="on a CPU it would only cost precision"):
            subtree_attention(*inputs.all(), graph, 1, states="bfloat16")
        with pytest.raises(ValueError, match=r"unknown states 'half'\. Known: full, bfloat16"):
            subtree_attention(*inputs.all(), graph, 1, states="half")

    def test_they_belong_to_float32(self):
        with pytest.raises(ValueError, match=r"in float32, not in torch\.float64"):
            walk.check_states("bfloat16", torch.device("cuda"), torch.float64)

    @pytest.mark.parametrize("backend", ["cuda", "torch"])
    def test_they_err_by_their_rounding(self, backend, monkeypatch):
        emulate(monkeypatch)
        got, wanted = both(HOPS, True, backend, "bfloat16")
        # A rounding is 2^-9; gradients of weights cancel a little.
        assert_all_close(got, wanted, 3e-2)
        assert max(error(*pair) for pair in zip(got, wanted, strict=True)) > 1e-6

    def test_factors_are_not_rounded(self, monkeypatch):
        """S_0 and G_K have rank one and walk as what they are made of."""
        emulate(monkeypatch)
        for backend in ("cuda", "torch"):
            got, wanted = both(1, True, backend, "bfloat16")
            assert_all_close(got, wanted, FLOAT64_ERROR)


class TestTurns:
    """While rows of one part travel, another goes on."""

    def walks(self, count: int, hops: int, said: list) -> list:
        class Rows:
            def __init__(self, *what) -> None:
                self.what = what

            def wait(self):
                said.append(("came", *self.what))
                return self.what

        def one(part: int):
            for hop in range(hops):
                said.append(("computed", part, hop))
                assert (yield Rows(part, hop)) == (part, hop)
            said.append(("done", part))
            return part

        return [one(part) for part in range(count)]

    def test_another_part_computes_between_sending_and_waiting(self):
        said: list = []
        walk._in_turns(iter(self.walks(2, 3, said)))
        for part in range(2):
            for hop in range(2):
                sent, came = said.index(("computed", part, hop)), said.index(("came", part, hop))
                between = said[sent + 1 : came]
                assert any(each[0] == "computed" and each[1] != part for each in between)

    def test_no_more_at_a_time_than_lanes(self):
        said: list = []
        walk._in_turns(iter(self.walks(5, 2, said)))
        for part in range(walk.LANES, 5):
            assert ("done", part - walk.LANES) in said[: said.index(("computed", part, 0))]
        assert [each for each in said if each[0] == "done"] == [("done", part) for part in range(5)]

    def test_a_single_part_waits(self):
        said: list = []
        assert walk._alone(self.walks(1, 2, said)[0]) == 0
        assert [each[0] for each in said] == ["computed", "came", "computed", "came", "done"]

    @pytest.mark.parametrize("state_bytes", [None, 3000, 1])
    @pytest.mark.parametrize(("heads", "columns"), [(1, 2), (1, 12), (2, 3), (5, 4)])
    def test_parts_on_ranks_are_two_and_the_same_for_all(self, heads, columns, state_bytes):
        sizes = Sizes(10, heads, 4, columns, 3, 4, 4)
        found = {
            str(walk._parts_on_ranks(sizes._replace(nodes=nodes), state_bytes, 40))
            for nodes in (0, 10, 40)
        }
        assert len(found) == 1
        slices = walk._parts_on_ranks(sizes, state_bytes, 40)
        seen = torch.zeros(heads, columns - 1)
        for part in slices:
            seen[part] += 1
        assert (seen == 1).all()
        assert len(slices) >= min(walk.LANES, heads * (columns - 1))


class Partitions:
    """Two partitions of a graph in one process, which hand each other rows before every hop.

    They take turns, so that whatever runs in a kernel runs alone.
    """

    def __init__(self, graph: Graph) -> None:
        self.num_nodes = graph.num_nodes
        odd = torch.arange(graph.num_nodes) % 3 == 1
        self.owned = [odd.nonzero().flatten(), (~odd).nonzero().flatten()]
        self.turn, self.barrier, self.rows = threading.Lock(), threading.Barrier(2), [None, None]

    def walkable(self, kernel, matrix: CSR, part: int) -> walk.Walkable:
        """The rows that a partition owns, and the columns that they need."""
        whole = torch.zeros(self.num_nodes, self.num_nodes, dtype=torch.float64)
        rows = torch.repeat_interleave(matrix.rowptr.diff().long())
        whole.index_put_((rows, matrix.col.long()), matrix.weight, accumulate=True)
        own = whole[self.owned[part]]
        needed = (own != 0).any(0).nonzero().flatten()
        assert len(needed) != len(own)  # rectangular
        row, col = own[:, needed].nonzero(as_tuple=True)
        rowptr = torch.searchsorted(row, torch.arange(len(own) + 1))
        csr = CSR(rowptr.int(), col.int(), own[:, needed][row, col])
        tensors = scheduled(csr) if kernel is BACKENDS["cuda"] else csr
        return walk.Walkable(kernel.matrix([*tensors]), lambda s: self.exchange(s, part, needed))

    def exchange(self, rows: torch.Tensor, part: int, needed: torch.Tensor) -> torch.Tensor:
        self.rows[part] = rows
        self.turn.release()
        try:
            self.barrier.wait()
            full = rows.new_empty(self.num_nodes, *rows.shape[1:])
            for owned, theirs in zip(self.owned, self.rows, strict=True):
                full[owned] = theirs
            self.barrier.wait()
        finally:
            self.turn.acquire()
        return full[needed]

    def run(self, work) -> list:
        """`work(part)` of both at a time."""

        def one(part: int) -> list:
            with self.turn:
                try:
                    return work(part)
                except BaseException:
                    self.barrier.abort()  # or the other waits for ever
                    raise

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, range(2)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 2, 4])
@pytest.mark.parametrize("keep", [walk.READOUTS, walk.STATES_TOO])
def test_partitions_that_exchange_rows_give_what_the_whole_graph_gives(
    weighted, hops, keep, any_backend
):
    kernel = BACKENDS[any_backend]
    graph = random_edges(NODES, 60, weighted=True).graph("sym")
    inputs = random_inputs(NODES, 3, hops if weighted else None, (8, 5))
    query, key, value = (t.detach().exp() for t in inputs.all()[:3])
    weights = inputs.hop_weights.detach() if weighted else None
    whole = Operands(hops, 1e-6, torch.float64, query, key, value, weights)
    levels = () if weighted else (hops + 1,)
    grad = torch.randn(*levels, *value.shape, dtype=torch.float64)
    partitions = Partitions(graph)

    def work(part: int) -> list:
        own = partitions.owned[part]
        operands = replace(whole, query=query[own], key=key[own], value=value[own])
        there = partitions.walkable(kernel, graph.matrix(torch.float64), part)
        back = partitions.walkable(kernel, graph.transpose(torch.float64), part)
        out, kept = walk.forward(kernel, operands, there, keep)
        its_grad = grad[own] if weighted else grad[:, own]
        return [out, *walk.backward(kernel, its_grad, operands, kept, there, back, keep)]

    def together(first, second) -> torch.Tensor:
        axis = first.dim() - 3
        full = first.new_empty(*first.shape[:axis], NODES, *first.shape[axis + 1 :])
        for owned, part in zip(partitions.owned, (first, second), strict=True):
            full.index_copy_(axis, owned, part)
        return full

    one, other = partitions.run(work)
    got = [together(*pair) for pair in zip(one[:4], other[:4], strict=True)]
    matrices = (kernel.matrix(m) for m in kernel.matrices(graph, torch.float64, both=True))
    there, back = map(walk.Walkable, matrices)
    out, kept = walk.forward(kernel, whole, there, walk.READOUTS)
    wanted = [out, *walk.backward(kernel, grad, whole, kept, there, back, walk.READOUTS)]
    assert_all_close(got, wanted[:4], FLOAT64_ERROR)
    if weighted:
        assert_all_close([one[4] + other[4]], wanted[4:], FLOAT64_ERROR)
