"""Features on disk or in the host's memory: the same numbers as in memory, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from subtree_attention import STAGNN, STAFormer
from subtree_attention.nn import Linear, OffloadedFeatures
from subtree_attention.nn.labels import Labelled
from tests.ops.cases import FLOAT64_ERROR, random_edges

NODES, CHANNELS = 50, 7


def features(kind: str, folder: Path) -> tuple[Tensor, Any]:
    x = torch.randn(NODES, CHANNELS, dtype=torch.float64)
    if kind == "tensor":
        return x, x
    if kind == "array":
        return x, x.numpy()
    np.save(folder / "x.npy", x.numpy())
    return x, np.load(folder / "x.npy", mmap_mode="r")


def grads(model: torch.nn.Module, x: Any, *more: Any) -> list[Tensor]:
    torch.manual_seed(3)
    out = model(x, *more)
    return [out, *torch.autograd.grad(out.square().sum(), [*model.parameters()])]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=FLOAT64_ERROR, atol=FLOAT64_ERROR)


@pytest.mark.parametrize("kind", ["tensor", "array", "memmap"])
@pytest.mark.parametrize("rows", [1, 8, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_same_as_in_memory(kind: str, rows: int, dropout: float, tmp_path: Path) -> None:
    pytest.importorskip("numba")  # whose dropout it is
    x, given = features(kind, tmp_path)
    lin = Linear(CHANNELS, 3, dropout=dropout).double()
    assert_same(grads(lin, OffloadedFeatures(given, rows=rows)), grads(lin, x))
    assert torch.equal(OffloadedFeatures(given, rows=rows).dense(), x)


def test_models_take_them() -> None:
    x, graph = torch.randn(NODES, CHANNELS).double(), random_edges(NODES, 200).graph()
    deep = {"transition": "rw", "self_loops": False, "layers": 2}
    for model in (
        STAGNN(CHANNELS, 8, 4, dropout=0.3, memory="1GB").double(),
        STAFormer(CHANNELS, 8, 4, input_dropout=0.2, **deep).double(),
        STAFormer(CHANNELS, 8, 4, residual="identity", memory="1GB", **deep).double(),
    ):
        assert_same(grads(model, OffloadedFeatures(x, rows=8), graph), grads(model, x, graph))


def test_labels_may_be_shown_beside_them() -> None:
    x, shown = torch.randn(NODES, CHANNELS).double(), torch.arange(NODES) % 4 - 1
    lin = Linear(CHANNELS + 4, 3).double()
    both = [Labelled(given, shown, 3) for given in (x, OffloadedFeatures(x, rows=8))]
    assert_same(grads(lin, both[1]), grads(lin, both[0]))


def test_without_numba_the_gradient_drops_what_the_forward_pass_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("subtree_attention.ops.backends.choose", lambda *_: "torch")
    x = OffloadedFeatures(torch.ones(4000, 1), rows=40).dropped(0.25)
    weight = torch.ones(1, 1, requires_grad=True)
    out = x.times(weight)
    assert torch.equal(out, x.dense())
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert abs(float(out.detach().mean()) - 1) < 0.05
    out.sum().backward()
    assert float(weight.grad) == pytest.approx(float(out.detach().sum()), rel=1e-4)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            torch.ones(3),
            ValueError,
            r"x must be \[N, channels\], floating, got torch.float32 \[3\]",
        ),
        (np.ones((3, 2), np.int64), ValueError, "floating, got torch.int64"),
        (np.array([["a"]]), ValueError, "floating-point numbers that torch has, got <U1"),
        ([[1.0]], TypeError, "x must be a torch.Tensor, got list"),
    ],
)
def test_refusals(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        OffloadedFeatures(given)


def test_dropping_twice_is_refused() -> None:
    x = OffloadedFeatures(torch.ones(3, 2)).dropped(0.5)
    with pytest.raises(ValueError, match="dropped already: use dropout in one place only"):
        x.times(torch.ones(2, 1), 0.5)
    with pytest.raises(ValueError, match="rows must be at least 1"):
        OffloadedFeatures(torch.ones(3, 2), rows=0)
