"""How ranks share the work, as people say it, and what is refused before there are any."""

import pytest
import torch

import subtree_attention as sta
from subtree_attention.train.parallel import refuse_many, refuse_outside
from subtree_attention.train.parallel.fit import refuse_settings
from subtree_attention.train.parallel.job import _device_and_backend, _of_communication, shares
from subtree_attention.train.run import Diverged, Epoch


@pytest.mark.parametrize(
    ("said", "nodes", "heads", "batches"),
    [
        ("nodes", 4, 1, 1),
        ("heads", 1, 4, 1),
        ("nodes=2,heads=2", 2, 2, 1),
        ("heads = 4", 1, 4, 1),
        ("batches", 1, 1, 4),
    ],
)
def test_shares(said: str, nodes: int, heads: int, batches: int) -> None:
    assert shares(said, 4) == {"nodes": nodes, "heads": heads, "batches": batches}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("node", "unknown parallel 'node'. Did you mean 'nodes'"),
        ("nodes=3", r"parallel='nodes=3' is for 3 ranks, but there are 4"),
        ("nodes=two", "parallel is nodes, heads or nodes=2,heads=4, got 'nodes=two'"),
        ("nodes=-1", "parallel is nodes, heads or"),
        ("nodes=0", "nodes must be"),
        ("rows=4", "unknown parallel 'rows'"),
    ],
)
def test_what_is_no_way_to_share(said: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shares(said, 4)


@pytest.mark.parametrize(
    ("device", "rank", "gpus", "expected"),
    [
        ("cpu", 1, 0, ("cpu", "gloo")),
        ("cuda", 1, 4, ("cuda:1", "cpu:gloo,cuda:nccl")),
        ("cuda", 3, 1, ("cuda:0", "gloo")),
        ("cuda", 3, 2, ("cuda:1", "gloo")),
        ("cuda:1", 3, 2, ("cuda:1", "gloo")),
    ],
)
def test_which_gpu_a_rank_has(
    device: str, rank: int, gpus: int, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    found, backend = _device_and_backend(torch.device(device))
    assert (str(found), backend) == expected


def test_one_process_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="this one is alone: start it with 'torchrun"):
        refuse_outside()
    refuse_many()


def test_many_processes_say_how_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"torchrun has started 2 processes.*--parallel nodes"):
        refuse_many()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "link"}, "--parallel is for targets of nodes, not for --task link"),
        ({"show_labels": 0.5}, "--show-labels needs the whole graph in one process"),
        ({"reference": "logistic"}, "--reference needs the whole graph"),
        ({"correct": True}, "--correct needs the whole graph"),
        ({"feature_map": "softmax"}, "the exact one, is not for --parallel"),
    ],
)
def test_what_needs_the_whole_graph(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        refuse_settings(sta.recipe("digits", **changes))
    refuse_settings(sta.recipe("digits"))


def test_only_what_libraries_say_of_connections_is_taken_for_a_lost_rank() -> None:
    assert _of_communication(RuntimeError("[gloo] Connection closed by peer"))
    assert _of_communication(torch.distributed.DistNetworkError("timed out"))
    assert not _of_communication(Diverged("run 0 on peers", Epoch(3, 1.0, 0.5, 0.5, 0.5)))
    assert not _of_communication(RuntimeError("shapes cannot be multiplied"))
