"""What is told of an explanation: the dictionary, the terminal and `sta explain`."""

import json

import pytest
import torch
from rich.console import Console

import subtree_attention as sta
from subtree_attention import STAGNN, Dataset, STAFormer, explain
from subtree_attention.config import STAGNNSettings
from subtree_attention.nn import build
from subtree_attention.show.explanation import describe, mostly_beside, show, to_dict
from subtree_attention.show.text import counted, percent, plain, signed
from tests.show.made import made_run

EVIL = "[red]x[/red]\x1b[2J"


@pytest.fixture
def data():
    """A graph as it comes from a user's tables: with ids, names of classes, unknown labels."""
    spokes = torch.stack([torch.zeros(8, dtype=torch.long), torch.arange(1, 9)])
    ring = torch.stack([torch.arange(9), torch.arange(1, 10) % 9])
    edges = torch.cat([spokes, spokes.flip(0), ring, ring.flip(0)], dim=1)
    y = torch.tensor([0, 1, 2, 0, 1, 2, -1, 0, 1])
    ids = [f"paper-{node}" for node in range(8)] + [EVIL]
    classes = ("[bold]logic[/bold]", "vision", "speech")
    return Dataset(torch.randn(9, 5), edges, y, ids=ids, classes=classes)


def told(data, root=0, model=None, temperature=1.0, **options):
    model = STAGNN(5, 8, 3) if model is None else model
    run = made_run(model, data, torch.tensor([True] * 5 + [False] * 4), temperature)
    return to_dict(run, explain(model, data.x, run.graph, root), **options)


def shown(report) -> str:
    console = Console(width=150, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(show(report))
    return captured.get()


@pytest.mark.parametrize("top", [0, 2, 100])
@pytest.mark.parametrize("options", [{}, {"cls": 1}, {"hops": 1}, {"by": "contribution"}])
@pytest.mark.parametrize("readout", ["mean", "power"])
def test_all_parts_add_up_to_the_logits(data, top, options, readout):
    settings = STAGNNSettings(hidden_channels=8, global_attention=True, readout=readout)
    model = build(settings, 5, 3)
    report = told(data, model=model, top=top, **options)
    json.dumps(report, allow_nan=False)
    for place in range(2):
        whole = report["bias"][place]
        for level in report["levels"]:
            parts = [*level["sources"], level["rest"]]
            nodes = len(level["sources"]) + level["rest"]["nodes"]
            total = sum(part["contribution"][place] for part in parts)
            assert nodes == level["nodes"]
            assert total == pytest.approx(level["contribution"][place], abs=1e-6)
            assert sum(h[place] for h in level["heads"]) == pytest.approx(total, abs=1e-6)
            for head in range(4):
                share = sum(part["attention"][head] for part in parts)
                assert share == pytest.approx(1, abs=1e-3)  # less eps
            whole += total
        assert whole == pytest.approx(report["logit"][place], abs=1e-5)


def test_the_explained_class_and_its_rival(data):
    model = STAGNN(5, 8, 3).eval()
    order = model(data.x, data.edge_index)[0].argsort(descending=True).tolist()
    names = [data.classes[cls] for cls in order]
    report = told(data, model=model)
    assert [report[key] for key in ("predicted", "class", "rival")] == [names[0], *names[:2]]
    assert report["probability"][0] > report["probability"][1]
    report = told(data, model=model, cls=order[2])
    assert [report[key] for key in ("predicted", "class", "rival")] == [
        names[0],
        names[2],
        names[0],
    ]


def test_probabilities_are_calibrated(data):
    model = STAGNN(5, 8, 3)
    report = told(data, model=model, temperature=2.5)
    expected = torch.softmax(model(data.x, data.edge_index)[0] / 2.5, 0).sort(descending=True)
    assert report["probability"] == pytest.approx(expected.values[:2].tolist(), abs=1e-5)
    text = shown(report)
    assert "probabilities are calibrated" in text
    for logit, probability in zip(report["logit"], report["probability"], strict=True):
        assert f": {logit:.3f} ({100 * probability:.1f} %)" in text


def test_a_single_logit_has_no_rival(data):
    data = data._with(y=torch.full((9,), -1), classes=("size",))  # no classification
    report = told(data, model=STAGNN(5, 8, 1, heads=2))
    assert report["rival"] is None
    assert len(report["logit"]) == len(report["levels"][1]["sources"][0]["contribution"]) == 1
    assert "logit of size" in shown(report)


def test_labels_splits_and_walks_are_those_of_the_nodes(data):
    report = told(data, root=3, top=100)
    assert (report["node"], report["label"], report["split"]) == (
        "paper-3",
        data.classes[0],
        "train",
    )
    sources = {source["node"]: source for source in report["levels"][3]["sources"]}
    assert set(sources) == set(data.ids)
    for node, name in enumerate(data.ids):
        known = None if node == 6 else data.classes[int(data.y[node])]
        assert sources[name]["label"] == known
        assert sources[name]["split"] == ("train" if node < 5 else None)
        walk = sources[name]["walk"]["nodes"]
        assert (len(walk), walk[0], walk[-1]) == (4, name, "paper-3")


def test_beyond_hops_only_sums_are_given(data):
    levels = told(data, hops=1)["levels"]
    assert [bool(level["sources"]) for level in levels] == [True, True, False, False]


def test_ids_and_classes_are_text_and_never_markup(data):
    report = told(data, top=100)
    text = shown(report)
    assert "[red]x[/red]\N{REPLACEMENT CHARACTER}[2J" in text
    assert "[bold]logic[/bold]" in text
    assert "\x1b[2J" not in text
    assert plain("a\nb\x1b") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


def test_the_terminal_shows_every_level_and_the_sum(data):
    report = told(data)
    report["model_logit"] = [1.25, 1.25]
    text = shown(report)
    for level in report["levels"]:
        assert f"hop {level['hop']}" in text
        rest = [level["rest"]] if level["rest"]["nodes"] else []
        for part in (*level["sources"], *rest):
            assert f"{part['contribution'][0]:+.3f}" in text
    assert f"add up to {report['logit'][0]:.6f}; the model's own logit is 1.250000" in text


def test_what_weights_sum_to_is_said_where_they_are_no_shares(data):
    assert "weights sum to" not in shown(told(data))
    report = told(data, model=STAGNN(5, 8, 3, readout="sum"))
    own, *others = report["levels"]
    assert own["weights"] is None  # the root itself
    text = shown(report)
    for level in others:
        sums = " ".join(f"{weight:.3g}" for weight in level["weights"])
        assert f"(weights sum to {sums})" in text


class TestAttribution:
    """Of a model that is not linear given its attention."""

    def report(self, data):
        torch.manual_seed(1)
        how = {"layers": 2, "hops": 1, "transition": "rw", "self_loops": False}
        return told(data, model=STAFormer(5, 8, 3, **how), top=2)

    def test_the_parts_and_what_is_missing_are_the_logits(self, data):
        report = self.report(data)
        json.dumps(report, allow_nan=False)
        assert report["exact"] is False
        assert [level["hop"] for level in report["levels"]] == [0, 1]  # all are neighbours
        for place in range(2):
            whole = report["bias"][place] + report["residual"][place]
            for level in report["levels"]:
                parts = [*level["sources"], level["rest"]]
                assert level["heads"] == []
                assert all(part["attention"] == [] for part in parts)
                total = sum(part["contribution"][place] for part in parts)
                assert total == pytest.approx(level["contribution"][place], abs=1e-5)
                whole += total
            assert whole == pytest.approx(report["model_logit"][place], abs=1e-4)

    def test_the_terminal_says_that_it_is_not_exact(self, data):
        report = self.report(data)
        text = " ".join(shown(report).split())
        assert "attribution, not exact" in text
        assert f"{report['residual'][0]:+.3f} is missing" in text
        assert "is attributed to" in text
        assert "% of each head" not in text
        assert "head 1" not in text
        assert "input of zeros" in text

    def test_the_exact_ones_say_nothing_of_it(self, data):
        report = told(data)
        assert report["exact"] is True
        assert report["residual"] == [0, 0]
        text = shown(report)
        assert "attribution" not in text
        assert "missing" not in text


def test_without_labels_and_parts_nothing_is_known(data):
    bare = Dataset(data.x, data.edge_index, torch.full((9,), -1), classes=data.classes)
    run = made_run(STAGNN(5, 8, 3), bare, torch.zeros(9, dtype=torch.bool))
    assert describe(run, 4) == {"node": "4", "name": None, "label": None, "split": None}


def test_numbers_are_written_one_way():
    assert (percent(0.12345), percent(0.5, 1), percent(None), percent(float("nan"))) == (
        "12.35",
        "50.0",
        "-",
        "-",
    )
    assert (signed(0.5), signed(-2)) == ("+0.500", "-2.000")
    assert (counted(1), counted(2000), counted(0, "other")) == ("1 node", "2,000 nodes", "0 others")


class TestCommand:
    def test_json_holds_the_models_own_logits(self, digits, run_sta):
        code, out, err = run_sta("explain", str(digits), "7", "--json", "--top", "3")
        assert (code, err) == (0, "")
        report, run = json.loads(out), sta.open(digits)
        assert report["logits"] == pytest.approx(run.logits[7].tolist(), abs=1e-4)
        assert report["model_logit"] == pytest.approx(report["logit"], abs=1e-4)
        assert report["label"] == run.dataset.label(7)
        assert [len(level["sources"]) for level in report["levels"]] == [1, 3, 3]

    def test_the_tree_and_the_table(self, digits, run_sta):
        code, out, _ = run_sta("explain", str(digits), "7", "--class", "3", "--hops", "1")
        assert code == 0
        for words in ("node 7", "logit of 3", "hop 1", "others", "head 4", "bias", "add up"):
            assert words in out
        assert "against" in out or "runner-up" in out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["9999"], "there is no node '9999': this graph has nodes 0 to 1796"),
            (["7", "--class", "ten"], "unknown class 'ten'"),
            (["7", "--top", "-1"], "top must be at least 0, got -1"),
            (["7", "--hops", "-1"], "hops must be at least 0, got -1"),
            (["7", "--by", "size"], "unknown order 'size'"),
        ],
    )
    def test_a_mistake_is_one_line(self, digits, run_sta, arguments, message):
        code, out, err = run_sta("explain", str(digits), *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err

    def test_a_folder_that_is_none_is_named(self, run_sta):
        assert "nowhere is not a folder" in run_sta("explain", "nowhere", "7")[2]

    def test_help_teaches(self, run_sta):
        out = run_sta("explain", "--help")[1]
        assert "sta explain runs/mine 7 --class 3" in out
        assert "Show why a node got its prediction" in out


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ([9.0, -9.0], "90 % of what decides here is the reference: the nodes above explain little"),
        ([1.0, -1.0], ""),
        ([9.0, 9.0], ""),  # to both alike
    ],
)
def test_it_is_said_where_the_reference_decides(reference: list[float], words: str) -> None:
    told = {"levels": [{"contribution": [1.0, -1.0]}], "bias": [0.0, 0.0]}
    said = mostly_beside({**told, "beside": {"reference": reference}})
    assert said.startswith(words)
    assert bool(said) == bool(words)
    assert mostly_beside({**told, "beside": {}}) == ""
