"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs_and_its_shapes_are_true() -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    shapes = {"logits": (34, 4), "h": (34, 32), "weights": (34, 4), "parts": (6, 4, 4)}
    for name, shape in shapes.items():
        assert names[name].shape == shape  # type: ignore[attr-defined]


def test_the_pictures_and_files_it_links_to_are_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    for link in links:
        assert (Path(__file__).parents[1] / link).exists(), link
