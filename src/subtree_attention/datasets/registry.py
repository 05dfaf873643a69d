"""The table of graphs that `load` knows: what each one holds, and where its raw files come from.

Counts are those after our own preprocessing; a file that gives other counts is another graph.
"""

from dataclasses import dataclass
from typing import Literal

from .. import _check
from . import readers
from .readers import Reader

_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_CITATION_FULL = "https://github.com/abojchevski/graph2gauss/raw/master/data"
_GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
_HETEROPHILOUS = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"


@dataclass(frozen=True)
class GraphInfo:
    """One graph of the registry.

    Attributes:
        name: what `load` is called with.
        title: the name to print.
        num_nodes: N.
        num_edges: directed edges after symmetrising, self-loops included.
        num_features: columns of x, before any positional encoding.
        num_classes: number of classes.
        homophily: share of the edges between different nodes whose ends have the same class;
            None where it was not measured.
        protocol: the random split that results are reported on, "A" (50/25/25) or "B" (60/20/20).
        metric: "accuracy" or "roc_auc".
        reader: from a folder with the raw files to tensors.
        raw_dir: folder of the raw files in PyG's layout, below the data folder; "" if none.
        urls: public address of each raw file; the last part of an address is the file's name.
        row_normalised: whether the rows of x are scaled to sum 1.
        self_loops: whether every node gets a self-loop.
        num_own_splits: how many splits the graph brings along (`split="own"`).
        fixed_split: file below the data folder with one fixed split (`split="fixed"`), if any.
    """

    name: str
    title: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    homophily: float | None
    protocol: Literal["A", "B"]
    reader: Reader
    raw_dir: str = ""
    urls: tuple[str, ...] = ()
    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    row_normalised: bool = True
    self_loops: bool = False
    num_own_splits: int = 0
    fixed_split: str | None = None

    @property
    def raw_files(self) -> tuple[str, ...]:
        """The names of the raw files; empty for a graph that needs none."""
        return tuple(url.rpartition("/")[2] for url in self.urls)

    @property
    def splits(self) -> tuple[str, ...]:
        """The values of `split` that this graph can be loaded with."""
        own = ("own",) if self.num_own_splits else ()
        fixed = ("fixed",) if self.fixed_split else ()
        return ("A", "B", *own, *fixed)


def names() -> tuple[str, ...]:
    """The names that `load` knows, in the paper's order."""
    return tuple(_GRAPHS)


_TABLES = (".csv", ".tsv", ".parquet")


def info(name: str) -> GraphInfo:
    """The registry's entry for a graph; upper and lower case are the same.

    Raises:
        ValueError: there is no such graph; the message suggests the nearest names.
    """
    if str(name).lower().endswith(_TABLES):
        raise ValueError(
            f"'{name}' is a table and no graph of the registry: sta train --nodes {name} --edges "
            "... --target ..., with --tune 20m to search settings too"
        )
    return _GRAPHS[_check.known("graph", str(name).lower(), _GRAPHS)]


def _planetoid_urls(name: str) -> tuple[str, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return tuple(f"{_PLANETOID}/ind.{name}.{part}" for part in parts)


def _actor_urls() -> tuple[str, ...]:
    tables = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    return (
        *(f"{_GEOM_GCN}/new_data/film/{table}" for table in tables),
        *(f"{_GEOM_GCN}/splits/film_split_0.6_0.2_{i}.npz" for i in range(10)),
    )


_GRAPHS: dict[str, GraphInfo] = {
    graph.name: graph
    for graph in (
        GraphInfo(
            name="digits",
            title="Digits",
            num_nodes=1797,
            num_edges=24678,
            num_features=64,
            num_classes=10,
            homophily=0.9557,
            protocol="B",
            reader=readers.digits,
            row_normalised=False,
        ),
        GraphInfo(
            name="cora",
            title="Cora",
            num_nodes=2708,
            num_edges=10556,
            num_features=1433,
            num_classes=7,
            homophily=0.8100,
            protocol="A",
            reader=readers.planetoid("Cora"),
            raw_dir="Planetoid/Cora/raw",
            urls=_planetoid_urls("cora"),
            num_own_splits=1,
        ),
        GraphInfo(
            name="citeseer",
            title="Citeseer",
            num_nodes=3327,
            num_edges=9104,
            num_features=3703,
            num_classes=6,
            homophily=0.7355,
            protocol="A",
            reader=readers.planetoid("CiteSeer"),
            raw_dir="Planetoid/CiteSeer/raw",
            urls=_planetoid_urls("citeseer"),
            num_own_splits=1,
        ),
        GraphInfo(
            name="deezer",
            title="Deezer",
            num_nodes=28281,
            num_edges=185504,
            num_features=31241,
            num_classes=2,
            homophily=0.5251,
            protocol="A",
            metric="roc_auc",
            reader=readers.deezer,
            raw_dir="DeezerEurope/raw",
            urls=("https://snap.stanford.edu/data/deezer_europe.zip",),
            row_normalised=False,
        ),
        GraphInfo(
            name="actor",
            title="Actor",
            num_nodes=7600,
            num_edges=60918,
            num_features=932,
            num_classes=5,
            homophily=0.2167,
            protocol="A",
            reader=readers.actor,
            raw_dir="Actor/raw",
            urls=_actor_urls(),
            self_loops=True,
            num_own_splits=10,
        ),
        GraphInfo(
            name="pubmed",
            title="Pubmed",
            num_nodes=19717,
            num_edges=88648,
            num_features=500,
            num_classes=3,
            homophily=0.8024,
            protocol="B",
            reader=readers.planetoid("PubMed"),
            raw_dir="Planetoid/PubMed/raw",
            urls=_planetoid_urls("pubmed"),
            num_own_splits=1,
        ),
        GraphInfo(
            name="corafull",
            title="CoraFull",
            num_nodes=19793,
            num_edges=126842,
            num_features=8710,
            num_classes=70,
            homophily=None,
            protocol="B",
            reader=readers.citation_full("Cora"),
            raw_dir="CitationFull/cora/raw",
            urls=(f"{_CITATION_FULL}/cora.npz",),
        ),
        GraphInfo(
            name="computer",
            title="Computer",
            num_nodes=13752,
            num_edges=491722,
            num_features=767,
            num_classes=10,
            homophily=0.7772,
            protocol="B",
            reader=readers.amazon("Computers"),
            raw_dir="Amazon/Computers/raw",
            urls=(f"{_GNN_BENCHMARK}/amazon_electronics_computers.npz",),
            fixed_split="splits/amazon-computer_split.npz",
        ),
        GraphInfo(
            name="photo",
            title="Photo",
            num_nodes=7650,
            num_edges=238162,
            num_features=745,
            num_classes=8,
            homophily=0.8272,
            protocol="B",
            reader=readers.amazon("Photo"),
            raw_dir="Amazon/Photo/raw",
            urls=(f"{_GNN_BENCHMARK}/amazon_electronics_photo.npz",),
            fixed_split="splits/amazon-photo_split.npz",
        ),
        GraphInfo(
            name="cs",
            title="CS",
            num_nodes=18333,
            num_edges=163788,
            num_features=6805,
            num_classes=15,
            homophily=0.8081,
            protocol="B",
            reader=readers.coauthor("CS"),
            raw_dir="Coauthor/CS/raw",
            urls=(f"{_GNN_BENCHMARK}/ms_academic_cs.npz",),
            fixed_split="splits/coauthor-cs_split.npz",
        ),
        GraphInfo(
            name="physics",
            title="Physics",
            num_nodes=34493,
            num_edges=495924,
            num_features=8415,
            num_classes=5,
            homophily=0.9314,
            protocol="B",
            reader=readers.coauthor("Physics"),
            raw_dir="Coauthor/Physics/raw",
            urls=(f"{_GNN_BENCHMARK}/ms_academic_phy.npz",),
            fixed_split="splits/coauthor-physics_split.npz",
        ),
        GraphInfo(
            name="cora-ml",
            title="Cora-ML",
            num_nodes=2995,
            num_edges=16316,
            num_features=2879,
            num_classes=7,
            homophily=0.7886,
            protocol="B",
            reader=readers.citation_full("Cora_ML"),
            raw_dir="CitationFull/cora_ml/raw",
            urls=(f"{_CITATION_FULL}/cora_ml.npz",),
        ),
        GraphInfo(
            name="minesweeper",
            title="Minesweeper",
            num_nodes=10000,
            num_edges=78804,
            num_features=7,
            num_classes=2,
            homophily=0.6828,
            protocol="B",
            metric="roc_auc",
            reader=readers.heterophilous("Minesweeper"),
            raw_dir="HeterophilousGraphDataset/minesweeper/raw",
            urls=(f"{_HETEROPHILOUS}/minesweeper.npz",),
            row_normalised=False,
            num_own_splits=10,
        ),
    )
}
