"""Loading: the registry's counts, the paper's preprocessing, and every way a file can be bad."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch_geometric.utils import coalesce, contains_self_loops, is_undirected

from subtree_attention import datasets, io
from subtree_attention.datasets import Dataset, loading, read
from subtree_attention.datasets.features import is_csr, values_of

SINGLE = [name for name in datasets.names() if not datasets.info(name).num_graphs]
IN_MIRROR = [name for name in SINGLE if name not in ("digits", "corafull")]
SPARSE = {"cora", "citeseer", "deezer", "actor", "cs", "physics", "cora-ml"}


def copy_raw(name: str, mirror: Path, folder: Path) -> Path:
    raw = folder / datasets.info(name).raw_dir
    shutil.copytree(mirror / datasets.info(name).raw_dir, raw, copy_function=shutil.copyfile)
    return raw


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return (x @ torch.ones(x.shape[1], 1)).flatten()


@pytest.mark.parametrize("name", IN_MIRROR)
def test_graph_is_as_the_registry_says(name, mirror, data_dir):
    check_against_registry(datasets.load(name, data_dir=data_dir, mirror=mirror), name)


def test_digits_are_as_the_registry_says():
    check_against_registry(datasets.load("digits"), "digits")


def check_against_registry(data: Dataset, name: str) -> None:
    graph = datasets.info(name)
    assert data.name == name
    assert data.num_classes == graph.num_classes == len(data.y.unique())
    assert (data.num_nodes, data.num_edges) == (graph.num_nodes, graph.num_edges)
    assert data.num_features == graph.num_features
    assert data.classes == graph.classes
    assert not data.own
    assert data.to_pyg().validate()

    source, target = data.edge_index
    other = source != target
    same = (data.y[source] == data.y[target])[other].double().mean()
    assert float(same) == pytest.approx(graph.homophily, abs=5e-5)  # four decimals are stored
    assert is_undirected(data.edge_index, num_nodes=data.num_nodes)
    assert torch.equal(coalesce(data.edge_index), data.edge_index)
    assert contains_self_loops(data.edge_index) == graph.self_loops
    if graph.self_loops:
        assert int((~other).sum()) == data.num_nodes

    assert is_csr(data.x) == (name in SPARSE)
    assert data.x.dtype == torch.float32
    assert float(values_of(data.x).min()) >= 0
    sums = row_sums(data.x)
    if graph.row_normalised:
        torch.testing.assert_close(sums, (sums > 0).float())
    masks = torch.stack(data.split("A"))
    assert masks.sum(0).tolist() == [1] * data.num_nodes


def test_deezer_is_binary_and_has_the_6159_users_without_an_artist(mirror, data_dir):
    x = datasets.load("deezer", data_dir=data_dir, mirror=mirror).x
    assert x.values().unique().tolist() == [1]
    assert int((row_sums(x) == 0).sum()) == 6159


def test_digits_need_no_file_and_link_near_images(tmp_path, no_network):
    data = datasets.load("digits", data_dir=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()
    assert no_network == []
    assert (float(data.x.min()), float(data.x.max())) == (0, 1)
    degree = torch.bincount(data.edge_index[0])
    assert int(degree.min()) >= 10
    # Node 0's ten nearest by plain arithmetic are among its neighbours.
    distance = ((data.x - data.x[0]) ** 2).sum(1)
    nearest = distance.argsort(stable=True)[1:11]
    neighbours = data.edge_index[1][data.edge_index[0] == 0]
    assert set(nearest.tolist()) <= set(neighbours.tolist())


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        datasets.load("digits")


@pytest.mark.parametrize("name", ["cora", "computer", "actor"])
def test_second_load_comes_from_the_cache_and_is_equal(name, mirror, data_dir, no_network):
    first = datasets.load(name, data_dir=data_dir, mirror=mirror)
    second = datasets.load(name, data_dir=data_dir)  # no mirror, no network: only the cache
    assert no_network == []
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.y, second.y)
    assert torch.equal(values_of(first.x), values_of(second.x))
    assert first.splits.keys() == second.splits.keys()
    assert all(torch.equal(codes, second.splits[kind]) for kind, codes in first.splits.items())
    assert first.source == second.source


def test_the_cache_is_one_file_of_tensors(mirror, tmp_path):
    datasets.load("cora", data_dir=tmp_path, mirror=mirror)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path("processed/cora.v2.safetensors")]
    with safe_open(tmp_path / files[0], framework="pt") as file:
        header = json.loads(file.metadata()["json"])
    assert header["shape"] == [2708, 1433]
    assert "planetoid" in header["source"]


def test_raw_files_in_the_data_folder_go_before_the_mirror(mirror, tmp_path):
    raw = copy_raw("cora-ml", mirror, tmp_path)
    (raw / "cora_ml.npz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=str(raw)):
        datasets.load("cora-ml", data_dir=tmp_path, mirror=mirror)


def test_environment_variables_name_both_folders(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("STA_MIRROR", str(mirror))
    monkeypatch.setenv("STA_DATA", str(tmp_path / "here"))
    datasets.load("minesweeper")
    assert datasets.where("minesweeper").path == (
        tmp_path / "here" / "processed" / "minesweeper.v2.safetensors"
    )


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_the_mirror_is_never_written_to(mirror, tmp_path):
    own = tmp_path / "mirror"
    names = ("cora", "actor", "cora-ml", "minesweeper")
    for name in names:
        copy_raw(name, mirror, own)
    before = listing(own)
    for name in names:
        datasets.load(name, data_dir=tmp_path / "data", mirror=own)
    assert listing(own) == before


def test_several_processes_may_load_for_the_first_time_at_once(mirror, tmp_path):
    # Also the place to see that nothing warns: PyTorch's "beta state" comes once in each process.
    program = (
        "import sys, warnings\n"
        "import torch_geometric.datasets\n"  # what importing it says is not ours
        "from subtree_attention import datasets\n"
        "warnings.simplefilter('error')\n"
        "data = datasets.load('cora', data_dir=sys.argv[1], mirror=sys.argv[2])\n"
        "print(data.num_edges)"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(mirror)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in running]
    assert [answer[0].strip() for answer in answers] == ["10556"] * 3, answers
    assert [answer[1] for answer in answers] == [""] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["processed"]
    assert len(list((tmp_path / "processed").iterdir())) == 1


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "foreign", "metadata"])
def test_a_damaged_cache_file_is_rebuilt(damage, mirror, tmp_path):
    good = datasets.load("cora-ml", data_dir=tmp_path, mirror=mirror)
    path = tmp_path / "processed" / "cora-ml.v2.safetensors"
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        path.write_bytes(content[:-100] + bytes([content[-100] ^ 255]) + content[-99:])
    elif damage == "foreign":
        datasets.load("cora", data_dir=tmp_path, mirror=mirror)
        shutil.copyfile(tmp_path / "processed" / "cora.v2.safetensors", path)
    else:
        path.write_bytes(content.replace(b"shape", b"shapf"))
    again = datasets.load("cora-ml", data_dir=tmp_path, mirror=mirror)
    assert torch.equal(again.x.values(), good.x.values())
    assert not read(path).own


@pytest.mark.parametrize("name", ["cora", "actor", "cora-ml", "photo", "deezer", "minesweeper"])
def test_a_damaged_raw_file_is_named(name, mirror, tmp_path):
    raw = copy_raw(name, mirror, tmp_path)
    victim = raw / datasets.info(name).raw_files[-1]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(ValueError, match=str(victim)) as error:
        datasets.load(name, data_dir=tmp_path)
    assert error.value.__suppress_context__ or error.value.__context__ is None
    assert [path.name for path in tmp_path.iterdir()] == [
        Path(datasets.info(name).raw_dir).parts[0]
    ]


@pytest.fixture
def trap(tmp_path):
    """A pickle that makes a folder `sprung` when it is opened."""

    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    yield pickle.dumps(Trap())
    assert not (tmp_path / "sprung").exists()


def test_a_foreign_pickle_is_never_opened(mirror, tmp_path, trap):
    raw = copy_raw("cora", mirror, tmp_path)
    (raw / "ind.cora.graph").write_bytes(trap)
    with pytest.raises(ValueError, match=r"foreign raw file.*ind\.cora\.graph"):
        datasets.load("cora", data_dir=tmp_path)


def test_a_pickle_that_is_swapped_after_the_check_is_not_read(mirror, tmp_path, trap, monkeypatch):
    raw = copy_raw("cora", mirror, tmp_path)
    check = loading.folders.check_raw_files

    def check_and_swap(*arguments: object) -> None:
        check(*arguments)
        for path in raw.iterdir():
            path.write_bytes(trap)  # in place: a link would lead here, and so would an open file

    monkeypatch.setattr(loading.folders, "check_raw_files", check_and_swap)
    assert datasets.load("cora", data_dir=tmp_path).num_edges == 10556


def test_a_process_that_keeps_swapping_pickles_gets_nothing_executed(mirror, tmp_path, trap):
    raw = copy_raw("cora", mirror, tmp_path)
    shutil.copyfile(raw / "ind.cora.graph", tmp_path / "good")
    (tmp_path / "bad").write_bytes(trap)
    swap = "import itertools, os, sys\n"
    swap += "for name in itertools.cycle(('bad', 'good')):\n"
    swap += "    os.link(name, 'next'); os.replace('next', sys.argv[1])"
    command = [sys.executable, "-c", swap, str(raw / "ind.cora.graph")]
    answers = set()
    with subprocess.Popen(command, cwd=tmp_path) as swapping:
        try:
            for _ in range(12):
                shutil.rmtree(tmp_path / "processed", ignore_errors=True)
                try:
                    answers.add(datasets.load("cora", data_dir=tmp_path).num_edges)
                except ValueError as error:
                    answers.add(str(error).partition(":")[0])
        finally:
            swapping.kill()
    assert answers <= {10556, "damaged or foreign raw file of 'cora'"}


def test_raw_files_are_read_as_copies_that_nobody_else_can_change(mirror, tmp_path, monkeypatch):
    read_raw, seen = loading.read_raw, []

    def look(graph: object, folder: Path) -> object:
        seen.extend(folder.rglob("ind.*"))
        assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.getuid())
        assert not any(path.is_symlink() or path.stat().st_nlink > 1 for path in seen)
        assert tmp_path not in folder.parents  # whose owner could rename it
        return read_raw(graph, folder)

    monkeypatch.setattr(loading, "read_raw", look)
    datasets.load("cora", data_dir=tmp_path, mirror=mirror)
    assert len(seen) == 8
    assert not any(path.exists() for path in seen)


def test_another_graph_under_the_right_name_is_refused(mirror, tmp_path):
    raw = tmp_path / datasets.info("photo").raw_dir
    raw.mkdir(parents=True)
    other = mirror / "Amazon/Computers/raw/amazon_electronics_computers.npz"
    shutil.copyfile(other, raw / "amazon_electronics_photo.npz")
    with pytest.raises(ValueError, match="not the graph 'photo': 13,752 nodes instead of 7,650"):
        datasets.load("photo", data_dir=tmp_path)


def write_minesweeper(folder: Path, **changes: np.ndarray) -> None:
    raw = folder / datasets.info("minesweeper").raw_dir
    raw.mkdir(parents=True)
    arrays = {
        "node_features": np.ones((4, 7), dtype=np.float32),
        "node_labels": np.array([0, 1, 0, 1]),
        "edges": np.array([[0, 1], [2, 3]]),
        **{f"{part}_masks": np.ones((10, 4), dtype=bool) for part in ("train", "val", "test")},
    }
    np.savez(raw / "minesweeper.npz", **{**arrays, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_features": np.full((4, 7), np.nan, dtype=np.float32)}, "x must be finite"),
        ({"node_features": np.full((4, 7), np.inf, dtype=np.float32)}, "x must be finite"),
        ({"edges": np.array([[0, 1], [2, 4]])}, "damaged file|outside 0..3"),
        ({"edges": np.array([[0, 1], [2, -1]])}, "damaged file|outside 0..3"),
        ({"node_labels": np.array([0, 1, 0])}, "y must be a whole number for each of 4 nodes"),
        ({"node_labels": np.array([0, 1, 0, -1])}, "one of 2 classes from 0, and no other"),
        ({"node_labels": np.array([0.0, 1, 0, 1])}, "y must be a whole number for each of 4 nodes"),
        ({}, "not the graph 'minesweeper': 4 nodes instead of 10,000"),
    ],
)
def test_bad_content_is_refused_where_it_enters(changes, message, tmp_path):
    write_minesweeper(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        datasets.load("minesweeper", data_dir=tmp_path)
    assert not (tmp_path / "processed").exists()


def refuse_to_write(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """No file can be written by us (file modes do not stop an administrator)."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(io, "write_bytes", fail)
    monkeypatch.setattr(io.tempfile, "TemporaryFile", fail)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_an_unwritable_data_folder_only_costs_the_cache(code, mirror, tmp_path, monkeypatch):
    refuse_to_write(monkeypatch, code)
    data = datasets.load("cora", data_dir=tmp_path, mirror=mirror)
    assert data.num_edges == 10556
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_below_a_file_only_costs_the_cache(mirror, tmp_path):
    (tmp_path / "file").touch()
    data = datasets.load("cora", data_dir=tmp_path / "file" / "data", mirror=mirror)
    assert data.num_nodes == 2708


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="modes do not bind this user")
def test_a_read_only_data_folder_only_costs_the_cache(mirror, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert datasets.load("cora", data_dir=tmp_path, mirror=mirror).num_nodes == 2708
    finally:
        tmp_path.chmod(0o700)


def test_a_download_into_an_unwritable_data_folder_is_refused(tmp_path, monkeypatch, no_network):
    refuse_to_write(monkeypatch, errno.EACCES)
    with pytest.raises(ValueError, match=r"data folder \(STA_DATA\).*Permission denied"):
        datasets.load("cora", data_dir=tmp_path)
    assert no_network == []


def test_a_cache_that_cannot_be_renamed_into_place_costs_only_time(mirror, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, "read-only")

    monkeypatch.setattr(io.os, "replace", fail)
    assert datasets.load("cora", data_dir=tmp_path, mirror=mirror).num_nodes == 2708


@pytest.mark.parametrize("step", ["copying", "downloading", "reading", "saving"])
def test_a_full_disk_is_named(step, mirror, tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "copying":
        monkeypatch.setattr("shutil.copyfileobj", full)
    elif step == "downloading":
        monkeypatch.setattr("subtree_attention.datasets.folders.fetch", full)
        mirror = None
    elif step == "reading":
        monkeypatch.setattr("torch.save", full)
    else:
        monkeypatch.setattr(Dataset, "save", full)
    variable = "STA_DATA" if step == "saving" else "TMPDIR"
    with pytest.raises(OSError, match=rf"no space left for graphs.*{variable}") as error:
        datasets.load("cora", data_dir=tmp_path, mirror=mirror)
    assert error.value.errno == errno.ENOSPC
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_interrupted_load_leaves_nothing_behind(mirror, tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "_preprocessed", interrupt)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(KeyboardInterrupt):
        datasets.load("cora", data_dir=tmp_path / "data", mirror=mirror)
    assert list(tmp_path.rglob("*")) == [tmp_path / "temporary"]


def write_v1(path: Path, data: Dataset) -> None:
    """A cache file as it was before `Dataset.save` wrote them."""
    parts = (data.x.values(), data.x.col_indices(), data.x.crow_indices())
    tensors = dict(zip(("x_values", "x_columns", "x_row_starts"), parts, strict=True))
    codes = data.splits["own"]
    tensors |= {"edge_index": data.edge_index, "y": data.y, "own_splits": codes.clamp(max=3)}
    crc = zlib.crc32(f"{tuple(data.x.shape)} {sorted(tensors)}".encode())
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].numpy().tobytes(), crc)
    nodes, features = map(str, data.x.shape)
    about = {"num_nodes": nodes, "num_features": features, "crc32": f"{crc:08x}", "source": "PyG"}
    save_file(tensors, path, about)


def test_an_older_cache_is_read(mirror, data_dir, tmp_path, no_network):
    data = datasets.load("cora", data_dir=data_dir, mirror=mirror)
    path = tmp_path / "processed" / "cora.v1.safetensors"
    path.parent.mkdir()
    write_v1(path, data)
    assert datasets.where("cora", tmp_path) == datasets.Whereabouts("cached", path)
    again = datasets.load("cora", data_dir=tmp_path)  # no mirror, no network: only the cache
    assert again.same_as(data)
    assert again.classes == data.classes
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes([content[-100] ^ 255]) + content[-99:])
    with pytest.raises(datasets.MissingData):
        datasets.load("cora", data_dir=tmp_path)


def test_eigenvectors_are_kept_beside_the_cache(mirror, tmp_path, monkeypatch):
    from subtree_attention.datasets import encoding

    first = datasets.load("cora-ml", data_dir=tmp_path, mirror=mirror).encoded(3)
    files = sorted(path.name for path in (tmp_path / "processed").iterdir())
    assert files == ["cora-ml.encoding-3.safetensors", "cora-ml.v2.safetensors"]
    monkeypatch.setattr(encoding, "laplacian_eigenvectors", None)
    again = datasets.load("cora-ml", data_dir=tmp_path).encoded(3)
    assert torch.equal(first.encoding, again.encoding)
