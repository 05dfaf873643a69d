"""The processes of a job, as torchrun starts them: which one this is, what all of them agree on,
and what is said when one of them is gone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ... import _check
from ...partition import HEADS, NODES, Mesh, Ranks, as_mesh, mesh

T = TypeVar("T")

PATIENCE = timedelta(minutes=30)
"""How long a rank waits for one that lives and does not come: it may be reading its tables."""
MEETING, MEETINGS = timedelta(seconds=60), 3
"""How long ranks try to reach each other, and how often: gloo may lose a connection on a busy
machine, and would wait for it for ever."""

BATCHES = "batches"
"""Beside the dimensions of a mesh: every rank has the whole graph, and a share of each batch."""
WAYS = {
    NODES: "each rank owns some nodes, their features, targets and edges",
    HEADS: "each rank walks some heads and value columns over the whole graph",
    BATCHES: "each rank learns from a share of every batch of samples",
}


class Elsewhere(RuntimeError):
    """Another rank could not go on, and says why."""


class RankLost(RuntimeError):
    """Another process of the job is gone."""


class _Terminated(BaseException):
    """torchrun ends this process, since another one of the job has ended."""


class Job:
    """The ranks of a job, and which one this is.

    Args:
        device: what each of them computes on: a GPU is shared out by `LOCAL_RANK`.
        parallel: "nodes", "heads", or both as "nodes=2,heads=4"; or "batches".

    Attributes:
        rank, size: of this one, and of all.
        device: of this one.
        sizes: how many ranks share nodes, how many heads, and how many batches.
        mesh: those that this one shares nodes with, and those that it shares heads with.
    """

    def __init__(self, device: torch.device, parallel: str) -> None:
        refuse_outside()
        self.parallel = parallel
        self.sizes = shares(parallel, int(os.environ["WORLD_SIZE"]))
        self.device, backend = _device_and_backend(device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self._store = dist.PrefixStore("job", _meet(backend))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.mesh = self._mesh()

    def _mesh(self) -> Mesh:
        """Who shares what; where all ranks share one thing, they are a group already."""
        nodes, heads = self.sizes[NODES], self.sizes[HEADS]
        if self.shares_batches:
            return Mesh(Ranks(), Ranks())
        if heads == 1:
            return Mesh(Ranks(dist.group.WORLD), Ranks())
        if nodes == 1:
            return Mesh(Ranks(), Ranks(dist.group.WORLD))
        return as_mesh(mesh(nodes, heads), nodes)

    @property
    def shares_batches(self) -> bool:
        """Whether every rank has the whole graph, and a share of each batch."""
        return self.parallel == BATCHES

    @property
    def shares_nodes(self) -> bool:
        """Whether no rank has the whole graph."""
        return self.sizes[NODES] > 1

    @property
    def ranks(self) -> Ranks:
        """All of them."""
        return Ranks(dist.group.WORLD)

    @property
    def first(self) -> bool:
        """Whether this rank writes and speaks for all."""
        return self.rank == 0

    @property
    def restarted(self) -> bool:
        """Whether torchrun has begun again, after a process of the job was gone."""
        return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0

    def note(self, folder: Path) -> None:
        """Where this job's results are, for its next attempt."""
        if self.first:
            self._store.set("folder", str(folder))

    def noted(self) -> Path | None:
        """Where an earlier attempt of this job began to write."""
        if not self.restarted or not self._store.check(["folder"]):
            return None
        return Path(self._store.get("folder").decode())

    def agreed(self, work: Callable[[], T]) -> T:
        """What the first rank gets of some work, on all ranks; where it fails, none goes on."""
        found: list[Any] = [None, False]
        failure: BaseException | None = None
        if self.first:
            try:
                found = [work(), True]
            except Exception as error:
                failure = error
        dist.broadcast_object_list(found, src=0)
        if failure is not None:
            raise failure
        if not found[1]:
            raise Elsewhere("rank 0 could not go on")
        return found[0]

    def together(self, work: Callable[[], T]) -> T:
        """Own work of every rank; where one fails, none goes on, and the first of them says why."""
        failure: BaseException | None = None
        result: Any = None
        try:
            result = work()
        except Exception as error:
            failure = error
        failed = torch.tensor([self.size if failure is None else self.rank])
        dist.all_reduce(failed, dist.ReduceOp.MIN)
        if (rank := int(failed)) == self.size:
            return result
        if failure is not None and rank == self.rank:
            raise failure
        raise Elsewhere(f"rank {rank} could not go on") from failure

    @contextmanager
    def lasting(self, folder: Path) -> Iterator[None]:
        """Work that ends in words, said once, if a process of the job is gone."""
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            yield
        except _Terminated:
            self._lost(folder)
        except RuntimeError as error:
            if isinstance(error, Elsewhere) or not _of_communication(error):
                raise
            self._lost(folder)
        finally:
            signal.signal(signal.SIGTERM, before)

    def _lost(self, folder: Path) -> None:
        words = (
            f"error: a process of this job has ended before the others (this is rank {self.rank} "
            f"of {self.size}), so all of them end. What was saved is in {folder}: the same command "
            f"with --out {folder} goes on from there, with any number of processes; torchrun "
            "--max-restarts does so by itself"
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        said = folder / f".ended-{os.environ.get('MASTER_PORT', '')}-{attempt}"
        with suppress(FileExistsError, OSError):
            os.close(os.open(said, os.O_CREAT | os.O_EXCL))
            print(words, file=sys.stderr, flush=True)
        raise RankLost(words)

    def end(self) -> None:
        """All is done."""
        dist.destroy_process_group()


def _meet(backend: str) -> dist.Store:
    """Make a group of all ranks; the store where they met outlives an attempt."""
    store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    for meeting in range(MEETINGS):
        # A place of its own: at that of an earlier attempt are addresses of processes now gone.
        place = dist.PrefixStore(f"attempt {attempt}, meeting {meeting}", store)
        how = {"store": place, "rank": rank, "world_size": size, "timeout": MEETING}
        try:
            dist.init_process_group(backend, **how)
        except RuntimeError:
            if meeting + 1 == MEETINGS:
                raise
        else:
            break
    # From now on whoever is late is at work.
    dist.distributed_c10d._set_pg_timeout(PATIENCE)
    return store


def refuse_outside() -> None:
    """Refuse to be alone: ranks are started by torchrun."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "--parallel is for the processes of a job, and this one is alone: start it with "
            "'torchrun --nproc-per-node=4 -m subtree_attention train ...'"
        )


def refuse_many() -> None:
    """Refuse many processes that know nothing of each other."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if size > 1:
        raise ValueError(
            f"torchrun has started {size} processes, and each of them would train the same: say "
            "how they share the work, by --parallel nodes, heads or batches"
        )


def shares(parallel: str, ranks: int) -> dict[str, int]:
    """How many ranks share nodes, heads and batches: of 'nodes', 'heads', 'nodes=2,heads=4' or
    'batches'."""
    _check.kind("parallel", parallel, str, "a text")
    found = dict.fromkeys(WAYS, 1)
    if "=" not in parallel:
        return {**found, _check.known("parallel", parallel, WAYS): ranks}
    for part in parallel.split(","):
        name, _, count = part.partition("=")
        if not count.strip().isascii() or not count.strip().isdigit():
            raise ValueError(f"parallel is nodes, heads or nodes=2,heads=4, got {parallel!r}")
        known = _check.known("parallel", name.strip(), [NODES, HEADS])
        found[known] = _check.integer(known, int(count), 1)
    if found[NODES] * found[HEADS] != ranks:
        raise ValueError(
            f"parallel={parallel!r} is for {found[NODES] * found[HEADS]} ranks, but there are "
            f"{ranks}"
        )
    return found


def sweep(folder: Path) -> None:
    """Remove what ranks of an earlier attempt have left to speak once."""
    for said in folder.glob(".ended-*"):
        said.unlink(missing_ok=True)


def _device_and_backend(device: torch.device) -> tuple[torch.device, str]:
    """What this rank computes on, and what carries its rows.

    NCCL takes one rank a GPU; where ranks share one, gloo carries what they send.
    """
    if device.type != "cuda" or device.index is not None:
        return device, "gloo"
    rank = int(os.environ.get("LOCAL_RANK", 0))
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpus = torch.cuda.device_count()
    backend = "cpu:gloo,cuda:nccl" if gpus >= ranks else "gloo"
    return torch.device("cuda", rank % gpus), backend


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def _of_communication(error: RuntimeError) -> bool:
    """Whether ranks could not be reached, as far as the words of libraries tell."""
    if isinstance(error, dist.DistError):
        return True
    if type(error) is not RuntimeError:  # those of others say what is wrong
        return False
    words = str(error).lower()
    return any(name in words for name in ("gloo", "nccl", "connection closed", "peer", "socket"))
