"""Random, own and fixed splits: sizes, seeds, and errors that say what is possible."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subtree_attention import datasets
from subtree_attention.datasets.splits import PROTOCOLS, fixed_codes, labelled_split

FIXED = ["computer", "photo", "cs", "physics"]


@given(num_nodes=st.integers(0, 200), protocol=st.sampled_from("AB"), seed=st.integers(0, 2**40))
def test_every_node_is_in_exactly_one_part(num_nodes, protocol, seed):
    masks = torch.stack(datasets.random_split(num_nodes, protocol, seed))
    assert masks.dtype == torch.bool
    assert masks.sum(0).tolist() == [1] * num_nodes


@pytest.mark.parametrize(("protocol", "sizes"), [("A", [500, 250, 250]), ("B", [600, 200, 200])])
def test_sizes_of_the_protocols(protocol, sizes):
    assert [int(mask.sum()) for mask in datasets.random_split(1000, protocol, 3)] == sizes


def test_the_seed_decides_the_split_and_nothing_else_does():
    first = torch.stack(datasets.random_split(1000, "A", 0))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    assert torch.equal(first, torch.stack(datasets.random_split(1000, "A", 0)))
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, torch.stack(datasets.random_split(1000, "A", 1)))


def test_a_split_stays_what_it_was():
    # The nodes of a published run: this must not change with libraries or our code.
    train, val, test = datasets.random_split(12, "B", 0)
    assert train.nonzero().flatten().tolist() == [0, 2, 4, 5, 7, 9, 11]
    assert val.nonzero().flatten().tolist() == [3, 6]
    assert test.nonzero().flatten().tolist() == [1, 8, 10]


@pytest.mark.parametrize("protocol", ["C", "a", "", None])
def test_an_unknown_protocol_is_refused(protocol):
    with pytest.raises(ValueError, match=r"'A' \(50/25/25\) or 'B'"):
        datasets.random_split(10, protocol, 0)


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), ("0", TypeError)])
def test_a_seed_that_is_no_whole_number_is_refused(seed, error):
    with pytest.raises(error, match="seed must be"):
        datasets.random_split(10, "A", seed)


@pytest.mark.parametrize(
    ("name", "split", "has"),
    [("digits", "own", "A, B"), ("cora", "fixed", "A, B, own"), ("photo", "own", "A, B, fixed")],
)
def test_a_split_that_a_graph_lacks_is_refused_before_anything_is_read(
    name, split, has, no_network
):
    with pytest.raises(ValueError, match=f"'{name}' has no split '{split}'; it has {has}$"):
        datasets.load(name, split=split)
    assert no_network == []


def test_public_split_of_cora(mirror, data_dir):
    data = datasets.load("cora", data_dir=data_dir, mirror=mirror, split="own")
    split = data.split("own")
    assert [int(mask.sum()) for mask in split] == [140, 500, 1000]
    assert torch.bincount(data.y[split.train]).tolist() == [20] * 7
    with pytest.raises(ValueError, match="only one split, index 0 of its own; 1 is past"):
        data.split("own", 1)


@pytest.mark.parametrize("name", ["actor", "minesweeper"])
def test_ten_own_splits(name, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror, split="own")
    seen = set()
    for index in range(10):
        split = data.split("own", index)
        assert int(torch.stack(split).sum(0).max()) == 1
        seen.add(split.train.numpy().tobytes())
    assert len(seen) == 10
    with pytest.raises(ValueError, match="10 splits, index 0 to 9 of its own; 10 is"):
        data.split("own", 10)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_split_is_the_one_in_the_file(name, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror, split="fixed")
    with np.load(mirror / datasets.info(name).fixed_split) as file:
        for mask, part in zip(data.split("fixed"), ("train", "valid", "test"), strict=True):
            assert torch.equal(mask.nonzero().flatten(), torch.from_numpy(file[part]).sort().values)


def test_the_fixed_split_is_read_only_when_it_is_asked_for(mirror, data_dir):
    data = datasets.load("photo", data_dir=data_dir, mirror=mirror)
    with pytest.raises(ValueError, match=r"was not read: load it with .*split='fixed'"):
        data.split("fixed")


def fixed(folder: Path) -> torch.Tensor:
    return fixed_codes(datasets.info("photo"), folder, None)


def test_a_missing_fixed_split_names_file_and_folder(tmp_path):
    with pytest.raises(datasets.MissingData) as error:
        fixed(tmp_path)
    assert "amazon-photo_split.npz" in str(error.value)
    assert str(tmp_path / "splits") in str(error.value)


@pytest.mark.parametrize("content", ["garbage", "truncated", "missing part"])
def test_a_damaged_fixed_split_is_named(tmp_path, content):
    path = tmp_path / "splits" / "amazon-photo_split.npz"
    path.parent.mkdir()
    parts = {} if content == "missing part" else {"valid": np.arange(9), "test": np.arange(9)}
    np.savez(path, train=np.arange(900), **parts)
    if content == "garbage":
        path.write_bytes(b"not an archive")
    elif content == "truncated":
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"amazon-photo_split\.npz is damaged"):
        fixed(tmp_path)


@pytest.mark.parametrize("node", [7650, -1, 0])
def test_a_fixed_split_of_another_graph_is_refused(tmp_path, node):
    path = tmp_path / "splits" / "amazon-photo_split.npz"
    path.parent.mkdir()
    np.savez(path, train=np.array([0]), valid=np.array([1]), test=np.array([node]))
    with pytest.raises(ValueError, match="another graph, or names a node twice"):
        fixed(tmp_path)


# ------------------------------------------------------------------------ graphs of one's own


@pytest.mark.parametrize("protocol", ["A", "B"])
def test_a_labelled_split_is_fair_to_classes_and_leaves_unknown_nodes_out(protocol: str) -> None:
    labels = torch.tensor([0] * 100 + [1] * 10 + [2] * 2 + [3] + [-1] * 7)
    train, val, test = labelled_split(labels, protocol, seed=0)
    assert torch.equal(train.int() + val + test, (labels >= 0).int())
    share = PROTOCOLS[protocol][0]
    for label, count in ((0, 100), (1, 10)):
        assert int(train[labels == label].sum()) == count * share // 100
        assert abs(int(val[labels == label].sum()) - int(test[labels == label].sum())) <= 1
    assert int(train[labels == 2].sum()) == 1  # one of two
    assert int(train[labels == 3].sum()) == 1  # the only one
    assert abs(int(val.sum()) - int(test.sum())) <= 1


def test_a_labelled_split_depends_on_the_seed_only_and_needs_enough_nodes() -> None:
    labels = torch.arange(40) % 4
    first, again, other = (labelled_split(labels, "B", seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(ValueError, match="3 nodes with a label are too few"):
        labelled_split(torch.tensor([0, 0, 1, -1]), "B", 0)
