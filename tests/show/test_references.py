"""What is said of references beside a model."""

import pytest

from subtree_attention.references import Comparison, Reference
from subtree_attention.show.references import as_text, verdict
from subtree_attention.tasks.metrics import CLASS_METRICS, NUMBER_METRICS

ACCURACY, MAE = CLASS_METRICS["accuracy"], NUMBER_METRICS["mae"]
FOUND = Comparison(
    [
        Reference("constant", "largest class", 0.5, 0.52, 0.0),
        Reference("logistic", "logistic regression", 0.7, 0.71, 1.25, "of 128 components"),
    ],
    {"boosted trees": "LightGBM is not installed"},
)


@pytest.mark.parametrize(
    ("val", "test", "words"),
    [
        (
            0.694,
            0.7,
            "logistic regression is ahead of this model on validation (70.00 against 69.40), and "
            "on the same test nodes (71.00 against 70.00)",
        ),
        (
            0.694,
            0.72,
            "logistic regression is ahead of this model on validation (70.00 against 69.40), but "
            "on the same test nodes this model is ahead (72.00 against 71.00)",
        ),
        (
            0.75,
            0.71,
            "this model is ahead of logistic regression on validation (75.00 against 70.00), and "
            "on the same test nodes both have 71.00",
        ),
        (
            0.75,
            0.7,
            "this model is ahead of logistic regression on validation (75.00 against 70.00), but "
            "on the same test nodes logistic regression is ahead (71.00 against 70.00)",
        ),
        (
            0.7,
            0.72,
            "logistic regression is as good as this model on validation (70.00); on the same test "
            "nodes: logistic regression 71.00, this model 72.00",
        ),
    ],
)
def test_verdict(val, test, words):
    assert verdict(FOUND, ACCURACY, val, test) == words


def test_all_that_are_level_are_counted():
    trees = Reference("trees", "boosted trees", 0.7, 0.6, 0.0)
    found = Comparison([*FOUND.references, trees])
    assert verdict(found, ACCURACY, 0.7, 0.72, "graph").startswith(
        "logistic regression and 1 other are as good as this model on validation (70.00); on the "
        "same test graphs: logistic regression 71.00"
    )
    assert verdict(Comparison([trees]), ACCURACY, 0.6, 0.5).startswith("boosted trees are ahead of")


def test_where_less_is_better():
    found = Comparison([Reference("a", "mean", 2.0, 3.0, 0.0), Reference("b", "ridge", 1.0, 1, 0)])
    assert verdict(found, MAE, 1.5, 1.5) == (
        "ridge is ahead of this model on validation (1 against 1.5), and on the same test nodes "
        "(1 against 1.5)"
    )


def test_nothing_to_compare_with():
    assert verdict(Comparison([]), ACCURACY, 0.5, 0.5) == "no reference could be computed"


def test_table():
    text = as_text(FOUND, ACCURACY)
    assert "references on the split of run 0: accuracy (%)" in text
    assert ["logistic", "regression", "70.00", "71.00", "1.2", "of", "128", "components"] in [
        line.split() for line in text.splitlines()
    ]
    assert text.endswith("boosted trees is left out: LightGBM is not installed")
