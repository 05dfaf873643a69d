"""The tables of the portfolio's page are those of the committed records."""

from pathlib import Path

from experiments.own.render import DOCS, render
from experiments.reproduce.store import Store

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_records(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_bytes((ROOT / DOCS).read_bytes())
    (tmp_path / "results" / "own").mkdir(parents=True)
    for path in (ROOT / "results" / "own").glob("*.jsonl"):
        (tmp_path / "results" / "own" / path.name).write_bytes(path.read_bytes())
    beside, shown = render(Store(tmp_path / "results"), page)
    assert shown.read_text() == (ROOT / DOCS).read_text()
    assert beside.read_text() == (ROOT / "results" / "own" / "tables.md").read_text()
