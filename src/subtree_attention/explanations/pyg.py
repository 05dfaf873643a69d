"""STA's exact parts as an algorithm for PyG's `torch_geometric.explain.Explainer`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch_geometric.explain as pyg
from torch import Tensor
from torch_geometric.explain.config import MaskType, ModelMode, ModelReturnType, ModelTaskLevel

from .explainer import explainer_of


class STAExplainer(pyg.ExplainerAlgorithm):
    """Masks of STAGNN and STAFormer for PyG: what nodes and edges add to the explained logit.

    A node mask is the sum of a node's contributions over hops and heads. It is signed, it sums to
    the logit less its bias (of an STAFormer nearly, see :class:`Attribution`), and nothing is
    trained. An edge mask is what comes over each edge, see :meth:`Explanation.edges`.
    With several indices the masks are summed; with none, over all nodes, one after the other.

    Masked features (PyG's fidelity, for one) need a mask of 0 and 1: threshold it, for example with
    `threshold_config={"threshold_type": "topk_hard", "value": 20}`.

    Example:
        >>> explainer = torch_geometric.explain.Explainer(  # doctest: +SKIP
        ...     model,
        ...     algorithm=STAExplainer(),
        ...     explanation_type="model",
        ...     node_mask_type="object",
        ...     model_config={
        ...         "mode": "multiclass_classification",
        ...         "task_level": "node",
        ...         "return_type": "raw",
        ...     },
        ... )
        >>> explainer(x, edge_index, index=7).node_mask  # [N, 1]  # doctest: +SKIP
    """

    def forward(
        self,
        model: Any,
        x: Any,
        edge_index: Any,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> pyg.Explanation:
        """The masks; `kwargs` are the model's: edge_weight and batch."""
        kwargs.pop("batch_size", None)  # spares the model a look at batch; not needed here
        explainer = explainer_of(model, x, edge_index, **kwargs)
        nodes = torch.arange(explainer.num_nodes) if index is None else torch.as_tensor(index)
        masks, zeros = self.explainer_config, partial(torch.zeros, dtype=x.dtype)
        by_node = None if masks.node_mask_type is None else zeros(explainer.num_nodes, 1)
        by_edge = None if masks.edge_mask_type is None else zeros(edge_index.size(1))
        for root in nodes.flatten().tolist():
            why, cls = explainer(root), int(target[root])
            if by_node is not None:
                by_node[:, 0] += why.importance(cls)
            if by_edge is not None:
                by_edge += why.edges(cls).of(edge_index, kwargs.get("edge_weight"))
        given = {"node_mask": by_node, "edge_mask": by_edge}
        found = {name: mask.to(x.device) for name, mask in given.items() if mask is not None}
        return pyg.Explanation(**found)

    def supports(self) -> bool:
        """True, or a refusal in words."""
        masks, model = self.explainer_config, self.model_config
        for asked in (masks.node_mask_type, masks.edge_mask_type):
            if asked not in (None, MaskType.object):
                raise ValueError(
                    "STAExplainer explains whole nodes and edges: use node_mask_type='object' or "
                    "edge_mask_type='object'"
                )
        wanted = (ModelMode.multiclass_classification, ModelTaskLevel.node, ModelReturnType.raw)
        if (model.mode, model.task_level, model.return_type) != wanted:
            raise ValueError(
                "STAExplainer explains the logits of nodes: use model_config={'mode': "
                "'multiclass_classification', 'task_level': 'node', 'return_type': 'raw'}"
            )
        return True
