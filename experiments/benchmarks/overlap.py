"""What it is worth that ranks compute while rows travel: two ranks, over links of some speeds.

Two processes, each with a thread, share the nodes of a made-up graph over gloo, in a network of
their own whose one link the kernel slows down (`tc`, a token bucket; needs Linux and root). A step
is forward and backward pass of the operator. "in turns" is what we do: two parts of the heads, of
which one computes while rows of the other travel; "one after the other" walks all heads at once
and waits. Both in one job, in alternation; the least of some rounds, of the slower rank.

    python -m experiments.benchmarks.overlap --out results/overlap-cpu.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import subtree_attention as sta
from experiments.benchmarks.script import leave, parser
from subtree_attention.ops import walk

GIGABITS = (0, 8, 4, 2, 1)
"""Speeds of the link; 0 is as fast as the machine copies."""
HOPS, HEADS, CHANNELS, VALUES = 3, 4, 16, 16
WAYS = {"one after the other": 1, "in turns": 2}
"""Parts that walk at a time."""
PLACE = "sta-overlap"
"""The network of the ranks."""


def main() -> None:
    sizes = {"nodes": 50_000, "edges": 500_000}
    arguments = parser(__doc__, rounds=5, inside=("", "not for you"), **sizes).parse_args()
    if arguments.inside:
        _rank(arguments.nodes, arguments.edges, arguments.rounds, arguments.out)
        return
    rows = []
    for speed in GIGABITS:
        rows.append({"gigabits": speed, **_job(speed, sys.argv[1:])})
        print(rows[-1])
    about = {"hops": HOPS, "heads": HEADS, "channels": CHANNELS, "values": VALUES, "ranks": 2}
    given = {name: getattr(arguments, name) for name in (*sizes, "rounds")}
    leave(arguments.out, {**about, **given, "links": rows}, load=round(os.getloadavg()[0], 1))


def _job(speed: int, words: list[str]) -> dict[str, Any]:
    """Seconds of a step for each way, over a link of so many gigabits a second."""
    rate = ["rate", f"{speed}gbit", "burst", "1mb", "latency", "200ms"]
    slow = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *rate]
    inside = ["ip", "netns", "exec", PLACE]
    _run("ip", "netns", "add", PLACE)
    try:
        _run(*inside, "ip", "link", "set", "lo", "up")
        if speed:
            _run(*inside, *slow)
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "seconds.json"
            here = ["--master-addr", "127.0.0.1", "--local-addr", "127.0.0.1"]  # the one name there
            launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", *here]
            script = ["-m", __spec__.name, *words, "--inside", "yes", "--out", str(found)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            command = [*inside, sys.executable, *launcher, *script]
            subprocess.run(command, check=True, env=environment)
            return dict(json.loads(found.read_text()))
    finally:
        _run("ip", "netns", "del", PLACE)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _rank(nodes: int, edges: int, rounds: int, out: Path) -> None:
    """One of the two: it times its steps, and the first leaves those of the slower one."""
    dist.init_process_group("gloo")
    data = sta.planted(nodes, edges, 8, 4, seed=0)
    whole = sta.Graph.from_data(data)
    partition = sta.Partition.streaming([data.edge_index], nodes, parts=2)
    graph = sta.PartGraph.of(whole, partition, sta.mesh(nodes=2, heads=1))
    step = _step(graph)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):  # the first compiles
        for way, walk.LANES in WAYS.items():
            walk._planned.cache_clear()  # plans are made of so many parts
            dist.barrier()
            start = time.perf_counter()
            step()
            took = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds[way] += [float(took)] * (number > 0)
    sent = torch.tensor([_sent(graph, step)], dtype=torch.float64)
    dist.all_reduce(sent, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        least = {way: min(each) for way, each in seconds.items()}
        gain = least["one after the other"] / least["in turns"]
        found = {"sent_bytes": int(sent), "gain": round(gain, 3), "seconds": seconds}
        out.write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)


def _step(graph: sta.PartGraph) -> Callable[[], None]:
    torch.manual_seed(0)
    own = len(graph.nodes)
    query, key = (torch.rand(own, HEADS, CHANNELS, requires_grad=True) for _ in range(2))
    value = torch.randn(own, HEADS, VALUES, requires_grad=True)
    weights = torch.ones(HOPS + 1, HEADS)

    def step() -> None:
        sta.subtree_attention(query, key, value, graph, HOPS, weights).sum().backward()

    return step


def _sent(graph: sta.PartGraph, step: Callable[[], None]) -> int:
    """What this rank sends in a step, in bytes."""
    ways = [way for way in (graph.shared.there, graph.shared.back) if way is not None]
    before = sum(way.sent_bytes for way in ways)
    step()
    return sum(way.sent_bytes for way in ways) - before


if __name__ == "__main__":
    main()
