"""What to run on which graph: the paper's hyper-parameters, as its authors released them.

For a graph of one's own, settings go by its size.
"""

from __future__ import annotations

import math
from typing import Any

from .. import _check
from ..config import (
    MODELS,
    Config,
    FitSettings,
    LinkPrediction,
    STAFormerSettings,
    STAGNNSettings,
    task_named,
    tasks_for,
)
from ..datasets import Dataset, as_dataset, info
from ..tasks.balance import by_balance
from ..tasks.link import Links
from .batches import MOST_STEPS

STAGNN, DEEP_MODEL = STAGNNSettings.name, STAFormerSettings.name
_PROTOCOL: dict[str, dict[str, Any]] = {
    "A": {"split": "A", "runs": 5},
    "B": {"split": "B", "runs": 10},
    "own": {"split": "own", "runs": 10},
}

RECIPES: dict[str, dict[str, Any]] = {
    "digits": {"hops": 3, "lr": 0.01, "dropout": 0.4, "runs": 5, "patience": 50},
    "cora": {"hops": 10, "heads": 4, "dropout": 0.6, "weight_decay": 1e-4},
    "citeseer": {"heads": 2, "head_mix": "sum", "dropout": 0.6, "weight_decay": 1e-4},
    "deezer": {"heads": 2, "weight_decay": 5e-3, "loss": "binary"},
    "actor": {"heads": 4, "lr": 0.001, "weight_decay": 5e-3},
    "pubmed": {"heads": 4, "dropout": 0.2, "weight_decay": 5e-4},
    "corafull": {
        "heads": 4,
        "head_mix": "sum",
        "lr": 0.001,
        "dropout": 0.4,
        "weight_decay": 1e-4,
    },
    "computer": {"heads": 4, "dropout": 0.4, "weight_decay": 1e-4},
    "photo": {"heads": 8, "head_mix": "sum", "dropout": 0.4, "weight_decay": 5e-5},
    "cs": {"heads": 6, "head_mix": "sum", "lr": 0.001, "dropout": 0.6, "weight_decay": 5e-5},
    "physics": {"heads": 8, "head_mix": "sum", "dropout": 0.4, "weight_decay": 5e-5},
    # Not in the paper: settings in the middle of its grid.
    "cora-ml": {"hops": 5, "dropout": 0.4},
    "minesweeper": {"hops": 5, "dropout": 0.2, "encoding": 0},
    "mutag": {"encoding": 0},
    "enzymes": {"encoding": 0},
    "proteins": {"encoding": 0},
}
"""Graph -> settings that differ from `Config`'s defaults (3 hops, 4 heads, lr 0.01, ...)."""

TASKS: dict[str, dict[str, Any]] = {
    "link-prediction": {"hops": 3, "heads": 4, "dropout": 0.2, "encoding": 0, "weight_decay": 0.0},
}
"""Task -> settings on a graph whose recipe is for another task."""

_AS_PAPER: dict[str, Any] = {"encoding": 3, "epochs": 3000}
_ONE_WIDE = {**_AS_PAPER, "hidden_channels": 256, "layers": 1, "hops": 5, "dropout": 0.7}
_ON_WORDS: dict[str, Any] = {**_AS_PAPER, "dropout": 0.5, "input_dropout": 0.5}

DEEP: dict[str, dict[str, Any]] = {
    "cora": _ONE_WIDE,
    "citeseer": _ONE_WIDE,
    "deezer": {**_ONE_WIDE, "loss": "binary"},
    "actor": {
        **_AS_PAPER,
        "hidden_channels": 64,
        "layers": 1,
        "hops": 3,
        "heads": 4,
        "dropout": 0.0,
        "input_projection": True,
        "norm": "none",
        "residual": "none",
        "activation": "none",
        "readout": "mean",
        "feature_map": "elu",
        "weight_decay": 5e-3,
    },
    "pubmed": {
        **_AS_PAPER,
        "hidden_channels": 256,
        "layers": 2,
        "residual": "none",
        "dropout": 0.7,
        "input_dropout": 0.3,
    },
    "computer": {
        **_AS_PAPER,
        "hidden_channels": 512,
        "hops": 3,
        "heads": 8,
        "residual": "none",
        "readout": "mean",
        "dropout": 0.5,
        "input_dropout": 0.3,
        "weight_decay": 5e-5,
    },
    "photo": {**_AS_PAPER, "hidden_channels": 64, "input_dropout": 0.3, "weight_decay": 5e-5},
    "cs": {**_ON_WORDS, "hidden_channels": 512, "layers": 2, "hops": 1, "input_dropout": 0.7},
    "physics": {**_ON_WORDS, "hidden_channels": 256, "layers": 1},
    "minesweeper": {
        "hidden_channels": 64,
        "layers": 12,
        "heads": 8,
        "norm": "batch",
        "attention_start": 0.1,
        "lr": 0.01,
        "weight_decay": 0.0,
        "epochs": 2000,
        "patience": 400,
    },
}
"""As `RECIPES`, of the deep model: what was chosen for classes of nodes in docs/beyond.md. Other
graphs, and other tasks, take what `DEEP_COMMON` says."""
DEEP_COMMON: dict[str, Any] = {"encoding": 0, "lr": 0.001, "epochs": 1000, "patience": 200}
DEEP_LINKS: dict[str, dict[str, Any]] = {
    "cora": {"hidden_channels": 256},
    "citeseer": {"hidden_channels": 256},
    "pubmed": {"hidden_channels": 256, "negatives": 3},
}
"""What it chose for links, where that differs from `DEEP_TASKS`."""
DEEP_TASKS: dict[str, dict[str, Any]] = {
    "link-prediction": {
        "hidden_channels": 128,
        "layers": 1,
        "hops": 4,
        "norm": "layer",
        "residual": "linear",
        "dropout": 0.5,
        "input_dropout": 0.5,
        "mask": 0.3,
        "lr": 0.003,
        "weight_decay": 0.0,
        "epochs": 1000,
        "patience": 150,
    },
}
"""As `TASKS`, of the deep model: links are learnt by heart unless much is dropped."""

FEW_FEATURES = 100
"""Of fewer none is dropped at the start: one column may be all that is known of a node."""

FEW_EDGES = 10_000
"""Of fewer, a tenth of the links for validation is too little for Hits@100."""

SIZES: list[tuple[float, dict[str, Any]]] = [
    (5_000, {"hops": 5, "dropout": 0.4, "runs": 5, "epochs": 1000, "patience": 100}),
    (100_000, {"hops": 5, "dropout": 0.2, "runs": 3, "epochs": 1000, "patience": 100}),
    (math.inf, {"hops": 3, "dropout": 0.0, "runs": 1, "epochs": 500, "patience": 50}),
]
"""Up to so many nodes: few nodes overfit, and many take long."""

STATE_BYTES = 2**30
WIDTHS = (64, 32, 16)
"""Hidden channels: the most for which a state of the walk [N, hidden, classes] takes a GiB."""

MANY_CLASSES, MANY_ENTRIES = 50, 200_000
"""From so many classes on, and nodes times classes, STAGNN's states take too long: the deep model's
do not grow with the classes."""


STEPS_OF_PATIENCE, MOST_STEPS_OF_A_RUN = 600, 12_000
"""With batches: steps without a better score, and at most."""


def recipe(graph: Any, /, **changes: Any) -> Config:
    """The configuration for a graph, with changes.

    >>> recipe("cora").model.hops
    10

    Args:
        graph: a name in `subtree_attention.datasets`, or a graph of one's own (`from_tables`, or a
            PyG `Data`), whose settings go by its size.
        changes: settings by their plain names; of one's own graph also its name, `graph="papers"`;
            `model="staformer"` is the deep model, with settings of its own, and what links and
            graphs are predicted with unless another is named.
    """
    if not isinstance(graph, str):
        return for_own(as_dataset(graph), changes)
    known = info(graph)  # refuses an unknown name
    model = _model_of(changes, known.num_graphs > 0)
    links = "task" in changes and task_named(changes["task"]) is LinkPrediction
    own = RECIPES[known.name]
    if model != STAGNN:
        chosen = (DEEP_LINKS if links else DEEP).get(known.name, {})
        own = DEEP_COMMON if links else DEEP_COMMON | chosen
        changes = chosen | changes if links else changes
    task = {"task": "graph-classification"} if known.num_graphs else {}
    settings = {"model": model, "metric": known.metric, **_PROTOCOL[known.protocol], **own}
    config = Config.of(known.name, **task, **settings)
    return _for_task(_for_batches(config, changes, known.num_nodes), changes)


def for_own(dataset: Any, changes: dict[str, Any]) -> Config:
    """The configuration for a graph of one's own, with changes: of a `Dataset`, or of what has the
    sizes and targets of one."""
    model = _model_of(changes, dataset.batch is not None or wants_deep(dataset, changes))
    config = _for_batches(by_size(dataset, model), changes, dataset.num_nodes)
    return _for_task(config, {**_for_few(dataset, model, changes), **changes})


def _for_batches(config: Config, changes: dict[str, Any], nodes: int) -> Config:
    """Epochs of batches are fewer."""
    return batched(config, changes["batch"], nodes) if changes.get("batch") else config


def batched(config: Config, batch: int, nodes: int) -> Config:
    """A configuration with steps on samples: epochs and patience go by the steps that they have, on
    a graph of so many nodes of which most are learnt from."""
    steps = max(1, min(MOST_STEPS, round(0.6 * nodes / FitSettings.checked("batch", batch))))
    patience = min(config.fit.patience, max(4, -(-STEPS_OF_PATIENCE // steps)))
    epochs = min(config.fit.epochs, max(10, -(-MOST_STEPS_OF_A_RUN // steps)))
    return config.replace(batch=batch, patience=patience, epochs=epochs)


def _for_few(dataset: Dataset, model: str, changes: dict[str, Any]) -> dict[str, Any]:
    """What a graph of one's own is too small for, and what its directions ask for."""
    few: dict[str, Any] = {}
    if dataset.x.size(1) < FEW_FEATURES and model == DEEP_MODEL:
        few["input_dropout"] = 0.0
    links = "task" in changes and task_named(changes["task"]) is LinkPrediction
    if links and dataset.num_edges < FEW_EDGES:
        few["metric"] = "roc_auc"
    if links and Links.of(dataset).directed:
        few["decoder"] = "directed"
    return few


def wants_deep(dataset: Dataset, changes: dict[str, Any]) -> bool:
    """Whether the classes of nodes are so many that the deep model is taken unasked; not where a
    setting is given that only the paper's has."""
    links = "task" in changes and task_named(changes["task"]) is LinkPrediction
    if links or "model" in changes or dataset.batch is not None or dataset.target == "number":
        return False
    own = STAGNNSettings.__dataclass_fields__.keys() - STAFormerSettings.__dataclass_fields__.keys()
    classes = dataset.num_classes
    many = classes >= MANY_CLASSES and classes * dataset.num_nodes >= MANY_ENTRIES
    return many and not own & changes.keys()


def _model_of(changes: dict[str, Any], deep: bool) -> str:
    """The model that is named; else the paper's for classes of nodes, and the deep one for links
    and graphs, of which STAGNN would need a class for each hidden channel."""
    task = task_named(changes["task"]).name if "task" in changes else ""
    other = deep or task in DEEP_TASKS
    return _check.known("model", changes.get("model", DEEP_MODEL if other else STAGNN), MODELS)


def _for_task(config: Config, changes: dict[str, Any]) -> Config:
    """The configuration with changes; another task than the data's own has settings of its own."""
    task = task_named(changes.get("task", config.task.name))
    if task is LinkPrediction and "split" in changes:
        raise ValueError(
            "split is of nodes and graphs: links are split at random, by the seed and in the "
            "shares val_share and test_share"
        )
    of_tasks = TASKS if config.model.name == STAGNN else DEEP_TASKS
    own = {} if task.name == config.task.name else of_tasks.get(task.name, {})
    if changes.get("hide"):  # in the place of a mask
        own = {**own, "mask": 0.0}
    return config.replace(**{"task": task.name, **own, **changes})


def by_size(dataset: Dataset, model: str = STAGNN) -> Config:
    """The configuration for a graph of one's own: a first result without knowing any setting.

    They lie in the middle of the paper's grid; of nodes, `train.candidates` lets others compete
    with them, and `sta train --tune` searches on.
    No Laplacian encoding: its basis is another one on every graph, and a model shall also be of
    use on new nodes.
    """
    settings = next(values for most, values in SIZES if dataset.num_nodes <= most)
    if model == STAGNN:
        bytes_per_channel = 4 * dataset.num_nodes * max(1, dataset.num_classes)
        fitting = [width for width in WIDTHS if width * bytes_per_channel <= STATE_BYTES]
        settings = {**settings, "hidden_channels": max(fitting, default=min(WIDTHS))}
    else:  # it has a depth of its own
        long = {name: settings[name] for name in ("runs", "epochs", "patience")}
        settings = DEEP_COMMON | long
        if dataset.x.is_sparse_csr:  # words and tags are learnt by heart otherwise
            settings["input_dropout"] = 0.5
    fitting_tasks = tasks_for(dataset.unit, dataset.target)
    task = {"task": fitting_tasks[0].name} if fitting_tasks else {}
    task |= {"metric": metric} if (metric := by_balance(dataset)) else {}
    config = Config.of(dataset.name, **{**task, "model": model, "encoding": 0, **settings})
    # A split of its own is one split: runs on it differ by their start only.
    return config.replace(split="own", runs=1) if "own" in dataset.splits else config
