"""A configuration in words, for somebody who has not read the paper."""

from __future__ import annotations

from ... import datasets
from ...train.config import Config

FEATURE_MAPS = {"elu": "elu(x) + 1", "relu": "relu(x)", "softplus": "softplus(x)"}
AGGREGATIONS = {
    "gpr": "weighted by one learned number a hop (GPR)",
    "sum": "added up",
    "concat": "put side by side for the output map",
    "attention": "weighted by attention over hops, at each node anew",
}
GATES = {
    "softmax": "at each hop a softmax gate shares out the weight between heads",
    "plain": "each hop and head has a free weight",
    "none": "heads count alike",
}
TRANSITIONS = {
    "rw": "a random walk that takes every edge of a node alike, or by its weight",
    "sym": "symmetric normalisation by the degrees of both ends",
    "mean": "the mean of the neighbours",
}
SPLITS = {
    "A": "at random, 50 % of {whom} for training, 25 % for validation, 25 % for test",
    "B": "at random, 60 % of {whom} for training, 20 % for validation, 20 % for test",
    "own": "as given with the data",
    "fixed": "as published with the graph",
}
METRICS = {"accuracy": "accuracy", "roc_auc": "ROC-AUC"}
LOSSES = {"cross_entropy": "cross-entropy", "binary": "binary cross-entropy of each class"}


def _split(config: Config) -> str:
    whom = "all nodes" if config.graph in datasets.names() else "each class"
    return SPLITS.get(config.split, config.split).format(whom=whom)


def describe(config: Config, sizes: dict[str, int]) -> list[tuple[str, str]]:
    """(what, in words), from the graph to the training."""
    return [
        ("Graph", _graph(config, sizes)),
        ("Split", f"{_split(config)}; {_runs(config)}"),
        ("Model", _model(config)),
        ("Hops", _hops(config)),
        ("Training", _training(config)),
    ]


def _graph(config: Config, sizes: dict[str, int]) -> str:
    text = (
        f"{config.graph}: {sizes['nodes']:,} nodes ({sizes['labelled']:,} with a label), "
        f"{sizes['edges']:,} directed edges, {sizes['features']:,} features, "
        f"{sizes['classes']:,} classes"
    )
    if config.encoding:
        text += f"; {config.encoding} of the features are eigenvectors of the graph's Laplacian"
    return text


def _runs(config: Config) -> str:
    if config.runs == 1:
        return f"one run, seed {config.seed}"
    return f"{config.runs} runs, each with a split and a seed of its own, from seed {config.seed}"


def _model(config: Config) -> str:
    text = f"STAGNN with {config.heads} heads and a hidden layer of {config.hidden_channels}"
    if config.similarity:
        text += f", exact {config.similarity} attention"
    else:
        text += (
            f", kernel attention with {FEATURE_MAPS.get(config.feature_map, config.feature_map)}"
        )
    if config.dropout:
        text += f", dropout {config.dropout:g}"
    return text


def _hops(config: Config) -> str:
    if config.global_attention == "only":
        return "none: every node attends to all nodes (global attention)"
    if config.hops == 0 and not config.global_attention:
        return "none: every node by itself"
    levels = f"every node attends to the {config.hops} levels of the subtree below it"
    if config.hops == 1:
        levels = "every node attends to its neighbours"
    text = f"{levels}, along {TRANSITIONS.get(config.transition, config.transition)}"
    if not (config.gate == "plain" and config.aggregation == "gpr"):  # the gate takes its place
        text += f"; levels are {AGGREGATIONS.get(config.aggregation, config.aggregation)}"
    if config.heads > 1:
        text += f"; {GATES.get(config.gate, config.gate)}"
    return text + ("; beside it global attention" if config.global_attention else "")


def _training(config: Config) -> str:
    return (
        f"Adam, learning rate {config.lr:g}, weight decay {config.weight_decay:g}, "
        f"{LOSSES.get(config.loss, config.loss)}; at most {config.epochs:,} epochs, stopped after "
        f"{config.patience:,} without a better validation score; the weights of the best epoch "
        f"are kept; scored by {METRICS.get(config.metric, config.metric)}"
    )
