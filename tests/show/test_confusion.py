"""The picture of which classes are taken for which."""

from pathlib import Path

import numpy as np
import pytest

from subtree_attention.show.confusion import draw, shares
from tests.experiments.pictures import Picture

# Of matplotlib's colours "Blues": the fullest, the lightest, and that of a half.
ALL, NONE, HALF = "#08306b", "#f7fbff", "#6aaed6"


def drawn(path: Path, confusion: np.ndarray, classes: list[str]) -> Picture:
    picture = draw(confusion, classes, "title")
    assert picture is not None
    (path / "confusion.png").write_bytes(picture)
    return Picture(path / "confusion.png")


def test_rows_are_scaled_to_shares() -> None:
    assert shares(np.array([[1, 3], [0, 0]])).tolist() == [[0.25, 0.75], [0, 0]]


def test_cells_have_the_colour_of_their_share(tmp_path: Path) -> None:
    right = drawn(tmp_path, np.array([[7, 0], [0, 9]]), ["a", "b"])
    assert right.count(ALL) == pytest.approx(right.count(NONE), rel=0.1)  # but for the numbers
    assert right.count(ALL) > 0.1 * np.prod(right.size)
    assert right.count(HALF) < 0.02 * right.count(ALL)  # only in the bar of colours
    halves = drawn(tmp_path, np.array([[4, 4], [1, 1]]), ["a", "b"])
    assert halves.count(HALF) == pytest.approx(2 * right.count(ALL), rel=0.1)
    assert halves.count(ALL) < 0.05 * right.count(ALL)


def test_numbers_are_legible_on_every_cell(tmp_path: Path) -> None:
    """White on the fullest cells, where a large number takes more of them than a small one."""
    small, large = (drawn(tmp_path, n * np.eye(2, dtype=int), ["a", "b"]) for n in (1, 88888))
    assert large.count(ALL) < small.count(ALL)
    light = [(picture.pixels.min(-1) > 200).sum() for picture in (small, large)]
    assert light[0] < light[1]


def test_names_of_classes_are_drawn_as_they_are(tmp_path: Path) -> None:
    counts, half_a_formula = np.eye(2, dtype=int), "$\\frac{$"
    none, odd, cut = (
        drawn(tmp_path, counts, [first, second])
        for first, second in [
            ("", ""),
            (half_a_formula, "a" * 50),
            (half_a_formula, "a" * 19 + "…"),
        ]
    )
    assert odd.has(ALL, NONE)
    assert odd.count(ALL) < none.count(ALL)  # the matrix makes room for names
    assert (odd.pixels == cut.pixels).all()


def test_many_classes_have_neither_names_nor_numbers(tmp_path: Path) -> None:
    many = drawn(tmp_path, np.eye(60, dtype=int), [str(i) for i in range(60)])
    names = drawn(tmp_path, np.eye(40, dtype=int), [str(i) for i in range(40)])
    assert many.count("black") < names.count("black")
    assert many.has(ALL, NONE)
