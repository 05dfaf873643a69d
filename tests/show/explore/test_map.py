"""Where nodes lie on the map, which are chosen, and what is kept of it."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from subtree_attention import Dataset, io, open
from subtree_attention.config import STAGNNSettings
from subtree_attention.datasets import Split
from subtree_attention.nn import build
from subtree_attention.show.explore import Views, landmarks, map
from subtree_attention.show.explore.choosing import NO_CLASS, SPLITS, Choosing
from subtree_attention.show.explore.map import Map, components, framed
from subtree_attention.show.explore.server import create_app
from tests.show.made import made_run


def blobs(count: int, dims: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [count, dims] around some centres, and which."""
    random = np.random.default_rng(0)
    of = random.integers(groups, size=count)
    return 8 * random.normal(size=(groups, dims))[of] + random.normal(size=(count, dims)), of


def ready(made: Map) -> dict:
    """Wait for t-SNE."""
    for _ in range(600):
        if (status := made.status())["tsne"] != "made":
            return status
        time.sleep(0.1)
    raise AssertionError("t-SNE did not come to an end")


class TestPlaces:
    def test_components_are_the_widest_first_and_keep_distances(self):
        logits = np.random.default_rng(0).normal(size=(50, 4)) * [1, 5, 0.1, 2]
        rows = components(logits)
        spread = rows.std(0)
        assert (np.diff(spread) <= 0).all()
        apart = np.linalg.norm(logits[:, None] - logits, axis=2)
        assert np.allclose(np.linalg.norm(rows[:, None] - rows, axis=2), apart, atol=1e-3)

    def test_a_map_is_not_turned_over_by_chance(self):
        logits = np.random.default_rng(1).normal(size=(30, 3))
        order = np.random.default_rng(2).permutation(30)
        assert np.allclose(components(logits)[order], components(logits[order]), atol=1e-5)

    @pytest.mark.parametrize("logits", [np.zeros((5, 3)), np.arange(6.0)[:, None], np.eye(2)])
    def test_odd_logits_have_places_too(self, logits):
        made = Map(made_run_of(logits))
        places = made.positions("pca")
        assert places.shape == (len(logits), 2)
        assert np.isfinite(places).all()
        assert np.abs(places).max() <= 1

    def test_framed_keeps_proportions(self):
        places = framed(np.array([[0.0, 10.0], [4.0, 11.0]]))
        assert places.tolist() == [[-1.0, -0.25], [1.0, 0.25]]

    def test_groups_stay_together_and_others_lie_beside_their_landmarks(self):
        rows, of = blobs(600, 5, 3)
        rows = rows.astype(np.float32)
        places = landmarks.embed(rows, 150)
        centres = np.array([places[of == group].mean(0) for group in range(3)])
        nearest = np.linalg.norm(places[:, None] - centres, axis=2).argmin(1)
        assert (nearest == of).mean() > 0.98
        assert (landmarks.embed(rows, 150) == places).all()


def made_run_of(logits: np.ndarray):
    class Run:
        folder = Path("nowhere")

    run = Run()
    run.logits = logits
    return run


class TestChoosing:
    split = Split(
        *(torch.tensor(mask) for mask in ([1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]))
    )
    choosing = Choosing(
        ["a", "b"],
        np.array([0, 1, 1, 0, -1]),
        np.array([0, 0, 0, 0, 1]),
        Split(*(m > 0 for m in split)),
    )

    @pytest.mark.parametrize(
        ("chosen", "nodes"),
        [
            ({}, [0, 1, 2, 3, 4]),
            ({"split": "train"}, [0]),
            ({"split": "test"}, [2]),
            ({"split": "unlabelled"}, [4]),
            ({"split": "other"}, [3]),
            ({"true": ["b"]}, [1, 2]),
            ({"true": ["a", "b"]}, [0, 1, 2, 3]),
            ({"predicted": ["b"]}, [4]),
            ({"mistakes": True}, [1, 2]),
            ({"mistakes": True, "split": "val"}, [1]),
        ],
    )
    def test_nodes_are_chosen(self, chosen, nodes):
        assert np.flatnonzero(self.choosing.nodes(**chosen)).tolist() == nodes

    def test_what_is_not_there_is_named(self):
        with pytest.raises(ValueError, match="unknown split"):
            self.choosing.nodes("tests")
        with pytest.raises(ValueError, match="unknown class"):
            self.choosing.nodes(true=["c"])

    def test_each_split_has_its_share_of_right_answers(self):
        told = {each["name"]: each for each in self.choosing.counts()}
        assert list(told) == ["test", "val", "train", "unlabelled", "other", "all"]
        assert told["test"] == {"name": "test", "nodes": 1, "known": 1, "right": 0}
        assert told["all"] == {"name": "all", "nodes": 5, "known": 4, "right": 2}

    def test_confusion_counts_known_labels(self):
        assert self.choosing.confusion("all") == {"counts": [[2, 0], [2, 0]]}
        assert self.choosing.confusion("test") == {"counts": [[0, 0], [1, 0]]}

    def test_of_many_classes_the_worst_pairs_are_told(self):
        names, none = [str(i) for i in range(20)], torch.zeros(4, dtype=torch.bool)
        choosing = Choosing(
            names, np.array([3, 3, 7, 9]), np.array([4, 4, 7, 1]), Split(none, none, none)
        )
        assert choosing.confusion("all") == {"pairs": [("3", "4", 2), ("9", "1", 1)]}

    def test_points_are_bytes(self):
        content = self.choosing.points()
        assert len(content) == 5 * 5
        assert np.frombuffer(content, "<u2", 5).tolist() == [0, 1, 1, 0, NO_CLASS]
        assert np.frombuffer(content, "<u2", 5, 10).tolist() == [0, 0, 0, 0, 1]
        names = ["train", "val", "test", "other", "unlabelled"]
        assert [SPLITS[code] for code in content[20:]] == names


class TestKept:
    def test_it_is_made_once_and_kept(self, own_run, monkeypatch):
        run = open(own_run)
        first = Map(run)
        with pytest.raises(ValueError, match="not ready yet"):
            first.positions("tsne")
        assert ready(first)["tsne"] == "ready"
        places, kept = first.positions("tsne"), run.folder / "map.safetensors"
        assert places.shape == (40, 2)
        assert np.abs(places).max() <= 1
        assert io.read_header(kept, whole=True)["nodes"] == 40
        monkeypatch.setattr(sys, "executable", "nothing-to-run")
        again = Map(open(own_run))
        assert ready(again)["tsne"] == "ready"
        assert (again.positions("tsne") == places).all()

    @pytest.mark.parametrize("harm", ["damaged", "stale", "shape", "link"])
    def test_what_is_not_of_this_run_is_made_anew(self, own_run, monkeypatch, harm, tmp_path):
        run = open(own_run)
        path, made = run.folder / "map.safetensors", Map(run)
        about = dict(made._made_of)
        if harm == "damaged":
            path.write_bytes(b"x" * 100)
        elif harm == "stale":
            io.write_tensors(path, {"tsne": torch.zeros(40, 2)}, {**about, "run": "another"})
        elif harm == "shape":
            io.write_tensors(path, {"tsne": torch.zeros(39, 2)}, about)
        else:
            path.unlink(missing_ok=True)
            io.write_tensors(tmp_path / "other", {"tsne": torch.zeros(40, 2)}, about)
            path.symlink_to(tmp_path / "other")
        monkeypatch.setattr(Map, "_computed", lambda self: np.random.default_rng(0).random((40, 2)))
        assert ready(made)["tsne"] == "ready"
        assert made.positions("tsne").any()
        assert not path.is_symlink()
        assert io.read_header(path, whole=True) == about
        path.unlink()

    def test_a_folder_that_cannot_be_written_keeps_none(self, own_run, monkeypatch):
        def refuse(*_):
            raise io.CannotWrite("cannot write")

        monkeypatch.setattr(map.io, "write_tensors", refuse)
        monkeypatch.setattr(Map, "_computed", lambda self: np.zeros((40, 2)))
        assert ready(Map(open(own_run)))["tsne"] == "ready"

    def test_a_process_that_fails_is_told(self, own_run, monkeypatch, tmp_path):
        broken = tmp_path / "broken.py"
        broken.write_text("raise SystemExit('no room')")
        monkeypatch.setattr(landmarks, "__file__", str(broken))
        run = open(own_run)
        (run.folder / "map.safetensors").unlink(missing_ok=True)
        made = Map(run)
        status = ready(made)
        assert status["tsne"] == "failed"
        assert "no room" in status["why"] or "Broken pipe" in status["why"]
        assert made.positions("pca").shape == (40, 2)

    def test_few_nodes_have_no_tsne(self):
        status = ready(Map(made_run_of(np.eye(3))))
        assert (status["tsne"], status["why"]) == ("failed", "t-SNE needs 4 nodes at least")


class TestAsked:
    @pytest.fixture
    def client(self, views):
        return TestClient(create_app(views, 8765), base_url="http://127.0.0.1:8765")

    def test_points_and_places_are_bytes(self, client):
        points, places = client.get("/api/map/points"), client.get("/api/map/positions?by=pca")
        assert (len(points.content), len(places.content)) == (40 * 5, 40 * 8)
        assert points.headers["content-type"] == "application/octet-stream"
        assert np.abs(np.frombuffer(places.content, "<f4")).max() == 1

    def test_nodes_by_number(self, client, views):
        told = client.get("/api/map/nodes?numbers=3,0").json()
        assert [node["id"] for node in told] == [views._ids[3], views._ids[0]]
        assert [node["number"] for node in told] == [3, 0]

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("map/positions?by=umap", "unknown map"),
            ("map/nodes?numbers=40", "node 40 is not there"),
            ("map/nodes?numbers=-1", "numbers must be a whole number"),
            ("map/nodes", "numbers must be a whole number"),
            ("list?what=mistakes&split=most", "unknown split"),
            ("confusion?split=most", "unknown split"),
        ],
    )
    def test_mistakes_are_told(self, client, path, words):
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 400
        assert words in answer.json()["error"]


def test_lists_are_of_the_nodes_that_are_chosen():
    torch.manual_seed(0)
    data = Dataset(
        torch.randn(60, 6), torch.randint(60, (2, 300)), torch.randint(3, (60,)), name="made"
    )
    settings = STAGNNSettings(hidden_channels=8, hops=2, heads=1)
    run = made_run(build(settings, 6, 3), data, train=torch.arange(60) < 30)
    views = Views(run)
    for what in ("mistakes", "uncertain", "confident"):
        listed = views.listed(what, "train", predicted=["0", "2"])
        assert listed
        assert all(node["split"] == "train" and node["predicted"] != "1" for node in listed)
    assert all(node["split"] is None for node in views.listed("confident", "other"))
    right = {each["name"]: each["right"] / each["known"] for each in views.graph()["splits"]}
    assert right["train"] == pytest.approx((run.logits.argmax(1) == data.y.numpy())[:30].mean())
