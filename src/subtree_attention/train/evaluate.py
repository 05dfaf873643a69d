"""Score the saved models of a run folder again, on the splits that they were trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .. import data as datasets
from ..graph import Graph
from . import folder as store
from .config import Config
from .loop import choose_device, evaluate, prepare


@dataclass(frozen=True)
class Scores:
    """Scores of one run now, and the test score that was stored when it was trained."""

    graph: str
    metric: str
    run: int
    train: float
    val: float
    test: float
    stored_test: float


def evaluate_folder(
    folder: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    mirror: str | Path | None = None,
) -> list[Scores]:
    """Every finished run below a folder, or the one run that the folder is."""
    runs = store.finished_runs(Path(folder))
    _, header = store.read_tensors(runs[0] / "model.safetensors")
    config, place = Config.from_dict(header["config"]), choose_device(device)
    data = prepare(config, data_dir, mirror)
    graph = Graph(data.edge_index, data.num_nodes, transition=config.transition).to(place)

    scores = []
    for run in runs:
        summary = store.read_json(run / "summary.json")
        split = datasets.apply_split(
            data, config.split, seed=summary["seed"], data_dir=data_dir, mirror=mirror
        ).to(str(place))
        train, val, test = evaluate(store.load(run, place), split, graph, config.metric)
        scores.append(
            Scores(config.graph, config.metric, summary["run"], train, val, test, summary["test"])
        )
    return scores
