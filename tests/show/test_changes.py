"""What if, why rather, and which columns: as a dictionary, on the terminal, in `sta explain`."""

import json

import numpy as np
import pytest
from rich.console import Console

import subtree_attention as sta
from subtree_attention.show.explanation import of_run, show
from subtree_attention.show.inputs import columns
from tests.samples import friends, people

HOSTILE = "[red]x\x1b[2J"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    nodes = people(60)
    nodes["about"] = [f"{text} fish {HOSTILE}" for text in nodes["about"]]
    nodes[f"size {HOSTILE}"] = [float(i % 7) for i in range(60)]
    data = sta.from_tables(nodes, friends(), target="label")
    config = sta.recipe(data, runs=1, epochs=5, hops=2, heads=2)
    out = tmp_path_factory.mktemp("people") / "out"
    return sta.fit(config, out, device="cpu", data=data).folder


@pytest.fixture(scope="module")
def run(folder):
    return sta.open(folder, device="cpu")


def shown(told: dict) -> str:
    console = Console(width=150, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(show(told))
    return captured.get()


def other_class(run, node: str) -> str:
    told = of_run(run, node)
    return next(name for name in run.dataset.classes if name not in (told["class"], told["rival"]))


class TestColumns:
    def test_named_and_others_are_the_logit_but_for_the_bias(self, run):
        told = of_run(run, "p7")
        found = told["columns"]
        for part in ("own", "all"):
            assert sum(each[part] for each in found["columns"]) == pytest.approx(found[part])
            named = sum(each[part] for each in found["named"])
            assert named + found["rest"][part] == pytest.approx(found[part])
        assert found["all"] + found["bias"] == pytest.approx(told["logit"][0], abs=1e-5)
        sizes = [max(abs(each["own"]), abs(each["all"])) for each in found["named"]]
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) == 8
        kinds = {each["name"]: each["kind"] for each in found["columns"]}
        assert kinds["about"] == "text"
        assert kinds["age"] == "number"

    def test_words_are_named_and_only_those_of_the_node_are_its_own(self, run):
        root = run.dataset.find("p7")
        found = columns(run, run.explainer(root), 0, top=1000)
        assert found["rest"]["features"] == 0
        own = {each["name"] for each in found["named"] if each["own"]}
        text = run.dataset.told.columns["about"][root].lower()
        words = [name.removeprefix("about: ") for name in own if name.startswith("about: ")]
        assert "fish" in words
        assert all(word in text for word in words)
        assert "age: missing" in {each["name"] for each in found["named"]}

    def test_the_terminal_shows_them_as_text(self, run):
        text = shown(of_run(run, "p7"))
        assert "which columns add to the logit of" in text
        assert "given which units of the hidden layer are active" in text
        assert "the node itself" in text
        assert "\x1b[2J" not in text

    def test_labels_that_are_shown_have_names(self, tmp_path):
        data = sta.from_tables(people(60), friends(), target="label")
        config = sta.recipe(data, runs=1, epochs=3, hops=1, heads=2, show_labels=0.5, encoding=2)
        run = sta.open(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
        found = columns(run, run.explainer(7), 0, top=1000)
        names = {each["name"] for each in found["named"]}
        assert names & {f"label: {name}" for name in run.dataset.classes}
        assert "label: is known" in names
        assert {"eigenvector 0", "eigenvector 1"} <= names
        kinds = [each["kind"] for each in found["columns"]]
        assert kinds[-2:] == ["encoding", "labels"]
        made = run.what_if("p7", without=["p3"])
        assert "Laplacian eigenvectors stay those of the whole graph" in made.kept

    def test_an_attribution_is_called_one(self, tmp_path):
        data = sta.from_tables(people(40), friends(40, 90), target="label")
        how = {"layers": 2, "hops": 1, "heads": 1, "hidden_channels": 8}
        config = sta.recipe(data, runs=1, epochs=2, model="staformer", **how)
        run = sta.open(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
        told = of_run(run, "p7", changes=["p3"], hops=0)
        found = told["columns"]
        assert found["all"] + found["bias"] == pytest.approx(told["logit"][0], abs=1e-5)
        assert told["what_if"]["after"]["predicted"] == told["predicted"]
        text = shown(told)
        assert "attributed by integrated gradients" in text
        assert "given which units" not in text


class TestRather:
    def test_the_rival_is_the_class_that_was_named(self, run):
        name = other_class(run, "p7")
        told = of_run(run, "p7", rather=name, by="contribution")
        assert (told["rival"], told["rather"]) == (name, True)
        difference = told["logit"][0] - told["logit"][1]
        found = told["columns"]
        assert found["all"] + found["bias"] == pytest.approx(difference, abs=1e-5)
        text = shown(told)
        assert f"why {told['class']} rather than {name}: the difference of their logits" in text
        assert f"which columns add to how far {told['class']} is before {name}" in text
        assert f"{difference:+.3f}" in text
        assert f", rather than {name}: " in text
        assert "runner-up" not in text
        assert any(line.split()[:1] == ["difference"] for line in text.splitlines())
        level = told["levels"][1]
        sizes = [abs(np.subtract(*each["contribution"])) for each in level["sources"]]
        assert sizes == sorted(sizes, reverse=True)
        of_heads = sum(np.subtract(*head) for head in level["heads"])
        assert of_heads == pytest.approx(np.subtract(*level["contribution"]), abs=1e-6)

    def test_the_same_class_is_refused(self, run):
        name = of_run(run, "p7")["class"]
        with pytest.raises(ValueError, match="is the class that is explained: name another"):
            of_run(run, "p7", rather=name)


class TestWhatIf:
    def test_before_and_after(self, run):
        changes = ["word:about:fish", "column:age=20"]
        told = of_run(run, "p7", changes=changes)
        json.dumps(told, allow_nan=False)
        made = run.what_if("p7", values={"age": 20}, words=[("about", "fish")])
        before, after = told["what_if"]["before"], told["what_if"]["after"]
        assert before["probabilities"] == pytest.approx(made.probabilities[0].tolist())
        assert after["probabilities"] == pytest.approx(made.probabilities[1].tolist())
        assert told["logits"] == pytest.approx(after["logits"])
        assert told["what_if"]["changes"] == ["age = 20", "about without 'fish'"]
        assert told["model_logit"] is None
        text = shown(told)
        assert "what if: age = 20; about without 'fish'" in text
        assert "as trained: nothing is trained again" in text
        assert "columns are scaled as in training" in text
        assert "before" in text

    def test_the_explained_class_is_the_one_of_before(self, run):
        told = of_run(run, "p7", changes=["column:city=Rome", "column:about="])
        assert told["class"] == told["what_if"]["before"]["predicted"]

    def test_numbers_have_no_probabilities(self, tmp_path):
        nodes = people(60)
        nodes["label"] = [float(len(text)) for text in nodes["about"]]
        data = sta.from_tables(nodes, friends(), target="label", task="regression")
        config = sta.recipe(data, runs=1, epochs=3, hops=1, heads=2)
        run = sta.open(sta.fit(config, tmp_path / "out", device="cpu", data=data).folder)
        told = of_run(run, "p7", changes=["column:city=Rome"])
        before, after = (told["what_if"][when] for when in ("before", "after"))
        assert before["probabilities"] is None
        assert before["interval"][0] < float(before["predicted"]) < before["interval"][1]
        assert f"predicted {before['predicted']} before, {after['predicted']} after" in shown(told)
        found = told["columns"]
        whole = found["all"] + found["bias"] + run.found["center"]
        assert whole == pytest.approx(told["logit"][0], rel=1e-4)
        with pytest.raises(ValueError, match="there is no class '0': the target is a number"):
            of_run(run, "p7", rather="0")
        with pytest.raises(ValueError, match="numbers are predicted"):
            run.what_if("p7", values={"city": "Rome"}).probabilities  # noqa: B018


class TestCommand:
    def test_changes_and_a_class_rather(self, folder, run, run_sta):
        name = other_class(run, "p7")
        given = ("--without", "word:about:fish", "--set", "age=20", "--rather", name, "--json")
        code, out, err = run_sta("explain", str(folder), "p7", *given)
        assert (code, err) == (0, "")
        told = json.loads(out)
        assert told["what_if"]["changes"] == ["age = 20", "about without 'fish'"]
        assert told["rival"] == name

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--without", "p7"], "'p7' is the node asked about"),
            (["--without", "p99"], "there is no node 'p99' among 60 ids. Near: "),
            (["--without", "edge:p7>p7"], "there is no edge from 'p7' to 'p7'"),
            (["--without", "word:about:horse"], "the node has no 'horse' in 'about'"),
            (["--set", "age=old"], "'age' cannot be 'old': column 'age' is a number"),
            (["--set", "weight=3"], "there is no column 'weight' among the features"),
            (["--set", "age"], "'age' sets no value: write age=VALUE"),
            (["--rather", "z"], "unknown class 'z'"),
        ],
    )
    def test_a_mistake_is_one_line(self, folder, run_sta, arguments, message):
        code, out, err = run_sta("explain", str(folder), "p7", *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err
