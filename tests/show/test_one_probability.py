"""One node has one probability, whoever is asked: predict, evaluate, explain, report, the page."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import evaluate
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import create_app
from subtree_attention.tasks.calibration import calibration_error
from tests.runs.format1 import LATER

NODES = 3
HERE = "http://127.0.0.1:8765"


def as_format_1(folder: Path) -> None:
    """Make of a run folder what was written before there were format numbers."""
    path = folder / "config.json"
    path.write_text(json.dumps(flat(json.loads(path.read_text()))))
    for run in folder.glob("run-*"):
        summary = json.loads((run / "summary.json").read_text())
        del summary["temperature"], summary["format"]
        (run / "summary.json").write_text(json.dumps(summary))
        tensors, header = io.read_tensors(run / "model.safetensors")
        header = {"config": flat(header["config"]), "sizes": header["sizes"]}
        io.write_tensors(run / "model.safetensors", tensors, header)
    for path in [*folder.rglob("SHA256SUMS")]:
        path.unlink()


def flat(config: dict) -> dict:
    """Settings in one table, as they were."""
    parts = [config[part] for part in ("data", "model", "task", "fit")]
    settings = {name: value for part in parts for name, value in part.items() if name != "name"}
    settings["global_attention"] = "beside" if settings["global_attention"] else None
    settings["similarity"] = None
    return {name: value for name, value in settings.items() if name not in LATER}


@pytest.fixture(params=["own", "digits", "own, of an older version", "digits, of an older version"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, *old = request.param.split(", ")
    folder = request.getfixturevalue(name)
    if old:
        folder = shutil.copytree(folder, tmp_path / "older")
        as_format_1(folder)
    return folder


def test_one_node_has_one_probability(
    folder: Path, run_sta: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    run = sta.open(folder, device="cpu")
    assert run.temperature != 1  # or nobody would see who forgets it
    expected = run.task.probabilities(run.logits, run.found)
    assert (run.probabilities == expected).all()
    assert (sta.predict(folder, device="cpu").probabilities == expected).all()

    # The surest mistakes are in the report; some others are asked for too.
    test, y = run.split.test.numpy(), run.dataset.y.numpy()
    wrong = np.flatnonzero(test & (expected.argmax(1) != y))
    surest = wrong[np.argsort(-expected[wrong].max(1), kind="stable")][:NODES]
    nodes = [0, run.dataset.num_nodes - 1, *surest.tolist()]
    assert len(nodes) > 3

    assert run_sta("predict", str(folder), "--out", "p.csv", "--device", "cpu")[0] == 0
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = TestClient(create_app(Views.of_run(folder), 8765), base_url=HERE)
    report = written_report(folder, run_sta)
    for node in nodes:
        best, id = expected[node].max(), run.dataset.id(node)
        shares = [float(rows[node][name]) for name in run.dataset.classes]
        assert (rows[node]["id"], shares) == (id, pytest.approx(expected[node], rel=1e-5))
        told = json.loads(run_sta("explain", str(folder), id, "--json")[1])
        assert told["probability"][0] == best
        assert f"({100 * best:.1f} %)" in run_sta("explain", str(folder), id)[1]
        seen = page.get("/api/node", params={"id": id}).json()
        assert (seen["probability"], seen["probabilities"]) == (best, expected[node].tolist())
        if node in surest:
            taken_for = run.dataset.classes[expected[node].argmax()]
            name, taken_for = (text.replace("\u202e", "\ufffd") for text in (id, taken_for))
            line = f"{name} is {run.dataset.label(node)}, predicted {taken_for} with"
            assert f"{line} {100 * best:.1f} %".replace("\u202e", "\ufffd") in report

    scores = {score.run.folder: score for score in evaluate(folder, device="cpu")}[run.folder]
    error = calibration_error(expected[test], y[test])
    assert scores.quality.calibration_error == pytest.approx(error, abs=1e-12)
    assert f"calibration error {100 * error:.2f} %" in report
    printed = run_sta("evaluate", str(folder), "--device", "cpu")[1]
    assert re.search(rf"(?m)^\s*{run.result.run} .* {100 * error:.2f}\s*$", printed)


def written_report(folder: Path, run_sta: Callable) -> str:
    """The text of the report, without its tags."""
    assert run_sta("report", str(folder), "--device", "cpu")[0] == 0
    page = (folder / "report.html").read_text()
    page = page.replace("&nbsp;", " ")  # before a unit
    return unescape(re.sub(r"</?(bdi|p|div)[^>]*>", "", page))


def test_a_folder_of_an_older_version_has_the_same_probabilities(own: Path, tmp_path: Path) -> None:
    older = shutil.copytree(own, tmp_path / "older")
    as_format_1(older)
    new, old = sta.open(own, device="cpu"), sta.open(older, device="cpu")
    assert (old.result.temperature, old.config) == (None, new.config)
    assert old.temperature == pytest.approx(new.temperature, rel=1e-6)
    assert old.probabilities == pytest.approx(new.probabilities, rel=1e-5)
