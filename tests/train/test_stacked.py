"""A model that stands on a reference: the offset in training, on disk, on new nodes, explained."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import subtree_attention as sta
from subtree_attention import references
from subtree_attention.config import Config, NodeClassification
from subtree_attention.datasets import Dataset
from subtree_attention.datasets.features import from_scipy, is_csr
from subtree_attention.io import FileError
from subtree_attention.runs import stacked
from subtree_attention.runs.folder import REFERENCE, accept
from subtree_attention.train.fit import Interrupted
from subtree_attention.train.run import Material, Run
from subtree_attention.train.watch import Watch
from tests.samples import friends, people

pytest.importorskip("polars")
NAME = "logistic_neighbours"
QUICK: dict[str, Any] = {"epochs": 5, "hops": 1, "heads": 1, "encoding": 0, "reference": NAME}


@pytest.fixture(scope="module")
def data() -> Dataset:
    nodes = people(90) | {"part": ["train", "train", "val", "test", "train"] * 18}
    return sta.from_tables(nodes, friends(90, 200), target="label", split_column="part")


def config(data: Dataset, **changes: Any) -> Config:
    return sta.recipe(data, graph="people").replace(**{**QUICK, **changes})


@pytest.fixture(scope="module")
def folder(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stacked") / "out"
    return sta.fit(config(data), out, data=data, device="cpu").folder


def test_the_settings_know_every_reference():
    assert set(NodeClassification.values_of("reference")) == {"", *references.STACKED}


def test_the_offset_is_learnt_with_a_number_that_is_not_decayed(data: Dataset, tmp_path: Path):
    material = Material(data, config(data), torch.device("cpu"))
    problem = material.leaning(material.problem(0), tmp_path, 0)
    torch.manual_seed(0)
    model: Any = material.network()
    trainer = material.trainer(model, problem, capture=False)
    assert model.scale.item() == 1
    (kept,) = (group for group in trainer.optimizer.param_groups if not group["weight_decay"])
    assert any(parameter is model.scale for parameter in kept["params"])
    offset = references.fitted(NAME, data, material.task, material.problem(0), 0).out_of_fold
    with torch.no_grad():
        own = model.eval().model(material.x, material.graph)
        assert torch.equal(model(material.x, material.graph, offset=offset), own + offset)
    trainer.epoch()
    assert model.scale.item() != 1
    with pytest.raises(ValueError, match="stands on a reference"):
        model(material.x, material.graph)


def test_another_than_is_configured_is_refused(data: Dataset, folder: Path, tmp_path: Path):
    out = Path(shutil.copytree(folder, tmp_path / "out"))
    material = Material(data, config(data), torch.device("cpu"))
    other = references.fitted("logistic", data, material.task, material.problem(0), 0)
    stacked.write(out / "run-0", other)
    words = f"is 'logistic', and configured is '{NAME}'"
    with pytest.raises(FileError, match=words):
        material.leaning(material.problem(0), out / "run-0", 0)
    accept(out)
    with pytest.raises(FileError, match=words):
        _ = sta.open(out, device="cpu").reference


def test_a_saved_run_keeps_it(data: Dataset, folder: Path):
    run = sta.open(folder, device="cpu")
    assert run.scores()[1:] == (run.result.val, run.result.test)
    assert run.reference is not None
    assert REFERENCE in (folder / "run-0" / "SHA256SUMS").read_text()
    told = references.fitted(NAME, data, run.task, run.problem, run.result.seed).out_of_fold
    assert torch.equal(run.reference.out_of_fold, told)
    plain = sta.recipe(data).replace(**{**QUICK, "reference": ""})
    assert "offset" not in Material(data, plain, torch.device("cpu")).problem(0).inputs


def test_it_is_a_term_of_its_own_in_an_explanation(folder: Path):
    run = sta.open(folder, device="cpu")
    for root in (0, 8, 13):
        explanation = run.explainer(root)
        scale: Any = run.model.scale
        offset = run.problem.inputs["offset"][root]
        torch.testing.assert_close(explanation.beside["reference"], scale.detach() * offset)
        np.testing.assert_allclose(explanation.logits.numpy(), run.logits[root], atol=1e-5)
        parts = explanation.bias + explanation.totals.sum((0, 1))
        torch.testing.assert_close(explanation.logits, parts + scale.detach() * offset)


def test_new_nodes_get_it_where_they_join_and_elsewhere(folder: Path):
    run = sta.open(folder, device="cpu")
    nodes, edges = people(4, seed=1, prefix="n"), friends(4, 5, seed=1, prefix="n")
    nodes["part"] = ["train"] * 4
    edges["target"] = ["p1", "p2", *edges["target"][2:]]
    joined, start = run.read_tables(nodes, edges, join=True)
    there = run.on(joined, join=True)
    expected = run.reference.apply(joined, there.problem.known)
    assert torch.equal(there.problem.inputs["offset"], expected)
    found = sta.predict(folder, nodes, edges, join=True, device="cpu")
    np.testing.assert_array_equal(found.probabilities, there.probabilities[start:])
    del edges["target"][:2], edges["source"][:2], edges["strength"][:2]
    assert len(sta.predict(folder, nodes, edges, device="cpu").ids) == 4


@pytest.mark.parametrize("was_sparse", [False, True])
def test_new_tables_may_be_of_another_density(data: Dataset, tmp_path: Path, was_sparse: bool):
    plain = data.x.to_dense() if is_csr(data.x) else data.x
    matrix = scipy.sparse.csr_matrix(plain.numpy())
    dense, sparse = data._with(x=plain), data._with(x=from_scipy(matrix))
    here, there = (sparse, dense) if was_sparse else (dense, sparse)
    sta.fit(config(here), tmp_path / "out", data=here, device="cpu")
    run = sta.open(tmp_path / "out", device="cpu")
    same, other = run.on(here, join=True), run.on(there, join=True)
    np.testing.assert_allclose(other.probabilities, same.probabilities, atol=1e-4)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits_and_fits_nothing_again(
    data: Dataset, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Stop(Watch):
        def epoch(self, run: Run) -> None:
            if run.epoch == 3:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        sta.fit(config(data), tmp_path / "out", data=data, device="cpu", watch=Stop())
    monkeypatch.setattr(references, "fitted", None)
    again = sta.fit(config(data), tmp_path / "out", data=data, device="cpu", resume=True)
    whole = sta.open(folder, device="cpu")
    assert (again.runs[0].val, again.runs[0].temperature) == (
        whole.result.val,
        whole.result.temperature,
    )
    np.testing.assert_array_equal(sta.open(again.folder, device="cpu").logits, whole.logits)


def test_what_is_missing_or_makes_no_sense_is_refused(
    data: Dataset, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ValueError, match="unknown reference 'forest'"):
        config(data, reference="forest")
    monkeypatch.setattr("subtree_attention.references.trees.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="LightGBM"):
        sta.fit(config(data, reference="trees"), tmp_path / "out", data=data, device="cpu")
    assert not (tmp_path / "out").exists()
    file = folder / "run-0" / REFERENCE
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-8] + b"12345678")
        with pytest.raises(FileError, match=r"reference.safetensors"):
            _ = sta.open(folder, device="cpu").logits
    finally:
        file.write_bytes(content)


def test_all_of_it_together(data: Dataset, tmp_path: Path):
    """Labels, a reference, a smoothed layer and a correction, of a deep model too."""
    for more in ({"smoothing": 1}, {"model": "staformer", "hidden_channels": 8, "layers": 1}):
        made = config(data, show_labels=0.5, correct=True, **more)
        out = sta.fit(made, tmp_path / str(len(more)), data=data, device="cpu")
        run = sta.open(out.folder, device="cpu")
        assert run.scores()[1:] == (run.result.val, run.result.test)
        explanation = run.explainer(4)
        np.testing.assert_allclose(explanation.logits.numpy(), run.logits[4], atol=1e-4)
        assert explanation.beside.keys() >= {"reference"}
