"""A graph that comes as tables, and models that are no networks."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.field import wiki
from experiments.field.studies import STUDIES
from experiments.field.trees import RARE, columns_of
from experiments.reproduce.training import run
from subtree_attention.datasets.folders import MissingData
from tests.experiments.reproduce.jobs import PLACE

PAGES = 300
STUDY = STUDIES["regression"]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages in a ring whose visits follow from a noun of their own and one of their neighbours."""
    dice = np.random.default_rng(0)
    nouns = {page: sorted({*dice.integers(6, size=3).tolist()}) for page in range(PAGES)}

    def visits(page: int) -> float:
        near = nouns[(page + 1) % PAGES] + nouns[(page - 1) % PAGES]
        return 10 * np.exp((0 in nouns[page]) + 2 * (1 in near) + dice.normal() / 10)

    folder = tmp_path / wiki.FOLDER
    folder.mkdir(parents=True)
    (folder / "features.json").write_text(json.dumps(nouns))
    ring = "".join(f"{page},{(page + 1) % PAGES}\n" for page in range(PAGES))
    (folder / "edges.csv").write_text(f"id1,id2\n{ring}")
    lines = "".join(f"{page},{visits(page)}\n" for page in range(PAGES))
    (folder / "target.csv").write_text(f"id,target\n{lines}")
    monkeypatch.setenv("STA_DATA", str(tmp_path))
    monkeypatch.delenv("STA_MIRROR", raising=False)
    return folder


def test_pages_are_read(pages: Path) -> None:
    data = wiki.load()
    assert (data.num_nodes, data.num_edges, data.x.size(1)) == (PAGES, 2 * PAGES, 6)
    nouns = json.loads((pages / "features.json").read_text())
    assert data.x.to_dense()[7].nonzero().flatten().tolist() == nouns["7"]
    assert data.target == "number"
    assert float(data.y.min()) > 0


def test_missing_pages_are_said(pages: Path) -> None:
    (job, *_) = STUDY.trials(wiki.NAME, "GCN")
    assert job.at_hand
    (pages / "edges.csv").unlink()
    assert not job.at_hand
    with pytest.raises(MissingData, match=r"put edges\.csv, features\.json, target\.csv into"):
        wiki.load()


def test_trees_see_the_neighbours_only_if_they_may(pages: Path) -> None:
    data = wiki.load()
    own, both = columns_of(data, neighbours=False), columns_of(data, neighbours=True)
    assert ((own != 0).sum(0) >= RARE).all()
    assert both.shape[1] == 2 * own.shape[1] + 1
    assert (both[:, own.shape[1]] == 2).all()  # neighbours in a ring
    np.testing.assert_allclose(both[5, own.shape[1] + 1 :], (own[4] + own[6]) / 2)


def test_trees_leave_a_record_beside_networks(pages: Path) -> None:
    trials = STUDY.trials(wiki.NAME, "boosted trees")
    blind = next(job for job in trials if not job.config.model.neighbours)
    gcn = STUDY.trials(wiki.NAME, "GCN")[3]
    jobs = [trials[0], blind, gcn]
    small = [type(job)(*_small(job)) for job in jobs]
    found = {outcome.job.variant: outcome.record for outcome in run(small, PLACE)}
    trees, alone, network = (found[job.variant] for job in jobs)
    assert trees.metric == network.metric == "r2"
    assert trees.test > alone.test + 0.2  # half of it is the neighbours'
    assert 1 <= trees.best_epoch <= trees.epochs == 40
    assert trees.config["model"]["name"] == "trees"
    assert network.epochs == 40


def _small(job: wiki.WikiJob) -> tuple[object, ...]:
    shorter = {"trees": 40} if job.direct else {"epochs": 40}
    config = job.config.replace(**shorter)
    return job.experiment, job.graph, job.model, job.variant, job.seed, config
