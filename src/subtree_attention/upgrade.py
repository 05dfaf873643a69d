"""What older versions wrote, as today's reads it. Whoever changes a format extends `upgrade`.

Files of runs carry a number, their format. Before there were numbers, all was format 1:

    configuration   format 1 is one flat table of settings; 2 has data, model, task and fit
    record          of one run of the experiments: the configuration in it, likewise
    summary         of one run: 2 also has the temperature of its probabilities

A setting that came later, such as precision or readout, is not in older files, and has its default
then.

Format 3 has the same content. Since then tensors have a checksum beside them, and the other files
of a run stand in a list of checksums, see `runs.folder`; a checkpoint of before is not gone on
with, because numbers were rounded in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _check

FORMAT = 3

_PARTS = {
    "data": ("graph", "split", "encoding"),
    "task": ("metric", "loss"),
    "fit": ("runs", "seed", "lr", "weight_decay", "epochs", "patience"),
}


def upgrade(kind: str, content: Any) -> Any:
    """The content of a file as today's format has it.

    Args:
        kind: "configuration", "record", "summary", or "comparison", which format 1 had not.
        content: what was in the file.
    """
    if not isinstance(content, dict):
        return content
    found = content.get("format", 1)
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise ValueError(
            f"this {kind} has format {_check.said(found)}, and this version reads up to {FORMAT}: "
            "install a newer subtree-attention"
        )
    if found == FORMAT:
        return content
    if found == 1 and kind not in _FROM_1:
        raise ValueError(f"format 1 had no {kind}")
    return {**(_FROM_1[kind](content) if found == 1 else content), "format": FORMAT}


def _configuration(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their part; two that were one choice are one."""
    flat = dict(flat)
    if flat.pop("similarity", None) == "softmax":
        flat["feature_map"] = "softmax"
    attention, name = flat.get("global_attention"), "stagnn"
    if attention == "only":  # an ablation of the paper, see the experiments
        name = "global-attention"
        for meaningless in ("global_attention", "hops", "transition", "aggregation", "gate"):
            flat.pop(meaningless, None)
    elif "global_attention" in flat:
        flat["global_attention"] = attention == "beside"
    parts = {
        part: {name: flat.pop(name) for name in names if name in flat}
        for part, names in _PARTS.items()
    }
    parts["task"]["name"] = "node-classification"
    return {**parts, "model": {"name": name, **flat}}


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    config = record.get("config")
    return {**record, "config": upgrade("configuration", config) if config else {}}


def _summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {**summary, "temperature": None}  # found again when it is asked for


_FROM_1 = {"configuration": _configuration, "record": _record, "summary": _summary}
