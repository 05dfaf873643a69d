"""From tables in parts to the piece of each rank.

Each rank reads some rows and does with them what one process does with all (`tables.ranks`): kinds
of columns, means, vocabularies and names are found together. Then edges say who is to own which
node, and rows and edges go to their owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ... import _check
from ..features import from_scipy, is_csr, to_scipy
from ..splits import Split, own_codes
from ..tables import ranks
from ..tables.lazy import pl
from ..tabular import Asked, Read, edge_parts, read_tables
from .owners import find_owners
from .piece import Piece

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def read_piece(
    nodes: str | Path,
    edges: str | Path,
    target: str | None = None,
    *,
    id: str | None = None,
    source: str | None = None,
    dest: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    directed: bool = False,
    split_column: str | None = None,
    unknown_ends: str = "error",
    task: str = "classification",
    group: ProcessGroup | None = None,
) -> Piece:
    """The piece of this rank of a graph whose tables no rank reads alone.

    All ranks of the group call it with the same arguments, and get the same schema, classes and
    notes: those that `from_tables` gets from the whole tables. An error is raised on all of them.

    Args:
        nodes: a folder or a pattern of parts, or one file: Parquet, CSV or JSON lines. Ranks read
            whole parts; of fewer Parquet files than ranks, rows.
        edges: likewise.
        target, id, source, dest, weight, features, leave_out, directed, split_column: as in
            `from_tables`.
        unknown_ends, task: as in `from_tables`.
        group: processes that talk by tensors on the CPU (gloo); by default the group of all.
    """
    tables = _check.path("nodes", nodes), _check.path("edges", edges)
    columns = target, id, source, dest, weight, features, leave_out
    asked = Asked(*columns, directed, split_column, unknown_ends, task=task)
    with ranks.among(_talking(group)):
        ranks.refuse_other_hashes()
        read = read_tables(*tables, asked)
        rows = read.names.start, len(read.names.ids)
        owner = find_owners(read.edges.index, *rows, read.num_nodes, directed)
        return _piece(read, owner)


def _talking(group: ProcessGroup | None) -> ProcessGroup | None:
    """The group, if its processes can send each other what is in the memory of the host."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise RuntimeError(
            "a piece is read by processes of torch.distributed, of which there are none yet: start "
            "them by torchrun and call torch.distributed.init_process_group('gloo'), or read the "
            "whole tables by from_tables"
        )
    if torch.distributed.get_rank(group) < 0:
        raise ValueError("this process is not in the group: those that are read the tables")
    backend = torch.distributed.get_backend(group)
    if "gloo" not in torch.distributed.get_backend_config(group):
        raise ValueError(
            f"ranks that read tables talk by gloo, but the group has {backend}: pass a group of "
            "torch.distributed.new_group(backend='gloo')"
        )
    return group


def _piece(read: Read, owner: np.ndarray) -> Piece:
    """What was read, at its owners [N]."""
    first, count = read.names.start, len(read.names.ids)
    to = owner[first : first + count].astype(np.int64)
    names = ranks.route(pl.DataFrame({"id": read.names.ids}), to)["id"].to_list()
    codes = None if read.split is None else ranks.route_rows(_codes(read.split), to)
    edge_index, edge_weight = _edges(read, owner)
    return Piece(
        nodes=torch.from_numpy(ranks.route_rows(np.arange(first, first + count), to)),
        x=_features(read.x, to),
        y=torch.from_numpy(ranks.route_rows(read.y.numpy(), to)),
        edge_index=edge_index,
        edge_weight=edge_weight,
        num_nodes=read.num_nodes,
        num_edges=read.edges.count,
        partition=torch.from_numpy(owner),
        split=None if codes is None else Split.from_codes(torch.from_numpy(codes)),
        classes=read.classes,
        ids=names,
        schema=read.schema,
        notes=read.notes,
        source=read.source,
        read=read.files,
    )


def _codes(split: Split) -> np.ndarray:
    """One number [n] for each node that says which parts it is in."""
    codes: np.ndarray = own_codes(*split).flatten().numpy()
    return codes


def _features(x: Tensor, to: np.ndarray) -> Tensor:
    """The rows of x [n, F] at their owners, in the layout that they have."""
    if is_csr(x):
        return from_scipy(ranks.route_rows(to_scipy(x), to))
    return torch.from_numpy(ranks.route_rows(x.numpy(), to))


def _edges(read: Read, owner: np.ndarray) -> tuple[Tensor, Tensor | None]:
    """The edges [2, E_r] at the owners of their ends, by end and start, and their weights."""
    parts = edge_parts(read.edges)
    index, weight = parts["edge_index"].numpy(), parts["edge_weight"]
    columns = {"source": index[0], "dest": index[1]}
    columns |= {} if weight is None else {"weight": weight.numpy()}
    found = ranks.route(pl.DataFrame(columns), owner[index[1]].astype(np.int64))
    found = found.sort("dest", "source")
    both = np.stack([found[name].to_numpy() for name in ("source", "dest")])
    weights = None if weight is None else torch.from_numpy(found["weight"].to_numpy(writable=True))
    return torch.from_numpy(both), weights
