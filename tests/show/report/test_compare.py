"""Runs side by side: what is paired, what differs, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

import subtree_attention as sta
from subtree_attention.show.report import Comparison, compare, render_comparison
from subtree_attention.show.report.compare import Difference, summary
from tests.samples import friends, people
from tests.show.conftest import NAME

Outcome = tuple[int, str, str]


def trained(folder: Path, numbers: bool = False, **settings: object) -> Path:
    """Runs on the people of `own`, without a column that would tell all."""
    nodes = {name: cells for name, cells in people(90).items() if name not in ("city", "about")}
    task = {"target": "age", "task": "regression"} if numbers else {"target": "label"}
    data = sta.from_tables(nodes, friends(90, 200), **task)
    given = {"graph": NAME, "runs": 2, "epochs": 4, "hops": 2, "heads": 2, **settings}
    return sta.fit(sta.recipe(data, **given), folder, device="cpu", data=data).folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three runs, and two with other settings and the same splits."""
    made = tmp_path_factory.mktemp("sides")
    return trained(made / "one", runs=3, epochs=30), trained(made / "two", hops=0, heads=1)


@pytest.fixture(scope="module")
def found(folders: tuple[Path, Path]) -> Comparison:
    return compare(folders, device="cpu")


def test_runs_with_the_same_test_nodes_are_paired(found: Comparison) -> None:
    (pairing,) = found.pairings
    assert [(a.result.run, b.result.run) for a, b in pairing.pairs] == [(0, 0), (1, 1)]
    for one, other in pairing.pairs:
        assert (one.split.test == other.split.test).all()
    assert len(pairing.left) == 1
    assert pairing.left[0].startswith("run 2 of")
    assert {name: both for name, *both in pairing.settings} == {
        "hops": [2, 0],
        "heads": [2, 1],
        "epochs": [30, 4],
    }


def test_the_difference_is_that_of_paired_scores(found: Comparison) -> None:
    (pairing,) = found.pairings
    gains = [b.result.test - a.result.test for a, b in pairing.pairs]
    reach = 12.7062 * stdev(gains) / 2**0.5  # Student's t of one degree of freedom
    told = pairing.difference
    assert told.mean == pytest.approx(mean(gains))
    assert (told.low, told.high) == pytest.approx((mean(gains) - reach, mean(gains) + reach), 1e-4)
    assert "chance" in told.verdict
    assert "over 2 pairs of runs" in summary(found, pairing)


def test_listed_nodes_are_right_on_one_side_only(found: Comparison) -> None:
    (pairing,) = found.pairings
    one, other = pairing.shown
    right = [np.array(run.answers.right) & one.split.test.numpy() for run in (one, other)]
    expected = [int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())]
    assert [count for count, _ in pairing.only] == expected
    assert sum(expected) > 0
    for (_, units), (is_right, is_wrong) in zip(pairing.only, [(0, 1), (1, 0)], strict=True):
        for told in units:
            said = told["predicted"], told["other_predicted"]
            assert said[is_right] == told["label"] != said[is_wrong]
            node = one.dataset.find(told["node"])
            assert told["other_probability"] == other.probabilities[node].max()


def test_classes_are_compared_over_all_pairs(found: Comparison) -> None:
    (pairing,) = found.pairings
    tested = sum(int(a.split.test.sum()) for a, _ in pairing.pairs)
    assert sum(units for _, units, _, _ in pairing.classes) == tested
    for side in (0, 1):
        right = sum(row[1] * row[2 + side] for row in pairing.classes)
        scores = [
            pair[side].result.test * int(pair[side].split.test.sum()) for pair in pairing.pairs
        ]
        assert right == pytest.approx(sum(scores))


def test_the_page_says_it_all(found: Comparison) -> None:
    text = unescape(render_comparison(found))
    for words in ("settings that differ", "hops", "class by class", "what only", "run 2 of"):
        assert words in text.lower()
    assert "<script" not in render_comparison(found)  # the name of the graph
    assert "<script" in text


def test_one_pair_has_the_interval_of_its_nodes(folders: tuple[Path, Path]) -> None:
    found = compare([folder / "run-0" for folder in folders], device="cpu")
    told = found.pairings[0].difference
    one, other = found.pairings[0].pairs[0]
    test = one.split.test.numpy()
    apart = other.answers.right[test].astype(float) - one.answers.right[test]
    assert told.mean == pytest.approx(apart.mean())
    assert told.high - told.low == pytest.approx(2 * 1.96 * apart.std() / len(apart) ** 0.5)
    assert "test nodes" in told.over


def test_runs_that_score_the_same_are_not_left_to_chance(found: Comparison) -> None:
    same = replace(found.pairings[0], difference=Difference(0.0, 0.0, 0.0, "2 pairs of runs"))
    said = summary(found, same)
    assert said.endswith(": test accuracy is the same, over 2 pairs of runs")
    near = replace(same, difference=Difference(0.0, -0.1, 0.1, "2 pairs of runs"))
    assert summary(found, near).endswith("it may be chance")


def test_a_correction_that_came_to_nothing_is_said_to(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    tried = trained(tmp_path / "tried", hops=0, heads=1, correct=True)
    found = compare([folders[1], tried], device="cpu")
    kept = any(run.corrects for run in found.sides[str(tried)])
    assert found.pairings[0].settings == [("correct", False, kept or "tried, not kept")]


def test_three_folders_are_held_against_the_first(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    third = trained(tmp_path / "three", runs=1)
    found = compare([*folders, third], device="cpu")
    assert [pairing.names for pairing in found.pairings] == [
        (str(folders[0]), str(folders[1])),
        (str(folders[0]), str(third)),
    ]


def test_what_cannot_be_compared_is_refused_in_words(
    folders: tuple[Path, Path], digits: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="not on the same graph: they have other nodes"):
        compare([folders[0], digits], device="cpu")
    with pytest.raises(ValueError, match="a folder was named twice"):
        compare([folders[0], folders[0]], device="cpu")
    with pytest.raises(ValueError, match="has the same test nodes as one of"):
        compare([folders[0] / "run-0", folders[1] / "run-1"], device="cpu")
    other = trained(tmp_path / "metric", runs=1, metric="macro_f1")
    with pytest.raises(ValueError, match="train one of them again with the --metric"):
        compare([folders[0], other], device="cpu")
    number = trained(tmp_path / "number", runs=1, numbers=True)
    with pytest.raises(ValueError, match="has learnt the class of nodes, and"):
        compare([folders[0], number], device="cpu")


def test_numbers_have_those_that_one_is_nearer_to(tmp_path: Path) -> None:
    sides = [trained(tmp_path / f"{hops}", numbers=True, hops=hops) for hops in (0, 2)]
    found = compare(sides, device="cpu")
    (pairing,) = found.pairings
    one, other = pairing.shown
    nearer = np.abs(one.answers.errors) < np.abs(other.answers.errors)
    assert pairing.only[0][0] == int((nearer & one.split.test.numpy()).sum())
    assert "is nearer" in render_comparison(found)


def test_the_command(
    run_sta: Callable[..., Outcome], folders: tuple[Path, Path], tmp_path: Path
) -> None:
    asked = ["report", *map(str, folders)]
    code, out, err = run_sta(*asked)
    assert code == 0, err
    said = " ".join(out.split())
    for words in ("of test accuracy", "hops", "alone gets right", "written to compare.html"):
        assert words in said
    first = (tmp_path / "compare.html").read_bytes()
    assert run_sta(*asked)[0] == 0  # a former comparison
    assert (tmp_path / "compare.html").read_bytes() == first
    (tmp_path / "compare.html").write_text("mine")
    code, _, err = run_sta(*asked)
    assert (code, "is there already" in err) == (2, True)
    assert run_sta("report", str(folders[0]), "nowhere")[0] == 2
