"""What is tried: for every model and graph of a table the same number of trials, listed by hand.

Rivals start from the settings that tunedGNN published for the graph; the other trials change one
thing each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from subtree_attention.train import recipes

Trial = dict[str, Any]
"""Settings by their plain names, of model, data and fit."""

Space = Callable[[str, str], Iterator[Trial]]
"""The trials of a model on a graph: `(graph, model)` -> settings."""

TRIALS = 6
"""For every model and graph of a table."""

OURS = "STAFormer"

# -------------------------------------------------------------------- GCN, SAGE, GAT (tunedGNN)

_STACKS: dict[str, dict[str, tuple[int, int, float, str, bool]]] = {
    "computer": {
        "GCN": (3, 512, 0.5, "layer", False),
        "SAGE": (4, 64, 0.3, "layer", False),
        "GAT": (2, 64, 0.5, "layer", False),
    },
    "photo": {
        "GCN": (6, 256, 0.5, "layer", True),
        "SAGE": (6, 64, 0.2, "layer", True),
        "GAT": (3, 64, 0.5, "layer", True),
    },
    "cs": {
        "GCN": (2, 512, 0.3, "layer", True),
        "SAGE": (2, 512, 0.5, "layer", True),
        "GAT": (1, 256, 0.3, "layer", True),
    },
    "physics": {
        "GCN": (2, 64, 0.3, "layer", True),
        "SAGE": (2, 64, 0.7, "batch", True),
        "GAT": (2, 256, 0.7, "batch", True),
    },
    "minesweeper": {
        "GCN": (12, 64, 0.2, "batch", True),
        "SAGE": (15, 64, 0.2, "batch", True),
        "GAT": (15, 64, 0.2, "batch", True),
    },
}
"""Graph -> model -> layers, width, dropout, norm, residual: as tunedGNN published them."""
_STACK_NAMES = ("layers", "hidden_channels", "dropout", "norm", "residual")

RATES = {"minesweeper": (1e-2, 0.0), "computer": (1e-3, 5e-5), "photo": (1e-3, 5e-5)}
"""Graph -> learning rate and weight decay, likewise."""
_RATES = (1e-3, 5e-4)  # CS and Physics


def stacks(graph: str, model: str) -> Iterator[Trial]:
    """tunedGNN's recipe, and with one thing changed: dropout, also of x, depth, width, residual."""
    lr, decay = RATES.get(graph, _RATES)
    recipe: Trial = dict(zip(_STACK_NAMES, _STACKS[graph][model], strict=True))
    recipe |= {"lr": lr, "weight_decay": decay}
    layers, width, dropout = (recipe[name] for name in _STACK_NAMES[:3])
    yield recipe
    yield recipe | {"dropout": round(dropout + (0.2 if dropout <= 0.5 else -0.2), 1)}
    yield recipe | {"layers": layers - 4 if layers > 8 else layers + 2}
    yield recipe | {"hidden_channels": 2 * width if width <= 128 else width // 2}
    yield recipe | {"residual": not recipe["residual"]}
    yield recipe | {"input_dropout": 0.3}


# ---------------------------------------------------------------------------------------- others


def mixhops(graph: str, model: str) -> Iterator[Trial]:
    """The settings of the paper's table, and with one thing changed."""
    recipe = {"layers": 2, "hidden_channels": 64, "dropout": 0.5, "powers": 2}
    recipe |= {"lr": 0.01, "weight_decay": 5e-4}
    yield recipe
    yield recipe | {"weight_decay": 0.0}
    yield recipe | {"weight_decay": 5e-5, "dropout": 0.3}
    yield recipe | {"hidden_channels": 128, "weight_decay": 5e-5}
    yield recipe | {"layers": 3, "weight_decay": 5e-5}
    yield recipe | {"lr": 1e-3, "weight_decay": 0.0}


def transformers(graph: str, model: str) -> Iterator[Trial]:
    """GPS: GCN beside attention over all nodes."""
    lr, decay = RATES.get(graph, _RATES)
    recipe = {"layers": 3, "hidden_channels": 64, "heads": 4, "dropout": 0.3}
    recipe |= {"lr": lr, "weight_decay": decay}
    yield recipe
    yield recipe | {"dropout": 0.5}
    yield recipe | {"layers": 6}
    yield recipe | {"hidden_channels": 128}
    yield recipe | {"attention": "multihead"}
    yield recipe | {"lr": 3e-3}


_STARTS: dict[str, Trial] = {
    "computer": {
        "layers": 3, "hidden_channels": 512, "hops": 2, "heads": 8, "dropout": 0.5,
        "input_dropout": 0.3, "residual": "none", "readout": "mean",
    },
    "photo": {
        "layers": 3, "hidden_channels": 64, "hops": 2, "dropout": 0.2, "input_dropout": 0.3,
    },
    "cs": {
        "layers": 2, "hidden_channels": 512, "hops": 1, "dropout": 0.5, "input_dropout": 0.5,
    },
    "physics": {
        "layers": 2, "hidden_channels": 256, "hops": 1, "dropout": 0.5, "input_dropout": 0.5,
    },
    "minesweeper": {
        "layers": 12, "hidden_channels": 64, "hops": 2, "heads": 8, "dropout": 0.2,
        "norm": "batch", "attention_start": 0.1,
    },
}  # fmt: skip
"""Graph -> where ours starts."""

_CHANGES: dict[str, list[Trial]] = {
    "computer": [
        {"readout": "power"},
        {"readout": "power", "heads": 2},
        {"input_dropout": 0.5},
        {"hops": 3},
        {"attention_start": 0.1},
    ],
    "photo": [
        {"hidden_channels": 256, "dropout": 0.5},
        {"input_dropout": 0.5},
        {"heads": 8},
        {"layers": 2, "hops": 3},
        {"readout": "mean"},
    ],
    "cs": [
        {"layers": 1, "hops": 2, "heads": 4},
        {"input_dropout": 0.7},
        {"dropout": 0.3},
        {"hidden_channels": 256},
        {"attention_start": 0.1},
    ],
    "physics": [
        {"hidden_channels": 64, "dropout": 0.3, "input_dropout": 0.3},
        {"input_dropout": 0.7},
        {"dropout": 0.7},
        {"layers": 1, "hops": 2},
        {"attention_start": 0.1},
    ],
    "minesweeper": [
        {"heads": 4},
        {"hops": 3},
        {"layers": 15},
        {"dropout": 0.3},
        {"hops": 1, "heads": 4},
    ],
}
"""Graph -> what the other trials change. The paper's graphs elsewhere: see `_elsewhere`."""


def ours(graph: str, model: str) -> Iterator[Trial]:
    """Blocks of subtree attention: one setting and five changes of it, as of the rivals."""
    if graph not in _STARTS:
        yield from _elsewhere(graph)
        return
    lr, decay = RATES.get(graph, _RATES)
    recipe = _STARTS[graph] | {"lr": lr, "weight_decay": decay}
    yield recipe
    yield from (recipe | change for change in _CHANGES[graph])


def _elsewhere(graph: str) -> Iterator[Trial]:
    """Around the paper's own recipe of the graph: one block behind a projection is its model, but
    for the read-out; then deeper ones."""
    paper = recipes.recipe(graph).flat()
    same = ("hops", "heads", "dropout", "lr", "weight_decay", "hidden_channels", "encoding")
    shallow: Trial = {name: paper[name] for name in same}
    shallow["heads"] = 2 if shallow["hidden_channels"] % shallow["heads"] else shallow["heads"]
    shallow |= {"layers": 1, "input_projection": True, "input_dropout": paper["dropout"]}
    shallow |= {"norm": "none", "residual": "none", "activation": "none"}
    yield shallow
    yield shallow | {"readout": "mean", "feature_map": "elu"}
    yield shallow | {"transition": "rw", "self_loops": False}
    deep: Trial = {"layers": 2, "hidden_channels": 256, "hops": 2, "dropout": 0.5, "lr": 1e-3}
    deep["weight_decay"] = 5e-4
    yield deep
    yield deep | {"residual": "none", "dropout": 0.7, "input_dropout": 0.3}
    yield deep | {"layers": 1, "hops": 5, "dropout": 0.7}


SPACES: dict[str, Space] = {
    OURS: ours,
    "GCN": stacks,
    "SAGE": stacks,
    "GAT": stacks,
    "MixHop": mixhops,
    "GPS": transformers,
}
"""Model -> its trials, for classes of nodes."""


# ------------------------------------------------------------------- two rounds on fixed splits

_FIRST: dict[str, tuple[Trial, list[Trial]]] = {
    "computer": (
        {"layers": 3, "hidden_channels": 512, "hops": 2, "dropout": 0.5, "residual": "none"},
        [
            {"dropout": 0.7},
            {"attention_start": 0.1},
            {"hops": 3, "heads": 8},
            {"heads": 8, "readout": "mean"},
            {"layers": 2, "heads": 4, "dropout": 0.7},
        ],
    ),
    "photo": (
        {"layers": 3, "hidden_channels": 64, "hops": 2, "dropout": 0.2},
        [
            {"hidden_channels": 256, "dropout": 0.5},
            {"hidden_channels": 256, "dropout": 0.5, "residual": "none"},
            {"layers": 6, "hops": 1},
            {"layers": 1, "hops": 3, "hidden_channels": 256, "dropout": 0.5},
            {"attention_start": 0.1},
        ],
    ),
    "cs": (
        {"layers": 2, "hidden_channels": 512, "hops": 1, "dropout": 0.3},
        [
            {"dropout": 0.5},
            {"layers": 1, "hops": 2, "heads": 4},
            {"residual": "none"},
            {"attention_start": 0.1},
            {"hidden_channels": 256, "dropout": 0.5},
        ],
    ),
    "physics": (
        {"layers": 2, "hidden_channels": 64, "hops": 1, "dropout": 0.3},
        [
            {"dropout": 0.5},
            {"hidden_channels": 128, "dropout": 0.5},
            {"layers": 1, "hops": 2, "hidden_channels": 128},
            {"attention_start": 0.1},
            {"hidden_channels": 256, "dropout": 0.7, "norm": "batch"},
        ],
    ),
}
"""Graph -> where ours started, and what the other trials changed."""


def ours_first(graph: str, model: str) -> Iterator[Trial]:
    """Blocks of subtree attention, before anything was known of dropout of x."""
    lr, decay = RATES.get(graph, _RATES)
    start, changes = _FIRST[graph]
    recipe = start | {"lr": lr, "weight_decay": decay}
    yield recipe
    yield from (recipe | change for change in changes)


def stacks_first(graph: str, model: str) -> Iterator[Trial]:
    """As `stacks`, with another speed in the place of dropout of x."""
    *same, _ = stacks(graph, model)
    yield from same
    yield same[0] | {"lr": 3e-3}


def stacks_second(graph: str, model: str) -> Iterator[Trial]:
    """With dropout of x, which did us good: alone, and with each of the first round's changes."""
    recipe, dropout, depth, width, _, dropped = stacks(graph, model)
    yield dropped
    yield recipe | {"input_dropout": 0.5}
    yield from (other | {"input_dropout": 0.3} for other in (dropout, depth, width))
    yield dropped | {"lr": 3e-3}


def _both(first: Space, second: Space) -> Space:
    return lambda graph, model: chain(first(graph, model), second(graph, model))


FIRST: dict[str, Space] = {
    OURS: ours_first,
    "GCN": stacks_first,
    "SAGE": stacks_first,
    "GAT": stacks_first,
}
BOTH: dict[str, Space] = {
    model: _both(first, ours if model == OURS else stacks_second) for model, first in FIRST.items()
}
"""Two rounds of trials: the second one is made up in the light of the first, for all models."""


# --------------------------------------------------------------------------------- other tasks


def pooled(graph: str, model: str) -> Iterator[Trial]:
    """Classes of graphs: an encoder, pooling, and an MLP."""
    recipe: Trial = {"layers": 3, "hidden_channels": 64, "dropout": 0.3, "norm": "batch"}
    if model == "GIN":
        recipe["jump"] = True
    if model == OURS:
        recipe |= {"hops": 2}
    recipe |= {"pooling": "sum", "lr": 3e-3, "weight_decay": 1e-4}
    yield recipe
    yield recipe | {"dropout": 0.5}
    yield recipe | {"layers": 5}
    yield recipe | {"hidden_channels": 128}
    yield recipe | {"pooling": "all"}
    yield recipe | {"lr": 1e-2}


def paired(graph: str, model: str) -> Iterator[Trial]:
    """Links: an encoder and a decoder of pairs; a step may leave links out that it learns from."""
    recipe: Trial = {"layers": 2, "hidden_channels": 256, "dropout": 0.5, "input_dropout": 0.5}
    recipe |= {"layers": 1, "hops": 4} if model == OURS else {}
    recipe |= {"mask": 0.3, "negatives": 1, "lr": 3e-3, "weight_decay": 0.0}
    yield recipe
    yield recipe | {"mask": 0.0}
    yield recipe | {"negatives": 3}
    yield recipe | ({"layers": 2, "hops": 2} if model == OURS else {"layers": 3})
    yield recipe | {"hidden_channels": 512}
    yield recipe | {"decoder": "dot", "lr": 1e-3}


OF_GRAPHS: dict[str, Space] = dict.fromkeys((OURS, "GIN", "MLP"), pooled)
OF_LINKS: dict[str, Space] = dict.fromkeys((OURS, "GCN"), paired)


def numbers(graph: str, model: str) -> Iterator[Trial]:
    """A number of each node."""
    recipe: Trial = {"layers": 2, "hidden_channels": 128, "dropout": 0.3, "input_dropout": 0.7}
    recipe |= {"hops": 1} if model == OURS else {}
    recipe |= {"lr": 5e-3, "weight_decay": 5e-4}
    yield recipe
    yield recipe | {"dropout": 0.5}
    yield recipe | {"input_dropout": 0.8}
    yield recipe | ({"layers": 1, "hops": 2} if model == OURS else {"layers": 1})
    yield recipe | {"layers": 3}
    yield recipe | {"weight_decay": 2e-3}


def trees(graph: str, model: str) -> Iterator[Trial]:
    """Boosted trees; of the trees grown, those up to the best by validation count."""
    recipe: Trial = {"leaves": 31, "l2": 0.0, "columns": 0.3, "lr": 0.1}
    yield recipe
    yield recipe | {"leaves": 7}
    yield recipe | {"l2": 10.0}
    yield recipe | {"columns": 1.0}
    yield recipe | {"neighbours": False}
    yield recipe | {"lr": 0.05}


TREES = "boosted trees"
OF_NUMBERS: dict[str, Space] = {OURS: numbers, "GCN": numbers, TREES: trees}
