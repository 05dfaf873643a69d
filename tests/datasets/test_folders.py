"""Where files are looked for, what a missing one says, and what a download leaves behind."""

import shutil
import socket
import time
from pathlib import Path

import pytest

from subtree_attention import datasets
from subtree_attention.datasets import folders


def fake_raw(name: str, folder: Path) -> Path:
    """Empty files with the right names: enough for finding them."""
    graph = datasets.info(name)
    raw = folder / graph.raw_dir
    raw.mkdir(parents=True)
    for file in graph.raw_files:
        (raw / file).touch()
    return raw


def test_the_argument_wins_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("STA_DATA", str(tmp_path / "environment"))
    assert datasets.data_folder() == tmp_path / "environment"
    assert datasets.data_folder(tmp_path / "argument") == tmp_path / "argument"


def test_an_empty_setting_is_no_setting(monkeypatch, tmp_path):
    monkeypatch.setenv("STA_DATA", "")
    monkeypatch.setenv("STA_MIRROR", "")
    assert datasets.data_folder() == tmp_path / "user-cache" / "subtree-attention"
    assert folders.mirror_folder() is None


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")],
)
def test_the_user_s_cache_on_every_system(monkeypatch, tmp_path, platform, expected):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "AppData/Local"))
    monkeypatch.setattr("sys.platform", platform)
    assert datasets.data_folder() == tmp_path / expected / "subtree-attention"


def test_a_data_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file; name a folder"):
        datasets.data_folder(tmp_path / "file")


def test_a_mirror_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"mirror .*nowhere is not a folder; correct STA_MIRROR"):
        datasets.where("cora", tmp_path, tmp_path / "nowhere")


def test_where_follows_the_order_of_looking(tmp_path):
    data, mirror = tmp_path / "data", tmp_path / "mirror"
    mirror.mkdir()
    raw = data / "Planetoid/Cora/raw"
    assert datasets.where("digits", data) == datasets.Whereabouts("embedded", None)
    assert datasets.where("cora", data, mirror) == datasets.Whereabouts("download", raw)
    in_mirror = fake_raw("cora", mirror)
    assert datasets.where("cora", data, mirror) == datasets.Whereabouts("mirror", in_mirror)
    fake_raw("cora", data)
    assert datasets.where("cora", data, mirror) == datasets.Whereabouts("data folder", raw)
    cached = data / "processed" / "cora.v2.safetensors"
    cached.parent.mkdir()
    cached.touch()
    assert datasets.where("cora", data, mirror) == datasets.Whereabouts("cached", cached)


def test_where_writes_nothing(tmp_path):
    for name in datasets.names():
        datasets.where(name, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_set_with_a_file_missing_does_not_count(tmp_path):
    raw = fake_raw("cora", tmp_path)
    (raw / "ind.cora.ty").unlink()
    assert datasets.where("cora", tmp_path).status == "download"


@pytest.mark.parametrize("name", ["cora", "deezer", "corafull", "actor"])
def test_missing_data_names_the_files_and_the_folder(name, tmp_path, no_network):
    graph = datasets.info(name)
    with pytest.raises(datasets.MissingData) as error:
        datasets.load(name, data_dir=tmp_path)
    text = str(error.value)
    assert str(tmp_path / graph.raw_dir) in text
    assert all(file in text for file in graph.raw_files)
    assert "no network" in text
    assert "STA_MIRROR" in text
    assert error.value.__suppress_context__
    assert len(no_network) == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_data_names_only_what_is_missing(tmp_path, no_network):
    raw = fake_raw("cora", tmp_path)
    (raw / "ind.cora.ty").unlink()
    with pytest.raises(datasets.MissingData) as error:
        datasets.load("cora", data_dir=tmp_path)
    assert "ind.cora.ty" in str(error.value)
    assert "ind.cora.allx" not in str(error.value)


def test_an_address_that_never_answers_gives_up_soon(tmp_path, monkeypatch):
    # A listening socket that accepts nothing: the connection opens and stays silent.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/deezer_europe.zip"
        graph = datasets.info("deezer")
        monkeypatch.setattr(folders, "DOWNLOAD_TIMEOUT_S", 0.3)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        started = time.monotonic()
        with pytest.raises(datasets.MissingData, match="timed out"):
            folders.download(with_address(graph, url), tmp_path / "raw", tmp_path)
        assert time.monotonic() - started < 5
    assert socket.getdefaulttimeout() is None


def with_address(graph: datasets.GraphInfo, url: str) -> datasets.GraphInfo:
    from dataclasses import replace

    return replace(graph, urls=(url,))


def serve_from(mirror: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let downloads of one graph come from the mirror."""
    raw = mirror / datasets.info(name).raw_dir

    def copy(_url: str, path: Path) -> None:
        shutil.copyfile(raw / path.name, path)

    monkeypatch.setattr(folders, "fetch", copy)


@pytest.mark.parametrize("name", ["cora", "minesweeper"])
def test_a_download_leaves_raw_files_in_pyg_s_layout(name, tmp_path, mirror, monkeypatch):
    serve_from(mirror, monkeypatch, name)
    datasets.load(name, data_dir=tmp_path)
    graph = datasets.info(name)
    assert not folders.missing_files(graph, tmp_path)
    assert datasets.where(name, tmp_path).status == "cached"
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_damaged_download_is_named_by_its_address_and_not_kept(tmp_path, monkeypatch):
    def garbage(_url: str, path: Path) -> None:
        path.write_bytes(b"<html>Not found</html>")

    monkeypatch.setattr(folders, "fetch", garbage)
    for name, address in [("photo", "https://github.com/shchur"), ("cora", "ind.cora.allx")]:
        with pytest.raises(ValueError, match=f"damaged.*'{name}'.*{address}"):
            datasets.load(name, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
