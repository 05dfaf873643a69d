"""The trainer: epochs that do not wait, captured or not, alone or together."""

from pathlib import Path

import pytest
import scipy.sparse
import torch

import subtree_attention as sta
from subtree_attention.config import Config, NodeClassification, NodeMultiLabel, NodeRegression
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import from_scipy
from subtree_attention.tasks.metrics import CLASS_METRICS, LABEL_METRICS, NUMBER_METRICS
from subtree_attention.train.jobs import Place
from subtree_attention.train.run import Material
from subtree_attention.train.step import NOTES, Trainer

CONFIG = sta.recipe("digits", hops=2, heads=2, dropout=0.5)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return sta.datasets.load("digits").encoded(3)


def make(
    data: Dataset, device: str, seed: int = 0, capture: bool = True, config: Config = CONFIG
) -> Trainer:
    material = Material(data, config, torch.device(device))
    torch.manual_seed(seed)
    model = material.network()
    return material.trainer(model, material.problem(0), capture)


def advance(trainer: Trainer, epochs: int) -> None:
    for _ in range(epochs):
        trainer.epoch()


def csr_of(x: torch.Tensor) -> torch.Tensor:
    return from_scipy(scipy.sparse.csr_matrix(x.numpy()))


def scores_of(trainer: Trainer) -> list[float]:
    """The scores of the model as it is, by the task itself."""
    with torch.no_grad():
        outputs = trainer.model.eval()(trainer.x, trainer.graph)
    return trainer.scores_of(outputs).tolist()


def test_it_does_what_the_plain_loop_does(data, device):
    """In float64, so that a weight decay that is wrong by a tenth would be seen."""
    double = data._with(x=data.x.double(), encoding=data.encoding.double())
    config = CONFIG.replace(dropout=0.0, weight_decay=1e-3)

    def start() -> Trainer:
        material = Material(double, config, torch.device(device))
        torch.manual_seed(0)
        model = material.network().double()
        return material.trainer(model, material.problem(0), capture=True)

    trainer, plain = start(), start()
    advance(trainer, 12)
    model, split = plain.model, data.split("B", 0)
    train = split.train.to(device)
    undecayed = {id(parameter) for parameter in model.no_weight_decay()}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in undecayed], "weight_decay": 1e-3},
        {"params": [p for p in model.parameters() if id(p) in undecayed], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.Adam(groups, lr=config.fit.lr)
    rows = []
    for _ in range(12):
        model.train()
        optimizer.zero_grad()
        logits = model(plain.x, plain.graph)[train]
        loss = torch.nn.functional.cross_entropy(logits, data.y.to(device)[train])
        loss.backward()
        optimizer.step()
        rows.append([loss.item(), *scores_of(plain)])
    # The weights of nodes in the loss are rounded to float32, which is 6e-8 at most.
    ours, theirs = (torch.tensor(some, dtype=torch.float64) for some in (trainer.read(0), rows))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=0)


def test_the_best_weights_are_those_of_the_best_epoch(data, device):
    trainer = make(data, device)
    advance(trainer, 12)
    rows = torch.tensor(trainer.read(0), dtype=torch.float64)
    best = int(rows[:, 2].argmax())  # the first of equals
    outputs = trainer.best_outputs()
    scores = trainer.scores_of(outputs).tolist()
    assert scores == pytest.approx(rows[best, 1:].tolist(), abs=1e-12)


def test_what_is_noted_can_be_read_in_any_portions(data, device):
    whole, parts = make(data, device), make(data, device)
    advance(whole, 6)
    advance(parts, 2)
    first = parts.read(0)
    advance(parts, 4)
    assert first + parts.read(2) == whole.read(0) == parts.read(0)
    assert parts.read(6) == []


def test_more_epochs_than_notes(data, device, monkeypatch):
    monkeypatch.setattr("subtree_attention.train.step.NOTES", 4)
    trainer, reference = make(data, device), make(data, device)
    rows = []
    for _ in range(5):
        advance(trainer, 2)
        rows += trainer.read(len(rows))
    monkeypatch.undo()
    reference.notes = torch.zeros(NOTES, 4, dtype=torch.float64, device=device)
    advance(reference, 10)
    assert rows == reference.read(0)


def test_a_state_goes_on_as_if_nothing_had_happened(data, device):
    whole, first, second = make(data, device), make(data, device), make(data, device, seed=9)
    advance(whole, 9)
    advance(first, 4)
    second.load_state({name: tensor.cpu() for name, tensor in first.state().items()})
    advance(second, 5)
    assert second.read(4) == whole.read(4)


def test_a_state_of_another_kind_of_device_is_refused_in_words(data):
    trainer = make(data, "cpu")
    advance(trainer, 1)
    state = trainer.state()
    state["random/cuda"] = state.pop("random/cpu")[:16]
    with pytest.raises(ValueError, match="started on cuda"):
        make(data, "cpu").load_state(state)


def test_an_interrupt_while_random_numbers_are_put_away_is_in_the_epoch(data, monkeypatch):
    trainer = make(data, "cpu")
    advance(trainer, 2)
    calls = iter(range(10))
    original = torch.get_rng_state

    def interrupted() -> torch.Tensor:
        if next(calls) == 1:  # the second call is at the end
            raise KeyboardInterrupt
        return original()

    monkeypatch.setattr(torch, "get_rng_state", interrupted)
    with pytest.raises(KeyboardInterrupt):
        advance(trainer, 1)
    assert not trainer.between_epochs


class WithBatchNorm(torch.nn.Module):
    """Changes in training what it reads in evaluation, also a counter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.LazyLinear(10), torch.nn.BatchNorm1d(10)

    def forward(self, x, graph):
        return self.norm(self.lin(x))


def test_running_statistics_are_kept_with_the_best_weights(data, device):
    material = Material(data, CONFIG, torch.device(device))
    model = WithBatchNorm().to(device)
    model(material.x, material.graph)
    trainer = material.trainer(model, material.problem(0), capture=True)
    if device == "cuda":  # the evaluation must not run beside the step that changes them
        assert trainer.lane.side is trainer.lane.main
    advance(trainer, 6)
    rows = torch.tensor(trainer.read(0), dtype=torch.float64)
    best = int(rows[:, 2].argmax())
    model.load_state_dict(trainer.best_weights)
    assert int(model.norm.num_batches_tracked) == best + 2  # one before the trainer
    assert scores_of(trainer) == pytest.approx(rows[best, 1:].tolist(), abs=1e-12)


@needs_gpu
class TestOnAGPU:
    def test_captured_and_eager_give_the_same_bits(self, data):
        captured, eager = make(data, "cuda"), make(data, "cuda", capture=False)
        advance(captured, 10)
        advance(eager, 10)
        assert captured.replay is not None
        assert eager.replay is None
        assert captured.read(0) == eager.read(0)
        for name, weight in captured.best_weights.items():
            assert torch.equal(weight, eager.best_weights[name])

    def test_evaluation_beside_or_before_the_gradients_makes_no_difference(self, data, monkeypatch):
        beside = make(data, "cuda")
        monkeypatch.setattr("subtree_attention.ops.kernels.cuda.FILLING_BYTES", 0)
        before = make(data, "cuda")
        assert beside.lane.side is not beside.lane.main
        assert before.lane.side is before.lane.main
        advance(beside, 8)
        advance(before, 8)
        assert beside.read(0) == before.read(0)

    def test_runs_that_share_the_gpu_equal_runs_alone(self, data):
        alone = []
        for seed in range(3):
            trainer = make(data, "cuda", seed)
            advance(trainer, 10)
            alone.append(trainer.read(0))
        together = [make(data, "cuda", seed) for seed in range(3)]
        for _ in range(10):
            for trainer in together:
                advance(trainer, 1)
        assert [trainer.read(0) for trainer in together] == alone

    def test_roc_auc_and_sparse_features_are_captured(self, data):
        two = data._with(y=data.y % 2, classes=("even", "odd"), x=csr_of(data.x))
        config = CONFIG.replace(metric="roc_auc", loss="binary")
        captured = make(two, "cuda", config=config)
        eager = make(two, "cuda", config=config, capture=False)
        advance(captured, 8)
        advance(eager, 8)
        assert captured.read(0) == eager.read(0)
        assert captured.read(0)[-1][2] > 0.5

    @pytest.mark.parametrize(
        ("task", "metric"),
        [
            *((NodeClassification.name, name) for name in CLASS_METRICS),
            *((NodeMultiLabel.name, name) for name in LABEL_METRICS),
            *((NodeRegression.name, name) for name in NUMBER_METRICS),
        ],
    )
    def test_every_metric_is_captured(self, data, task, metric):
        labels = torch.nn.functional.one_hot(data.y).float()
        y = {NodeMultiLabel.name: labels, NodeRegression.name: data.y.double()}.get(task, data.y)
        config = CONFIG.replace(task=task, metric=metric)
        captured = make(data._with(y=y), "cuda", config=config)
        eager = make(data._with(y=y), "cuda", config=config, capture=False)
        advance(captured, 8)
        advance(eager, 8)
        assert captured.replay is not None
        assert captured.read(0) == eager.read(0)

    def test_it_runs_where_only_deterministic_algorithms_are_allowed(self, data, monkeypatch):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        free = make(data, "cuda")
        advance(free, 6)
        torch.use_deterministic_algorithms(True)
        try:
            strict = make(data, "cuda")
            advance(strict, 6)
        finally:
            torch.use_deterministic_algorithms(False)
        assert strict.read(0) == free.read(0)

    def test_fit_gives_the_same_folder_with_and_without_capture(self, tmp_path: Path):
        config = sta.recipe("digits", runs=3, epochs=8, hops=2)
        folders = [
            sta.fit(config, tmp_path / name, device=Place.of("cuda", **options)).folder
            for name, options in (
                ("plain", {"capture": False}),
                ("alone", {"together": 1}),
                ("together", {"together": 3}),
            )
        ]
        for run in range(3):
            lines = [(folder / f"run-{run}/metrics.jsonl").read_text() for folder in folders]
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
