"""The table of graphs: names, suggestions, and addresses that stay those of PyG."""

import subprocess
import sys

import pytest
from torch_geometric import datasets as pyg

from subtree_attention import datasets
from subtree_attention.datasets.registry import sha256

PAPER = ["cora", "citeseer", "deezer", "actor", "pubmed"]
PAPER += ["corafull", "computer", "photo", "cs", "physics"]
COLLECTIONS = ["mutag", "enzymes", "proteins"]


def test_knows_the_graphs_of_the_paper_and_others():
    assert datasets.names() == ("digits", *PAPER, "cora-ml", "minesweeper", *COLLECTIONS)


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


def test_minesweeper_goes_by_its_own_splits():
    # Seed 0 of "B" would put all mines into training.
    assert datasets.info("minesweeper").protocol == "own"


@pytest.mark.parametrize("name", datasets.names())
def test_classes_have_names_or_numbers(name):
    graph = datasets.info(name)
    assert len(set(graph.classes)) == graph.num_classes
    numbered = name in ("digits", "deezer", "actor", "corafull", "computer", "photo")
    numbered |= name in ("cs", "physics")
    assert (graph.classes == tuple(map(str, range(graph.num_classes)))) == numbered


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        # Nodes of each class as the makers of the graphs count them.
        ("cora", {"Case-Based": 298, "Genetic Algorithms": 418, "Neural Networks": 818}),
        ("cora", {"Probabilistic Methods": 426, "Reinforcement Learning": 217}),
        ("cora", {"Rule Learning": 180, "Theory": 351}),
        ("citeseer", {"Agents": 596, "DB": 701, "IR": 668, "ML": 590, "HCI": 508}),
        ("pubmed", {"Diabetes Mellitus, Experimental": 4103, "Diabetes Mellitus Type 1": 7739}),
        ("minesweeper", {"mine": 2000}),
    ],
)
def test_the_names_of_classes_fit_their_sizes(name, sizes, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror)
    counts = dict(zip(data.classes, data.y.bincount().tolist(), strict=True))
    assert sizes.items() <= counts.items()


def test_no_torch_is_needed_to_know_the_graphs():
    code = "import sys; from subtree_attention import datasets; datasets.info('cora').protocol; "
    code += "print({'torch', 'torch_geometric', 'numpy', 'scipy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


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
        *((name, pyg.TUDataset.url) for name in COLLECTIONS),
    ],
)
def test_addresses_are_those_of_pyg(name, address):
    assert all(url.startswith(address) for url in datasets.info(name).urls)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "actor", *COLLECTIONS])
def test_every_file_of_a_set_has_a_checksum(name):
    graph = datasets.info(name)
    assert all(f"{graph.raw_dir}/{file}" in sha256() for file in graph.raw_files)
