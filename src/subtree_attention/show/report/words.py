"""A configuration in words, for somebody who has not read the paper.

What a value means is said by its setting (`config`); here is only how sentences are made of it,
as far as a model has such settings.
"""

from __future__ import annotations

from dataclasses import asdict

from ...config import Config, FitSettings, LinkPrediction, Settings
from ...datasets import Dataset
from ...tasks.balance import metric_in_words


def describe(config: Config, dataset: Dataset) -> list[tuple[str, str]]:
    """(what, in words), from the graph to the training."""
    whom = f"all {dataset.unit}s"
    if dataset.own:
        have = {"labels": f"{whom} with labels", "number": f"{whom} with a number"}
        whom = have.get(dataset.target, "each class")
    split = config.data.words("split").format(whom=whom)
    if isinstance(config.task, LinkPrediction):
        split = _links(config.task)
    told = [
        ("Graph", _graph(config, dataset)),
        ("Split", f"{split}; {_runs(config.fit)}"),
        ("Model", _model(config.model) + _task(config.task)),
        ("Hops", _hops(config.model)),
        ("Training", _training(config.fit, config.task)),
        ("Metric", metric_in_words(dataset, config.task) or ""),
    ]
    return [(name, text) for name, text in told if text]


def _graph(config: Config, dataset: Dataset) -> str:
    has = "with a number" if dataset.target == "number" else "with a label"
    known, nodes = f"({int(dataset.known.sum()):,} {has})", f"{dataset.num_nodes:,} nodes"
    if dataset.batch is not None:
        nodes = f"{dataset.num_units:,} graphs {known} of {nodes}"
    elif not isinstance(config.task, LinkPrediction):
        nodes = f"{nodes} {known}"
    text = (
        f"{config.data.graph}: {nodes}, {dataset.num_edges:,} directed edges, "
        f"{dataset.num_features:,} features"
    )
    if not isinstance(config.task, LinkPrediction):
        text += f", {dataset.about_target}"
    if config.data.encoding:
        encoding = config.data.encoding
        text += f"; {encoding} of the features are eigenvectors of the graph's Laplacian"
    return text


def _links(task: LinkPrediction) -> str:
    """How links are split, and what they are told from."""
    train = 1 - task.val_share - task.test_share
    shares = f"{train:.0%} of the links for training, {task.val_share:.0%} for validation"
    others = f"{task.test_share:.0%} for test, each with as many random pairs that are no links"
    text = f"at random, {shares}, {others}; only links of training are walked on"
    if task.mask:
        text += f", in a step without the {task.mask:.0%} of them that it learns from"
    if task.hide:
        text += f", in training without the {task.hide:.0%} of them that are learnt from"
    return text


def _task(task: Settings) -> str:
    """What follows the model, if the task brings something along."""
    has = asdict(task)
    text = ""
    if has.get("reference"):
        text = f"; it stands on {task.words('reference')}, whose probabilities it is added to"
    if has.get("show_labels"):
        return text + (
            f"; labels of training nodes are features too: each step shows {has['show_labels']:.0%}"
            " of them and learns from the others, predictions see all of them"
        )
    if text:
        return text
    if "decoder" in has:
        return f"; a pair is scored by {task.words('decoder')}"
    return f"; a graph is {task.words('pooling')}" if "pooling" in has else ""


def _runs(fit: FitSettings) -> str:
    if fit.runs == 1:
        return f"one run, seed {fit.seed}"
    return f"{fit.runs} runs, each with a split and a seed of its own, from seed {fit.seed}"


def _model(model: Settings) -> str:
    has = asdict(model)
    sizes = {"heads": "{} heads", "hidden_channels": "a hidden layer of {}"}
    if "layers" in has:
        blocks = f"{has['layers']} block{'s' * (has['layers'] > 1)}, each"
        sizes = {"layers": f"{blocks} of {has['hidden_channels']} channels", "heads": "{} heads"}
    parts = [text.format(has[name]) for name, text in sizes.items() if name in has]
    text = " with ".join([model.title, *filter(None, [" and ".join(parts)])])
    if "feature_map" in has:
        text += f", {model.words('feature_map')}"
    if steps := has.get("smoothing"):
        text += f", the hidden layer smoothed by {steps} step{'s' * (steps > 1)} along the edges"
    return text + (f", dropout {has['dropout']:g}" if has.get("dropout") else "")


def _hops(model: Settings) -> str:
    """How far a node looks; nothing of a model that has no hops."""
    has = asdict(model)
    if "hops" not in has:
        return ""
    if has["hops"] == 0 and not has.get("global_attention"):
        return "none: every node by itself"
    text = f"every node attends to the {has['hops']} levels of the subtree below it"
    if has["hops"] == 1:
        text = "every node attends to its neighbours"
    if "transition" in has:
        text += f", along {model.words('transition')}"
    weighted_twice = has.get("gate") == "plain" and has.get("aggregation") == "gpr"
    if "aggregation" in has and not weighted_twice:  # else the gate takes its place
        text += f"; levels are {model.words('aggregation')}"
    if has.get("readout", "mean") != "mean":
        text += f"; {model.words('readout')}"
    if "gate" in has and has.get("heads", 1) > 1:
        text += f"; {model.words('gate')}"
    return text + ("; beside it global attention" if has.get("global_attention") else "")


def _training(fit: FitSettings, task: Settings) -> str:
    loss = task.words("loss") if "loss" in asdict(task) else "binary cross-entropy of pairs"
    loss += " of the logarithm" if asdict(task).get("log_target") else ""
    if asdict(task).get("class_weights", "none") != "none":
        loss += f", in which each class counts {task.words('class_weights')}"
    scale = ", on the scale of the logarithm" if asdict(task).get("log_target") else ""
    rounded = "" if fit.precision == "full" else f", {fit.words('precision')}"
    return (
        f"Adam, learning rate {fit.lr:g}, weight decay {fit.weight_decay:g}, "
        f"{loss}{rounded}; at most {fit.epochs:,} epochs, stopped after "
        f"{fit.patience:,} without a better validation score; the weights of the best epoch are "
        f"kept; scored by {task.words('metric')}{scale}"
    )
