"""A run folder that keeps the table of its nodes: names, pictures, and what becomes of damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import subtree_attention as sta
from subtree_attention.datasets.told import PICTURES, TOLD
from subtree_attention.io import FileError
from subtree_attention.runs import folder as files
from subtree_attention.show.explore import Views
from tests.conftest import Outcome
from tests.samples import csv_text, friends, people

COUNT = 24
HOSTILE = "Zoë \u202e[red]\x1b[2J"
QUICK = "--no-portfolio --no-references --runs 1 --epochs 2 --hops 1 --heads 2 --device cpu"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run whose nodes have names, one of them hostile, and pictures of four pixels."""
    nodes = people(COUNT)
    nodes["called"] = [HOSTILE, None, *(f"Somebody {i}" for i in range(2, COUNT))]
    nodes["scan"] = [f"[{i}, 0, 1, 2]" if i else None for i in range(COUNT)]
    folder = tmp_path_factory.mktemp("told")
    data = sta.from_tables(nodes, friends(COUNT), "label", name="called", picture="scan")
    config = sta.recipe(data, graph="people", runs=1, epochs=2, hops=1, heads=2)
    return sta.fit(config, folder / "out", device="cpu", data=data).folder


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "out"))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_names_and_pictures_are_in_the_folder(trained: Path) -> None:
    data = sta.open(trained, device="cpu").dataset
    assert [data.title(node) for node in range(3)] == [HOSTILE, "p1", "Somebody 2"]
    assert data.picture(0) is None
    assert (data.picture(1) or b"").startswith(b"\x89PNG")
    assert data.found("somebody 11") == [11]
    assert {path.name for path, words in files.check(trained) if not words} >= {TOLD, PICTURES}


def test_a_folder_without_them_is_as_before(out: Path) -> None:
    (out / TOLD).unlink()
    (out / PICTURES).unlink()
    views = Views.of_run(out)
    assert sta.open(out, device="cpu").dataset.told is None
    assert views.search("p11")[0]["name"] is None
    assert dict(views.node("p11")["columns"])["city"] in ("Rome", "Oslo", "Köln")
    assert not any(words for _, words in files.check(out))


@pytest.mark.parametrize("name", [TOLD, PICTURES])
def test_damage_is_named_and_the_run_is_still_a_run(
    name: str, out: Path, run_sta: Callable[..., Outcome]
) -> None:
    damage(out / name)
    run = sta.open(out, device="cpu")
    assert run.scores()
    new = {name: column[:1] for name, column in people(1, prefix="new").items()}
    links = {"source": ["new0"], "target": ["p1"], "strength": [1]}
    asked = {"nodes": {**new, "scan": [[1.0, 2, 3, 4]], "called": ["New"]}, "edges": links}
    assert sta.predict(out, **asked, join=True, device="cpu").ids == ["new0"]
    with pytest.raises(FileError, match=rf"{name}.*take it from a copy, or do without it"):
        run.dataset.title(0) if name == TOLD else run.dataset.picture(0)
    code, said, _ = run_sta("check", str(out))
    assert code == 1
    assert f"{name} cannot be read" in said
    assert "take it from a copy" in said
    (out / name).unlink()
    assert run_sta("check", str(out))[0] == 0


def test_the_command_line_takes_both(tmp_path: Path, run_sta: Callable[..., Outcome]) -> None:
    nodes = people(COUNT)
    nodes["called"] = [HOSTILE, *(f"Somebody {i}" for i in range(1, COUNT))]
    nodes["scan"] = [f"[{i}, 0, 1, 2]" for i in range(COUNT)]
    (tmp_path / "nodes.csv").write_text(csv_text(nodes), encoding="utf-8")
    (tmp_path / "edges.csv").write_text(csv_text(friends(COUNT)), encoding="utf-8")
    tables = "--nodes nodes.csv --edges edges.csv --target label"
    shown = "--name called --picture scan --out out"
    code, said, errors = run_sta("train", *f"{tables} {QUICK} {shown}".split())
    assert code == 0, errors
    assert "nodes are shown by their 'called' (--name)" in said
    code, said, errors = run_sta("explain", "out", "p0")
    assert code == 0, errors
    assert "node p0 Zoë" in said
    assert "[red]" in said
    assert "\x1b[2J" not in said
    assert "\u202e" not in said
    code, said, errors = run_sta("explain", "out", "p0", "--json")
    assert json.loads(said)["name"] == HOSTILE


def test_both_are_for_tables(run_sta: Callable[..., Outcome]) -> None:
    code, _, errors = run_sta("train", "digits", "--name", "title")
    assert code != 0
    assert "--name is for tables of your own" in errors
