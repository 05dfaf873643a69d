"""Who owns which node: counts by hand, METIS and the stream against each other."""

import sys

import pytest
import torch

from subtree_attention import Graph, PartGraph, Partition
from subtree_attention.partition import Mesh, Ranks, streaming
from tests.ops.cases import random_edges


def communities(nodes: int, count: int, inside: float = 0.8, seed: int = 0) -> torch.Tensor:
    """Edges [2, E] in both directions, most of them within communities; nodes are shuffled."""
    draw = torch.Generator().manual_seed(seed)
    source, other = torch.randint(0, nodes, (2, 6 * nodes), generator=draw)
    size = nodes // count
    near = source // size * size + other % size
    target = near.where(torch.rand(len(near), generator=draw) < inside, other).clamp(max=nodes - 1)
    half = torch.randperm(nodes, generator=draw)[torch.stack([source, target])]
    both = torch.cat([half, half.flip(0)], 1)
    return both[:, torch.randperm(both.size(1), generator=draw)]


class TestCounts:
    partition = Partition(torch.tensor([0, 0, 1, 1, 2]), 4)
    edges = torch.tensor([[0, 0, 0, 1, 2, 4, 4, 3], [1, 2, 3, 2, 4, 0, 1, 3]])

    def test_nodes_and_sizes(self):
        assert self.partition.sizes.tolist() == [2, 2, 1, 0]
        assert [self.partition.nodes(part).tolist() for part in range(4)] == [
            [0, 1],
            [2, 3],
            [4],
            [],
        ]

    def test_cut_and_halo(self):
        assert self.partition.cut(self.edges) == 6
        # To part 0 from node 4; to part 1 from nodes 0 and 1; to part 2 from node 2.
        wanted = [[0, 0, 1, 0], [2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
        assert self.partition.halo(self.edges).tolist() == wanted
        back = [[0, 2, 0, 0], [0, 0, 1, 0], [2, 0, 0, 0], [0, 0, 0, 0]]
        assert self.partition.halo(self.edges.flip(0)).tolist() == back

    def test_a_part_has_the_halo_that_the_partition_counts(self):
        graph, there = Graph(self.edges, 5), self.partition.halo(self.edges)
        back = self.partition.halo(self.edges.flip(0))
        for part in range(4):
            cut = PartGraph.of(graph, self.partition, part)
            assert cut.shared.there.receives == there[part].tolist()
            assert cut.shared.there.sends == there[:, part].tolist()
            assert cut.shared.back.receives == back[part].tolist()
            assert cut.shared.back.sends == back[:, part].tolist()
            assert len(cut.halo) == there[part].sum()
            assert (self.partition.owner[cut.halo] != part).all()

    def test_blocks_by_number(self):
        assert Partition.blocks(7, 3).owner.tolist() == [0, 0, 0, 1, 1, 2, 2]
        assert Partition.blocks(0, 3).sizes.tolist() == [0, 0, 0]


class TestQuality:
    nodes, parts = 6000, 4
    edges = communities(nodes, 30)

    def test_metis_and_a_stream_of_edges_cut_far_less_than_blocks_by_number(self):
        blocks = [*self.edges.split(10_000, 1)]
        found = {
            "blocks": Partition.blocks(self.nodes, self.parts),
            "metis": Partition.metis(self.edges, self.nodes, self.parts),
            "streaming": Partition.streaming(blocks, self.nodes, self.parts),
        }
        cut = {name: one.cut(self.edges) for name, one in found.items()}
        assert cut["metis"] < 0.25 * cut["blocks"]
        assert cut["streaming"] < 1.3 * cut["metis"]
        mean = self.nodes / self.parts
        assert all(one.sizes.max() <= 1.06 * mean for one in found.values())

    def test_a_stream_reads_blocks_only_and_gives_the_same_again(self):
        opened = []

        def blocks():
            opened.append(1)
            yield from self.edges.split(1000, 1)

        first, second = (Partition.streaming(blocks, self.nodes, 3, seed=4) for _ in range(2))
        assert torch.equal(first.owner, second.owner)
        assert len(opened) > 2

    @pytest.mark.parametrize("parts", [1, 2, 7])
    @pytest.mark.parametrize("nodes", [0, 1, 5, 200])
    def test_sizes_keep_the_slack_whatever_the_graph(self, nodes, parts):
        edges = random_edges(max(nodes, 1), 4 * nodes).index
        for slack in (0.0, 0.1):
            owner = Partition.streaming([edges], nodes, parts, slack=slack).owner
            most = max(int((1 + slack) * nodes / parts), -(-nodes // parts))
            assert int(torch.bincount(owner, minlength=parts).max()) <= most

    def test_one_community_that_fits_nowhere_is_shared_out(self, monkeypatch):
        monkeypatch.setattr(streaming, "PER_PART", 0.5)
        owner = Partition.streaming([communities(300, 1)], 300, 4, passes=1).owner
        assert int(torch.bincount(owner).max()) <= 79

    def test_more_parts_than_nodes(self):
        edges = torch.tensor([[0, 1], [1, 2]])
        for one in (Partition.metis(edges, 3, 5), Partition.streaming([edges], 3, 5)):
            assert one.parts == 5
            assert one.sizes.max() == 1

    def test_metis_without_edges(self):
        assert Partition.metis(torch.empty(2, 0, dtype=torch.long), 10, 2).num_nodes == 10


class TestRefusals:
    def test_owners_that_are_no_parts(self):
        with pytest.raises(ValueError, match=r"one of the parts 0 to 1, got 0 to 2"):
            Partition(torch.tensor([0, 2]), 2)
        with pytest.raises(ValueError, match=r"shape \[N\], got \[1, 2\]"):
            Partition(torch.tensor([[0, 1]]), 2)
        with pytest.raises(TypeError, match="integers"):
            Partition(torch.tensor([0.0]), 2)

    def test_edges_that_can_be_read_once_only(self):
        with pytest.raises(TypeError, match="a function that opens them anew, not generator"):
            Partition.streaming((each for each in [torch.empty(2, 0)]), 3, 2)

    def test_blocks_of_something_else(self):
        with pytest.raises(ValueError, match=r"a block of edges has shape \[2, B\], got \[3\]"):
            Partition.streaming([torch.tensor([0, 1, 2])], 3, 2)
        with pytest.raises(ValueError, match="nodes are 0 to 2, but an edge has 0 or 3"):
            Partition.streaming([torch.tensor([[0], [3]])], 3, 2)

    def test_metis_that_is_not_there(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pymetis", None)
        with pytest.raises(ImportError, match=r"subtree-attention\[partition\]"):
            Partition.metis(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4, 2)

    def test_a_partition_of_another_graph(self):
        graph = random_edges(5, 9).graph()
        with pytest.raises(ValueError, match="one of 6 nodes, but the graph has 5"):
            PartGraph.of(graph, Partition.blocks(6, 2), 0)
        with pytest.raises(ValueError, match="has 2 parts, but 3 ranks share the nodes"):
            PartGraph.of(graph, Partition.blocks(5, 2), Mesh(Ranks(None, 0, 3), Ranks()))
        with pytest.raises(TypeError, match="a mesh is a DeviceMesh whose dimensions are named"):
            PartGraph.of(graph, Partition.blocks(5, 2), "nodes")
        with pytest.raises(TypeError, match=r"made by PartGraph\.of"):
            PartGraph(torch.tensor([[0], [1]]))


class TestAPart:
    graph = random_edges(12, 40, weighted=True).graph("sym", self_loops=True)
    partition = Partition(torch.arange(12) % 3, 3)

    def test_its_rows_are_those_of_the_whole(self):
        dense, back = self.graph.dense(), self.graph.dense().t()
        for part in range(3):
            cut = PartGraph.of(self.graph, self.partition, part)
            for csr, columns, whole in (
                (cut.matrix(torch.float64), cut._columns, dense),
                (cut.transpose(torch.float64), cut._columns_back, back),
            ):
                rows = torch.repeat_interleave(csr.rowptr.diff().long())
                got = torch.zeros(cut.num_nodes, 12, dtype=torch.float64)
                got.index_put_((rows, columns[csr.col.long()]), csr.weight, accumulate=True)
                assert torch.allclose(got, whole[cut.nodes], rtol=1e-14)

    def test_what_needs_the_whole_graph_is_refused(self):
        part = PartGraph.of(self.graph, self.partition, 1)
        for ask in (part.dense, part.to_scipy, lambda: part.subgraph(torch.arange(2))):
            with pytest.raises(NotImplementedError, match="needs the whole graph on one rank"):
                ask()
        with pytest.raises(NotImplementedError, match="edge weights that come with a call"):
            part.entries(edge_weight=torch.ones(40))

    def test_a_part_that_was_cut_for_a_number_cannot_be_walked_on(self):
        part = PartGraph.of(self.graph, self.partition, 1)
        with pytest.raises(RuntimeError, match="part 1 of 3, cut without a process group"):
            part.shared.there(torch.zeros(4, 2))
        assert "part=1 of 3" in repr(part)
