"""Some processes that read pieces together: started once, for many cases."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing

SIZES = (1, 2, 4)
"""How many of the processes read a case."""


@dataclass(frozen=True)
class Case:
    """Tables, and how they are asked for."""

    name: str
    nodes: str
    edges: str
    asked: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (2,)
    measured: bool = False
    """Whether the growth of memory is kept, beside that of one process that reads all."""
    drawn: bool = False
    """Whether a random split is drawn too."""
    passes: int = 2
    """Over the nodes, to find their owners."""


def run(cases: list[Case], out: Path) -> None:
    """The pieces of all cases, or their errors, as files in a folder: see `found`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
    torch.multiprocessing.spawn(_work, (port, cases, out), nprocs=max(SIZES))


def found(out: Path, case: Case, size: int) -> list[Any]:
    """What each rank has: a `Piece`, or the error that it raised."""
    names = [out / f"{case.name}-{size}-{rank}.pt" for rank in range(size)]
    return [torch.load(name, weights_only=False) for name in names]


def growth(out: Path, case: Case, who: str | int) -> int:
    """By how many bytes the memory of a rank has grown at most, or that of the `whole`."""
    return int((out / f"{case.name}-{who}.txt").read_text())


def _work(rank: int, port: int, cases: list[Case], out: Path) -> None:
    from subtree_attention.datasets import from_tables
    from subtree_attention.datasets.pieces import owners, read_piece
    from subtree_attention.datasets.tables import names, ranks

    usual = ranks.BLOCK, ranks.PIVOTS, names.ROWS
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=max(SIZES),
        timeout=timedelta(seconds=60),
    )
    groups = {size: torch.distributed.new_group(list(range(size))) for size in SIZES}
    for case in cases:
        # Small tables in several blocks; large ones as they are.
        few = usual if case.measured else (2**14, 16, 100)
        ranks.BLOCK, ranks.PIVOTS, names.ROWS = few
        owners.PASSES = case.passes
        for size in case.sizes:
            if rank >= size:
                continue
            if case.measured and rank == 0:
                with _watched(out / f"{case.name}-whole.txt"):
                    from_tables(case.nodes, case.edges, **case.asked)
            torch.distributed.barrier(groups[size])
            with _watched(out / f"{case.name}-{rank}.txt" if case.measured else None):
                try:
                    piece: Any = read_piece(
                        case.nodes, case.edges, **case.asked, group=groups[size]
                    )
                except Exception as error:
                    piece = (type(error).__name__, str(error))
            torch.save(piece, out / f"{case.name}-{size}-{rank}.pt")
            if case.drawn:
                drawn = piece.random_split("A", 3, groups[size])
                torch.save(drawn, out / f"{case.name}-drawn-{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@contextmanager
def _watched(file: Path | None) -> Iterator[None]:
    """Write down by how much the resident memory grows at most, where Linux says so."""
    if file is None or not Path("/proc/self/clear_refs").exists():
        yield
        return
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    yield
    file.write_text(str(_status("VmHWM") - before))


def _status(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(what)).split()[1])
