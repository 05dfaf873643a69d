"""Predictions in parts: the rows of one file, gone on with after any end, and of one question."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.io import FileError
from subtree_attention.runs import SavedRun
from subtree_attention.runs import folder as files
from subtree_attention.runs.blocks import MANIFEST, NEW, OWN, predict_in_blocks
from subtree_attention.runs.predictions import write
from tests.samples import friends, people

Outcome = tuple[int, str, str]


class Killed(BaseException):
    """The end of a process, as far as code can see it."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = sta.from_tables(people(), friends(), target="label", weight="strength")
    config = sta.recipe(data, graph="people", runs=1, epochs=6, hops=2, heads=2)
    return sta.fit(config, tmp_path_factory.mktemp("own") / "out", device="cpu", data=data).folder


def rows(*paths: Path) -> list[list[str]]:
    """All rows of some files, below the header that each has."""
    found: list[list[str]] = []
    for path in paths:
        with path.open(newline="") as file:
            header, *lines = csv.reader(file)
        found += lines if found else [header, *lines]
    return found


def parts(folder: Path, suffix: str = "csv") -> list[Path]:
    return sorted(folder.glob(f"part-*.{suffix}"))


def one_file(run: Path, path: Path, **asked: Any) -> Path:
    write(sta.predict(run, **asked, device="cpu"), path, force=True)
    return path


def in_blocks(run: Path, out: Path, **asked: Any) -> Any:
    return predict_in_blocks(run, out, **{"part_rows": 13, "device": "cpu", **asked})


@pytest.mark.parametrize(
    "asked",
    [{}, {"coverage": 0.8}, {"reject": 0.2}, {"part_rows": 1000}, {"memory": "1GB"}],
    ids=str,
)
def test_parts_are_the_rows_of_one_file(trained: Path, tmp_path: Path, asked: Any) -> None:
    made = in_blocks(trained, tmp_path / "parts", **asked)
    plain = {name: value for name, value in asked.items() if name != "part_rows"}
    whole = rows(one_file(trained, tmp_path / "whole.csv", **plain))
    found = parts(tmp_path / "parts")
    assert rows(*found) == whole
    assert (made.units, made.parts, made.written) == (60, len(found), len(found))
    assert made.calibration is not None
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        MANIFEST,
        *(path.name for path in found),
    ]


def test_new_tables_and_parquet(trained: Path, tmp_path: Path) -> None:
    new = {"nodes": people(7, seed=3, prefix="n"), "join": True}
    new["edges"] = {"source": ["n0", "n1"], "target": ["p1", "n2"], "strength": [2, 1]}
    made = in_blocks(trained, tmp_path / "p", **new, part_rows=3, part_format="parquet")
    assert (made.units, made.parts) == (7, 3)
    assert made.notes is not None
    whole = pl.read_parquet(one_file(trained, tmp_path / "whole.parquet", **new))
    assert pl.concat(map(pl.read_parquet, parts(tmp_path / "p", "parquet"))).equals(whole)


@pytest.mark.parametrize("writes", range(1, 15))
def test_killed_at_any_write_it_goes_on(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """First the manifest; then the logits and each of five parts, with the manifest after each; and
    the manifest when the logits are gone."""
    out, left, plain = tmp_path / "parts", [writes], io.write_bytes

    def write_some(path: Path, *content: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed
        plain(path, *content)

    computed: list[str] = []
    plainly = SavedRun.outputs.func  # type: ignore[attr-defined]

    def outputs(run: SavedRun) -> np.ndarray:
        computed.append("")
        return plainly(run)

    monkeypatch.setattr(SavedRun.outputs, "func", outputs)
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_bytes", write_some)
        with pytest.raises(Killed):
            in_blocks(trained, out)
    there = {path: path.stat().st_mtime_ns for path in parts(out)}
    noted = json.loads((out / MANIFEST).read_text()) if writes > 1 else {"logits": {}, "parts": {}}
    made = in_blocks(trained, out)
    assert rows(*parts(out)) == rows(one_file(trained, tmp_path / "whole.csv"))
    assert made.written == 5 - len(noted["parts"])
    for path, time in there.items():
        if path.name in noted["parts"]:
            assert path.stat().st_mtime_ns == time  # it stays
    first = writes > 1  # the first of both had come to the logits
    again = made.written > 0 and not noted["logits"]
    one = 1  # for the file to be compared with
    assert len(computed) == first + again + one


def test_what_is_there_is_not_made_again(trained: Path, tmp_path: Path) -> None:
    out, lines = tmp_path / "parts", list[str]()
    in_blocks(trained, out)
    made = in_blocks(trained, out, told=lines.append)
    assert (made.written, made.calibration) == (0, None)
    assert lines == ["5 of 5 parts are there"]
    parts(out)[2].write_text("id\n")  # another size
    assert in_blocks(trained, out).written == 1
    assert rows(*parts(out)) == rows(one_file(trained, tmp_path / "whole.csv"))


def test_damaged_logits_are_computed_again(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "parts"
    monkeypatch.setattr("subtree_attention.runs.blocks.write_answers", _die)
    with pytest.raises(Killed):
        in_blocks(trained, out)
    monkeypatch.undo()
    content = bytearray((out / OWN).read_bytes())
    content[5] ^= 1
    (out / OWN).write_bytes(content)
    lines: list[str] = []
    in_blocks(trained, out, told=lines.append)
    assert "logits are computed" in lines
    assert rows(*parts(out)) == rows(one_file(trained, tmp_path / "whole.csv"))
    assert not (out / OWN).exists()
    assert not (out / NEW).exists()


def _die(*given: Any, **more: Any) -> None:
    raise Killed


def test_another_question_is_refused_unless_forced(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    in_blocks(trained, out)
    for other, words in (
        ({"part_rows": 20}, "another part rows"),
        ({"reject": 0.1}, "another question"),
        ({"part_format": "parquet"}, "another part format"),
    ):
        with pytest.raises(FileError, match=f"holds predictions of {words}.*--force"):
            in_blocks(trained, out, **other)
    made = in_blocks(trained, out, part_rows=20, force=True)
    assert (made.parts, made.written, len(parts(out))) == (3, 3, 3)


def test_folders_of_others_are_left_alone(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(FileError, match="is not empty and holds no predictions"):
        in_blocks(trained, tmp_path / "mine", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="is a file"):
        in_blocks(trained, tmp_path / "file")
    with pytest.raises(ValueError, match="part_rows must be at least 1"):
        in_blocks(trained, tmp_path / "new", part_rows=0)
    with pytest.raises(ValueError, match="unknown part_format 'xlsx'"):
        in_blocks(trained, tmp_path / "new", part_format="xlsx")
    in_blocks(trained, tmp_path / "new")
    (tmp_path / "new" / MANIFEST).write_text("{}")
    with pytest.raises(FileError, match=r"its checksum is another one.*begin again"):
        in_blocks(trained, tmp_path / "new")


def test_a_second_process_is_refused(trained: Path, tmp_path: Path) -> None:
    words = "another process is predicting into"
    with files.claimed(tmp_path / "parts"), pytest.raises(FileError, match=words):
        in_blocks(trained, tmp_path / "parts")


def test_the_command(trained: Path, run_sta: Callable[..., Outcome], tmp_path: Path) -> None:
    command = ["predict", str(trained), "--blocks", "--part-rows", "40", "--device", "cpu"]
    code, out, err = run_sta(*command)
    assert code == 0, err
    assert "60 predictions of" in out
    assert "in 2 parts of predictions" in out
    assert err.splitlines()[-1] == "part-00001.csv: part 2 of 2"
    code, out, _ = run_sta(*command)
    assert "2 of them there before" in out
    assert run_sta("predict", str(trained), "--memory", "1GB", "--out", "p.csv")[0] == 0
    assert rows(*parts(tmp_path / "predictions")) == rows(tmp_path / "p.csv")
    for given, words in (
        (["--part-rows", "5"], "--part-rows is for --blocks"),
        (["--blocks", "--memory", "1KB"], "memory: 1,000 bytes cannot do"),
        (["--blocks", "--threshold", "2"], "threshold must be above 0 and below 1"),
    ):
        code, _, err = run_sta("predict", str(trained), "--out", "other", *given)
        assert (code, words in err) == (2, True), err
