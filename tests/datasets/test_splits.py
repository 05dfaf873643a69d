"""Random, own and fixed splits: sizes, seeds, and errors that say what is possible."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from subtree_attention import datasets
from subtree_attention.datasets.splits import PROTOCOLS, labelled_split

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


def test_load_takes_the_protocol_of_the_graph():
    data = datasets.load("digits", seed=4)
    expected = datasets.random_split(1797, "B", 4)
    assert all(map(torch.equal, (data.train_mask, data.val_mask, data.test_mask), expected))


def test_apply_split_shares_the_graph_and_leaves_the_original_alone():
    data = datasets.load("digits")
    before = data.train_mask.clone()
    other = datasets.apply_split(data, "A", seed=1)
    assert other.x is data.x
    assert int(other.train_mask.sum()) == 1797 // 2
    assert torch.equal(data.train_mask, before)
    again = datasets.apply_split(other)
    assert torch.equal(again.train_mask, before)


def test_a_graph_of_the_user_can_be_split_at_random_only():
    data = Data(x=torch.ones(8, 1))
    assert int(datasets.apply_split(data, "A").train_mask.sum()) == 4
    for split in (None, "own", "fixed"):
        with pytest.raises(ValueError, match="outside the registry has the splits 'A' and 'B'"):
            datasets.apply_split(data, split)


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
    masks = (data.train_mask, data.val_mask, data.test_mask)
    assert [int(mask.sum()) for mask in masks] == [140, 500, 1000]
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 7
    with pytest.raises(ValueError, match="only one split, index 0 of its own; 1 is past"):
        datasets.apply_split(data, "own", seed=1)


@pytest.mark.parametrize("name", ["actor", "minesweeper"])
def test_ten_own_splits(name, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror, split="own", seed=9)
    seen = set()
    for index in range(10):
        part = datasets.apply_split(data, "own", seed=index)
        masks = torch.stack([part.train_mask, part.val_mask, part.test_mask])
        assert int(masks.sum(0).max()) == 1
        seen.add(part.train_mask.numpy().tobytes())
    assert len(seen) == 10
    with pytest.raises(ValueError, match="10 splits, index 0 to 9 of its own; 10 is"):
        datasets.apply_split(data, "own", seed=10)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_split_is_the_one_in_the_file(name, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror, split="fixed")
    with np.load(mirror / datasets.info(name).fixed_split) as file:
        for mask, part in zip(
            (data.train_mask, data.val_mask, data.test_mask),
            ("train", "valid", "test"),
            strict=True,
        ):
            assert torch.equal(mask.nonzero().flatten(), torch.from_numpy(file[part]).sort().values)


def _photo_without_a_graph() -> Data:
    return Data(num_nodes=7650, name="photo")


def test_a_missing_fixed_split_names_file_and_folder(tmp_path):
    with pytest.raises(datasets.MissingData) as error:
        datasets.apply_split(_photo_without_a_graph(), "fixed", data_dir=tmp_path)
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
        datasets.apply_split(_photo_without_a_graph(), "fixed", data_dir=tmp_path)


@pytest.mark.parametrize("node", [7650, -1, 0])
def test_a_fixed_split_of_another_graph_is_refused(tmp_path, node):
    path = tmp_path / "splits" / "amazon-photo_split.npz"
    path.parent.mkdir()
    np.savez(path, train=np.array([0]), valid=np.array([1]), test=np.array([node]))
    with pytest.raises(ValueError, match="another graph, or names a node twice"):
        datasets.apply_split(_photo_without_a_graph(), "fixed", data_dir=tmp_path)


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
