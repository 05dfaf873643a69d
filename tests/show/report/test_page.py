"""The report of a run: what it tells, that it needs nothing else, and that data stays data."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import subtree_attention as sta
from subtree_attention import nn as models
from subtree_attention.config import MODELS, Settings, option
from subtree_attention.runs import evaluate
from subtree_attention.runs import folder as files
from subtree_attention.show.report import gather, render
from subtree_attention.show.report.charts import Line, chart, spread, ticks
from subtree_attention.show.report.words import describe
from tests.samples import friends, people
from tests.show.conftest import HOSTILE, NAME

Outcome = tuple[int, str, str]


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open.pop() != tag:  # tags that are never closed, such as meta
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


@pytest.fixture(scope="module")
def page(own: Path) -> Page:
    return Page(render(gather(own, device="cpu")))


def test_text_of_the_users_is_never_markup(own: Path) -> None:
    text = render(gather(own, device="cpu"))
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    assert "\u202e" not in text
    shown = HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert NAME in page.text  # the graph
    assert f"{shown}age" in page.text  # a column
    assert re.search(re.escape(shown) + r"p\d+", page.text)  # an id
    assert re.search(re.escape(shown) + "[rok]", page.text)  # a class


def test_what_to_look_at_first_is_there(own: Path, page: Page) -> None:
    found = gather(own, device="cpu")
    assert found.run.dataset.notes is not None
    told = list(found.run.dataset.notes.warnings)
    found.run.dataset.notes.warnings[:] = ["column '<b>zip</b>' looks like a code"]
    shown = Page(render(found))
    assert "To look at first column '<b>zip</b>' looks like a code" in shown.text
    assert ("To look at first" in page.text) == bool(told)


def test_the_page_needs_nothing_but_itself(page: Page) -> None:
    known = {"html", "head", "meta", "title", "style", "body"}
    assert known <= {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "base", "form"}
        assert not {"src", "href", "srcset", "data", "action"} & attributes.keys(), tag
    policy = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_scores_are_those_of_evaluate(own: Path) -> None:
    found, scores = gather(own, device="cpu"), evaluate(own, device="cpu")
    assert [line.run for line in found.lines] == [score.run.result.run for score in scores]
    for run, score in zip(found.lines, scores, strict=True):
        assert (run.train, run.val, run.test) == pytest.approx((score.train, score.val, score.test))
    best = max(scores, key=lambda score: score.val)
    assert found.run.result == best.run.result
    assert (found.quality.confusion == best.quality.confusion).all()
    assert found.quality.named() == pytest.approx(best.quality.named())
    assert found.quality.calibration_error == found.run.calibration.test.ece[1]
    tests = [score.test for score in scores]
    assert found.summary("test") == pytest.approx((np.mean(tests), np.std(tests, ddof=1)))


def with_summary(own: Path, folder: Path, run: int, **changes: float) -> Path:
    """A copy of a run folder whose run has another result."""
    shutil.copytree(own, folder)
    path = folder / f"run-{run}" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    files.accept(folder)
    return folder


@pytest.mark.parametrize("run", [0, 1])
def test_it_is_about_the_run_with_the_best_validation_score(
    run: int, own: Path, tmp_path: Path
) -> None:
    found = gather(with_summary(own, tmp_path / "copy", run, val=2.0), device="cpu")
    assert found.run.result.run == run
    lines = (own / f"run-{run}/metrics.jsonl").read_text().splitlines()
    assert [epoch.loss for epoch in found.run.curves] == [
        json.loads(line)["loss"] for line in lines
    ]


def test_curves_have_every_epoch_and_mark_the_best(own: Path, tmp_path: Path) -> None:
    folder = with_summary(own, tmp_path / "copy", 0, val=2.0, best_epoch=5)
    found = gather(folder, device="cpu")
    charts = re.findall('<svg class="chart".*?</svg>', render(found), flags=re.DOTALL)
    epochs, best = found.run.curves, found.run.result.best_epoch
    assert len(charts) == 4
    for drawn, count in zip(charts, (1, 3), strict=False):
        lines = re.findall(r'points="([^"]+)"', drawn)
        assert [len(line.split()) for line in lines] == [len(epochs)] * count
        place = next(i for i, e in enumerate(epochs) if e.epoch == best)
        [mark] = re.findall(r'class="mark" x1="([\d.]+)"', drawn)
        assert lines[0].split()[place].split(",")[0] == mark
    assert [line.count(" ") + 1 for line in re.findall(r'points="([^"]+)"', charts[2])] == [
        len(bins) for bins in found.bins
    ]


def test_confusion_and_bins_count_every_test_node(own: Path) -> None:
    found = gather(own, device="cpu")
    nodes = found.run.calibration.test.nodes
    assert found.quality.confusion.sum() == nodes > 0
    for bins, error in zip(found.bins, found.run.calibration.test.ece, strict=True):
        assert sum(bin.nodes for bin in bins) == nodes
        gaps = sum(bin.nodes * abs(bin.confidence - bin.accuracy) for bin in bins)
        assert gaps / nodes == pytest.approx(error)


def test_mistakes_are_mistakes_and_their_sources_are_the_explainers(own: Path) -> None:
    found = gather(own, device="cpu")
    run = sta.open(own)
    data = run.dataset
    assert found.wrong == found.run.calibration.test.nodes - found.quality.confusion.trace() > 0
    assert len(found.mistakes) == min(found.wrong, 10)
    sure = [mistake["probability"] for mistake in found.mistakes]
    assert sure == sorted(sure, reverse=True)
    for mistake in found.mistakes:
        node = data.find(mistake["node"])
        assert run.split.test[node]
        assert mistake["label"] == data.label(node) != mistake["predicted"]
        assert mistake["probability"] == run.probabilities[node].max()
        why = sta.explain(run.model, data.features, run.graph, root=node)
        assert why.predicted == data.find_class(mistake["predicted"])
        added = why.importance(why.predicted)
        parts = [source["adds"][0] for source in mistake["sources"]]
        assert parts == pytest.approx(added.sort(descending=True).values[: len(parts)].tolist())
        for source in mistake["sources"]:
            assert source["adds"][0] == pytest.approx(float(added[data.find(source["node"])]))


def test_hop_weights_and_gates_are_the_models(own: Path, page: Page) -> None:
    found, conv = gather(own, device="cpu"), sta.open(own).model.conv
    assert found.hop_weights is not None
    assert found.gates is not None
    assert found.hop_weights[:, 0] == pytest.approx(conv.aggregation.alpha.detach().numpy())
    assert found.gates == pytest.approx(conv.gate().detach().numpy())
    for value in [*found.hop_weights.flat, *found.gates.flat]:
        assert f"{value:.3f}" in page.text


@pytest.mark.parametrize(
    ("settings", "weights", "gates"),
    [
        ({"aggregation": "sum", "gate": "none"}, None, None),
        ({"aggregation": "concat"}, None, (3, 2)),
        ({"gate": "plain"}, None, (3, 2)),
        ({"heads": 1}, (3, 1), None),
    ],
)
def test_only_what_a_model_has_is_shown(
    settings: dict, weights: tuple | None, gates: tuple | None, tmp_path: Path
) -> None:
    data = sta.from_tables(people(), friends(), target="label")
    config = sta.recipe(data, graph="mine", runs=1, epochs=2, hops=2, **{"heads": 2, **settings})
    found = gather(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
    shapes = [None if t is None else t.shape for t in (found.hop_weights, found.gates)]
    assert shapes == [weights, gates]
    text = Page(render(found)).text
    assert ("Hop weights alpha" in text, "Gates over heads" in text) == (
        weights is not None,
        gates is not None,
    )


@pytest.mark.parametrize(("readout", "shape"), [("mean", None), ("sum", None), ("power", (2, 2))])
def test_powers_are_shown_where_they_are_learned(
    readout: str, shape: tuple | None, tmp_path: Path
) -> None:
    data = sta.from_tables(people(), friends(), target="label")
    how = {"runs": 1, "epochs": 2, "hops": 2, "heads": 2, "readout": readout}
    config = sta.recipe(data, graph="mine", **how)
    found = gather(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
    assert (None if found.powers is None else found.powers.shape) == shape
    text = Page(render(found)).text
    assert ("Powers of denominators beta" in text) == (shape is not None)
    assert found.run.config.model.words("readout") in text or readout == "mean"


def test_a_graph_of_the_registry(digits: Path) -> None:
    found = gather(digits, device="cpu")
    text = Page(render(found)).text
    assert found.run.dataset.notes is None
    assert "What became of the columns" not in text
    assert "1,797 nodes" in text
    assert "standard deviation" not in text  # of one run
    assert gather(digits / "run-0", device="cpu").lines == found.lines  # one run is a folder too


def test_many_classes_are_listed_as_pairs(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subtree_attention.show.report.page.CLASSES_SHOWN", 9)
    found = gather(digits, device="cpu")
    text = Page(render(found)).text
    assert "these pairs are mixed up most often" in text
    assert "by true class (rows)" not in text
    monkeypatch.setattr("subtree_attention.show.report.page.CLASSES_SHOWN", 30)
    assert "these pairs" not in Page(render(found)).text
    monkeypatch.setattr("subtree_attention.show.report.page.CLASSES_ON_A_PHONE", 9)
    text = Page(render(found)).text  # the matrix, and on a phone the pairs
    assert "these pairs are mixed up most often" in text
    assert "by true class (rows)" in text


def test_the_command_writes_the_runs_own_report(
    run_sta: Callable[..., Outcome], own: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(own, folder)
    code, out, err = run_sta("report", str(folder))
    assert code == 0, err
    report = folder / "report.html"
    assert f"written to {report}" in " ".join(out.split()).replace("/ ", "/")
    first = report.read_bytes()
    assert first.startswith(b"<!doctype html>")
    assert run_sta("report", str(folder))[0] == 0  # anew, unasked: it is the run's own
    assert report.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    code, out, _ = run_sta("check", str(folder))  # of no list, and nothing is wrong with it
    assert (code, "0 wrong" in out) == (0, True)
    assert run_sta("check", str(folder), "--accept")[0] == 0
    assert "report.html" not in (folder / "SHA256SUMS").read_text()
    assert [run.result.run for run in sta.runs.open_all(folder)] == [0, 1]


def test_files_of_others_are_not_written_over(
    run_sta: Callable[..., Outcome], own: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(own, folder)
    (folder / "report.html").write_text("<p>my own notes")
    elsewhere = tmp_path / "elsewhere.html"
    assert run_sta("report", str(folder), "--out", "elsewhere.html")[0] == 0
    written = elsewhere.read_bytes()
    for out in ([], ["--out", "elsewhere.html"]):
        code, _, err = run_sta("report", str(folder), *out)
        assert (code, "is there already: --force writes over it" in " ".join(err.split())) == (
            2,
            True,
        )
    assert (folder / "report.html").read_text() == "<p>my own notes"
    assert run_sta("report", str(folder), "--force")[0] == 0
    assert (folder / "report.html").read_bytes() == written


def test_what_is_listed_of_an_error_adds_up(own: Path) -> None:
    found = gather(own, device="cpu")
    page = Page(render(found))
    for mistake in found.mistakes:
        node = found.run.dataset.find(mistake["node"])
        parts = [source["adds"] for source in mistake["sources"]] + [*mistake["parts"].values()]
        assert np.sum(parts, axis=0) == pytest.approx(mistake["sum"], abs=1e-4)
        cls, truth = (
            found.run.dataset.find_class(mistake[name]) for name in ("predicted", "label")
        )
        logits = found.run.logits[node]
        expected = [logits[cls], logits[cls] - logits[truth]]  # and why rather than the true one
        assert mistake["sum"] == pytest.approx(expected, abs=1e-4)
        why = found.run.explainer(node)
        reached = {int(at) for level in why.levels for at in level.nodes}
        assert mistake["others"] == len(reached) - len(mistake["sources"])
        if mistake["others"]:
            assert f"{mistake['others']} other node" in page.text


def test_columns_of_an_error_add_up_to_why_rather(own: Path) -> None:
    found = gather(own, device="cpu")
    text = Page(render(found)).text
    for mistake in found.mistakes:
        told = mistake["columns"]
        parts = [one["all"] for one in told["named"]] + [told["rest"]["all"], told["bias"]]
        assert sum(parts) == pytest.approx(mistake["sum"][1], abs=1e-4)
        assert f"{told['bias']:+.3f}" in text
    shown = HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert f"{shown}age" in " ".join(one["name"] for one in told["named"]).replace(HOSTILE, shown)


def test_bins_have_their_counts(own: Path) -> None:
    found = gather(own, device="cpu")
    text, tested = Page(render(found)).text, int(found.run.split.test.sum())
    assert sum(one.nodes for one in found.bins[1]) == tested
    for one in found.bins[1]:
        assert f"{100 * one.confidence:.1f} {100 * one.accuracy:.1f} {one.nodes}" in text


def test_every_listed_error_has_its_subtree(own: Path) -> None:
    found = gather(own, device="cpu")
    text = render(found)
    assert text.count('aria-label="the subtree of') == len(found.mistakes)
    for mistake in found.mistakes:
        drawn = mistake["subtree"]["nodes"]
        assert drawn[0]["id"] == mistake["node"]
        assert len(drawn) <= 26


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["RUN", "--out", "report.pdf"], "a report is written as .html"),
        (["RUN", "--out", "."], "a report is written as .html"),
        (["RUN", "--out", "/dev/null/report.html"], "cannot write to /dev/null"),
    ],
)
def test_mistakes_of_the_command_are_plain(
    arguments: list[str], message: str, run_sta: Callable[..., Outcome], own: Path
) -> None:
    code, _, err = run_sta("report", *(str(own) if a == "RUN" else a for a in arguments))
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        ("{", "is not valid JSON"),
        ('{"epoch": 1}\n', "cannot be read"),
        ('{"epoch": 1, "loss": "<b>", "train": 0, "val": 0, "test": 0}\n', "finite numbers"),
        ('{"epoch": 99, "loss": 1, "train": 0, "val": 0, "test": 0}\n', "the best epoch"),
    ],
)
def test_a_broken_history_is_named(
    content: str | None, message: str, own: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(own, folder)
    path = folder / "run-0" / "metrics.jsonl"
    path.unlink() if content is None else path.write_text(content)
    files.accept(folder)
    with pytest.raises(ValueError, match=message) as caught:
        gather(folder, device="cpu")
    assert "metrics.jsonl" in str(caught.value)


def test_an_environment_of_a_stranger_is_data(own: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(own, folder)
    content = json.dumps({"command": HOSTILE}).encode()
    files.write_listed(folder, {"environment.json": content})
    assert "<script>" not in render(gather(folder, device="cpu"))
    (folder / "environment.json").unlink()
    render(gather(folder, device="cpu"))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 25, 50, 75, 100]),
        (1, 9, [2, 4, 6, 8]),
        (0.9, 1.0, [0.9, 0.925, 0.95, 0.975, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_chart_draws_within_its_frame() -> None:
    drawn = chart("c", [Line("l", "--a", [(1, 5), (2, 5)])], (1, 2), spread([5, 5]), "x", mark=2)
    numbers = re.findall(r"(-?[\d.]+),(-?[\d.]+)", drawn)
    assert len(numbers) == 2
    assert all(0 <= float(x) <= 400 and 0 <= float(y) <= 240 for x, y in numbers)
    assert 'class="mark"' in drawn


@pytest.mark.parametrize("name", ["digits", "cora", "deezer", "actor"])
def test_every_recipe_has_words(name: str) -> None:
    told = dict(describe(sta.recipe(name), small(own=False)))
    assert list(told) == ["Graph", "Split", "Model", "Hops", "Training"]
    assert ("ROC-AUC" in told["Training"]) == (name == "deezer")
    assert "3 nodes (2 with a label)" in told["Graph"]


def small(own: bool) -> sta.Dataset:
    """A graph of three nodes."""
    y = torch.tensor([0, 1, -1])
    edges = torch.tensor([[0, 1], [1, 0]])
    return sta.Dataset(torch.ones(3, 1), edges, y)._with(own=own)


def test_words_are_those_of_the_settings() -> None:
    config = sta.recipe("cora", split="B", hops=2, heads=3, gate="plain", dropout=0.25)
    told = dict(describe(config, small(own=False)))
    for name in ("transition", "gate"):
        assert config.model.words(name) in told["Hops"]
    assert config.model.words("aggregation") not in told["Hops"]  # the gate takes its place
    assert "a mean over what arrives" not in told["Hops"]  # what everybody takes for granted
    powers = sta.recipe("cora", readout="power")
    assert powers.model.words("readout") in dict(describe(powers, small(own=False)))["Hops"]
    assert told["Model"].startswith("STAGNN with 3 heads and a hidden layer of 64, kernel")
    assert "dropout 0.25" in told["Model"]
    assert "60 % of all nodes for training" in told["Split"]
    assert "60 % of each class" in dict(describe(config, small(own=True)))["Split"]
    rounded = dict(describe(config.replace(precision="bf16"), small(own=True)))["Training"]
    assert "rounded to bfloat16 between hops" in rounded
    assert "bfloat16" not in dict(describe(config, small(own=True)))["Training"]
    alone = config.replace(hops=0)
    assert dict(describe(alone, small(own=True)))["Hops"] == "none: every node by itself"
    exact = config.replace(feature_map="softmax", global_attention=True, hops=1)
    told = dict(describe(exact, small(own=True)))
    assert "exact softmax attention" in told["Model"]
    assert told["Hops"].startswith("every node attends to its neighbours, along a random walk")
    assert told["Hops"].endswith("beside it global attention")


@dataclass(frozen=True)
class Plain(Settings):
    """The settings of a model that knows neither hops nor heads."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "A linear map"
    dropout: float = option(0.5, "Not used.", below=1)


class PlainModel(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(in_channels, out_channels)

    def forward(self, x: torch.Tensor, graph: sta.Graph) -> torch.Tensor:
        return self.lin(x)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters()), "weight_decay": weight_decay}]


def test_another_model_is_reported_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODELS, "plain", Plain)
    monkeypatch.setitem(models.models.BUILDERS, "plain", PlainModel)
    data = sta.from_tables(people() | {"city": ["Rome"] * 60}, friends(), target="label")
    config = replace(sta.recipe(data, graph="mine", runs=1, epochs=2), model=Plain())
    found = gather(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder, device="cpu")
    text = Page(render(found)).text
    assert "A linear map, dropout 0.5" in text
    assert "Hops" not in dict(describe(config, found.run.dataset))
    assert "Hops and heads" not in text
    assert found.mistakes
    assert "with" in text
    assert "added most to the logit" not in text
