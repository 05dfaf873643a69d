"""Pictures of nodes: of files and of pixels, small, counted where there are none."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import subtree_attention as sta
from subtree_attention.datasets import TableError, pictures
from tests.samples import csv_text

EDGES = {"source": ["a", "b"], "target": ["b", "c"]}


def opened(picture: bytes | None) -> Any:
    assert picture is not None
    return Image.open(io.BytesIO(picture), formats=["PNG"])


def tables(folder: Path, cells: list[Any]) -> sta.Dataset:
    """A graph of three nodes, whose table in a folder names pictures."""
    nodes = {"id": list("abc"), "photo": cells, "age": [1, 5, 2]}
    (folder / "nodes.csv").write_text(csv_text(nodes), encoding="utf-8")
    return sta.from_tables(folder / "nodes.csv", EDGES, picture="photo")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of pictures, and one beside it."""
    inside = tmp_path / "tables"
    (inside / "photos").mkdir(parents=True)
    wide = Image.new("RGB", (300, 150), (200, 10, 10))
    wide.save(inside / "photos" / "red.jpg")
    wide.save(tmp_path / "beside.png", pnginfo=None)
    Image.new("RGBA", (20, 20), (0, 0, 255, 0)).save(inside / "clear.png")
    (inside / "none.png").write_text("no picture")
    return inside


def test_files_become_small_pngs(folder: Path) -> None:
    beside = str(folder.parent / "beside.png")
    data = tables(folder, ["photos/red.jpg", beside, "clear.png"])
    first = opened(data.picture(0))
    assert first.size == (64, 32)
    assert abs(np.array(first.convert("RGB")).mean((0, 1)) - (200, 10, 10)).max() < 5
    assert opened(data.picture(1)).size == (64, 32)
    assert opened(data.picture(2)).size == (20, 20)
    assert opened(data.picture(2)).getpixel((3, 3))[3] == 0
    assert data.notes.columns[-1].name == "photo"  # paths are no features
    assert data.notes.columns[-1].note == "the pictures (--picture)"


def test_what_gives_no_picture_is_counted_and_said(folder: Path) -> None:
    data = tables(folder, ["photos/red.jpg", "nowhere.png", "none.png"])
    assert [data.picture(node) is None for node in range(3)] == [False, True, True]
    words = " ".join(data.notes.words)
    assert "(--picture): no picture of 1 node: " in words
    assert "nowhere.png is not there" in words
    assert "none.png is no picture that can be read" in words
    data = tables(folder, ["photos/red.jpg", None, "photos"])
    assert data.picture(1) is data.picture(2) is None
    assert "photos is no file" in " ".join(data.notes.words)


def test_if_none_is_found_that_is_an_error(folder: Path) -> None:
    with pytest.raises(TableError, match=r"none of the pictures can be read; .*x.png is not there"):
        tables(folder, ["x.png", "y.png", None])


@pytest.mark.parametrize("address", ["https://x.org/a.png", "FILE:///etc/passwd", "data:image/png"])
def test_addresses_are_refused_in_words(address: str, folder: Path) -> None:
    with pytest.raises(TableError, match=r"holds the address .*: pictures are read from files"):
        tables(folder, ["photos/red.jpg", address, None])


def test_a_picture_that_says_it_is_huge_is_not_unpacked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "PIXELS", 1000)
    data = tables(folder, ["photos/red.jpg", "clear.png", None])
    assert data.picture(0) is None
    assert "has more than 1,000 pixels" in " ".join(data.notes.words)
    monkeypatch.setattr(pictures, "FILE_BYTES", 10)
    with pytest.raises(TableError, match="is larger than"):
        tables(folder, ["photos/red.jpg", None, None])


def test_there_is_a_bound_for_all_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST", 200)
    data = tables(folder, ["clear.png", "clear.png", "clear.png"])
    assert data.picture(0) is not None
    assert data.picture(2) is None
    assert "pictures are not kept: all together may have" in " ".join(data.notes.words)


def test_without_pillow_it_is_said_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"need Pillow: pip install .*\[pictures\]"):
        tables(folder, ["photos/red.jpg", None, None])


@pytest.mark.parametrize("written", [False, True])
def test_rows_of_pixels_are_drawn(written: bool) -> None:
    rows = [[0.0, 1.0, 2.0, 4.0], None, [4.0, 4.0, 4.0, 4.0]]
    cells: Any = [row and str(row) for row in rows] if written else rows
    nodes = {"id": list("abc"), "scan": cells}
    data = sta.from_tables(nodes, EDGES, picture="scan")
    drawn = np.array(opened(data.picture(0)))
    assert drawn.shape == (64, 64)
    assert [drawn[0, 0], drawn[0, 63], drawn[63, 0], drawn[63, 63]] == [0, 64, 128, 255]
    assert data.picture(1) is None
    assert data.num_features > 0  # pixels stay features
    flat = sta.from_tables(nodes, EDGES, picture="scan:1x4")
    assert np.array(opened(flat.picture(0))).shape == (16, 64)


def test_pixels_that_are_no_square_need_a_size() -> None:
    nodes = {"id": list("abc"), "scan": [[0.0, 1, 2]] * 3}
    with pytest.raises(TableError, match=r"rows of 3 pixels, which are not 2 x 2: .*scan:8x12"):
        sta.from_tables(nodes, EDGES, picture="scan")
    with pytest.raises(TableError, match=r"no column 'skan' \(--picture\).*Near: scan"):
        sta.from_tables(nodes, EDGES, picture="skan:1x3")
    assert sta.from_tables(nodes, EDGES, picture="scan:1x3").picture(0)


def test_many_pixels_are_thinned_out() -> None:
    drawn, notes = pictures.from_pixels(np.random.default_rng(0).random((2, 200, 100)))
    assert opened(drawn[0]).size == (25, 50)
    assert notes == []


def test_a_parquet_file_in_another_folder_says_where_paths_begin(folder: Path) -> None:
    nodes = pl.DataFrame({"id": list("abc"), "photo": ["photos/red.jpg", None, None]})
    nodes.write_parquet(folder / "nodes.parquet")
    data = sta.from_tables(folder / "nodes.parquet", EDGES, picture="photo")
    assert data.picture(0)


def test_digits_show_their_digit() -> None:
    data = sta.datasets.load("digits")
    drawn = np.array(opened(data.picture(0)))
    assert drawn.shape == (64, 64)
    assert np.array_equal(drawn[::8, ::8], (255 - data.x[0].reshape(8, 8).numpy() * 255).round())
    assert data.classes == tuple("0123456789")
