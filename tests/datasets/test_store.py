"""A graph on disk: what is written is what is read, mapped and not copied; what is not whole is
refused; PyG's loaders take it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, SamplerOutput

from subtree_attention import Graph, cli, datasets, fit, planted, predict, recipe
from subtree_attention import open as open_run
from subtree_attention.datasets import Dataset, Store, disk, write_tables
from subtree_attention.datasets.features import compact
from subtree_attention.datasets.store import StoredDataset
from subtree_attention.io import FileError

N = 60


def made(weighted: bool = True, sparse: bool = False, **more: Any) -> Dataset:
    """A graph with parallel edges, loops, nodes without edges, and edges in no order."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(N, 8, generator=draw)
    x = compact(x * (x > 0.95)) if sparse else x
    edges = torch.randint(0, N - 5, (2, 300), generator=draw)
    edges = torch.cat([edges, edges[:, :20], torch.arange(7).expand(2, -1)], dim=1)
    weight = torch.rand(edges.size(1), generator=draw) if weighted else None
    y = torch.randint(-1, 3, (N,), generator=draw)
    return Dataset(x, edges, y, weight, classes=("a", "b", "c"), **more)


def with_everything() -> Dataset:
    codes = (torch.arange(N)[:, None] % 3).to(torch.int8)
    codes = torch.tensor([1, 2, 4], dtype=torch.int8)[codes.long()]
    data = made()
    codes[~data.known] = 0
    more = {"ids": [f"n{i}" for i in range(N)], "encoding": torch.rand(N, 2)}
    return made(splits={"own": codes}, name="all of it", source="a test", **more)


def many_graphs() -> Dataset:
    ring = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    batch = torch.tensor([0, 0, 1, 1])
    y = torch.tensor([0.5, torch.nan], dtype=torch.float64)
    return Dataset(torch.eye(4), ring, y, batch=batch, graph_ids=["g", "h"])


GRAPHS = {
    "weighted": made,
    "plain": lambda: made(weighted=False),
    "sparse": lambda: made(sparse=True),
    "everything": with_everything,
    "many": many_graphs,
    "no edges": lambda: Dataset(
        torch.zeros(3, 0), torch.zeros(2, 0).long(), torch.tensor([0, 1, 0])
    ),
}


@pytest.fixture(params=[2**23, 40])
def sorted_in_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As edges are sorted that do not fit memory, too."""
    monkeypatch.setattr(disk, "SORTED", request.param)
    monkeypatch.setattr(disk, "EDGES", min(request.param, 33))


@pytest.mark.usefixtures("sorted_in_parts")
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    data = GRAPHS[name]()
    store = Store.write(data, tmp_path / "store")
    store.verify()
    _same(store.dataset, data)
    assert repr(store.dataset) == repr(data)
    assert (store.num_nodes, store.num_edges) == (data.num_nodes, data.num_edges)
    assert store.num_bytes == sum(file.stat().st_size for file in store.folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def _same(ours: Dataset, theirs: Dataset) -> None:
    """All but the order of the edges."""
    for name in ("x", "y", "encoding", "batch"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert (one.dtype, one.layout, one.shape) == (other.dtype, other.layout, other.shape)
            assert one.to_dense().numpy().tobytes() == other.to_dense().numpy().tobytes()
    for name in ("classes", "ids", "graph_ids", "name", "source", "own", "schema", "notes"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert {k: v.tolist() for k, v in ours.splits.items()} == {
        k: v.tolist() for k, v in theirs.splits.items()
    }
    order = (theirs.edge_index[1] * theirs.num_nodes + theirs.edge_index[0]).argsort(stable=True)
    assert torch.equal(ours.edge_index, theirs.edge_index[:, order])
    assert (ours.edge_weight is None) == (theirs.edge_weight is None)
    if ours.edge_weight is not None and theirs.edge_weight is not None:
        assert torch.equal(ours.edge_weight, theirs.edge_weight[order])


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("transition", ["rw", "sym", "mean", None])
def test_its_graph_has_the_bits_of_the_one_in_memory(
    transition: str | None, self_loops: bool, tmp_path: Path
) -> None:
    data = made()
    store, wanted = Store.write(data, tmp_path / "s"), Graph.from_data(data, transition, self_loops)
    for graph in (
        store.graph(transition, self_loops),
        Graph.from_data(store.dataset, transition, self_loops),
    ):
        for one, other in zip(graph.matrix(), wanted.matrix(), strict=True):
            assert torch.equal(one, other)
        for one, other in zip(graph.transpose(), wanted.transpose(), strict=True):
            assert torch.equal(one, other)


def test_nothing_is_copied_before_it_is_asked_for(tmp_path: Path) -> None:
    store = Store.write(with_everything(), tmp_path / "store")
    data = store.dataset
    assert not vars(data).keys() & {"edge_index", "ids"}
    assert (data.num_edges, data.num_nodes, data.num_features) == (store.num_edges, N, 10)
    renamed = data.renamed("other")
    assert not vars(renamed).keys() & {"edge_index", "ids"}
    assert renamed.to("cpu") is renamed
    assert renamed.x.data_ptr() == data.x.data_ptr()
    assert store.graph().matrix().col.data_ptr() == store.col.data_ptr()
    assert data.encoded(0).num_features == 8
    assert data.find("n7") == 7


def test_a_change_stays_in_the_process(tmp_path: Path) -> None:
    store = Store.write(made(), tmp_path / "store")
    before = store.dataset.x.clone()
    store.dataset.x[:] = 7
    assert torch.equal(Store.open(store.folder, verify=True).dataset.x, before)


def test_another_process_opens_the_same_files(tmp_path: Path) -> None:
    data = Store.write(made(), tmp_path / "store").dataset
    small = pickle.dumps(data)
    assert len(small) < 1000
    assert pickle.loads(small).same_as(data)
    renamed = pickle.loads(pickle.dumps(data.renamed("other")))
    assert renamed.name == "other"
    assert renamed.same_as(copy.deepcopy(data))


@pytest.mark.usefixtures("sorted_in_parts")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_written_in_parts(weighted: bool, sparse: bool, tmp_path: Path) -> None:
    data = made(weighted, sparse)
    rows = [data.x.to_dense()[a : a + 13] for a in range(0, N, 13)]
    if sparse:
        rows = [row.to_sparse_csr() for row in rows]

    def edges() -> Iterator[Any]:
        for start in range(0, data.num_edges, 50):
            some = slice(start, start + 50)
            if data.edge_weight is None:
                yield data.edge_index[:, some]
            else:
                yield data.edge_index[:, some], data.edge_weight[some]

    ids = [f"n{i}" for i in range(N)]
    store = Store.create(
        tmp_path / "s", iter(rows), edges(), data.y, classes=["a", "b", "c"], ids=ids
    )
    _same(store.dataset, made(weighted, sparse, ids=ids))


EDGES = torch.tensor([[0, 1], [1, 0]])
Y = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": torch.full((2, 1), torch.nan)}, "x must be finite"),
        ({"x": torch.zeros(2, 1).double()}, r"x must be float32 \[N, F\]"),
        ({"x": torch.zeros(3, 1)}, "x has 3 rows, but there are 2 nodes"),
        ({"x": [torch.zeros(1, 1), torch.zeros(1, 2)]}, "equally wide"),
        ({"edges": EDGES + 1}, "num_nodes=2, but the adjacency has index 2"),
        ({"edges": EDGES - 1}, "negative index -1"),
        ({"edges": EDGES[0]}, r"edge_index must have shape \[2, E\]"),
        ({"edges": [(EDGES, torch.tensor([-1.0, 1.0]))]}, "non-negative edge weights"),
        ({"edges": [(EDGES, torch.ones(3))]}, "a number of at least 0 for each edge"),
        ({"edges": [EDGES, (EDGES, torch.ones(2))]}, "have weights, or none has"),
        ({"y": torch.tensor([0, 3]), "classes": ["a", "b"]}, "one of 2 classes"),
        ({"ids": ["a", "a"]}, "ids must be different"),
        ({"splits": {"own": torch.ones(3, 1).to(torch.int8)}}, "the split 'own' must be int8"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    whole: dict[str, Any] = {"x": torch.zeros(2, 1), "edges": EDGES, "y": Y, **given}
    with pytest.raises((ValueError, TypeError), match=words):
        Store.create(tmp_path / "store", **whole)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_store_is_none_and_is_written_again(tmp_path: Path) -> None:
    def parts() -> Iterator[Tensor]:
        yield torch.zeros(1, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store.create(tmp_path / "store", parts(), EDGES, Y)
    assert not (tmp_path / "store").exists()
    (tmp_path / ".store.tmp").mkdir()  # as a process leaves it that was killed
    with pytest.raises(FileError, match=r"no store in .*store: its writing was stopped"):
        Store.open(tmp_path / "store")
    Store.create(tmp_path / "store", torch.zeros(2, 1), EDGES, Y)
    assert Store.open(tmp_path / "store").num_edges == 2
    with pytest.raises(FileError, match="is there already"):
        Store.create(tmp_path / "store", torch.zeros(2, 1), EDGES, Y)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _rename(path: Path) -> None:
    path.rename(path.with_name("other"))


def _link(path: Path) -> None:
    _rename(path)
    path.symlink_to("other")


@pytest.mark.parametrize("file", ["x", "col", "rowptr", "y", "edge_weight"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_cut, r"has [\d,]+ bytes, but [\d,]+ were written"),
        (_flip, "its checksum is another one|rowptr must lead from 0 to"),
        (_rename, "is missing"),
        (_link, "it is a link"),
    ],
)
def test_a_damaged_store_is_refused(damage: Any, words: str, file: str, tmp_path: Path) -> None:
    store = Store.write(made(), tmp_path / "store")
    damage(store.folder / f"{file}.npy")
    with pytest.raises(FileError, match=words):
        Store.open(store.folder, verify=True)


def test_what_says_what_is_there_is_checked(tmp_path: Path) -> None:
    store = Store.write(made(), tmp_path / "store")
    file = store.folder / "store.json"
    written = file.read_text()
    file.write_text(written.replace('"edges": 3', '"edges": 4'))
    with pytest.raises(FileError, match="its checksum is another one"):
        Store.open(store.folder)
    file.unlink()
    with pytest.raises(FileError, match=r"is no store: store\.json is missing"):
        Store.open(store.folder)
    with pytest.raises(FileError, match="no such folder"):
        Store.open(tmp_path / "nothing")


def _written_anew(store: Store, **changes: Any) -> None:
    """store.json with changes, and a checksum that is right."""
    from subtree_attention.io import with_checksum, write_json

    file = store.folder / "store.json"
    about = json.loads(file.read_text())
    about.pop("crc32")
    write_json(file, with_checksum(about | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 9}, "its format is 9, but this version reads 1"),
        ({"shape": [N, 7]}, r"x must be \[60, 7\]"),
        ({"shape": [N]}, "is broken"),
        ({"files": {"../x": {}}}, "unknown file"),
        ({"files": {}}, "is missing"),
        ({"edges": -1}, "edges must be at least 0"),
    ],
)
def test_a_store_of_somebody_else_is_not_believed(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    store = Store.write(made(), tmp_path / "store")
    _written_anew(store, **changes)
    with pytest.raises(FileError, match=words):
        Store.open(store.folder)


def test_values_are_checked_if_that_is_asked_for(tmp_path: Path) -> None:
    store = Store.write(made(), tmp_path / "store")
    files = json.loads((store.folder / "store.json").read_text())["files"]
    for name, values, words in (
        ("col", torch.full_like(store.col, N), "has index 60"),
        ("edge_weight", -store.edge_weight, "non-negative"),
        ("y", torch.full((N,), 9), "one of 3 classes"),
        ("x", store.dataset.x.log() * 0 + torch.inf, "x must be finite"),
    ):
        path, kept = store.folder / f"{name}.npy", (store.folder / f"{name}.npy").read_bytes()
        path.unlink()
        _written_anew(store, files=files | {name: disk.write_array(path, values)})
        with pytest.raises(FileError, match=words):
            Store.open(store.folder, verify=True)
        path.write_bytes(kept)
        _written_anew(store, files=files)
    Store.open(store.folder, verify=True)


# ------------------------------------------------------------------------------------------ PyG


@pytest.mark.parametrize("sparse", [False, True])
def test_pyg_finds_features_as_in_its_own_data(sparse: bool, tmp_path: Path) -> None:
    data = made(sparse=sparse, splits=with_everything().splits)
    features = Store.write(data, tmp_path / "store").feature_store
    theirs = data.to_pyg()
    theirs.x = theirs.x.to_dense()
    names = ["x", "y", "train_mask", "val_mask", "test_mask"]
    assert [attr.attr_name for attr in features.get_all_tensor_attrs()] == names
    assert all(attr.group_name is None for attr in features.get_all_tensor_attrs())
    rows = torch.tensor([5, 0, 5, N - 1])
    for name in names:
        for index in (None, rows, slice(3, 9)):
            found = features.get_tensor(group_name=None, attr_name=name, index=index)
            wanted = theirs.get_tensor(attr_name=name, index=index)
            assert torch.equal(found.to_dense(), wanted), (name, index)
        assert features.get_tensor_size(None, name) == tuple(theirs[name].shape)
        assert features.get_tensor_size(None, name, rows)[0] == 4
        assert torch.equal(features[None, name][rows], theirs[name][rows])
    one = features.get_tensor(None, "y", np.array([7]), convert_type=True)  # PyG takes no more
    assert one.tolist() == [int(data.y[7])]
    assert features.get_tensor_size(None, "z") is None
    assert features.get_tensor_size("person", "x") is None
    with pytest.raises(ValueError, match="not fully specified"):
        features.get_tensor(None, "x")
    with pytest.raises(TypeError, match="a store is not changed"):
        features.put_tensor(torch.zeros(N), None, "z", None)
    with pytest.raises(TypeError, match="a store is not changed"):
        features.remove_tensor(None, "x", None)
    assert len(features) == N


def test_pyg_finds_edges_as_in_its_own_data(tmp_path: Path) -> None:
    data = made(weighted=False)
    store = Store.write(data, tmp_path / "store")
    edges, theirs = store.graph_store, Data(edge_index=store.dataset.edge_index, num_nodes=N)
    (row, colptr, _), (others, starts, _) = edges.csc(), theirs.csc()
    assert torch.equal(colptr, starts)
    for a, b in pairwise(colptr.tolist()):  # PyG's sort has no order among those of a node
        assert row[a:b].tolist() == sorted(others[a:b].tolist())
    assert all(map(torch.equal, edges.coo()[:2], theirs.coo()[:2]))
    assert {part.dtype for part in (*edges.csc()[:2], *edges.coo()[:2])} == {torch.int64}
    row, col = edges.get_edge_index(edge_type=None, layout="coo")
    assert torch.equal(torch.stack([row, col]), store.dataset.edge_index)
    (attr,) = edges.get_all_edge_attrs()
    assert (attr.layout.value, attr.is_sorted, attr.size) == ("csc", True, (N, N))
    with pytest.raises(KeyError, match="not found"):
        edges.get_edge_index(edge_type=None, layout="csr")
    with pytest.raises(KeyError, match="not found"):
        edges.get_edge_index(edge_type=("a", "to", "b"), layout="csc")
    with pytest.raises(TypeError, match="a store is not changed"):
        edges.put_edge_index((row, col), edge_type=None, layout="coo")


class Neighbours(BaseSampler):
    """All that send to some nodes: PyG's own samplers need pyg-lib."""

    def __init__(self, graph_store: Any) -> None:
        self.row, self.colptr, _ = graph_store.csc()

    def sample_from_nodes(self, inputs: Any, **_: Any) -> SamplerOutput:
        seeds = inputs.node
        parts = [self.row[self.colptr[i] : self.colptr[i + 1]] for i in seeds.tolist()]
        ends = torch.cat([torch.full((len(p),), at) for at, p in enumerate(parts)])
        others = torch.cat(parts)
        row = torch.arange(len(others)) + len(seeds)
        node = torch.cat([seeds, others])
        return SamplerOutput(node, row, ends, None, metadata=(inputs.input_id, inputs.time))

    def sample_from_edges(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_pyg_takes_the_pair(workers: int, tmp_path: Path) -> None:
    store = Store.write(made(weighted=False), tmp_path / "store")
    pair = store.feature_store, store.graph_store
    loader = NodeLoader(
        pair, Neighbours(pair[1]), torch.arange(N), batch_size=16, num_workers=workers
    )
    sent = torch.zeros(N, 8)
    for batch in loader:
        sums = torch.zeros(batch.num_nodes, 8).index_add_(
            0, batch.edge_index[1], batch.x[batch.edge_index[0]]
        )
        sent[batch.input_id] = sums[: batch.batch_size]
        assert torch.equal(batch.y[: batch.batch_size], store.dataset.y[batch.input_id])
    wanted = store.graph(None).dense(torch.float32) @ store.dataset.x
    torch.testing.assert_close(sent, wanted)


def test_it_is_found_among_the_datasets() -> None:
    assert datasets.Store is Store


# -------------------------------------------------------------------------------------- in a run


@pytest.fixture
def stored(tmp_path: Path) -> Store:
    data = planted(600, 2400, classes=3, features=6, seed=0)
    return Store.write(data, tmp_path / "graph.store")


def trained(stored: Store, out: Path, **more: Any) -> Path:
    config = recipe(stored.dataset, graph="mine", batch=100, num_neighbors="4", epochs=2, hops=2)
    return fit(config, out, data=stored.dataset, device="cpu", **more).folder


def test_a_run_says_where_its_store_is_and_copies_nothing(stored: Store, tmp_path: Path) -> None:
    run = open_run(trained(stored, tmp_path / "out"))
    assert (run.out / "graph.safetensors").stat().st_size < 1000
    assert isinstance(run.dataset, StoredDataset)
    assert run.scores()[2] == pytest.approx(run.result.test, abs=1e-9)
    assert predict(run.out).probabilities.shape == (600, 3)


def test_a_store_that_is_gone_or_another_one_is_named(stored: Store, tmp_path: Path) -> None:
    out = trained(stored, tmp_path / "out")
    place = stored.folder
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(
        FileError, match=r"is the store .*graph\.store, which is not there any more"
    ):
        _ = open_run(out).dataset
    Store.write(planted(600, 2400, classes=3, features=6, seed=1), place)
    with pytest.raises(FileError, match=r"is another one than .*graph\.safetensors was made with"):
        _ = open_run(out).dataset


def test_a_run_goes_on_with_the_store_it_was_begun_on(stored: Store, tmp_path: Path) -> None:
    out = trained(stored, tmp_path / "out")
    assert trained(stored, tmp_path / "out", resume=True) == out
    other = Store.write(planted(600, 2400, classes=3, features=6, seed=1), tmp_path / "other")
    (out / "summary.json").unlink()
    with pytest.raises(FileError, match="was started on another graph"):
        trained(other, out, resume=True)


def test_tables_are_trained_on_from_disk(tmp_path: Path, in_process: Callable[..., Any]) -> None:
    write_tables(planted(600, 2400, classes=3, features=6, seed=0), tmp_path / "tables", parts=2)
    sta = in_process(cli.main)
    tables = "--nodes", "tables/nodes", "--edges", "tables/edges", "--target", "class"
    how = "--num-neighbors", "4", "--hops", "2", "--epochs", "2", "--device", "cpu"
    code, said, errors = sta("train", *tables, *how, "--store", "mine.store", "--out", "first")
    assert code == 0, errors
    assert "600 nodes" in said
    code, _, errors = sta("train", "--store", "mine.store", *how, "--out", "second")
    assert code == 0, errors
    ours, theirs = (open_run(tmp_path / name).result.test for name in ("first", "second"))
    assert ours == theirs
    for given, words in (
        (("--store", "mine.store", "--target", "class"), "leave out --target"),
        ((*tables, "--store", "mine.store"), "mine.store is there already"),
        (("--store", "nothing"), "nothing"),
        (("cora", "--store", "mine.store"), "--store is for tables of your own"),
    ):
        code, _, errors = sta("train", *given, "--out", "third")
        assert (code, words in errors) == (2, True), errors
    assert not (tmp_path / "third").exists()
