"""A graph on disk: seconds, bytes and memory to write it, to make it of tables, and to open it.

    python -m experiments.benchmarks.store --out results/store-cpu.json
    python -m experiments.benchmarks.store --sizes 1e7:1e8 --cases plant,train \
        --out results/store-training-cpu.json

A made graph (`planted`) of each size is written into a store; its tables, in files of Parquet with
a column of vectors, are read into another one; and the first is opened, walked on and read from in
batches. `train` learns from it by `fit` on samples, with a budget of memory for evaluation. Each in
a fresh process. `anonymous` is the peak of RssAnon in /proc/self/status, looked at
every 5 milliseconds, less what the process had before (Linux only): memory that the process asked
for. Pages of mapped files are not in it, which the system drops when others need the room.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import polars as pl
import torch

from experiments.benchmarks.script import leave, parser
from subtree_attention import fit, planted, recipe
from subtree_attention import open as open_run
from subtree_attention.datasets import Store, store_tables
from subtree_attention.train.large import BATCH as LARGE_BATCH

CLASSES = 16
PART = 2**18
"""Rows of a file of a table."""
BATCH, BATCHES = 8192, 50
MEMORY, EPOCHS = "7GB", 1
"""Of training: what evaluation may take, and how often it is done."""


def main() -> None:
    command = parser(
        __doc__,
        sizes=("1e6:1e7,1e7:1e8", "nodes:edges, both directions counted"),
        features=(128, "columns of x"),
        folder=("", "where files are meanwhile; by default a temporary folder"),
        cases=("plant,open,write_tables,tables", "what is measured, in this order"),
        threads=(2, "of torch"),
        case="",
    )
    options = command.parse_args()
    if options.case:  # the fresh process
        torch.set_num_threads(options.threads)
        case = json.loads(options.case)
        print(json.dumps(CASES[case.pop("what")](**case)))
        return

    def measured(**case: Any) -> Any:
        child = [sys.executable, "-m", __spec__.name, "--threads", str(options.threads)]
        child += ["--case", json.dumps(case), "--out", str(options.out)]
        done = subprocess.run(child, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        print(case, found, flush=True)
        return found

    results: dict[str, Any] = {"features": options.features, "sizes": []}
    for size in options.sizes.split(","):
        nodes, edges = (int(float(count)) for count in size.split(":"))
        with TemporaryDirectory(dir=options.folder or None) as folder:
            graph = {"nodes": nodes, "edges": edges}
            shape = graph | {"features": options.features}
            cases = options.cases.split(",")
            result = graph | {
                what: measured(what=what, folder=folder, **(shape if what == "plant" else {}))
                for what in cases
            }
        results["sizes"].append(result)
    leave(options.out, results)


def _anonymous() -> int:
    """Bytes of memory that belong to no file, now; 0 where that cannot be told."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


@contextmanager
def _watched() -> Iterator[dict[str, Any]]:
    """What it takes until it ends: seconds, and bytes of anonymous memory at most."""
    result: dict[str, Any] = {}
    before, peak, over = _anonymous(), [0], Event()

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], _anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        yield result
    finally:
        result["seconds"] = round(time.perf_counter() - start, 3)
        over.set()
        watcher.join()
        result["anonymous"] = max(peak[0] - before, 0)
        result["process"] = peak[0]  # with all that was there before


def _plant(folder: str, nodes: int, edges: int, features: int) -> dict[str, Any]:
    """A made graph, written into a store part by part."""
    with _watched() as result:
        planted(nodes, edges // 2, CLASSES, features, folder=f"{folder}/store")
    return result | {"bytes": Store.open(f"{folder}/store").num_bytes}


def _open(folder: str) -> dict[str, Any]:
    """Open it, make the matrix to walk on, and read the rows of some batches."""
    with _watched() as opened:
        store = Store.open(f"{folder}/store")
    with _watched() as walked:
        store.graph().matrix()
    draw, x = torch.Generator().manual_seed(0), store.dataset.x
    with _watched() as read:
        for _ in range(BATCHES):
            x[torch.randint(store.num_nodes, (BATCH,), generator=draw)].sum()
    with _watched() as verified:
        store.verify()
    batches = {"rows": BATCH, "batches": BATCHES, **read}
    return {"open": opened, "matrix": walked, "rows": batches, "verify": verified}


def _write_tables(folder: str) -> dict[str, Any]:
    """The tables of the graph: what the next case reads, and no part of what is measured."""
    store, data = Store.open(f"{folder}/store"), Store.open(f"{folder}/store").dataset
    for what in ("nodes", "edges"):
        Path(f"{folder}/{what}").mkdir()
    for start in range(0, store.num_nodes, PART):
        some = slice(start, start + PART)
        columns = {"id": range(start, start + len(data.y[some])), "x": data.x[some].numpy()}
        frame = pl.DataFrame(columns | {"label": data.y[some].numpy()})
        frame.write_parquet(f"{folder}/nodes/part-{start:012}.parquet")
    counts = store.rowptr.diff().long()
    for start in range(0, store.num_nodes, PART):
        of = slice(start, start + PART)
        dest = torch.arange(start, start + len(counts[of])).repeat_interleave(counts[of])
        first = int(store.rowptr[start])
        source = store.col[first : first + len(dest)].long()
        once = source <= dest
        frame = pl.DataFrame({"source": source[once].numpy(), "target": dest[once].numpy()})
        frame.write_parquet(f"{folder}/edges/part-{start:012}.parquet")
    files = [
        path.stat().st_size for what in ("nodes", "edges") for path in Path(folder, what).iterdir()
    ]
    return {"bytes": sum(files)}


def _tables(folder: str) -> dict[str, Any]:
    """The tables as a store, a part of them at a time."""
    with _watched() as result:
        store = store_tables(f"{folder}/nodes", f"{folder}/edges", "label", f"{folder}/tables")
    return result | {"bytes": store.num_bytes, "edges": store.num_edges}


def _train(folder: str) -> dict[str, Any]:
    """Some epochs of steps on samples, each evaluated on the whole graph."""
    data = Store.open(f"{folder}/store").dataset
    config = recipe(data, graph="made-up", batch=LARGE_BATCH, epochs=EPOCHS)
    with _watched() as result:
        found = fit(config, f"{folder}/run", data=data, memory=MEMORY, device="cpu")
    curves = [vars(epoch) for epoch in open_run(found.folder).curves]
    return result | {"memory": MEMORY, "settings": config.flat(), "epochs": curves}


CASES: dict[str, Callable[..., dict[str, Any]]] = {
    "plant": _plant,
    "open": _open,
    "write_tables": _write_tables,
    "tables": _tables,
    "train": _train,
}


if __name__ == "__main__":
    main()
