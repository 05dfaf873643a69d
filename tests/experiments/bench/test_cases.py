"""Graphs and random shapes that the benchmark runs on."""

import pytest
import torch

from experiments.bench import cases
from subtree_attention import datasets

CPU = torch.device("cpu")


def test_a_shape_has_its_sizes_and_no_loops():
    case = cases.from_shape("50,400,12,3", CPU)
    about = case.to_dict()
    sizes = [about[name] for name in ("nodes", "edges", "features", "classes")]
    assert sizes == [50, 400, 12, 3]
    source, target = case.data.edge_index
    assert (source != target).all()
    assert case.data.x.layout == torch.strided
    assert (torch.stack(case.split).sum(0) == 1).all()
    assert "uniform" in case.note
    assert (case.config.model.hops, case.config.model.heads) == (3, 4)


def test_a_shape_is_the_same_every_time():
    first, second = (cases.from_shape("50,400,12,3", CPU).data for _ in range(2))
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.x, second.x)


def test_many_features_are_sparse_words():
    x = cases.from_shape("100,400,2000,3", CPU).data.x
    assert x.layout == torch.sparse_csr
    assert x.values().numel() / x.numel() == pytest.approx(cases.WORD_DENSITY, rel=0.05)
    torch.testing.assert_close(x.to_dense().sum(1), torch.ones(100))


def test_named_shapes_have_the_published_sizes():
    assert cases.parse_shape("corafull") == cases.Shape(19_793, 126_720, 8_710, 70, 0.0065)
    assert cases.parse_shape("arxiv") == cases.Shape(169_343, 2_314_735, 128, 40)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arxive", "Did you mean 'arxiv'"),
        ("1,2,3", "four whole numbers"),
        ("a,b,c,d", "four whole numbers"),
        ("1,10,3,2", "NODES of a shape must be at least 4"),
        ("10,10,3,1", "CLASSES of a shape must be at least 2"),
    ],
)
def test_what_is_no_shape_is_refused_in_words(text, message):
    with pytest.raises(ValueError, match=message):
        cases.parse_shape(text)


def test_an_embedded_graph_is_prepared_by_its_recipe():
    case = cases.from_registry("digits", CPU)
    assert case.data.num_features == 64 + case.config.data.encoding
    assert set(case.preparation) == {"load", "encoding", "graph"}
    assert case.classes == 10


def test_a_graph_is_read_from_its_raw_files_although_it_is_cached(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("STA_DATA", str(tmp_path))
    datasets.load("cora").encoded(3)
    assert datasets.where("cora").status == "cached"
    kept = sorted(tmp_path.rglob("*"))
    case = cases.from_registry("cora", CPU)
    assert case.note == "read from raw files"
    assert case.graph.num_edges == 10_556
    assert case.preparation["encoding"] > 0.01  # computed anew, and not kept
    assert sorted(tmp_path.rglob("*")) == kept
