"""Small jobs on the embedded graph."""

from dataclasses import replace

import torch

import subtree_attention as sta
from experiments.reproduce.experiments import PaperJob
from experiments.reproduce.records import OURS
from subtree_attention.train.jobs import Place

CONFIG = sta.recipe("digits", epochs=3, hops=2, heads=2)
PLACE = Place(torch.device("cpu"))


def job(seed: int = 0, model: str = OURS, **more: object) -> PaperJob:
    start = PaperJob("table1", "digits", model, "", seed, CONFIG)
    return replace(start, **more)  # type: ignore[arg-type]
