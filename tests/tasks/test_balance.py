"""Uneven classes are not scored by accuracy unless somebody wants that, and it is said."""

import pytest
import torch

import subtree_attention as sta
from subtree_attention.tasks.balance import metric_in_words


def data(*sizes: int, own: bool = True, **more) -> sta.Dataset:
    """As many nodes of each class as said, and three of which nothing is known."""
    y = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    y = torch.cat([y, torch.full((3,), -1)])
    names = tuple(f"class-{number}" for number in range(len(sizes)))
    edges = torch.zeros(2, 0, dtype=torch.long)
    return sta.Dataset(torch.ones(len(y), 1), edges, y, classes=names, own=own, **more)


@pytest.mark.parametrize(
    ("sizes", "metric"),
    [
        ((50, 50), "accuracy"),
        ((80, 20), "accuracy"),
        ((81, 19), "average_precision"),
        ((19, 81), "average_precision"),
        ((95, 5), "macro_f1"),  # five are too few for a ranking of them
        ((30, 30, 30), "accuracy"),
        ((90, 5, 5), "macro_f1"),
    ],
)
def test_the_metric_goes_by_the_largest_class(sizes: tuple[int, ...], metric: str) -> None:
    some = data(*sizes)
    config = sta.recipe(some, graph="mine")
    assert config.task.metric == metric
    words = metric_in_words(some, config.task)
    assert (words is None) == (metric == "accuracy")
    told = sta.recipe(some, graph="mine", metric="accuracy")
    assert told.task.metric == "accuracy"
    assert sta.recipe(some, graph="mine", metric="roc_auc").task.metric == "roc_auc"


def test_it_is_said_why_and_how_to_choose_otherwise() -> None:
    some = data(190, 10, 0)
    assert metric_in_words(some, sta.recipe(some, graph="mine").task) == (
        "class 'class-0' has 95.0 % of the nodes: models are chosen by macro F1, not by accuracy "
        "(--metric accuracy does that)"
    )
    two = data(20, 380)
    assert metric_in_words(two, sta.recipe(two, graph="mine").task) == (
        "class 'class-1' has 95.0 % of the nodes: models are chosen by the average precision of "
        "class 'class-0', not by accuracy (--metric accuracy does that)"
    )
    told = sta.recipe(two, graph="mine", metric="accuracy")
    assert metric_in_words(two, told.task) == (
        "class 'class-1' has 95.0 % of the nodes: who always answers it has that accuracy. "
        "--metric average_precision chooses models by average precision"
    )


def test_a_part_of_ones_own_split_without_the_rare_class_allows_no_ranking() -> None:
    part = torch.tensor([1] * 100 + [2] * 40 + [4] * 40 + [1] * 20 + [0] * 3, dtype=torch.int8)
    some = data(180, 20, splits={"own": part[:, None]})
    config = sta.recipe(some, graph="mine")
    assert (config.data.split, config.task.metric) == ("own", "macro_f1")


def test_graphs_of_the_registry_and_other_targets_keep_theirs() -> None:
    assert sta.recipe("cora").task.metric == "accuracy"
    assert sta.recipe("minesweeper").task.metric == "roc_auc"
    some = data(180, 20)
    numbers = sta.Dataset(some.x, some.edge_index, some.y.double(), own=True)
    assert sta.recipe(numbers, graph="mine").task.metric == "r2"
    assert metric_in_words(numbers, sta.recipe(numbers, graph="mine").task) is None
    links = sta.recipe(some, graph="mine", task="link")
    assert links.task.metric == "roc_auc"
    assert metric_in_words(some, links.task) is None
