"""Sparse features: the same numbers as dense ones, and never made dense."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from subtree_attention import STAGNN, STAConv
from subtree_attention.datasets.features import csr_tensor
from subtree_attention.nn import Linear, SparseFeatures, as_features
from subtree_attention.ops.dropout import drop
from tests.ops.cases import EDGES, FLOAT64_ERROR, assert_all_close, output_and_gradients

# PyTorch says this once per process, whoever makes the first CSR matrix.


def bag_of_words(num_nodes: int, channels: int = 12) -> torch.Tensor:
    x = torch.randn(num_nodes, channels, dtype=torch.float64)
    x[torch.rand_like(x) < 0.7] = 0
    x[0] = 0  # a node without words, and a word without nodes
    x[:, 1] = 0
    return x


@pytest.mark.parametrize("make", [STAConv, lambda *a, **k: STAGNN(a[0], 8, *a[1:], **k)])
@pytest.mark.parametrize("lazy", [False, True])
def test_sparse_x_equals_dense_x_in_output_and_every_gradient(make, lazy, monkeypatch):
    graph, x = EDGES["directed"].graph(), bag_of_words(11)
    sparse = x.to_sparse_csr()
    module = make(-1 if lazy else 12, 4, heads=2).double()
    expected = output_and_gradients(module(x, graph), list(module.parameters()))

    def refuse(*_):
        raise AssertionError("sparse features were made dense")

    monkeypatch.setattr(torch.Tensor, "to_dense", refuse)
    for given in (sparse, SparseFeatures(sparse)):
        actual = output_and_gradients(module(given, graph), list(module.parameters()))
        assert_all_close(actual, expected, FLOAT64_ERROR)


def test_prepared_features_follow_values_changed_in_place():
    linear, sparse = Linear(12, 3).double(), bag_of_words(6).to_sparse_csr()
    prepared = SparseFeatures(sparse)
    sparse.values().mul_(2)
    actual = output_and_gradients(linear(prepared), [linear.weight])
    expected = output_and_gradients(linear(sparse.to_dense()), [linear.weight])
    assert_all_close(actual, expected, FLOAT64_ERROR)


class Sorts(TorchDispatchMode):
    """Counts what a transpose begins with."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("sort", "argsort")
        return func(*args, **(kwargs or {}))


def test_a_transpose_is_made_once_by_whoever_prepares_and_never_for_inference():
    conv, x = STAConv(12, 4, heads=2).double(), bag_of_words(11).to_sparse_csr()
    graph = EDGES["directed"].graph()
    with Sorts() as preparing:
        prepared = as_features(x)
    with Sorts() as training:
        for _ in range(3):
            conv(prepared, graph).sum().backward()
    with Sorts() as unprepared:
        conv(x, graph).sum().backward()  # once for queries, keys and values
    with Sorts() as inference, torch.no_grad():
        expected = conv(prepared, graph)
        assert torch.equal(conv(x, graph), expected)
    counts = [preparing.count, training.count, unprepared.count, inference.count]
    assert counts == [1, 0, 1, 0]


def test_features_prepared_without_gradients_train_too():
    linear, x = Linear(12, 3).double(), bag_of_words(6)
    with torch.no_grad():
        prepared = as_features(x.to_sparse_csr())
    actual = output_and_gradients(linear(prepared), [linear.weight])
    expected = output_and_gradients(linear(x), [linear.weight])
    assert_all_close(actual, expected, FLOAT64_ERROR)


def test_what_is_prepared_is_freed_with_its_holder():
    prepared = as_features(bag_of_words(6).to_sparse_csr())
    gone = weakref.ref(prepared.matrix.weight)
    Linear(12, 3).double()(prepared).sum().backward()
    del prepared
    assert gone() is None


def test_dropout_drops_non_zeros_in_output_and_gradient():
    linear, sparse = Linear(12, 3, dropout=0.5).double(), bag_of_words(6).to_sparse_csr()
    torch.manual_seed(3)
    actual = output_and_gradients(linear(sparse), [linear.weight])
    torch.manual_seed(3)
    kept = drop(sparse.values(), 0.5)
    dropped = csr_tensor(sparse.crow_indices(), sparse.col_indices(), kept, sparse.shape).to_dense()
    expected = output_and_gradients(dropped @ linear.weight.t() + linear.bias, [linear.weight])
    assert_all_close(actual, expected, FLOAT64_ERROR)
    assert (kept == 0).any()


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_dropout_keeps_the_expectation(layout):
    x = torch.ones(1, 4000).to_sparse_csr()
    linear = Linear(4000, 1, bias=False, dropout=0.5)
    torch.nn.init.constant_(linear.weight, 1 / 4000)
    out = linear(x if layout == torch.sparse_csr else x.to_dense())
    # Each of 4000 entries is 0 or 2 / 4000: standard deviation 1/sqrt(4000) = 0.016.
    assert abs(float(out.detach()) - 1) < 5 * 0.016
    assert float(linear.eval()(x).detach()) == pytest.approx(1, abs=1e-4)  # float32 sum


def test_without_bias_and_with_an_empty_matrix():
    linear = Linear(12, 3, bias=False)
    out = linear(torch.zeros(5, 12).to_sparse_csr())
    assert torch.equal(out, torch.zeros(5, 3))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.eye(3).to_sparse(), ValueError, "got torch.sparse_coo: use x.to_sparse_csr"),
        (torch.randn(3), ValueError, r"x must have shape \[N, channels\], got \[3\]"),
        (torch.randn(3, 5), ValueError, "x has 5 channels, this layer takes 3"),
        (torch.ones(3, 3, dtype=torch.long), TypeError, "x must hold floating-point numbers"),
        ((torch.eye(3), torch.eye(3)), ValueError, "bipartite inputs"),
        (None, TypeError, "x must be a torch.Tensor, got NoneType"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("make", [STAConv, lambda *a, **k: STAGNN(a[0], 8, *a[1:], **k)])
def test_features_that_no_layer_can_take_are_refused(make, x, error, message):
    with pytest.raises(error, match=message):
        make(3, 4, heads=2)(x, torch.tensor([[0, 1], [1, 2]]))


def test_sparse_features_that_want_a_gradient_or_another_dtype_are_refused():
    net = STAGNN(12, 8, 3)
    edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="sparse x gets no gradient"):
        net(bag_of_words(6).float().to_sparse_csr().requires_grad_(), edge_index)
    with pytest.raises(ValueError, match=r"x is torch.float64, but the layer is torch.float32"):
        net(bag_of_words(6).to_sparse_csr(), edge_index)
