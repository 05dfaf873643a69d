"""Which way to train a graph whose whole steps take long: on samples, unless the user says how."""

from __future__ import annotations

import torch

from ..config import Config
from ..datasets import Dataset
from ..ops.machine import gib
from .batches import refuse_settings
from .estimate import clock, estimate
from .recipes import batched

LONG = 15 * 60
"""Seconds of a run from which on samples are learnt from, unless the user says otherwise."""
PATIENCES = 6
"""What is counted for a run on the whole graph: so many times its patience, or all its epochs. A
portfolio takes about as long as one such run."""
BATCH = 256
"""Training nodes of a step, where nobody says how many."""


def sampled_if_long(
    dataset: Dataset, config: Config, device: torch.device, memory: int | str | None = None
) -> tuple[Config, str]:
    """A configuration that learns from samples, where whole steps would take long or do not fit;
    and why, in words: empty if it stays as it was.

    Args:
        dataset: what is trained on.
        config: with whole steps.
        device: where.
        memory: what training may take, see `fit`: then it is made to fit.
    """
    sampled = batched(config, BATCH, dataset.num_nodes)
    if config.fit.batch or not dataset.x.size(1) or not _can_sample(sampled):
        return config, ""
    whole = estimate(dataset, config, device, budget=memory)
    seconds = whole.seconds * min(config.fit.epochs, PATIENCES * config.fit.patience)
    fits = whole.fits or memory is not None
    if seconds <= LONG and fits:
        return config, ""
    much = f"about {clock(seconds)} ({clock(whole.seconds)} an epoch)"
    counts = ", ".join("all" if count < 0 else str(count) for count in sampled.fan_outs)
    return sampled, (
        f"a run on the whole graph would take {much if fits else gib(whole.bytes)}: steps are on "
        f"{BATCH:,} training nodes and samples of their neighbours ({counts} at each hop), scores "
        "stay exact; --batch 0 learns from the whole graph"
    )


def _can_sample(config: Config) -> bool:
    try:
        refuse_settings(config)
    except ValueError:
        return False
    return True
