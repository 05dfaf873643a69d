"""Graphs of OGB: small ones in its own layout, through its own package."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import subtree_attention as sta
from subtree_attention.datasets import MissingData
from subtree_attention.datasets.ogb import ogb_metric, ogb_scores
from subtree_attention.runs import evaluate
from tests.test_cli import sta as command

NODES = 90


def write(folder: Path, split: str, parts: dict[str, Any], **tables: Any) -> Path:
    """Tables as OGB packs them, each without a header, and a split of that name."""
    for name in ("raw", "processed", f"split/{split}"):
        (folder / name).mkdir(parents=True)
    (folder / "RELEASE_v1.txt").write_text("made up")
    named = {f"raw/{n.replace('__', '-')}": table for n, table in tables.items()}
    named |= {f"split/{split}/{n}": part for n, part in parts.items()}
    for name, table in named.items():
        frame = pd.DataFrame(np.asarray(table))
        frame.to_csv(folder / f"{name}.csv.gz", header=False, index=False)
    return folder


def parts_of(count: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng(1).permutation(count)
    parts = order[: count // 2], order[count // 2 : 3 * count // 4], order[3 * count // 4 :]
    return dict(zip(("train", "valid", "test"), parts, strict=True))


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    """Papers that cite others of their class, as ogbn-arxiv lies on disk; the folder above."""
    rng = np.random.default_rng(0)
    y = np.arange(NODES) % 3
    edges = np.array([(i, j) for i in range(NODES) for j in rng.integers(0, NODES, 8)])
    edges = edges[(y[edges[:, 0]] == y[edges[:, 1]]) & (edges[:, 0] < edges[:, 1])]
    write(
        tmp_path / "ogb" / "ogbn_arxiv",
        "time",
        parts_of(NODES),
        edge=edges,
        num__node__list=[NODES],
        num__edge__list=[len(edges)],
        node__feat=rng.normal(size=(NODES, 4)).round(3) + y[:, None],
        node__label=y[:, None],
        node_year=np.full((NODES, 1), 2017),
    )
    return tmp_path


def molecules(folder: Path) -> Path:
    """Rings and paths of atoms, as ogbg-molhiv lies on disk."""
    sizes = [5 + number % 4 for number in range(40)]
    edges = [[(i, i + 1) for i in range(n - 1)] + [(0, n - 1)] * (n % 2) for n in sizes]
    count = sum(map(len, edges))
    write(
        folder / "ogbg_molhiv",
        "scaffold",
        parts_of(40),
        edge=np.concatenate([np.array(some) for some in edges]),
        num__node__list=sizes,
        num__edge__list=[len(some) for some in edges],
        node__feat=np.stack([np.arange(sum(sizes)) % 3, np.arange(sum(sizes)) % 2], 1),
        edge__feat=np.zeros((count, 3), dtype=int),
        graph__label=[n % 2 for n in sizes],
    )
    return folder


def proteins(folder: Path) -> Path:
    """Nodes without features, edges with some, and 112 labels, as ogbn-proteins lies on disk."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, NODES, (200, 2))
    write(
        folder / "ogbn_proteins",
        "species",
        parts_of(NODES),
        edge=edges,
        num__node__list=[NODES],
        num__edge__list=[200],
        edge__feat=rng.random((200, 8)).round(3),
        node__label=rng.integers(0, 2, (NODES, 112)),
        node_species=np.zeros((NODES, 1), dtype=int),
    )
    return folder


def test_nodes_come_with_their_split_and_edges_in_both_directions(arxiv: Path) -> None:
    for _ in range(2):  # read from its tables, and from what OGB has kept of them
        data = sta.from_ogb("ogbn-arxiv", arxiv / "ogb")
        assert (data.num_nodes, data.num_features, data.num_classes) == (NODES, 4, 3)
        assert data.target == "class"
        backwards = {(int(b), int(a)) for a, b in data.edge_index.t()}
        assert {(int(a), int(b)) for a, b in data.edge_index.t()} == backwards
        split = data.split("own", 0)
        for mask, part in zip(split, parts_of(NODES).values(), strict=True):
            assert mask.nonzero().flatten().tolist() == sorted(part)


def test_graphs_have_a_column_for_each_value_of_their_atoms(tmp_path: Path) -> None:
    data = sta.from_ogb("ogbg-molhiv", molecules(tmp_path))
    assert (data.unit, data.num_units, data.num_classes) == ("graph", 40, 2)
    x = data.x.to_dense()
    assert x.shape[1] == 3 + 2
    assert x[:3].tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0]]
    assert [int(part.sum()) for part in data.split("own", 0)] == [20, 10, 10]


def test_nodes_without_features_get_the_means_of_their_edges(tmp_path: Path) -> None:
    folder = proteins(tmp_path)
    data = sta.from_ogb("ogbn-proteins", folder)
    assert (data.target, data.num_classes) == ("labels", 112)
    raw = folder / "ogbn_proteins" / "raw"
    edges, features = (
        pd.read_csv(raw / f"{name}.csv.gz", header=None).to_numpy()
        for name in ("edge", "edge-feat")
    )
    node = int(edges[0, 0])
    ends = np.concatenate([edges[:, 1], edges[:, 0]])  # OGB adds the other direction
    expected = np.concatenate([features, features])[ends == node].mean(0)
    np.testing.assert_allclose(data.x.to_dense()[node], expected, atol=1e-6)


def test_a_graph_in_its_layout_that_it_does_not_list(tmp_path: Path, monkeypatch: Any) -> None:
    """OGB's binary layout, as papers100M has it: most classes are not known there."""
    monkeypatch.setitem(sys.modules, "outdated", None)
    from ogb.io import DatasetSaver

    rng = np.random.default_rng(0)
    saver = DatasetSaver("ogbn-mine", is_hetero=False, version=1, root=str(tmp_path / "out"))
    graph = {"edge_index": rng.integers(0, NODES, (2, 200)), "num_nodes": NODES}
    saver.save_graph_list([graph | {"node_feat": rng.random((NODES, 5)).astype(np.float32)}])
    y = rng.integers(0, 3, (NODES, 1)).astype(np.float64)
    y[:4] = np.nan
    saver.save_target_labels(y)
    saver.save_split(parts_of(NODES), "random")
    mapping = tmp_path / "mapping"
    mapping.mkdir()
    (mapping / "README.md").write_text("nothing")
    saver.copy_mapping_dir(str(mapping))
    saver.save_task_info("multiclass classification", "acc", 3)
    for _ in range(2):
        data = sta.from_ogb("ogbn-mine", tmp_path, meta_dict=saver.get_meta_dict())
        assert data.y[:4].tolist() == [-1] * 4
        assert data.y[4:].tolist() == y[4:, 0].tolist()


def test_it_trains_by_name_and_ogb_has_the_last_word(arxiv: Path, tmp_path: Path) -> None:
    words = "train", "ogbn-arxiv", "--epochs", "30", "--hidden-channels", "8", "--out", "run"
    for more in ([], ["--resume"]):  # at the second time it is done
        done = command(*words, *more, cwd=tmp_path, STA_DATA=str(arxiv))
        assert done.returncode == 0, done.stderr
    (score,) = evaluate(tmp_path / "run")
    assert score.run.config.data.split == "own"
    assert score.test > 0.6
    said = command("evaluate", "run", cwd=tmp_path).stdout
    assert f"test acc {score.test:.4f}" in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "metric"),
    [("ogbn-arxiv", "accuracy"), ("ogbn-proteins", "roc_auc"), ("ogbg-molesol", "rmse")],
)
def test_what_is_compared(name: str, metric: str) -> None:
    assert ogb_metric(name) == metric


def test_evaluators_get_what_they_ask_for() -> None:
    rng = np.random.default_rng(0)
    y, logits = rng.integers(0, 2, 50), rng.normal(size=(50, 2))
    from sklearn.metrics import roc_auc_score

    expected = roc_auc_score(y, logits[:, 1] - logits[:, 0])
    assert ogb_scores("ogbg-molhiv", y, logits) == {"rocauc": pytest.approx(expected)}
    assert ogb_scores("ogbn-arxiv", y, logits) == {
        "acc": pytest.approx((y == logits.argmax(1)).mean())
    }
    numbers = ogb_scores("ogbg-molesol", y + 0.5, y.astype(float))
    assert numbers == {"rmse": pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ogbl-collab", "brings pairs of its own"),
        ("ogbn-arxif", "Did you mean 'ogbn-arxiv'"),
        ("cora", "is called ogbn-... or ogbg-..."),
    ],
)
def test_other_names_are_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sta.from_ogb(name)


def test_files_that_are_nowhere_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ogb.utils.url

    def unreachable(*_: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(ogb.utils.url.ur, "urlopen", unreachable)
    with pytest.raises(MissingData, match=r"no route to host\)\. Unpack OGB's archive of it into"):
        sta.from_ogb("ogbn-arxiv", tmp_path)


def test_without_ogb_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ogb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(ModuleNotFoundError, match=r"subtree-attention\[ogb\]"):
        sta.from_ogb("ogbn-arxiv")


def test_torch_reads_nothing_else_for_it(tmp_path: Path) -> None:
    """What OGB would unpickle from a foreign file does not run."""
    folder = molecules(tmp_path)
    sta.from_ogb("ogbg-molhiv", folder)
    kept = folder / "ogbg_molhiv" / "processed" / "geometric_data_processed.pt"
    torch.save({"graph": Path}, kept)
    with pytest.raises(Exception, match="Weights only load failed"):
        sta.from_ogb("ogbg-molhiv", folder)
