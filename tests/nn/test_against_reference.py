"""STAConv and STAGNN in every combination against a dense model, output and every gradient."""

import pytest
import torch

from subtree_attention import STAGNN, STAConv
from tests.nn.reference import LAYER_OPTIONS, dense_conv, dense_model
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients, pairwise

OPTIONS = pairwise(
    **LAYER_OPTIONS,
    edges=["directed-weighted", "isolated-nodes"],
)


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """In float64, and away from initial values that would hide a mistake (ones, zeros)."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def compare(module, dense, edges, x, **options) -> None:
    graph = EDGES[edges].graph()
    parameters = list(module.parameters())
    actual = output_and_gradients(module(x, graph), parameters)
    expected = output_and_gradients(dense(module, x, graph, **options), parameters)
    assert_all_close(actual, expected, FLOAT64_ERROR)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_model_equals_the_dense_model(options):
    options = dict(options)
    edges, heads, hops = options.pop("edges"), options.pop("heads"), options.pop("hops")
    model = randomised(STAGNN(5, 7, 3, hops, heads, **options))
    compare(model, dense_model, edges, torch.randn(EDGES[edges].num_nodes, 5).double(), **options)


@pytest.mark.parametrize("options", OPTIONS[::2], ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("value_channels", [None, 4])
def test_layer_equals_the_dense_layer(options, value_channels):
    options = dict(options)
    edges, heads, hops = options.pop("edges"), options.pop("heads"), options.pop("hops")
    conv = randomised(STAConv(5, 6, hops, heads, value_channels=value_channels, **options))
    compare(conv, dense_conv, edges, torch.randn(EDGES[edges].num_nodes, 5).double(), **options)


def test_global_attention_of_a_batch_stays_within_its_graphs():
    graph = EDGES["two-components"].graph()
    batch = torch.tensor([0, 0, 0, 1, 1])
    model = randomised(STAGNN(5, 8, 3, heads=2, global_attention=True))
    x = torch.randn(5, 5).double()
    expected = dense_model(model, x, graph, global_attention=True, batch=batch)
    assert_all_close([model(x, graph, batch=batch)], [expected], FLOAT64_ERROR)
    known = model(x, graph, batch=batch, batch_size=2)
    assert_all_close([known], [expected], FLOAT64_ERROR)
    assert not torch.allclose(model(x, graph), expected)


def test_parameters_of_the_released_program():
    """Its sizes: one class for one or many heads, gate and W_O only for many."""
    many = STAGNN(5, 64, 3, hops=3, heads=6)
    assert many.conv.lin_query.weight.shape == (60, 64)  # 6 heads of 64 // 6 channels
    assert many.conv.lin_value.weight.shape == (18, 64)
    assert many.conv.head_mix.lin.weight.shape == (3, 18)
    assert many.conv.gate.logits.shape == (3, 6)
    names = {name for name, _ in STAGNN(5, 64, 3, heads=1).named_parameters()}
    assert {n.split(".")[1] for n in names if n.startswith("conv")} == {
        "lin_query",
        "lin_key",
        "lin_value",
        "aggregation",
    }
