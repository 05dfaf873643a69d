"""Scores on a terminal."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from subtree_attention import STAGNN, Dataset
from subtree_attention.runs import Scores
from subtree_attention.runs.folder import RunResult
from subtree_attention.show.scores import (
    CLASSES_SHOWN,
    show_details,
    show_quality,
    show_scores,
)
from subtree_attention.tasks.quality import Quality
from tests.experiments.pictures import Picture
from tests.show.made import made_run

COUNTS = np.array([[1234, 2, 0], [3, 4, 5], [0, 6, 789]])


def scored(classes: list[str], counts: np.ndarray) -> list[Scores]:
    """One run with this confusion matrix."""
    y = torch.arange(30) % len(classes)
    data = Dataset(torch.randn(30, 2), torch.randint(30, (2, 60)), y, classes=tuple(classes))
    run = made_run(STAGNN(2, 4, len(classes)), data)
    run.result = RunResult(0, 0, 0.5, 0.5, 1, 1, 1.0)
    return [Scores(run, 0.5, 0.5, 0.5, Quality(0.5, 0.25, float("nan"), 0.75, 0.125, counts))]


def printed(scores: list[Scores], folder: Path, width: int) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        show_quality(scores, console)
        show_details(scores, folder, console)
    return captured.get()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_matrix_has_every_count_and_is_drawn(tmp_path: Path) -> None:
    text = printed(scored(["a", "b\x1b[2J", "[red]c"], COUNTS), tmp_path, 100)
    assert ["0", "50.00", "25.00", "-", "75.00", "12.50"] in rows(text)
    assert ["a", "1,234", "2", "0"] in rows(text)
    assert ["b\N{REPLACEMENT CHARACTER}[2J", "3", "4", "5"] in rows(text)
    assert ["[red]c", "0", "6", "789"] in rows(text)
    assert Picture(tmp_path / "confusion.png").has("#08306b", "#f7fbff")


@pytest.mark.parametrize("width", [80, 55])
def test_long_names_head_rows_and_their_numbers_head_columns(tmp_path: Path, width: int) -> None:
    names = [f"{letter}{'x' * 22}" for letter in "abc"]
    text = printed(scored(names, COUNTS), tmp_path, width)
    assert ["0", "1", "2"] in rows(text)
    for number, (name, row) in enumerate(zip(names, COUNTS, strict=True)):
        counts = [f"{count:,}" for count in row]
        line = next(line for line in rows(text) if line[:1] == [f"{number}:"])
        assert line[-3:] == counts
        assert line[1][0] == name[0]


@pytest.mark.parametrize("precision", ["full", "bf16"])
def test_scores_of_now_and_then_say_what_tells_them_apart(precision: str) -> None:
    scores = scored(["a", "b", "c"], COUNTS)
    run = scores[0].run
    run.config = run.config.replace(precision=precision)
    console = Console(width=200)
    with console.capture() as captured:
        show_scores(scores, console)
    words = "rounded to bfloat16 between hops; scored now without rounding"
    assert (words in captured.get()) == (precision == "bf16")


def test_of_many_classes_the_worst_pairs_are_listed(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(CLASSES_SHOWN + 1)]
    counts = 9 * np.eye(len(names), dtype=int)
    counts[3, 7] = 5
    text = printed(scored(names, counts), tmp_path, 100)
    assert ["c3", "c7", "5"] in rows(text)
    assert "what is taken for what most often" in text
