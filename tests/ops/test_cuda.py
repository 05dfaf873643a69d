"""The CUDA kernel: what can be checked without a GPU, and every path of its kernels on one."""

import re
from importlib.resources import files

import pytest
import torch

from subtree_attention import Graph, subtree_attention
from subtree_attention.ops import backends, library, walk
from subtree_attention.ops.definition import kernel_similarity
from subtree_attention.ops.kernels import cuda
from subtree_attention.ops.kernels.cuda import CudaKernel, compiler, ends, schedule, tape
from subtree_attention.ops.kernels.cuda.layout import WARP, Layout, lay_out
from tests.ops.cases import (
    FLOAT64_ERROR,
    Inputs,
    assert_all_close,
    error,
    make_map,
    output_and_gradients,
    random_edges,
    random_inputs,
    reference,
)
from tests.ops.emulated_cuda import emulate

SHAPES = [  # heads, d, c + 1: those of the paper's graphs, then odd and large ones
    (4, 16, 8), (2, 32, 7), (2, 32, 3), (4, 16, 6), (4, 16, 4), (4, 16, 11), (8, 8, 9),
    (6, 10, 16), (8, 8, 6), (4, 16, 71), (4, 16, 41),
    (1, 1, 2), (3, 5, 4), (1, 33, 3), (2, 65, 2), (1, 300, 9), (40, 4, 3), (5, 64, 20),
]  # fmt: skip


def needs_nvrtc() -> None:
    try:
        compiler.nvrtc()
    except OSError as reason:
        pytest.skip(str(reason))


def make_layout(shape, factors, dtype=torch.float32, state_dtype=torch.float32) -> Layout:
    heads, channels, width = shape
    return lay_out(heads, channels, width, width, dtype, state_dtype, factors)


def compiled(place: Layout) -> str:
    source = files(cuda).joinpath("kernels.cu").read_text()
    return compiler.compile_source(source, dict(place.macros), "90")[1]


class TestWithoutAGPU:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("factors", [False, True])
    def test_a_layout_covers_every_channel_and_column_once(self, shape, factors):
        place = make_layout(shape, factors)
        lanes = place.group_heads * place.head_lanes
        held = place.head_lanes * place.per_lane * place.vector
        assert 0 < lanes <= WARP
        assert held >= place.channels > held - place.head_lanes * place.vector
        assert (place.slices - 1) * place.columns < shape[2] <= place.slices * place.columns

    @pytest.mark.parametrize("shape", SHAPES[:11], ids=str)
    @pytest.mark.parametrize("factors", [False, True])
    def test_the_papers_shapes_compile_and_fit_the_registers(self, shape, factors):
        needs_nvrtc()
        report = compiled(make_layout(shape, factors))
        spills = re.findall(r"(\d+) bytes spill stores", report)
        if not spills:
            pytest.skip("this NVRTC does not report spills")
        assert all(int(spill) <= 64 for spill in spills)  # bytes: nothing in a loop

    @pytest.mark.parametrize("shape", SHAPES[-7:], ids=str)
    @pytest.mark.parametrize("dtypes", [("float32", "bfloat16"), ("float64", "float64")])
    def test_every_kind_of_shape_compiles(self, shape, dtypes):
        needs_nvrtc()
        for factors in (False, True):
            compiled(make_layout(shape, factors, *(getattr(torch, name) for name in dtypes)))

    @pytest.mark.parametrize("phi", ends.MAPS)
    def test_the_ends_compile(self, phi):
        needs_nvrtc()
        source = files(cuda).joinpath("ends.cu").read_text()
        macros = dict(ends.macros(torch.float64, 3, 7, 5, 4, phi))
        code = compiler.compile_source(source, macros, "90")[0]
        assert all(name in code for name in (b"prepare", b"unmap", b"sum_products"))

    def test_what_does_not_compile_is_shown(self):
        needs_nvrtc()
        with pytest.raises(compiler.CompileError, match="undefined"):
            compiler.compile_source("__global__ void f() { x = 1; }", {}, "90")

    @pytest.mark.parametrize("piece", [1, 16, 50])
    def test_rows_and_pieces_cover_every_entry_once(self, piece, monkeypatch):
        monkeypatch.setattr(schedule, "SHORTEST_PIECE", piece)
        degrees = torch.tensor([0, 5, 1, 200, 0, 33, 32, 4000, 7])
        rowptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
        rows, pieces = schedule.share_out(rowptr, int(rowptr[-1]))
        seen = torch.zeros(int(rowptr[-1]), dtype=torch.long)
        spans = torch.cat([rows[:, :3], pieces[:, 0, :3]])
        for node, first, last in spans.tolist():
            assert rowptr[node] <= first <= last <= rowptr[node + 1]
            seen[first:last] += 1
        assert (seen == 1).all()
        assert sorted({*spans[:, 0].tolist()}) == list(range(9))
        lengths = rows[:, 2] - rows[:, 1]
        assert (lengths[:-1] >= lengths[1:]).all()
        for index, (first, count) in enumerate(pieces[:, 1, :2].tolist()):
            assert first <= index < first + count
            assert (pieces[first : first + count, 0, 0] == pieces[index, 0, 0]).all()

    @pytest.mark.parametrize("degree", [129, 20_000, 100_000])
    def test_no_sum_of_a_hub_is_long(self, degree):
        """A piece is added up one by one, and so are the pieces; each addition rounds once."""
        _, pieces = schedule.share_out(torch.tensor([0, degree]), degree)
        longest, count = int((pieces[:, 0, 2] - pieces[:, 0, 1]).max()), len(pieces)
        assert (longest + count) * torch.finfo(torch.float32).eps / 2 <= 5e-5

    @pytest.mark.parametrize("channels", [16, 65, 129, 200])
    @pytest.mark.parametrize("values", [7, 28, 40, 70])
    def test_there_is_a_plane_for_every_slice_of_every_block(self, channels, values, monkeypatch):
        launched = emulate(monkeypatch)
        monkeypatch.setattr(cuda, "BLOCK_BYTES", 1)
        inputs = random_inputs(5, 1, None, (channels, values))
        out, wanted = emulated(inputs, 2, nodes=5)
        assert_all_close(
            output_and_gradients(out, inputs.all()),
            output_and_gradients(wanted, inputs.all()),
            FLOAT64_ERROR,
        )
        assert launched.count("walk") > 4

    def test_it_refuses_in_words_where_it_cannot_run(self):
        assert "NVIDIA" in CudaKernel.refusal(torch.device("cpu"), torch.float32)
        assert "float16" in CudaKernel.refusal(torch.device("cuda"), torch.float16)


class TestTheHostSide:
    """What is launched, on which columns and into which memory, with kernels in plain torch."""

    @pytest.mark.parametrize(("weighted", "phi"), [(False, ""), (True, "elu"), (True, "unit")])
    @pytest.mark.parametrize("hops", [0, 1, 2, 3, 5, 20])
    @pytest.mark.parametrize("block", [1, 2**26])
    @pytest.mark.parametrize(("filling", "share"), [(0, 0.0), (0, 10.0), (2**28, 0.1)])
    def test_output_and_gradients(self, weighted, phi, hops, block, filling, share, monkeypatch):
        monkeypatch.setattr(cuda, "BLOCK_BYTES", block)
        monkeypatch.setattr(cuda, "FILLING_BYTES", filling)
        monkeypatch.setattr(cuda, "KEPT_SHARE", share)
        launched = emulate(monkeypatch, capturing=block == 1)  # then two walks run side by side
        inputs = random_inputs(30, 3, hops if weighted else None, (8, 25))
        out, wanted = emulated(inputs, hops, phi=phi)
        assert_all_close(
            output_and_gradients(out, inputs.all()),
            output_and_gradients(wanted, inputs.all()),
            FLOAT64_ERROR,
        )
        few_and_small = 3 <= hops <= walk.KEPT_HOPS and (filling or share)
        assert ("dot_kept" in launched) == bool(few_and_small)

    @pytest.mark.parametrize("hops", [3, 20])
    def test_inference(self, hops, monkeypatch):
        monkeypatch.setattr(cuda, "BLOCK_BYTES", 1)
        emulate(monkeypatch)
        with torch.no_grad():
            assert_all_close(
                *([tensor] for tensor in emulated(random_inputs(30, 3, hops, (8, 25)), hops)),
                FLOAT64_ERROR,
            )

    def test_states_in_bfloat16_are_rounded_and_kept(self, monkeypatch):
        launched = emulate(monkeypatch)
        inputs = random_inputs(30, 3, 4, (8, 5))
        got, wanted = (
            output_and_gradients(out, inputs.all()) for out in emulated(inputs, 4, "bfloat16")
        )
        assert_all_close(got, wanted, 3e-2)
        assert max(error(*pair) for pair in zip(got, wanted, strict=True)) > 1e-6  # rounded
        assert "dot_kept" in launched

    @pytest.mark.parametrize("grown", [0, 3])
    def test_rows_may_be_parts_of_wider_ones(self, grown, monkeypatch):
        """As a layer's projection makes them; slices of what is wider still are copied."""
        emulate(monkeypatch)
        walked, widths = Graph(random_edges(30, 200).index, 30), (24, 24, 15)
        wide = torch.randn(30, sum(widths) + grown, dtype=torch.float64, requires_grad=True)
        parts = wide[:, : sum(widths)].split(widths, dim=1)
        query, key, value = (part.unflatten(1, (3, -1)) for part in parts)
        out = library.run(query, key, value, None, walked, 3, 1e-6, "cuda", phi="elu")
        given = Inputs(query, key, value, None)
        wanted = reference(given, walked, 3, kernel_similarity(make_map("elu", 1)), 1e-6)
        assert_all_close(
            output_and_gradients(out, [wide]), output_and_gradients(wanted, [wide]), FLOAT64_ERROR
        )


def emulated(
    inputs, hops: int, states: str = "full", nodes: int = 30, phi: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output of the backend with emulated kernels, and what is wanted."""
    walked, mapped = Graph(random_edges(nodes, 200).index, nodes), make_map(phi or "elu", 1)
    query, key = inputs.query, inputs.key
    given = (query, key) if phi else (mapped(query), mapped(key))
    how = walked, hops, 1e-6, "cuda", states, None, phi
    out = library.run(*given, inputs.value, inputs.hop_weights, *how)
    return out, reference(inputs, walked, hops, kernel_similarity(mapped), 1e-6)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def hub_graph(num_nodes: int = 60) -> Graph:
    """Some rows far longer than the rest, some empty."""
    index = random_edges(num_nodes, 300).index
    hub = torch.randint(0, num_nodes, (2, 1500), generator=torch.Generator().manual_seed(1))
    hub[1] = hub[1] % 3
    return Graph(torch.cat([index, hub, hub.flip(0)], dim=1), num_nodes).to("cuda")


def both(inputs, walked: Graph, hops: int, backend: str, phi: str = "elu", **options):
    """Output and every gradient, of the backend and of the definition."""
    options["feature_map"] = phi
    query, key, value, weights = inputs.query, inputs.key, inputs.value, inputs.hop_weights
    out = subtree_attention(query, key, value, walked, hops, weights, backend=backend, **options)
    wanted = reference(inputs, walked, hops, kernel_similarity(make_map(phi, 1)), 1e-6)
    return output_and_gradients(out, inputs.all()), output_and_gradients(wanted, inputs.all())


@needs_gpu
class TestOnAGPU:
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("hops", [1, 2, 4])
    @pytest.mark.parametrize("phi", cuda.CudaKernel.maps)
    def test_every_shape_equals_the_definition(self, shape, hops, phi):
        heads, channels, width = shape
        inputs = random_inputs(60, heads, hops, (channels, width - 1)).to("cuda")
        assert_all_close(*both(inputs, hub_graph(), hops, "cuda", phi), FLOAT64_ERROR)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("hops", [3, 20])
    @pytest.mark.parametrize(("filling", "share"), [(0, 0.0), (0, 10.0), (2**28, 0.1)])
    def test_columns_that_walk_one_after_the_other(
        self, weighted, hops, filling, share, monkeypatch
    ):
        monkeypatch.setattr(cuda, "BLOCK_BYTES", 1)
        monkeypatch.setattr(cuda, "FILLING_BYTES", filling)
        monkeypatch.setattr(cuda, "KEPT_SHARE", share)
        inputs = random_inputs(60, 3, hops if weighted else None, (8, 70)).to("cuda")
        assert_all_close(*both(inputs, hub_graph(), hops, "cuda"), FLOAT64_ERROR)
        with torch.no_grad():  # lots of hops, all slices together
            got, wanted = both_outputs(inputs, hub_graph(), hops)
        assert_all_close([got], [wanted], FLOAT64_ERROR)

    def test_rows_that_do_not_start_at_16_bytes(self):
        inputs = random_inputs(60, 2, None, (8, 3)).to("cuda").to(torch.float32)
        for name in ("query", "key", "value"):
            tensor = getattr(inputs, name).detach()
            shifted = torch.empty(tensor.numel() + 1, device="cuda")[1:].view_as(tensor)
            setattr(inputs, name, shifted.copy_(tensor).requires_grad_())
        assert inputs.query.data_ptr() % 16
        assert_all_close(*both(inputs, hub_graph(), 2, "cuda"), 1e-4)

    def test_hubs_give_the_same_bits_in_every_call(self):
        inputs = random_inputs(60, 4, 5, (16, 7)).to("cuda").to(torch.float32)
        walked = hub_graph()
        first, *others = (both(inputs, walked, 5, "cuda")[0] for _ in range(20))
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))

    @pytest.mark.parametrize("hops", [0, 1, 3, 10, 20])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_passes_that_are_played_again(self, hops, weighted, monkeypatch):
        """From the third call on, of tensors of the same shapes."""
        monkeypatch.setattr(tape, "PATIENCE", 1)
        walked = hub_graph()
        for seed in range(4):
            weights = hops if weighted else None
            inputs = random_inputs(60, 4, weights, (16, 7), seed=seed).to("cuda")
            assert_all_close(*both(inputs, walked, hops, "cuda"), FLOAT64_ERROR)
            with torch.no_grad():
                assert_all_close(*([o] for o in both_outputs(inputs, walked, hops)), FLOAT64_ERROR)

    def test_two_outputs_wait_for_their_gradients(self, monkeypatch):
        """What a pass keeps is its own, also where the next is played before it is asked for."""
        monkeypatch.setattr(tape, "PATIENCE", 1)
        walked = hub_graph()
        inputs = [random_inputs(60, 4, 5, (16, 7), seed=seed).to("cuda") for seed in range(4)]
        outs = [both_outputs(each, walked, 5) for each in inputs]
        for (out, wanted), each in zip(reversed(outs), reversed(inputs), strict=True):
            got = output_and_gradients(out, each.all())
            assert_all_close(got, output_and_gradients(wanted, each.all()), FLOAT64_ERROR)

    def test_two_streams_do_not_disturb_each_other(self):
        walked, hops = hub_graph(), 6
        inputs = [random_inputs(60, 4, hops, (16, 7), seed=s).to("cuda") for s in range(2)]
        # Detached: a graph of this stream that lives on is one that the others' gradients would
        # have to come back to, and torch warns of that.
        alone = [[t.detach() for t in both(i, walked, hops, "cuda")[0]] for i in inputs]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in inputs]
        for _ in range(5):
            got = []
            for stream, one in zip(streams, inputs, strict=True):
                with torch.cuda.stream(stream):
                    got.append(both(one, walked, hops, "cuda")[0])
            torch.cuda.synchronize()
            for a, b in zip(alone, got, strict=True):
                assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    @pytest.mark.parametrize("backend", ["cuda", "torch"])
    @pytest.mark.parametrize("shape", [(4, 16, 8), (6, 10, 16), (3, 5, 4), (4, 16, 71)], ids=str)
    def test_states_in_bfloat16_err_by_their_rounding(self, shape, backend):
        heads, channels, width = shape
        inputs = random_inputs(60, heads, 3, (channels, width - 1)).to("cuda").to(torch.float32)
        got, wanted = both(inputs, hub_graph(), 3, backend, states="bfloat16")
        # A rounding is 2^-9; gradients of weights cancel a little.
        assert_all_close(got, wanted, 2e-2)
        assert max(error(*pair) for pair in zip(got, wanted, strict=True)) > 1e-6  # rounded

    @pytest.mark.parametrize("columns", [1, 3, 64, 97, 128, 1000])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_product(self, columns, dtype):
        matrix = backends.prepared(hub_graph().matrix(dtype))
        dense = torch.randn(60, columns, dtype=dtype, device="cuda")
        wanted = hub_graph().dense() @ dense.double()
        assert error(cuda.product(matrix, dense), wanted) < (
            1e-6 if dtype == torch.float32 else 1e-14
        )


def both_outputs(inputs, walked: Graph, hops: int):
    query, key, value, weights = inputs.query, inputs.key, inputs.value, inputs.hop_weights
    out = subtree_attention(query, key, value, walked, hops, weights, backend="cuda")
    return out, reference(inputs, walked, hops, kernel_similarity(make_map("elu", 1)), 1e-6)
