"""Edges that differ: a gate for each edge and head learns which of them count.

    python examples/edges.py

Nodes have a sign, edges have one of three kinds, and a node's class is the sign that most walks of
two steps along edges of the first kind bring to it. A layer that does not know the kinds hears
everybody; one with `edge_dim` closes the edges that do not count, and both hops walk through its
gates.
"""

import torch
import torch.nn.functional as F

import subtree_attention as sta

NODES, EDGES, KINDS = 600, 4800, 3


def made_up(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Features [N, 2], edges [2, E], their kinds [E, KINDS], and classes [N]."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=generator)
    kind = torch.randint(0, KINDS, (EDGES,), generator=generator)
    sign = torch.randint(0, 2, (NODES,), generator=generator) * 2.0 - 1
    heard = sign
    for _ in range(2):
        source, target = edge_index[:, kind == 0]
        heard = torch.zeros(NODES).index_add(0, target, heard[source])
    x = torch.stack([sign, torch.ones(NODES)], dim=1)
    return x, edge_index, F.one_hot(kind, KINDS).float(), (heard > 0).long()


def train(edge_dim: int | None, epochs: int = 150) -> tuple[sta.STAConv, float]:
    """A layer that learned from half of the nodes, and the share of the others that is right."""
    torch.manual_seed(0)
    x, edge_index, kinds, y = made_up()
    known = torch.arange(NODES) % 2 == 0
    features = {} if edge_dim is None else {"edge_attr": kinds}
    how = {"transition": "sym", "readout": "sum", "aggregation": "concat"}
    conv = sta.STAConv(2, 2, 2, 2, key_channels=4, value_channels=4, edge_dim=edge_dim, **how)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.03)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = conv(x, edge_index, **features)
        F.cross_entropy(out[known], y[known]).backward()
        optimizer.step()
    return conv, float((out.argmax(1) == y)[~known].float().mean())


if __name__ == "__main__":
    print(f"without edge features: {train(None)[1]:.1%}")
    conv, right = train(KINDS)
    print(f"with gates:            {right:.1%}")
    print("gates of each kind:", (2 * conv.edge_gate.logits(torch.eye(KINDS)).sigmoid()).tolist())
