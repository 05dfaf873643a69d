"""A graph with all that is known of it: what is refused, splits, names, and its one file."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention import datasets
from subtree_attention.datasets import Dataset, as_dataset, read
from subtree_attention.datasets.dataset import _checksum
from subtree_attention.datasets.features import compact, from_scipy
from subtree_attention.datasets.splits import labelled_split, own_codes, random_split
from subtree_attention.io import FileError, read_tensors, write_tensors
from tests.samples import friends, people

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def small(**changes: Any) -> Dataset:
    """A ring of four nodes with everything that a graph can have."""
    parts: dict[str, Any] = {
        "x": torch.tensor([[1.0, 0], [0, 2], [3, 0], [0, 4]]),
        "edge_index": EDGES,
        "y": torch.tensor([0, 1, -1, 1]),
        "edge_weight": torch.tensor([1.0, 2, 3, 4]),
        "name": "ring",
        "classes": ("yes", "no"),
        "ids": ["ann", "bob", "cem", "dän"],
        "splits": {"own": torch.tensor([[1], [2], [0], [4]], dtype=torch.int8)},
        "source": "a test",
    }
    return Dataset(**{**parts, **changes})


@pytest.fixture(scope="module")
def tables() -> Dataset:
    nodes = people() | {"part": ["train", "val", "test"] * 20}
    how = {"target": "label", "weight": "strength", "split_column": "part"}
    return sta.from_tables(nodes, friends(), **how)


# -------------------------------------------------------------------------------- the validator


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.ones(4, 2, dtype=torch.float64)}, r"x must be float32 \[N, F\]"),
        ({"x": torch.ones(4)}, r"x must be float32 \[N, F\]"),
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, "x must hold floating-point numbers"),
        ({"x": [[1.0]] * 4}, r"x must be a torch\.Tensor"),
        ({"x": torch.full((4, 2), torch.nan)}, "x must be finite, but 8 of 8 values are not"),
        ({"x": torch.ones(4, 2).to_sparse_coo()}, "x must be dense or CSR"),
        ({"edge_index": EDGES + 1}, r"edge_index names a node outside 0\.\.3"),
        ({"edge_index": EDGES - 1}, r"edge_index names a node outside 0\.\.3"),
        ({"edge_index": EDGES.flatten()}, r"edge_index must be int64 \[2, E\]"),
        ({"edge_index": EDGES.float()}, r"edge_index must be int64 \[2, E\]"),
        ({"edge_weight": torch.ones(3)}, "edge_weight must be a number of at least 0 for each"),
        ({"edge_weight": -torch.ones(4)}, "edge_weight must be a number of at least 0"),
        ({"edge_weight": torch.full((4,), torch.inf)}, "edge_weight must be a number"),
        ({"y": torch.zeros(3).long()}, "y must be a whole number for each of 4 nodes"),
        ({"y": torch.zeros(4)}, "y holds numbers, which have no classes"),
        ({"y": torch.zeros(4, 2).half()}, "y must be float32 or float64"),
        (
            {"y": torch.zeros(4, 3)},
            r"must be \[4, labels\], each with a name, got \[4, 3\] and 2",
        ),
        ({"y": torch.full((4, 2), 0.5)}, "y of labels must be 0 or 1, and NaN where"),
        ({"y": torch.full((4,), torch.inf), "classes": ()}, "y must be finite, and NaN where"),
        ({"y": torch.zeros(3), "classes": ()}, "y must be a number for each of 4 nodes"),
        ({"y": torch.tensor([0, 1, 2, 1])}, "y must be one of 2 classes from 0"),
        ({"y": torch.tensor([0, 1, -2, 1])}, "one of 2 classes from 0, and -1 where it is not"),
        ({"own": False, "name": "photo"}, "y must be one of 2 classes from 0, and no other"),
        ({"own": False}, "unknown graph 'ring'"),
        ({"classes": ("yes",), "y": torch.zeros(4).long()}, "1 class: two are needed"),
        ({"classes": ("yes", "yes")}, "names of the classes must be different"),
        ({"ids": ["a", "b", "c"]}, "ids must be different, one for each of 4 nodes"),
        ({"ids": ["a", "b", "c", "a"]}, "ids must be different"),
        ({"ids": ["a", "b", "c", 1]}, "ids must be a list of texts"),
        ({"splits": {"mine": torch.zeros(4, 1).char()}}, "unknown kind of split 'mine'"),
        ({"splits": {"own": torch.zeros(4).char()}}, r"split 'own' must be int8 \[4, S\]"),
        ({"splits": {"own": torch.full((4, 1), 9).char()}}, "codes that mean nothing"),
        ({"splits": {"own": torch.ones(4, 1).char()}}, "names nodes without a label"),
        ({"encoding": torch.ones(3, 2)}, r"encoding must be float32 \[4, m\]"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"a test: .*{message}"):
        small(**changes)


def test_what_is_not_given_has_a_meaning() -> None:
    data = Dataset(torch.ones(4, 1), EDGES, torch.tensor([0, 2, -1, 1]))
    assert (data.classes, data.ids, data.own) == (("0", "1", "2"), None, True)
    assert data.node_ids == ["0", "1", "2", "3"]
    assert small(ids=["0", "1", "2", "3"]).ids is None  # they are called by their numbers
    assert Dataset(torch.ones(4, 1), EDGES, torch.full((4,), -1)).num_classes == 0
    assert repr(data) == "Dataset(graph: 4 nodes, 4 edges, 1 features, 3 classes)"


def test_nodes_and_classes_are_found_by_their_names() -> None:
    data = small()
    assert (data.id(3), data.find("dän"), data.label(1), data.label(2)) == ("dän", 3, "no", None)
    assert [data.find_class(name) for name in ("no", "1", 0)] == [1, 1, 0]
    with pytest.raises(ValueError, match=r"no node 'bobb' among 4 ids\. Near: 'bob'"):
        data.find("bobb")
    with pytest.raises(ValueError, match="unknown class 'na'"):
        data.find_class("na")
    with pytest.raises(ValueError, match="no node '4': this graph has nodes 0 to 3"):
        replace(data, ids=None).find("4")


# -------------------------------------------------------------------------------------- splits


def test_splits_of_the_registry_are_over_all_nodes() -> None:
    data = datasets.load("digits")
    for kind, seed in (("A", 3), ("B", 0)):
        expected = random_split(1797, kind, seed)
        assert all(map(torch.equal, data.split(kind, seed), expected))
    assert torch.equal(data.split().train, data.split("B", 0).train)  # its protocol
    with pytest.raises(ValueError, match=r"'digits' has no split 'own'; it has A, B$"):
        data.split("own")


def test_splits_of_ones_own_graph_are_class_by_class(tables: Dataset) -> None:
    expected = labelled_split(tables.y, "A", 5)
    assert all(map(torch.equal, tables.split("A", 5), expected))
    assert torch.equal(tables.split().val, tables.split("B", 0).val)
    own = tables.split("own", 7)  # one split, whatever the run
    assert torch.equal(own.train | own.val | own.test, tables.y >= 0)
    assert [own.part(node) for node in (1, 2, 0)] == ["val", "test", None]
    with pytest.raises(ValueError, match="unknown split of a graph of one's own 'fixed'"):
        tables.split("fixed")
    with pytest.raises(ValueError, match="no split of its own: name its column"):
        replace(tables, splits={}).split("own")


def test_masks_that_overlap_stay_as_they_are() -> None:
    train, both = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    split = datasets.Split.from_codes(own_codes(train, both, both)[:, 0])
    assert all(map(torch.equal, split, (train, both, both)))


# ------------------------------------------------------------------------------------ encoding


@pytest.mark.parametrize("layout", [torch.Tensor.clone, compact])
def test_the_encoding_stands_beside_the_features(layout: Callable) -> None:
    data = small(x=layout(torch.eye(4, 64)))
    more = data.encoded(2)
    assert (data.num_features, more.num_features) == (64, 66)
    expected = datasets.LaplacianEncoding(2)(Data(x=data.x, edge_index=EDGES, num_nodes=4))
    assert torch.equal(more.features.to_dense(), expected.x.to_dense())
    assert more.features.layout == data.x.layout
    assert more.encoded(2) is more
    assert more.encoded(0).features is data.x
    with pytest.raises(ValueError, match="number of eigenvectors"):
        data.encoded(-1)


def test_eigenvectors_of_the_registry_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from subtree_attention.datasets import encoding as module

    data = replace(datasets.load("digits"), kept_in=tmp_path / "processed")
    first = data.encoded(2).encoding
    (file,) = (tmp_path / "processed").iterdir()
    content = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "laplacian_eigenvectors", None)
        assert torch.equal(data.encoded(2).encoding, first)
        with pytest.raises(TypeError):
            data.encoded(3)  # others are not there yet
    for damage in (b"", content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damage)
        assert torch.equal(data.encoded(2).encoding, first)
        assert file.read_bytes() == content
    other = replace(data, edge_index=data.edge_index[:, :-40])
    assert not torch.equal(other.encoded(2).encoding, first)


def test_a_folder_that_cannot_be_written_to_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = replace(small(), kept_in=tmp_path / "file")
    assert data.encoded(1).encoding.shape == (4, 1)


# ---------------------------------------------------------------------------------------- file


def same(a: Dataset, b: Dataset) -> bool:
    words = ("name", "classes", "ids", "schema", "notes", "own", "source")
    assert all(getattr(a, name) == getattr(b, name) for name in words)
    assert torch.equal(a.x.to_dense(), b.x.to_dense())
    assert a.x.layout == b.x.layout
    for name in ("edge_index", "y", "edge_weight", "encoding"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or (torch.equal(ours, theirs) and ours.dtype == theirs.dtype)
    assert a.splits.keys() == b.splits.keys()
    return all(torch.equal(codes, b.splits[kind]) for kind, codes in a.splits.items())


@pytest.mark.parametrize("changes", [{}, {"ids": None, "edge_weight": None, "splits": {}}])
@pytest.mark.parametrize("layout", [torch.Tensor.clone, compact])
def test_a_file_gives_all_back(layout: Callable, changes: dict, tmp_path: Path) -> None:
    data = small(x=layout(torch.eye(4, 64)), **changes).encoded(2)
    data.save(tmp_path / "graph.safetensors")
    assert same(read(tmp_path / "graph.safetensors"), data)
    assert same(read(tmp_path), data)  # the folder will do
    assert [path.name for path in tmp_path.iterdir()] == ["graph.safetensors"]
    with safe_open(tmp_path / "graph.safetensors", "pt") as file:
        assert json.loads(file.metadata()["json"])["format"] == 3
        assert file.get_tensor("edge_index").dtype == torch.int32


def test_tables_come_back_with_columns_and_notes(tables: Dataset, tmp_path: Path) -> None:
    tables.save(tmp_path / "graph")
    again = read(tmp_path / "graph")
    assert same(again, tables)
    assert again.same_as(tables)
    assert again.fingerprint() == tables.fingerprint()
    assert not replace(tables, y=tables.y.flip(0), splits={}).same_as(tables)


def test_a_million_ids_take_a_moment(tmp_path: Path) -> None:
    count = 10**6
    ids = [f"node {i}" for i in range(count)]
    data = Dataset(torch.ones(count, 1), EDGES, torch.arange(count) % 2, ids=ids)
    start = time.perf_counter()
    data.save(tmp_path / "graph")
    assert read(tmp_path / "graph").ids == ids
    assert time.perf_counter() - start < 10  # about one second on an idle core


def spoiled(change: Callable[[dict, dict], object]) -> Callable[[Path], None]:
    """Change the content of a file, and its checksum with it."""

    def spoil(path: Path) -> None:
        tensors, header = read_tensors(path)
        change(tensors, header)
        write_tensors(path, tensors, header)

    return spoil


def of_format_2(change: Callable[[dict, dict], object]) -> Callable[[Path], None]:
    """As that format had it, whose header had the checksum; changed without it."""

    def spoil(path: Path) -> None:
        tensors, header = read_tensors(path)
        header["format"] = 2
        header["checksum"] = _checksum(tensors, header)
        change(tensors, header)
        write_tensors(path, tensors, header)

    return spoil


def far_outside(tensors: dict, header: dict) -> None:
    """Features in compressed rows that point far outside."""
    tensors |= {"x_values": torch.ones(4), "x_columns": torch.full((4,), 10**9)}
    tensors["x_row_starts"] = torch.arange(5)
    del tensors["x"]


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (lambda path: path.unlink(), "is missing"),
    "cut": (lambda path: path.write_bytes(b"abc"), "cannot be read"),
    "a pickle": (lambda path: path.write_bytes(b"\x80\x04K\x01."), "cannot be read"),
    "a byte": (of_format_2(lambda t, h: t["x"].add_(1)), "changed or is damaged"),
    "a word": (of_format_2(lambda t, h: h.update(name="other")), "changed or is"),
    "newer": (
        spoiled(lambda t, h: h.update(format=4)),
        "its format is 4, but",
    ),
    "no classes": (spoiled(lambda t, h: h.pop("classes")), "'classes' is missing"),
    "no labels": (spoiled(lambda t, h: t.pop("y")), "'y' is missing"),
    "edges": (spoiled(lambda t, h: t["edge_index"].add_(4)), "names a node outside 0..3"),
    "labels": (spoiled(lambda t, h: t["y"].add_(9)), "y must be one of 2 classes"),
    "features": (spoiled(lambda t, h: h.update(shape=[4, 3])), "x is not float32"),
    "infinite": (spoiled(lambda t, h: t["x"].div_(0)), "x must be finite"),
    "sizes": (spoiled(lambda t, h: h.update(shape=[4, "many"])), "must be an integer"),
    "sparse": (spoiled(far_outside), "is broken"),
    "ids": (spoiled(lambda t, h: t["ids"].fill_(7)), "is broken"),
    "schema": (spoiled(lambda t, h: h.update(schema={})), "no schema of tables"),
    "notes": (spoiled(lambda t, h: h.update(notes=[1])), "no notes of tables"),
    "split": (spoiled(lambda t, h: t["split_own"].add_(9)), "codes that mean nothing"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_or_hostile_file_is_a_plain_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.safetensors"
    small().save(path)
    spoil, message = HOSTILE[name]
    spoil(path)
    with pytest.raises(FileError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


# -------------------------------------------------------------------------------- older folders


def write_format_1(folder: Path, data: Dataset, **changes: Any) -> None:
    """A graph as it was written before the format had a number: three files."""
    about = {
        "ids.json": data.node_ids,
        "columns.json": {
            "classes": list(data.classes),
            "recipe": data.schema.to_dict(),
            "report": {
                "columns": data.notes.to_dict()["columns"],
                "notes": data.notes.words,
            },
        },
    }
    for name, content in (about | changes).items():
        (folder / name).write_text(json.dumps(content))
    tensors = {"edge_index": data.edge_index.int(), "y": data.y, "edge_weight": data.edge_weight}
    x = {"x": data.x}
    if data.x.layout == torch.sparse_csr:
        parts = (data.x.values(), data.x.col_indices(), data.x.crow_indices())
        x = dict(zip(("x_values", "x_columns", "x_row_starts"), parts, strict=True))
    masks = dict(zip(("train_mask", "val_mask", "test_mask"), data.split("own"), strict=True))
    header = {"json": json.dumps({"num_features": data.x.size(1)})}
    save_file(tensors | x | masks, folder / "graph.safetensors", header)


def test_an_older_folder_is_read(tables: Dataset, tmp_path: Path) -> None:
    write_format_1(tmp_path, tables)
    again = read(tmp_path)
    notes = replace(tables.notes, warnings=[])  # these were not there, and the source not kept
    assert same(again, replace(tables, source="", notes=notes))
    assert again.fingerprint() == tables.fingerprint()
    sparse = from_scipy(torch.eye(60, tables.x.size(1)).numpy())
    write_format_1(tmp_path, replace(tables, x=sparse))
    assert torch.equal(read(tmp_path).x.to_dense(), sparse.to_dense())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids.json": ["p1", *people()["id"][1:]]}, "ids must be different"),
        ({"ids.json": people()["id"][:-1]}, "is broken"),
        ({"ids.json": list(range(60))}, "ids must be a list of texts"),
        ({"columns.json": {"a": 1}}, "'report' is missing"),
        ({"columns.json": [1]}, "is broken"),
    ],
)
def test_an_older_folder_that_is_broken_is_refused(
    changes: dict, message: str, tables: Dataset, tmp_path: Path
) -> None:
    write_format_1(tmp_path, tables, **changes)
    with pytest.raises(FileError, match=message):
        read(tmp_path)
    (tmp_path / "ids.json").unlink()
    with pytest.raises(FileError, match=r"ids\.json is missing"):
        read(tmp_path)


# ----------------------------------------------------------------------------------------- PyG


def test_pyg_and_back(tables: Dataset) -> None:
    data = tables.to_pyg()
    again = as_dataset(data)
    assert again.same_as(tables)
    assert again.own
    assert data.num_classes == 3
    assert torch.equal(data.val_mask, tables.split("own").val)
    assert torch.equal(tables.to_pyg(tables.split("A", 1)).test_mask, tables.split("A", 1).test)
    assert "train_mask" not in replace(tables, splits={}).to_pyg()
    assert tables.encoded(2).to_pyg().x.size(1) == tables.num_features + 2


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(TypeError, match="a graph is a Dataset or a PyG Data, got int"):
        as_dataset(3)
