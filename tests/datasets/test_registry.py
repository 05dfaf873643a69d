"""The table of graphs: names, suggestions, and addresses that stay those of PyG."""

import pytest
from torch_geometric import datasets as pyg

from subtree_attention import datasets
from subtree_attention.datasets.checksums import SHA256

PAPER = ["cora", "citeseer", "deezer", "actor", "pubmed"]
PAPER += ["corafull", "computer", "photo", "cs", "physics"]


def test_knows_the_graphs_of_the_paper_and_three_more():
    assert datasets.names() == ("digits", *PAPER, "cora-ml", "minesweeper")


def test_upper_and_lower_case_are_the_same():
    assert datasets.info("CoraFull") is datasets.info("corafull")


@pytest.mark.parametrize(("typo", "meant"), [("citeser", "citeseer"), ("corra", "cora")])
def test_an_unknown_name_suggests_a_near_one_and_lists_all(typo, meant):
    with pytest.raises(
        ValueError, match=f"unknown graph '{typo}'.*mean.*'{meant}'.*Known.*physics"
    ):
        datasets.info(typo)


def test_a_name_like_no_other_still_lists_all():
    with pytest.raises(ValueError, match=r"unknown graph 'zzz'\. Known: digits, cora"):
        datasets.load("zzz")


@pytest.mark.parametrize("name", PAPER)
def test_protocol_of_the_paper(name):
    expected = "A" if name in ("cora", "citeseer", "deezer", "actor") else "B"
    assert datasets.info(name).protocol == expected


@pytest.mark.parametrize("name", datasets.names())
def test_metric(name):
    two_classes = name in ("deezer", "minesweeper")
    assert datasets.info(name).metric == ("roc_auc" if two_classes else "accuracy")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("cora", pyg.Planetoid.url),
        ("citeseer", pyg.Planetoid.url),
        ("pubmed", pyg.Planetoid.url),
        ("actor", pyg.Actor.url),
        ("corafull", pyg.CitationFull.url.format("cora")),
        ("cora-ml", pyg.CitationFull.url.format("cora_ml")),
        ("computer", pyg.Amazon.url),
        ("photo", pyg.Amazon.url),
        ("cs", pyg.Coauthor.url),
        ("physics", pyg.Coauthor.url),
        ("minesweeper", pyg.HeterophilousGraphDataset.url),
    ],
)
def test_addresses_are_those_of_pyg(name, address):
    assert all(url.startswith(address) for url in datasets.info(name).urls)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "actor"])
def test_every_file_of_a_set_has_a_checksum(name):
    graph = datasets.info(name)
    assert all(f"{graph.raw_dir}/{file}" in SHA256 for file in graph.raw_files)
