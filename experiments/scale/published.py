"""What others published, on the graphs named; not measured here."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A system as its authors report it."""

    system: str
    what: str
    where: str
    said: str


PUBLISHED = (
    Published(
        "HongTu (SIGMOD 2024)",
        "full-graph GCN, GAT; vertex data in the host's memory, partitions walked on GPUs",
        "4 A100",
        "7.8 to 20 times as fast as DistGNN on 16 CPU nodes",
    ),
    Published(
        "GriNNder",
        "full-graph, exact; activations on NVMe, partition by partition",
        "one A5000 and NVMe",
        "up to 9.8 times HongTu; on ogbn-papers100M 1.1 times CAGNET on 16 GPUs",
    ),
    Published(
        "Plexus (arXiv 2505.04083)",
        "full-graph GCN, sparse and dense matrices over a 3D grid of GPUs",
        "up to 2,048 A100 (Perlmutter), 1,024 GPUs (Frontier)",
        "billion-edge graphs; 2.3 to 12.5 times earlier systems",
    ),
    Published(
        "PipeGCN (ICLR 2022)",
        "full-graph GraphSAGE, halo rows one epoch old",
        "Reddit (0.23 M nodes, 115 M edges)",
        "0.27 s an epoch; not exact",
    ),
    Published(
        "BNS-GCN (MLSys 2022)",
        "full-graph GraphSAGE, a random sample of the halo",
        "Reddit",
        "0.36 s an epoch; not exact",
    ),
)
