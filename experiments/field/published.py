"""What others report on the same protocols, and where: data only. In percent."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.reproduce.published import Score


@dataclass(frozen=True)
class Report:
    """A row of somebody else's numbers.

    Attributes:
        label: the model, or what the numbers have in common.
        source: who reports them.
        scores: column -> mean and deviation; NaN where none is given.
        models: column -> the model, where they differ.
        with_code: whether the code is public; other numbers are claims.
    """

    label: str
    source: str
    scores: dict[str, Score]
    models: dict[str, str]
    with_code: bool = True


NONE = float("nan")
TUNED = "tunedGNN (LUOyk1999/tunedGNN)"
TARIF = "GraphTARIF (arXiv 2510.10631)"
FIRST = "minesweeper, first 3"

PUBLISHED: dict[str, tuple[Report, ...]] = {
    "fixed": (
        Report(
            "best with code",
            TUNED,
            {
                "computer": Score(94.09, 0.37),
                "photo": Score(96.78, 0.23),
                "cs": Score(96.38, 0.11),
                "physics": Score(97.46, 0.10),
            },
            {"computer": "GAT", "photo": "SAGE", "cs": "SAGE", "physics": "GCN"},
        ),
        Report(
            "claimed",
            TARIF,
            {"computer": Score(94.61, NONE), "photo": Score(97.03, NONE)},
            {},
            with_code=False,
        ),
    ),
    "minesweeper": (
        Report("Polynormer", "cornell-zhang/Polynormer", {"minesweeper": Score(97.46, 0.36)}, {}),
        Report("GCN", TUNED, {FIRST: Score(97.86, 0.24)}, {}),
        Report(
            "CSNN",
            "secondary sources",
            {"minesweeper": Score(99.07, 0.25)},
            {},
            with_code=False,
        ),
    ),
}
"""Table -> rows."""
