"""The committed pictures are those of the committed files."""

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from experiments import bench, charts
from subtree_attention.io import read_json

ROOT = Path(__file__).parents[2]
PINNED = f"matplotlib=={version('matplotlib')}" in (ROOT / "constraints.txt").read_text()
pinned = pytest.mark.skipif(not PINNED, reason="another matplotlib draws other bytes")


@pinned
def test_charts_are_drawn_again_to_the_byte(tmp_path: Path) -> None:
    for source, _ in charts.CHARTS.values():
        shutil.copy(ROOT / "results" / source, tmp_path)
    written = charts.draw(tmp_path)
    assert len(written) == 2 * len(charts.CHARTS)
    for file in written:
        assert file.read_bytes() == (ROOT / "results/charts" / file.name).read_bytes(), file.name


@pinned
@pytest.mark.parametrize("name", ["bench-cpu", "bench-cuda", "scaling-cuda"])
def test_pictures_of_benchmarks_are_drawn_again_to_the_byte(name: str, tmp_path: Path) -> None:
    result = read_json(ROOT / f"results/{name}.json")
    for file in bench.draw(result, tmp_path / f"{name}.json"):
        assert file.read_bytes() == (ROOT / "results" / file.name).read_bytes(), file.name


def test_every_chart_is_on_the_page() -> None:
    page = (ROOT / "results/README.md").read_text()
    for name in charts.CHARTS:
        assert f"(charts/{name}.svg)" in page
