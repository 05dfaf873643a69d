"""The trainer: epochs that do not wait, captured or not, alone or together."""

import json
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from subtree_attention.datasets import apply_split
from subtree_attention.train.loop import evaluate, prepare
from subtree_attention.train.step import NOTES, Trainer

CONFIG = sta.recipe("digits", hops=2, heads=2, dropout=0.5)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def data():
    return apply_split(prepare(CONFIG), CONFIG.split)


def make(data, device: str, seed: int = 0, capture: bool = True, config=CONFIG) -> Trainer:
    placed = data.clone().to(device)
    graph = sta.Graph(placed.edge_index, placed.num_nodes)
    torch.manual_seed(seed)
    sizes = {"in_channels": data.x.size(1), "out_channels": int(data.y.max()) + 1}
    model = sta.STAGNN(**sizes, **config.model_settings()).to(device)
    return Trainer(model, placed, graph, config, capture)


def test_it_does_what_the_plain_loop_does(data, device):
    trainer = make(data, device, config=CONFIG.replace(dropout=0.0))
    trainer.advance(5)
    model = make(data, device, config=CONFIG.replace(dropout=0.0)).model
    placed = data.clone().to(device)
    graph = sta.Graph(placed.edge_index, placed.num_nodes)
    optimizer = torch.optim.Adam(model.parameter_groups(CONFIG.weight_decay), lr=CONFIG.lr)
    rows = []
    for _ in range(5):
        model.train()
        optimizer.zero_grad()
        logits = model(placed.x, graph)[placed.train_mask]
        loss = torch.nn.functional.cross_entropy(logits, placed.y[placed.train_mask])
        loss.backward()
        optimizer.step()
        rows.append([loss.item(), *evaluate(model, placed, graph, "accuracy")])
    torch.testing.assert_close(
        torch.tensor(trainer.read(0)), torch.tensor(rows), rtol=1e-3, atol=0.01
    )
    torch.testing.assert_close(trainer.read(0)[0][0], rows[0][0], rtol=1e-5, atol=0)


def test_the_best_weights_are_those_of_the_best_epoch(data, device):
    trainer = make(data, device)
    trainer.advance(12)
    rows = torch.tensor(trainer.read(0), dtype=torch.float64)
    best = int(rows[:, 2].argmax())  # the first of equals
    trainer.model.load_state_dict(trainer.best_weights)
    scores = evaluate(trainer.model, data.clone().to(device), trainer.graph, "accuracy")
    assert scores == pytest.approx(rows[best, 1:].tolist(), abs=1e-12)


def test_what_is_noted_can_be_read_in_any_portions(data, device):
    whole, parts = make(data, device), make(data, device)
    whole.advance(6)
    parts.advance(2)
    first = parts.read(0)
    parts.advance(4)
    assert first + parts.read(2) == whole.read(0) == parts.read(0)
    assert parts.read(6) == []


def test_more_epochs_than_notes(data, device, monkeypatch):
    monkeypatch.setattr("subtree_attention.train.step.NOTES", 4)
    trainer, reference = make(data, device), make(data, device)
    rows = []
    for _ in range(5):
        trainer.advance(2)
        rows += trainer.read(len(rows))
    monkeypatch.undo()
    reference.notes = torch.zeros(NOTES, 4, dtype=torch.float64, device=device)
    reference.advance(10)
    assert rows == reference.read(0)


def test_a_state_goes_on_as_if_nothing_had_happened(data, device):
    whole, first, second = make(data, device), make(data, device), make(data, device, seed=9)
    whole.advance(9)
    first.advance(4)
    second.load_state({name: tensor.cpu() for name, tensor in first.state().items()})
    second.advance(5)
    assert second.read(4) == whole.read(4)


def test_a_state_of_another_kind_of_device_is_refused_in_words(data):
    trainer = make(data, "cpu")
    trainer.advance(1)
    state = trainer.state()
    state["random/cuda"] = state.pop("random/cpu")[:16]
    with pytest.raises(ValueError, match="started on cuda"):
        make(data, "cpu").load_state(state)


def test_an_interrupt_while_random_numbers_are_put_away_is_in_the_epoch(data, monkeypatch):
    trainer = make(data, "cpu")
    trainer.advance(2)
    calls = iter(range(10))
    original = torch.get_rng_state

    def interrupted() -> torch.Tensor:
        if next(calls) == 1:  # the second call is at the end
            raise KeyboardInterrupt
        return original()

    monkeypatch.setattr(torch, "get_rng_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.advance(1)
    assert not trainer.between_epochs


class WithBatchNorm(torch.nn.Module):
    """Changes in training what it reads in evaluation, also a counter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.LazyLinear(10), torch.nn.BatchNorm1d(10)

    def forward(self, x, graph):
        return self.norm(self.lin(x))


def test_running_statistics_are_kept_with_the_best_weights(data, device):
    placed = data.clone().to(device)
    graph = sta.Graph(placed.edge_index, placed.num_nodes)
    model = WithBatchNorm().to(device)
    model(placed.x, graph)
    trainer = Trainer(model, placed, graph, CONFIG)
    if device == "cuda":  # the evaluation must not run beside the step that changes them
        assert trainer.place.side is trainer.place.main
    trainer.advance(6)
    rows = torch.tensor(trainer.read(0), dtype=torch.float64)
    best = int(rows[:, 2].argmax())
    model.load_state_dict(trainer.best_weights)
    assert int(model.norm.num_batches_tracked) == best + 2  # one before the trainer
    scores = evaluate(model, placed, graph, "accuracy")
    assert scores == pytest.approx(rows[best, 1:].tolist(), abs=1e-12)


@needs_gpu
class TestOnAGPU:
    def test_captured_and_eager_give_the_same_bits(self, data):
        captured, eager = make(data, "cuda"), make(data, "cuda", capture=False)
        captured.advance(10)
        eager.advance(10)
        assert captured.replay is not None
        assert eager.replay is None
        assert captured.read(0) == eager.read(0)
        for name, weight in captured.best_weights.items():
            assert torch.equal(weight, eager.best_weights[name])

    def test_evaluation_beside_or_before_the_gradients_makes_no_difference(self, data, monkeypatch):
        beside = make(data, "cuda")
        monkeypatch.setattr("subtree_attention.ops.cuda.FILLING_BYTES", 0)
        before = make(data, "cuda")
        assert beside.place.side is not beside.place.main
        assert before.place.side is before.place.main
        beside.advance(8)
        before.advance(8)
        assert beside.read(0) == before.read(0)

    def test_runs_that_share_the_gpu_equal_runs_alone(self, data):
        alone = []
        for seed in range(3):
            trainer = make(data, "cuda", seed)
            trainer.advance(10)
            alone.append(trainer.read(0))
        together = [make(data, "cuda", seed) for seed in range(3)]
        for _ in range(10):
            for trainer in together:
                trainer.advance(1)
        assert [trainer.read(0) for trainer in together] == alone

    def test_roc_auc_and_sparse_features_are_captured(self, data):
        two = data.clone()
        two.y = two.y % 2
        two.x = two.x.to_sparse_csr()
        config = CONFIG.replace(metric="roc_auc", loss="binary")
        captured = make(two, "cuda", config=config)
        eager = make(two, "cuda", config=config, capture=False)
        captured.advance(8)
        eager.advance(8)
        assert captured.read(0) == eager.read(0)
        assert captured.read(0)[-1][2] > 0.5

    def test_it_runs_where_only_deterministic_algorithms_are_allowed(self, data, monkeypatch):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        free = make(data, "cuda")
        free.advance(6)
        torch.use_deterministic_algorithms(True)
        try:
            strict = make(data, "cuda")
            strict.advance(6)
        finally:
            torch.use_deterministic_algorithms(False)
        assert strict.read(0) == free.read(0)

    def test_fit_gives_the_same_folder_with_and_without_capture(self, tmp_path: Path):
        config = sta.recipe("digits", runs=3, epochs=8, hops=2)
        folders = [
            sta.fit(config, tmp_path / name, device="cuda", **options).folder
            for name, options in (
                ("plain", {"capture": False}),
                ("alone", {"together": 1}),
                ("together", {"together": 3}),
            )
        ]
        for run in range(3):
            lines = [
                [json.loads(line) for line in (folder / f"run-{run}/metrics.jsonl").open()]
                for folder in folders
            ]
            assert lines[0] == lines[1] == lines[2]


def test_a_capture_that_fails_says_why(data, monkeypatch):
    class Broken:
        def capture_begin(self, **_: object) -> None:
            pass

        def capture_end(self) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    def ask() -> None:
        raise RuntimeError("the host was asked")

    trainer = make(data, "cpu")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Broken)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(trainer, "_evaluate", ask)
    with pytest.raises(RuntimeError, match="the host was asked"):
        trainer._capture()
