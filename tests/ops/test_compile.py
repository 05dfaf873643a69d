"""The operator under `torch.compile(fullgraph=True)`: no graph break, the same numbers."""

import shutil
from functools import partial

import pytest
import torch
import torch._inductor.config

from subtree_attention import subtree_attention
from tests.ops.cases import EDGES, assert_all_close, output_and_gradients, random_inputs

CASES = [  # compiler, with hop weights; inductor is slow, so once
    ("aot_eager", False),
    ("aot_eager", True),
    pytest.param(
        "inductor",
        True,
        marks=[
            pytest.mark.skipif(not shutil.which("c++"), reason="inductor needs a C++ compiler"),
            pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inductor's own
        ],
    ),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    """Nothing compiled before, nor what lies on disk from another version of an operator."""
    torch.compiler.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        yield


@pytest.mark.parametrize(("compiler", "weighted"), CASES)
def test_compiled_equals_eager(compiler, weighted, device):
    graph = EDGES["directed-weighted"].graph(device=device)  # first used inside the compiled code
    inputs = random_inputs(graph.num_nodes, hops=3 if weighted else None).to(device)

    def operator(query, key, value, weights=None):
        return subtree_attention(query * 2, key, value, graph, 3, weights).square()

    compiled = torch.compile(operator, fullgraph=True, backend=compiler)
    actual = output_and_gradients(compiled(*inputs.all()), inputs.all())
    expected = output_and_gradients(operator(*inputs.all()), inputs.all())
    # What the compiler fuses around the operator may round differently, by some 2^-53.
    assert_all_close(actual, expected, 1e-14)


def _numbers(graph, first):
    return (torch.arange(3, device=graph.device) + first,)


def test_what_a_graph_remembers_may_be_made_inside_compiled_code(device):
    """Several things, of which the compiler sees one after the other: as a GPU's schedules are."""
    graph = EDGES["directed-weighted"].graph(device=device)

    def derived(x):
        found = [graph.cached(("numbers", n), partial(_numbers, first=n))[0] for n in (1, 7)]
        return x * found[0] + found[1] + graph.matrix().weight[:3]

    x = torch.ones(3, device=device)
    compiled = torch.compile(derived, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), derived(x))


def test_compiled_code_calls_the_kernels():
    """It is not taken for an export, which has to do without them."""
    graph = EDGES["directed"].graph()
    inputs, called = random_inputs(graph.num_nodes), []

    def compiler(module, _):
        called.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    def operator(query, key, value):
        return subtree_attention(query, key, value, graph, 3)

    torch.compile(operator, fullgraph=True, backend=compiler)(*inputs.all())
    assert any("subtree_attention" in name for name in called)
    assert not any("index_add" in name for name in called)
