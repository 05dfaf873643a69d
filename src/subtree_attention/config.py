"""A run is one typed configuration: data, model, task and fit. Everything that decides its numbers.

An option is a field of the dataclass that owns it, with its help, its bounds and the words for its
values; checks, the options of the command line and the words of a report are made from there.
Nothing in here needs torch, so that `sta --help` answers at once.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, get_type_hints

from . import _check
from .upgrade import FORMAT, upgrade

AUTO = "auto"
NODES_BEHIND = 500
"""Of a training node of a batch, how many nodes are sampled, unless the user says how many."""


def fan_outs(asked: str, hops: int) -> list[int]:
    """How many neighbours are sampled at each hop, the nearest first; -1 for all of them.

    >>> fan_outs("5,3", 4), fan_outs("auto", 3)
    ([5, 3, 3, 3], [8, 7, 7])
    """
    if asked == AUTO:
        return _usual_fan_outs(hops)
    words = [word.strip() for word in asked.split(",")]
    if not all(word == "all" or (word.isdecimal() and int(word) > 0) for word in words):
        raise ValueError(
            "num_neighbors must be how many neighbours to sample at each hop, as 5,3,2, or all, or "
            f"auto, got {_check.said(asked)}"
        )
    counts = [-1 if word == "all" else int(word) for word in words]
    return [*counts, *counts[-1:] * hops][:hops]


def _usual_fan_outs(hops: int) -> list[int]:
    """As many as `NODES_BEHIND` allows, about as many at each hop: what is sampled too sparsely
    anywhere is learnt to be worth little everywhere."""
    counts = [1] * hops
    for _ in range(NODES_BEHIND):
        for place in range(hops):
            more = [count + (place == at) for at, count in enumerate(counts)]
            even = place == 0 or more[place] <= counts[place - 1]
            if even and sum(itertools.accumulate(more, operator.mul)) <= NODES_BEHIND:
                counts = more
    return counts


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    below: float = math.inf,
    most: int = _check.MOST,
    words: Mapping[str, str] | None = None,
) -> Any:
    """A field of settings.

    Args:
        default: its value unless another is given.
        help: a sentence for the command line.
        least, below, most: the bounds of a number: at least, below, and of a count at most.
        words: the allowed values of a name, and what each means, in words.
    """
    about = {"help": help, "least": least, "below": below, "most": most, "words": words}
    return field(default=default, metadata=about)


def like(kind: type[Settings], name: str, default: Any = None) -> Any:
    """A field as another class of settings has it, with a default of its own if one is given."""
    about = kind.__dataclass_fields__[name]
    return field(default=about.default if default is None else default, metadata=about.metadata)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of settings, by name."""
    return get_type_hints(kind)


@dataclass(frozen=True)
class Settings:
    """Some settings that are checked when they are made, each by what its option says."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for about in fields(self):  # plain values, which JSON can hold: not numpy's
            value = self.checked(about.name, getattr(self, about.name))
            object.__setattr__(self, about.name, value)

    @classmethod
    def names(cls) -> list[str]:
        """All settings."""
        return [*cls.__dataclass_fields__]

    @classmethod
    def checked(cls, name: str, value: Any, spelled: str = "") -> Any:
        """The value of one setting, if it may have it; `spelled` is what a refusal calls it."""
        about = cls.__dataclass_fields__[name].metadata
        kind = _hints(cls)[name]  # type: ignore[arg-type]  # a class has a hash
        least, below, spelled = about.get("least"), about.get("below"), spelled or name
        if kind is int:
            return _check.integer(spelled, value, int(least or 0), about["most"])
        if kind is float:
            number = _check.number(spelled, value, least or 0.0, below or math.inf)
            return value if isinstance(value, int | float) else number
        if kind is bool:
            return _check.flag(spelled, value)
        if about.get("words"):
            _check.known(spelled, value, about["words"])
        elif kind is str:
            _check.name(spelled, value)
        return value

    def words(self, name: str) -> str:
        """What the value of a setting means, in words; the value itself where there are none."""
        about, value = self.__dataclass_fields__[name].metadata, getattr(self, name)
        return (about.get("words") or {}).get(value, str(value))


@dataclass(frozen=True)
class DataSettings(Settings):
    """Which graph, how its nodes are split, and what is added to their features."""

    graph: str
    split: str = option(
        "B",
        "Which nodes are for training, validation and test",
        words={
            "A": "at random, 50 % of {whom} for training, 25 % for validation, 25 % for test",
            "B": "at random, 60 % of {whom} for training, 20 % for validation, 20 % for test",
            "own": "as given with the data",
            "fixed": "as published with the graph",
        },
    )
    encoding: int = option(
        3, "Laplacian eigenvectors appended to the features", most=_check.MOST_EIGENVECTORS
    )


@dataclass(frozen=True)
class STAGNNSettings(Settings):
    """The options of :class:`subtree_attention.STAGNN`, the model of the paper."""

    name: ClassVar[str] = "stagnn"
    title: ClassVar[str] = "STAGNN"
    hidden_channels: int = option(64, "Width of the hidden layer.", least=1)
    hops: int = option(3, "K, the height of the subtree a node attends to", most=_check.MOST_HOPS)
    heads: int = option(4, "Attention heads.", least=1)
    dropout: float = option(0.0, "Dropout on features, hidden layer and heads.", below=1)
    feature_map: str = option(
        "elu",
        "Kernel of the attention, or softmax for the exact one, on small graphs",
        words={
            "elu": "kernel attention with elu(x) + 1",
            "relu": "kernel attention with relu(x)",
            "softplus": "kernel attention with softplus(x)",
            "unit": "kernel attention with elu(x) + 1, scaled to length 1",
            "softmax-features": "kernel attention with softmax-features",
            "rbf-features": "kernel attention with rbf-features",
            "softmax": "exact softmax attention",
        },
    )
    transition: str = option(
        "rw",
        "How messages walk",
        words={
            "rw": "a random walk that takes every edge of a node alike, or by its weight",
            "sym": "symmetric normalisation by the degrees of both ends",
            "mean": "the mean of the neighbours",
        },
    )
    aggregation: str = option(
        "gpr",
        "Over hops",
        words={
            "gpr": "weighted by one learned number a hop (GPR)",
            "sum": "added up",
            "concat": "put side by side for the output map",
            "attention": "weighted by attention over hops, at each node anew",
        },
    )
    gate: str = option(
        "softmax",
        "Over heads at each hop",
        words={
            "softmax": "at each hop a softmax gate shares out the weight between heads",
            "plain": "each hop and head has a free weight",
            "none": "heads count alike",
        },
    )
    head_mix: str = option(
        "linear",
        "How heads become one output",
        words={"linear": "mixed by a linear map", "sum": "added up"},
    )
    readout: str = option(
        "mean",
        "What a level is of all that arrives",
        words={
            "mean": "each level is a mean over what arrives",
            "sum": "each level is a sum over what arrives, without a denominator",
            "power": "each level lies between a mean and a sum, by a power that each hop and head "
            "learns",
        },
    )
    global_attention: bool = option(False, "Global attention beside the hops.")
    smoothing: int = option(
        0,
        "Steps of the walk that the hidden layer takes before the attention; 0 for none",
        most=_check.MOST_HOPS,
    )
    eps: float = option(1e-5, "Added to every denominator.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads > self.hidden_channels:
            raise ValueError(
                f"heads={self.heads} is more than hidden_channels={self.hidden_channels}, which "
                "leaves no channel for a head"
            )


@dataclass(frozen=True)
class STAFormerSettings(Settings):
    """The options of :class:`subtree_attention.STAFormer`: blocks of subtree attention."""

    name: ClassVar[str] = "staformer"
    title: ClassVar[str] = "STAFormer"
    hidden_channels: int = like(STAGNNSettings, "hidden_channels", 128)
    layers: int = option(3, "Blocks, one upon the other", least=1, most=_check.MOST_LAYERS)
    hops: int = like(STAGNNSettings, "hops", 2)
    heads: int = like(STAGNNSettings, "heads", 2)
    key_channels: int = option(8, "Channels of a query or key, per head.", least=1)
    dropout: float = option(0.2, "Dropout in the blocks.", below=1)
    input_dropout: float = option(0.0, "Dropout on what the first block sees.", below=1)
    input_projection: bool = option(False, "A linear map with ReLU before the first block.")
    norm: str = option(
        "layer",
        "In every block",
        words={
            "layer": "each node by itself (layer norm)",
            "batch": "each channel over the nodes (batch norm)",
            "none": "not normalised",
        },
    )
    residual: str = option(
        "linear",
        "Around the attention of a block",
        words={
            "linear": "a linear map of its input is added",
            "identity": "its input is added",
            "none": "nothing is added",
        },
    )
    activation: str = option(
        "relu",
        "Behind the norm of every block",
        words={"relu": "relu(x)", "gelu": "gelu(x)", "none": "none"},
    )
    attention_start: float = option(
        1.0, "Scale of the first queries and keys; near 0 a block begins as a plain walk."
    )
    feed_forward: int = option(
        0, "Feed-forward part of a block, times as wide as the block; 0 for none", most=16
    )
    jumping: str = option(
        "last",
        "What the output sees of the blocks",
        words={
            "last": "the last block",
            "sum": "the sum of all blocks",
            "max": "the largest of all blocks in each channel",
            "concat": "all blocks side by side",
        },
    )
    readout: str = like(STAGNNSettings, "readout", "power")
    feature_map: str = like(STAGNNSettings, "feature_map", "unit")
    transition: str = like(STAGNNSettings, "transition", "sym")
    self_loops: bool = option(True, "A loop at every node that has none.")
    gate: str = like(STAGNNSettings, "gate", "plain")
    global_attention: bool = like(STAGNNSettings, "global_attention", False)
    eps: float = like(STAGNNSettings, "eps", 1e-6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_channels % self.heads:
            raise ValueError(
                f"heads={self.heads} do not divide hidden_channels={self.hidden_channels}: the "
                "heads of a block stand side by side"
            )


@dataclass(frozen=True)
class TaskSettings(Settings):
    """What all tasks have: a metric that models are chosen by, and a word for the command line.

    `target` is what a target must be: a "class", "labels" (any number of them) or a "number";
    empty if that does not matter.
    """

    word: ClassVar[str] = ""
    target: ClassVar[str] = ""
    metric: str = ""

    @classmethod
    def checked(cls, name: str, value: Any, spelled: str = "") -> Any:
        """As of all settings; what another task has is said to be for that."""
        words = cls.values_of(name)
        others = [
            kind.word
            for kind in TASKS.values()
            if isinstance(value, str) and value in kind.values_of(name)
        ]
        if words and others and value not in words:
            raise ValueError(
                f"{spelled or name} '{value}' is for --task {' or '.join(others)}; {cls.word} has "
                f"{', '.join(words)}"
            )
        return super().checked(name, value, spelled)

    @classmethod
    def values_of(cls, name: str) -> Mapping[str, str]:
        """The allowed values of a setting, and what each means, in words."""
        about = cls.__dataclass_fields__.get(name)
        return (about.metadata.get("words") or {}) if about else {}


@dataclass(frozen=True)
class Classification(TaskSettings):
    """A class of every unit."""

    target: ClassVar[str] = "class"
    metric: str = option(
        "accuracy",
        "What models are chosen by",
        words={
            "accuracy": "accuracy",
            "macro_f1": "macro F1",
            "roc_auc": "ROC-AUC",
            "average_precision": "average precision",
        },
    )
    loss: str = option(
        "cross_entropy",
        "What is minimised",
        words={"cross_entropy": "cross-entropy", "binary": "binary cross-entropy of each class"},
    )
    class_weights: str = option(
        "none",
        "How much each class counts in the loss",
        words={"none": "by its size", "balanced": "as much as any other, however small it is"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights != "none" and self.loss != "cross_entropy":
            raise ValueError(
                f"class_weights '{self.class_weights}' is for loss cross_entropy: of loss "
                f"'{self.loss}' the probabilities could not be made right again"
            )


@dataclass(frozen=True)
class NodeClassification(Classification):
    """The class of every node."""

    name: ClassVar[str] = "node-classification"
    word: ClassVar[str] = "classification"
    show_labels: float = option(
        0.0,
        "Share of the training labels that a step sees as features of their nodes, others in every "
        "step; the loss is on the rest. Predictions see all of them. 0 for none.",
        below=1,
    )
    reference: str = option(
        "",
        "Beside the model stands a reference (logistic, logistic_neighbours, trees or "
        "trees_neighbours): its probabilities, out of fold, are added to the logits as logarithms, "
        "times a learned number. None by default.",
        words={
            "": "none",
            "logistic": "logistic regression",
            "logistic_neighbours": "logistic regression that also sees neighbours",
            "trees": "boosted trees",
            "trees_neighbours": "boosted trees that also see neighbours",
        },
    )
    correct: bool = option(
        False,
        "When training ends, spread errors and labels of training nodes over the graph (correct "
        "and smooth), if that helps on validation nodes.",
    )


@dataclass(frozen=True)
class NodeMultiLabel(TaskSettings):
    """The labels of every node: any number of them, also none."""

    name: ClassVar[str] = "node-multilabel"
    word: ClassVar[str] = "multilabel"
    target: ClassVar[str] = "labels"
    metric: str = option(
        "average_precision",
        "What models are chosen by",
        words={
            "average_precision": "mean average precision over labels",
            "roc_auc": "mean ROC-AUC over labels",
            "macro_f1": "macro F1",
            "micro_f1": "micro F1",
        },
    )
    loss: str = option(
        "binary", "What is minimised", words={"binary": "binary cross-entropy of each label"}
    )


@dataclass(frozen=True)
class NodeRegression(TaskSettings):
    """A number of every node."""

    name: ClassVar[str] = "node-regression"
    word: ClassVar[str] = "regression"
    target: ClassVar[str] = "number"
    metric: str = option(
        "r2",
        "What models are chosen by",
        words={
            "r2": "R2, the share of the variance that is explained",
            "mae": "mean absolute error",
            "rmse": "root mean squared error",
        },
    )
    loss: str = option(
        "mse",
        "What is minimised",
        words={
            "mse": "squared error",
            "huber": "squared error of small and absolute error of large deviations (Huber)",
            "l1": "absolute error",
        },
    )
    log_target: bool = option(
        False,
        "Learn the logarithm of a number above 0, such as a price or a count of visits; scores are "
        "on that scale, predictions in the number's own unit.",
    )


@dataclass(frozen=True)
class GraphClassification(Classification):
    """The class of every graph of a collection."""

    name: ClassVar[str] = "graph-classification"
    word: ClassVar[str] = "graph-classification"
    pooling: str = option(
        "all",
        "How the nodes of a graph become one",
        words={
            "mean": "the mean of its nodes",
            "sum": "the sum of its nodes",
            "max": "the maximum of its nodes",
            "all": "mean, sum and maximum of its nodes side by side",
        },
    )


@dataclass(frozen=True)
class GraphRegression(NodeRegression):
    """A number of every graph of a collection."""

    name: ClassVar[str] = "graph-regression"
    word: ClassVar[str] = "graph-regression"
    pooling: str = like(GraphClassification, "pooling")


@dataclass(frozen=True)
class LinkPrediction(TaskSettings):
    """Which pairs of nodes are linked."""

    name: ClassVar[str] = "link-prediction"
    word: ClassVar[str] = "link"
    metric: str = option(
        "hits@100",
        "What models are chosen by",
        words={
            "hits@20": "Hits@20",
            "hits@50": "Hits@50",
            "hits@100": "Hits@100",
            "mrr": "MRR",
            "roc_auc": "ROC-AUC",
            "average_precision": "average precision",
        },
    )
    decoder: str = option(
        "mlp",
        "How a pair is scored from its two nodes",
        words={
            "mlp": "an MLP on the product of both nodes, channel by channel",
            "dot": "the inner product of both nodes",
            "directed": "an MLP on the product of both nodes after a map for either end",
        },
    )
    negatives: int = option(
        1, "Random pairs for each link that a step of training learns from", least=1, most=1000
    )
    val_share: float = option(0.1, "Share of the links for validation.", below=1)
    test_share: float = option(0.2, "Share of the links for test.", below=1)
    mask: float = option(
        0.0,
        "Share of the training links that a step does not walk on, others in every step; the loss "
        "is on them alone. 0 walks on all, and learns from all.",
        below=1,
    )
    hide: float = option(
        0.0, "As --mask, but the same links in every step, for any model.", below=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.val_share <= 0 or self.test_share <= 0 or self.val_share + self.test_share >= 1:
            raise ValueError(
                "val_share and test_share must be above 0 and leave links for training, got "
                f"{self.val_share:g} and {self.test_share:g}"
            )
        if self.mask and self.hide:
            raise ValueError("mask and hide are two ways to do one thing: choose one of them")


@dataclass(frozen=True)
class FitSettings(Settings):
    """How long and how fast is learnt, and how often."""

    runs: int = option(
        1, "Runs, each on a split and seed of its own", least=1, most=_check.MOST_RUNS
    )
    seed: int = option(0, "Seed of the first run.", most=_check.MOST_SEED)
    lr: float = option(0.01, "Learning rate.")
    weight_decay: float = option(5e-4, "Weight decay.")
    epochs: int = option(3000, "Most epochs of a run", least=1, most=_check.MOST_EPOCHS)
    patience: int = option(
        200, "Epochs without a better validation score before a run stops.", least=1
    )
    batch: int = option(
        0,
        "Training nodes of a step, each with a sample of its neighbours, for graphs on which whole "
        "steps take too long. Evaluation stays exact. 0: all nodes and edges in every step.",
    )
    num_neighbors: str = option(
        AUTO,
        "With --batch, neighbours that are sampled at each hop, as 5,3,2, the nearest first; all "
        "for all of them, auto for about 500 nodes behind each.",
    )
    sample_by: str = option(
        "uniform",
        "With --batch, which neighbours are sampled",
        words={
            "uniform": "any alike",
            "walk": "by how much they send, in proportion to the entries of the transition",
        },
    )
    precision: str = option(
        "full",
        "Of the states that walk from hop to hop in training: full, or bf16, rounded, which saves "
        "time and memory on a GPU where the graph is large. Not on a CPU.",
        words={
            "full": "states of the walk as precise as the weights",
            "bf16": "states of the walk rounded to bfloat16 between hops",
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fan_outs(self.num_neighbors, 1)  # refuses what cannot be read


MODELS: dict[str, type[Settings]] = {
    STAGNNSettings.name: STAGNNSettings,
    STAFormerSettings.name: STAFormerSettings,
}
"""The settings of each model, by its name."""
TASKS: dict[str, type[TaskSettings]] = {
    kind.name: kind
    for kind in (
        NodeClassification,
        NodeMultiLabel,
        NodeRegression,
        LinkPrediction,
        GraphClassification,
        GraphRegression,
    )
}
"""The settings of each task, by its name."""


def task_named(name: str) -> type[TaskSettings]:
    """The settings of a task, by its name or by its word for the command line."""
    words = {kind.word: kind for kind in TASKS.values()}
    return {**words, **TASKS}[_check.known("task", name, dict.fromkeys([*words, *TASKS]))]


def tasks_for(unit: str, target: str) -> list[type[TaskSettings]]:
    """The tasks that learn such a target of each "node" or "graph"."""
    return [k for k in TASKS.values() if k.target == target and k.name.startswith(unit)]


@dataclass(frozen=True)
class Config:
    """What is trained on what: `recipe(graph)` gives the paper's, `replace` changes it.

    Attributes:
        data: the graph, the split and the encoding.
        model: the settings of a model of `MODELS`.
        task: those of a task of `TASKS`.
        fit: learning rate, epochs, runs and seeds.
    """

    data: DataSettings
    model: Any = STAGNNSettings()
    task: Any = NodeClassification()
    fit: FitSettings = FitSettings()

    def __post_init__(self) -> None:
        kinds = {"data": DataSettings, "fit": FitSettings}
        for part, some in self.parts():
            wrong = not isinstance(some, kinds.get(part, Settings))
            if wrong or (part not in kinds and not some.name):  # a model and a task have one
                hint = "Config.of(graph, hops=5) makes a configuration of plain settings"
                raise TypeError(f"{part} must be settings, got {_check.said(some)}: {hint}")
        if self.fit.precision != "full" and not self.walks:
            raise ValueError(
                f"precision='{self.fit.precision}' rounds the states of a walk, which neither "
                "exact softmax attention nor a model without hops has: use precision='full'"
            )

    @classmethod
    def of(cls, graph: str, **settings: Any) -> Config:
        """The defaults for a graph with some settings changed, by their plain names."""
        return cls(DataSettings(graph)).replace(**settings)

    def replace(self, **changes: Any) -> Config:
        """This configuration with some settings changed, by their plain names: `hops=5`.

        `task="regression"` is another task and `model="staformer"` another model, whose settings
        are its defaults.
        """
        parts: dict[str, Any] = dict(self.parts())
        if "model" in changes:
            chosen = changes.pop("model")
            model = MODELS[_check.known("model", getattr(chosen, "name", chosen), MODELS)]
            parts["model"] = self.model if type(self.model) is model else model()
        if "task" in changes:
            kind = task_named(changes.pop("task"))
            parts["task"] = self.task if type(self.task) is kind else kind()
        owner = {about.name: part for part, some in parts.items() for about in fields(some)}
        for name in changes:
            self._refuse_of_another(name, owner, parts["task"])
            _check.known("setting", name, owner)
        for part, some in parts.items():
            own = {name: value for name, value in changes.items() if owner[name] == part}
            parts[part] = replace(some, **own) if own else some
        return Config(**parts)

    def _refuse_of_another(self, name: str, owner: Mapping[str, str], task: Settings) -> None:
        """A setting that only another model or another task has: say which."""
        words = [kind.word for kind in TASKS.values() if name in kind.__dataclass_fields__]
        if name not in owner and words:
            raise ValueError(
                f"{name} is a setting of --task {' or '.join(words)}, not of this task, {task.name}"
            )
        has = [kind.name for kind in MODELS.values() if name in kind.__dataclass_fields__]
        if name not in owner and has:
            raise ValueError(f"{name} is a setting of {' and '.join(has)}: model='{has[0]}'")

    def parts(self) -> Iterator[tuple[str, Settings]]:
        """data, model, task and fit, by name."""
        return ((part.name, getattr(self, part.name)) for part in fields(self))

    @property
    def transition(self) -> str:
        """How messages walk; the paper's way for a model that has no say in it."""
        return getattr(self.model, "transition", "rw")

    @property
    def walk(self) -> dict[str, Any]:
        """What a Graph is made with: the transition, and whether every node gets a loop."""
        loops = getattr(self.model, "self_loops", False)
        return {"transition": self.transition, "self_loops": loops}

    @property
    def walks(self) -> bool:
        """Whether states walk from hop to hop."""
        return hasattr(self.model, "hops") and getattr(self.model, "feature_map", "") != "softmax"

    @property
    def depth(self) -> int:
        """How many hops away a node is that the model still sees."""
        hops: int = getattr(self.model, "hops", 0) * getattr(self.model, "layers", 1)
        return hops

    @property
    def fan_outs(self) -> list[int]:
        """With batches, how many neighbours are sampled at each hop; -1 for all of them."""
        return fan_outs(self.fit.num_neighbors, self.depth)

    def flat(self) -> dict[str, Any]:
        """Every setting by its plain name."""
        return {name: value for _, some in self.parts() for name, value in asdict(some).items()}

    def differences(self, other: Config) -> list[str]:
        """The settings that the other one has otherwise, in words."""
        ours, theirs = self.flat(), _check.kind("other", other, Config, "a Config").flat()
        ours, theirs = {"task": self.task.name, **ours}, {"task": other.task.name, **theirs}
        names = dict.fromkeys([*ours, *theirs])
        return [
            f"{name} {ours.get(name)!r}, not {theirs.get(name)!r}"
            for name in names
            if ours.get(name) != theirs.get(name)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        named = {
            part: {**({"name": some.name} if some.name else {}), **asdict(some)}
            for part, some in self.parts()
        }
        return {"format": FORMAT, **named}

    @classmethod
    def from_dict(cls, content: Any) -> Config:
        """The inverse of `to_dict`, also of older formats; what does not exist is an error."""
        content = upgrade("configuration", content)
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, dict) or "graph" not in data:
            raise ValueError("a configuration is a table of settings, 'graph' among them")
        for name, part in content.items():
            _check.known("part", name, ["format", "data", "model", "task", "fit"])
            if name != "format" and not isinstance(part, dict):
                raise ValueError(f"{name} must be a table of settings, got {_check.said(part)}")

        def made(part: str, kind: type[Settings]) -> Any:
            given = {key: value for key, value in content.get(part, {}).items() if key != "name"}
            for name in given:
                _check.known("setting", name, [about.name for about in fields(kind)])
            return kind(**given)

        def named(part: str, table: Mapping[str, type[Settings]]) -> Any:
            name = content.get(part, {}).get("name", next(iter(table)))
            return made(part, table[_check.known(part, name, table)])

        model, task = named("model", MODELS), named("task", TASKS)
        return cls(made("data", DataSettings), model, task, made("fit", FitSettings))
