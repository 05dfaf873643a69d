"""The Laplacian encoding: true eigenvectors, the same bytes every time, defined on any graph."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence
from torch_geometric.data import Data

from subtree_attention import datasets
from subtree_attention.datasets import encoding as module
from subtree_attention.datasets.encoding import laplacian_eigenvectors

SINGLE = [name for name in datasets.names() if not datasets.info(name).num_graphs]
IN_MIRROR = [name for name in SINGLE if name not in ("digits", "corafull")]


def dense_laplacian(edge_index: torch.Tensor, num_nodes: int) -> np.ndarray:
    """L written down from its definition; an isolated node has 0 on the diagonal."""
    adjacency = np.zeros((num_nodes, num_nodes))
    adjacency[edge_index[0], edge_index[1]] = 1
    adjacency = np.maximum(adjacency, adjacency.T)
    np.fill_diagonal(adjacency, 0)
    degree = adjacency.sum(1)
    scale = 1 / np.sqrt(np.maximum(degree, 1))
    return np.diag((degree > 0).astype(float)) - scale[:, None] * adjacency * scale


def path(n: int, first: int = 0) -> torch.Tensor:
    nodes = torch.arange(first, first + n)
    return torch.stack([nodes[:-1], nodes[1:]])


def grid(side: int) -> torch.Tensor:
    nodes = torch.arange(side * side).view(side, side)
    across = torch.stack([nodes[:, :-1].flatten(), nodes[:, 1:].flatten()])
    down = torch.stack([nodes[:-1].flatten(), nodes[1:].flatten()])
    return torch.cat([across, down], dim=1)


def ring_with_chords(n: int, seed: int = 0) -> torch.Tensor:
    nodes = torch.arange(n)
    chords = torch.randint(n, (2, n // 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.stack([nodes, (nodes + 1) % n]), chords], dim=1)


def assert_eigenpairs(edge_index: torch.Tensor, num_nodes: int, m: int) -> None:
    """Orthonormal, with the m smallest eigenvalues above 0, and residuals near the solver's own.

    The solver stops at a residual of 1e-9 times an eigenvalue of at most 2.
    """
    vectors, values = laplacian_eigenvectors(edge_index, num_nodes, m)
    laplacian = dense_laplacian(edge_index, num_nodes)
    exact = np.linalg.eigvalsh(laplacian)
    exact = exact[exact > 1e-10][:m]
    count = len(exact)
    np.testing.assert_allclose(values[:count], exact, atol=1e-9)
    assert np.isnan(values[count:]).all()
    assert (vectors[:, count:] == 0).all()
    residual = laplacian @ vectors[:, :count] - vectors[:, :count] * values[:count]
    assert np.abs(residual).max(initial=0) < 5e-9
    gram = vectors[:, :count].T @ vectors[:, :count]
    np.testing.assert_allclose(gram, np.eye(count), atol=1e-8)


@given(st.integers(1, 14), st.integers(0, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_any_small_graph(num_nodes, m, data):
    node = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=25))
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    assert_eigenpairs(edge_index, num_nodes, m)


@pytest.mark.parametrize("m", [1, 3, 7])
@pytest.mark.parametrize("n", [255, 257, 700])
def test_dense_and_iterative_solver_agree_with_the_definition(n, m):
    assert_eigenpairs(ring_with_chords(n), n, m)


def test_a_repeated_eigenvalue_is_not_passed_over():
    # Every eigenvalue of a square grid that is not on its diagonal comes twice.
    assert_eigenpairs(grid(24), 24 * 24, 5)


def test_a_long_path_goes_through_the_factorised_inverse(monkeypatch):
    asked = []
    inverse = module._inverse_laplacian
    monkeypatch.setattr(
        module, "_inverse_laplacian", lambda matrix: asked.append(1) or inverse(matrix)
    )
    assert_eigenpairs(path(1500), 1500, 3)
    assert asked


def test_a_graph_that_will_not_converge_says_so(monkeypatch):
    def give_up(*_: object) -> None:
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty(0))

    monkeypatch.setattr(module, "_smallest", give_up)
    with pytest.raises(RuntimeError, match="1,500 nodes did not converge"):
        laplacian_eigenvectors(path(1500), 1500, 3)


def test_the_encoding_is_orthogonal_to_every_component_s_known_vector():
    edge_index = torch.cat([ring_with_chords(300), ring_with_chords(280, 1) + 300], dim=1)
    vectors, _ = laplacian_eigenvectors(edge_index, 590, 4)
    adjacency = dense_laplacian(edge_index, 590) < 0
    root_degree = np.sqrt(adjacency.sum(1))
    for part in (slice(0, 300), slice(300, 580)):
        assert np.abs(root_degree[part] @ vectors[part]).max() < 1e-8
    assert (vectors[580:] == 0).all()


def test_equal_components_come_in_the_order_of_their_first_nodes():
    edge_index = torch.cat([path(5, first) for first in (10, 0, 5)], dim=1)
    vectors, values = laplacian_eigenvectors(edge_index, 15, 3)
    assert values == pytest.approx([values[0]] * 3)
    support = [np.flatnonzero(np.abs(column) > 1e-12).min() // 5 for column in vectors.T]
    assert support == [0, 1, 2]
    np.testing.assert_allclose(vectors[:5, 0], vectors[5:10, 1], atol=1e-12)


def test_largest_entry_is_positive_and_ties_go_to_the_first_node():
    vectors, _ = laplacian_eigenvectors(path(6), 6, 1)
    assert vectors[0, 0] > 0 > vectors[5, 0]


def test_directions_duplicates_and_loops_make_no_difference():
    edges = ring_with_chords(60)
    more = torch.cat([edges.flip(0), edges, torch.arange(60).repeat(2, 1)], dim=1)
    once, _ = laplacian_eigenvectors(edges, 60, 3)
    again, _ = laplacian_eigenvectors(more, 60, 3)
    assert np.array_equal(once, again)


@pytest.mark.parametrize("num_nodes", [1, 2, 5])
def test_a_graph_without_edges_gets_zeros(num_nodes):
    data = Data(x=torch.ones(num_nodes, 2), edge_index=torch.empty(2, 0, dtype=torch.long))
    encoded = datasets.LaplacianEncoding()(data)
    assert encoded.x.tolist() == [[1, 1, 0, 0, 0]] * num_nodes


def test_features_keep_their_layout_and_the_original_is_left_alone():
    from subtree_attention.datasets.features import compact

    edge_index = ring_with_chords(40)
    dense = Data(x=torch.eye(40), edge_index=edge_index)
    sparse = Data(x=compact(torch.eye(40)), edge_index=edge_index)
    one, other = (datasets.LaplacianEncoding(m=2)(data) for data in (dense, sparse))
    assert other.x.layout == torch.sparse_csr
    assert torch.equal(other.x.to_dense(), one.x)
    assert torch.equal(one.x[:, 40:], one.laplacian_encoding)
    assert one.x.shape == (40, 42)
    assert dense.x.shape == (40, 40)
    assert other.num_features == 42


def test_a_graph_without_features_gets_the_encoding_as_features():
    data = datasets.LaplacianEncoding(2)(Data(edge_index=path(9), num_nodes=9))
    assert torch.equal(data.x, data.laplacian_encoding)


def test_m_0_changes_nothing():
    data = Data(x=torch.ones(9, 1), edge_index=path(9))
    assert torch.equal(datasets.LaplacianEncoding(0)(data).x, data.x)


@pytest.mark.parametrize("m", [-1, 1.5, "3"])
def test_a_number_of_eigenvectors_that_is_none_is_refused(m):
    with pytest.raises((ValueError, TypeError), match="number of eigenvectors"):
        datasets.LaplacianEncoding(m)


def test_a_graph_without_edge_index_is_refused():
    with pytest.raises(ValueError, match="needs a graph with edge_index"):
        datasets.LaplacianEncoding()(Data(x=torch.ones(3, 1)))


def test_repr():
    assert repr(datasets.LaplacianEncoding(5)) == "LaplacianEncoding(m=5)"


def test_same_bytes_with_one_thread_and_with_two():
    program = (
        "import hashlib\n"
        "from subtree_attention import datasets\n"
        "encoding = datasets.load('digits').encoded(3).encoding\n"
        "print(hashlib.sha256(encoding.numpy().tobytes()).hexdigest())"
    )
    prints = []
    for threads in ("1", "2"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
        prints.append(done.stdout)
    assert prints[0] == prints[1]


@pytest.mark.parametrize("name", IN_MIRROR)
def test_benchmark_graph(name, mirror, data_dir):
    data = datasets.load(name, data_dir=data_dir, mirror=mirror)
    start = time.process_time()
    vectors, values = laplacian_eigenvectors(data.edge_index, data.num_nodes, 3)
    assert time.process_time() - start < 10  # about one second on an idle core
    transition = module._symmetric_transition(data.edge_index, data.num_nodes)
    residual = np.linalg.norm(vectors - transition @ vectors - vectors * values, axis=0)
    assert residual.max() < 5e-9  # the solver stops at 1e-9 times an eigenvalue of at most 2
    assert values.min() > 1e-5
    again, _ = laplacian_eigenvectors(data.edge_index, data.num_nodes, 3)
    assert again.tobytes() == vectors.tobytes()
