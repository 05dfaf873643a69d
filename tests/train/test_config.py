"""Configurations and recipes."""

import pytest
import torch

from subtree_attention import Config, datasets, recipe


def test_every_graph_has_a_recipe() -> None:
    for name in datasets.names():
        assert recipe(name).data.graph == name


@pytest.mark.parametrize(
    ("graph", "settings"),
    [
        ("cora", (10, 4, "linear", 0.01, 0.6, 1e-4, "A", 5)),
        ("citeseer", (3, 2, "sum", 0.01, 0.6, 1e-4, "A", 5)),
        ("deezer", (3, 2, "linear", 0.01, 0.0, 5e-3, "A", 5)),
        ("actor", (3, 4, "linear", 0.001, 0.0, 5e-3, "A", 5)),
        ("pubmed", (3, 4, "linear", 0.01, 0.2, 5e-4, "B", 10)),
        ("corafull", (3, 4, "sum", 0.001, 0.4, 1e-4, "B", 10)),
        ("computer", (3, 4, "linear", 0.01, 0.4, 1e-4, "B", 10)),
        ("photo", (3, 8, "sum", 0.01, 0.4, 5e-5, "B", 10)),
        ("cs", (3, 6, "sum", 0.001, 0.6, 5e-5, "B", 10)),
        ("physics", (3, 8, "sum", 0.01, 0.4, 5e-5, "B", 10)),
    ],
)
def test_recipes_are_the_released_configuration(graph: str, settings: tuple[object, ...]) -> None:
    config = recipe(graph)
    assert settings == (
        config.model.hops,
        config.model.heads,
        config.model.head_mix,
        config.fit.lr,
        config.model.dropout,
        config.fit.weight_decay,
        config.data.split,
        config.fit.runs,
    )
    assert (config.model.hidden_channels, config.fit.epochs, config.fit.patience) == (64, 3000, 200)
    assert config.data.encoding == 3
    assert config.model.eps == 1e-5


def test_deezer_is_scored_by_roc_auc_and_trained_by_binary_cross_entropy() -> None:
    assert (recipe("deezer").task.metric, recipe("deezer").task.loss) == ("roc_auc", "binary")


def test_dictionary_round_trip() -> None:
    config = recipe("cora", hops=2, global_attention=True)
    assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": -1}, "hops must be at least 0, got -1"),
        ({"runs": 0}, "runs must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"gate": "softmaks"}, "Did you mean 'softmax'"),
        ({"hop": 3}, "Did you mean 'hops'"),
        (
            {"loss": "mse"},
            "loss 'mse' is for --task regression or graph-regression; classification has",
        ),
        ({"loss": "msee"}, "unknown loss 'msee'"),
        ({"task": "regression", "metric": "roc_auc"}, "roc_auc' is for --task classification or"),
        (
            {"log_target": True},
            "log_target is a setting of --task regression or graph-regression, not of this task",
        ),
    ],
)
def test_wrong_settings_are_refused_in_words(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe("digits", **changes)


def test_unknown_graph_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="pubmed"):
        recipe("pubmet")


def test_links_and_graphs_have_recipes_of_their_own() -> None:
    links, graphs = recipe("cora", task="link"), recipe("enzymes")
    assert (links.model.name, links.task.metric) == ("staformer", "hits@100")
    assert (links.data.encoding, links.model.input_dropout, links.task.mask) == (0, 0.5, 0.3)
    assert recipe("cora", task="link", hide=0.3).task.mask == 0  # one or the other
    assert (graphs.model.name, graphs.task.name) == ("staformer", "graph-classification")
    assert (graphs.data.split, graphs.fit.runs) == ("own", 10)
    assert recipe("cora", task="link", model="stagnn", heads=2).model.heads == 2
    own = datasets.Dataset(torch.ones(20, 3), torch.arange(20).expand(2, -1), torch.full((20,), -1))
    assert recipe(own, task="link").model.input_dropout == 0  # of few columns none is dropped
    assert recipe(own, task="link", input_dropout=0.3).model.input_dropout == 0.3
