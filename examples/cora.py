"""STAGNN on Cora with your own loop, on PyG's dataset and public split: python examples/cora.py"""

import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures

import subtree_attention as sta

data = Planetoid("data/Planetoid", "Cora", transform=NormalizeFeatures())[0]
graph = sta.Graph(data.edge_index, data.num_nodes)  # the walk, prepared once
model = sta.STAGNN(data.num_features, 64, int(data.y.max()) + 1, hops=10, heads=4, dropout=0.6)
optimizer = torch.optim.Adam(model.parameter_groups(weight_decay=1e-4), lr=0.01)

best = (0.0, 0.0)  # validation, test
for epoch in range(1, 201):
    model.train()
    optimizer.zero_grad()
    logits = model(data.x, graph)
    F.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

    model.eval()
    with torch.no_grad():
        right = (model(data.x, graph).argmax(-1) == data.y).float()
    val, test = right[data.val_mask].mean().item(), right[data.test_mask].mean().item()
    if val > best[0]:
        best = (val, test)
    if epoch % 20 == 0:
        print(f"epoch {epoch:3d}  validation {best[0]:.3f}  test {best[1]:.3f}")

print("who node 0 attends to, two hops away:", model.attention(data.x, graph, 0, 2).mean(1).topk(3))
