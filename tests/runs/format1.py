"""A run folder as the first format had it, made of one of today's."""

import json
from pathlib import Path

from subtree_attention import datasets, io
from subtree_attention.config import Config
from subtree_attention.datasets.features import named_parts
from subtree_attention.runs.folder import GRAPH

LATER = ["precision", "readout", "smoothing", "class_weights"]
LATER += ["show_labels", "reference", "correct", "batch", "num_neighbors", "sample_by"]
"""Settings that the first format had not."""


def flat(config: Config) -> dict[str, object]:
    """A configuration as one flat table."""
    settings = config.flat()
    exact = settings["feature_map"] == "softmax"
    settings["similarity"] = "softmax" if exact else None
    settings["feature_map"] = "elu" if exact else settings["feature_map"]
    for later in LATER:
        settings.pop(later, None)
    settings["global_attention"] = "beside" if settings["global_attention"] else None
    return settings


def downgrade(folder: Path) -> None:
    """Rewrite all that the first format had otherwise."""
    config = flat(Config.from_dict(io.read_json(folder / "config.json")))
    io.write_json(folder / "config.json", config)
    for name in ("summary.json", *(f"{run.name}/summary.json" for run in folder.glob("run-*"))):
        path = folder / name
        if path.exists():
            summary = json.loads(path.read_text())
            old = {k: v for k, v in summary.items() if k not in ("format", "temperature")}
            io.write_json(path, old)
    for path in folder.glob("run-*/model.safetensors"):
        tensors, header = io.read_tensors(path)
        io.write_tensors(path, tensors, {"config": config, "sizes": header["sizes"]})
    for path in folder.glob("run-*/checkpoint.safetensors"):
        tensors, header = io.read_tensors(path)
        del header["format"]
        io.write_tensors(path, tensors, header)
    if (folder / GRAPH).exists():
        _downgrade_graph(folder)
    for path in [*folder.rglob("SHA256SUMS")]:
        path.unlink()


def _downgrade_graph(folder: Path) -> None:
    data = datasets.read(folder / GRAPH)
    tensors = {"edge_index": data.edge_index.int(), "y": data.y, **named_parts(data.x)}
    if data.edge_weight is not None:
        tensors["edge_weight"] = data.edge_weight
    if "own" in data.splits:
        for name, mask in zip(("train", "val", "test"), data.split("own"), strict=True):
            tensors[f"{name}_mask"] = mask
    io.write_tensors(folder / GRAPH, tensors, {"num_features": data.x.size(1)})
    io.write_json(folder / "ids.json", data.node_ids)
    notes = data.notes.to_dict()
    report = {"columns": notes["columns"], "notes": notes["words"]}
    about = {"classes": list(data.classes), "recipe": data.schema.to_dict(), "report": report}
    io.write_json(folder / "columns.json", about)
