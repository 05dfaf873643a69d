"""Every bad input of the corpus gets its answer: in our words, once, and nothing is left behind."""

import os
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("polars")
pytest.importorskip("networkx")

from tests.corpus import Entry, entries
from tests.corpus import given as good
from tests.corpus.bundle import Bundle, trained

CALLS, TABLES, BUNDLES, COMMANDS = map(entries, ("calls", "tables", "bundles", "commands"))
Outcome = tuple[int, str, str]


def each(some: list[Entry]) -> Any:
    return pytest.mark.parametrize("entry", some, ids=[entry.done[:80] for entry in some])


def test_the_corpus_only_grows() -> None:
    every = [*CALLS, *TABLES, *BUNDLES, *COMMANDS]
    assert len({entry.done for entry in every}) == len(every) >= 500
    assert all(entry.answer == "fine" or len(entry.piece) > 9 for entry in every)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on tables, as `sta train` leaves it."""
    return trained(tmp_path_factory.mktemp("corpus") / "run")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, on a machine without graphs."""
    monkeypatch.setenv("STA_DATA", str(tmp_path / "no-graphs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answered(entry: Entry, done: Callable[[], Any]) -> None:
    """Do it, and hold what comes against what is expected."""
    if entry.answer == "fine":
        done()
        return
    if "torch sees no GPU" in entry.piece and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is said below
            done()
    message = str(raised.value)
    assert type(raised.value).__name__ == entry.answer, message
    assert entry.piece in message
    assert len(message) < 1000


@each(CALLS)
def test_call(entry: Entry, here: Path) -> None:
    answered(entry, lambda: eval(entry.done, vars(good)))


@each(TABLES)
def test_tables(entry: Entry, here: Path) -> None:
    answered(entry, lambda: eval(entry.done, vars(good)))


@each(BUNDLES)
def test_bundle(entry: Entry, here: Path, run: Path) -> None:
    bundle = Bundle(run, here / "bundle")
    eval(entry.done, {**vars(good), **bundle.ways()})
    before = listing(here)
    answered(entry, bundle.read)
    assert listing(here) == before


@each(COMMANDS)
def test_command(entry: Entry, here: Path, run: Path, run_sta: Callable[..., Outcome]) -> None:
    Bundle(run, here / "mine")
    (here / "nodes.csv").write_text(good.csv(good.nodes))
    (here / "edges.csv").write_text(good.csv(good.links))
    (here / "file.txt").write_text("no table\n")
    if "torch sees no GPU" in entry.piece and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    before = listing(here)
    code, out, err = run_sta(*shlex.split(entry.done))
    assert str(code) == entry.answer, err
    assert entry.piece in err
    assert err.startswith("error: ")
    assert "Traceback" not in out + err
    assert len(err.splitlines()) <= 2
    assert listing(here) == before


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, and when it was written."""
    found = {}
    for path in folder.rglob("*"):
        about = os.lstat(path)
        found[str(path)] = (about.st_size, 0 if path.is_dir() else about.st_mtime_ns)
    return found
