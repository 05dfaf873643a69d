"""What is drawn can be seen on its paper, in light and dark."""

import pytest

from subtree_attention.show.colours import CLASSES, literal

MARKS = ["edge", "focus", "plus", "minus", *(f"class-{number}" for number in range(CLASSES))]
TEXTS = ["ink", "quiet", "link", "wrong"]


def luminance(colour: str) -> float:
    """As WCAG has it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return sum(c * weight for c, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", [*MARKS, *TEXTS])
@pytest.mark.parametrize("way", [0, 1])
def test_marks_and_texts_stand_out(name: str, way: int) -> None:
    colours, least = literal(), 4.5 if name in TEXTS else 3.0
    for paper in ("paper", "raised"):
        assert contrast(colours[name][way], colours[paper][way]) >= least


def test_colours_of_classes_are_told_apart() -> None:
    for way in (0, 1):
        assert len({literal()[f"class-{number}"][way] for number in range(CLASSES)}) == CLASSES
