"""What is told of an explanation: the dictionary, the terminal and `sta explain`."""

import json

import pytest
import torch
from rich.console import Console
from torch_geometric.data import Data

from subtree_attention import STAGNN, explain, load, load_data
from subtree_attention.show.explanation import Names, plain, show, to_dict

EVIL = "[red]x[/red]\x1b[2J"


@pytest.fixture
def data():
    """A graph as it comes from a user's tables: with ids, names of classes, unknown labels."""
    spokes = torch.stack([torch.zeros(8, dtype=torch.long), torch.arange(1, 9)])
    ring = torch.stack([torch.arange(9), torch.arange(1, 10) % 9])
    edges = torch.cat([spokes, spokes.flip(0), ring, ring.flip(0)], dim=1)
    y = torch.tensor([0, 1, 2, 0, 1, 2, -1, 0, 1])
    train = torch.tensor([True] * 5 + [False] * 4)
    ids = [f"paper-{node}" for node in range(8)] + [EVIL]
    classes = ["[bold]logic[/bold]", "vision", "speech"]
    x = torch.randn(9, 5)
    return Data(x, edges, y=y, train_mask=train, ids=ids, classes=classes)


def told(data, root=0, model=None, **options):
    model = STAGNN(5, 8, 3) if model is None else model
    explanation = explain(model, data.x, data.edge_index, root)
    return to_dict(explanation, Names(data, 3), **options)


def shown(report) -> str:
    console = Console(width=150, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(show(report))
    return captured.get()


@pytest.mark.parametrize("top", [0, 2, 100])
@pytest.mark.parametrize("options", [{}, {"cls": 1}, {"hops": 1}, {"by": "contribution"}])
def test_all_parts_add_up_to_the_logits(data, top, options):
    model = STAGNN(5, 8, 3, global_attention=True)
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


def test_a_single_logit_has_no_rival(data):
    model, data = STAGNN(5, 8, 1, heads=2), Data(data.x, data.edge_index)
    report = to_dict(explain(model, data.x, data.edge_index, 0), Names(data, 1))
    assert report["rival"] is None
    assert len(report["logit"]) == len(report["levels"][1]["sources"][0]["contribution"]) == 1
    assert "class 0" in shown(report)


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
    report = told(data, own_logits=torch.tensor([1.25, 1.25, 1.25]))
    text = shown(report)
    for level in report["levels"]:
        assert f"hop {level['hop']}" in text
        rest = [level["rest"]] if level["rest"]["nodes"] else []
        for part in (*level["sources"], *rest):
            assert f"{part['contribution'][0]:+.3f}" in text
    assert f"add up to {report['logit'][0]:.6f}; the model's own logit is 1.250000" in text


class TestNames:
    def test_ids_are_found_and_near_ones_named(self, data):
        names = Names(data, 3)
        assert names.find("paper-4") == 4
        with pytest.raises(ValueError, match=r"no node 'papr-4' among 9 ids. Near: 'paper-4'"):
            names.find("papr-4")

    @pytest.mark.parametrize("name", ["9", "-1", "x", "1.0", ""])
    def test_numbers_where_there_are_no_ids(self, data, name):
        names = Names(Data(data.x, data.edge_index), 3)
        assert names.find("8") == 8
        with pytest.raises(ValueError, match=f"no node '{name}': this graph has nodes 0 to 8"):
            names.find(name)

    def test_classes_by_name_or_number(self, data):
        names = Names(data, 3)
        assert (names.find_class("vision"), names.find_class("2")) == (1, 2)
        with pytest.raises(ValueError, match=r"unknown class 'visio'. Did you mean 'vision'"):
            names.find_class("visio")
        with pytest.raises(ValueError, match="unknown class '3'"):
            names.find_class("3")

    def test_without_labels_and_masks_nothing_is_known(self, data):
        described = Names(Data(data.x, data.edge_index), 3).describe(4)
        assert described == {"node": "4", "label": None, "split": None}


class TestCommand:
    def test_json_holds_the_models_own_logits(self, trained, run_sta):
        code, out, err = run_sta("explain", str(trained), "7", "--json", "--top", "3")
        assert (code, err) == (0, "")
        report, model, data = json.loads(out), load(trained), load_data(trained)
        logits = model(data.x, data.edge_index)[7]
        assert report["logits"] == pytest.approx(logits.tolist(), abs=1e-4)
        assert report["model_logit"] == pytest.approx(report["logit"], abs=1e-4)
        assert report["label"] == f"class {int(data.y[7])}"
        assert [len(level["sources"]) for level in report["levels"]] == [1, 3, 3]

    def test_the_tree_and_the_table(self, trained, run_sta):
        code, out, _ = run_sta("explain", str(trained), "7", "--class", "3", "--hops", "1")
        assert code == 0
        for words in ("node 7", "logit of class 3", "hop 1", "others", "head 4", "bias", "add up"):
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
    def test_a_mistake_is_one_line(self, trained, run_sta, arguments, message):
        code, out, err = run_sta("explain", str(trained), *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err

    def test_a_folder_that_is_none_is_named(self, run_sta):
        assert "nowhere is not a folder" in run_sta("explain", "nowhere", "7")[2]

    def test_help_teaches(self, run_sta):
        out = run_sta("explain", "--help")[1]
        assert "sta explain runs/mine 7 --class 3" in out
        assert "Show why a node got its prediction" in out
