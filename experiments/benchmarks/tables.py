"""How long two tables take to become a graph, and how much memory: a million nodes by default.

    python -m experiments.benchmarks.tables --out results/tables.json

The files are made first (random ids, four numeric columns with gaps, a category, labels of a
tenth of the nodes; edges between ids drawn at random). They are then loaded in a fresh process:
its seconds count from the call of `from_tables`, its largest memory from its start. Linux only.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from experiments.benchmarks.script import leave, parser

LOAD = """
import json, re, sys, time
from pathlib import Path
import subtree_attention as sta

def most():  # not ru_maxrss, which a process inherits from the one that started it
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 2**20

imported, start = most(), time.perf_counter()
data = sta.from_tables(sys.argv[1], sys.argv[2], target="label")
seconds = time.perf_counter() - start
sizes = {"nodes": data.num_nodes, "edges": data.num_edges, "features": data.num_features}
memory = {"peak_gib": most(), "imports_gib": imported}
print(json.dumps({"seconds": seconds, **memory, **sizes, "notes": data.notes.words}))
"""


def main() -> None:
    arguments = parser(__doc__, nodes=10**6, edges=10**7).parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            files = write_files(Path(folder), arguments.nodes, arguments.edges, suffix)
            print(f"{suffix}: {', '.join(f'{f.stat().st_size / 2**20:.0f} MB' for f in files)}")
            results[suffix] = load(files)
            took, peak = results[suffix]["seconds"], results[suffix]["peak_gib"]
            print(f"  loaded in {took:.1f} s, at most {peak:.2f} GiB", flush=True)
    leave(arguments.out, {"files": results, "polars": pl.__version__})


def write_files(folder: Path, num_nodes: int, num_edges: int, suffix: str) -> list[Path]:
    """Tables of nodes and edges, the same for every suffix."""
    random = np.random.default_rng(0)
    ids = np.char.add("n", random.permutation(10 * num_nodes)[:num_nodes].astype(str))
    numbers = random.normal(size=(4, num_nodes)).round(4)
    numbers[:, random.random(num_nodes) < 0.05] = np.nan
    labels = np.char.add("class ", random.integers(0, 10, num_nodes).astype(str)).astype(object)
    labels[random.random(num_nodes) > 0.1] = None
    nodes = pl.DataFrame(
        {
            "id": ids,
            **{f"value {i}": pl.Series(column).fill_nan(None) for i, column in enumerate(numbers)},
            "city": np.char.add("city ", random.integers(0, 20, num_nodes).astype(str)),
            "label": pl.Series(labels.tolist(), dtype=pl.String),
        }
    )
    ends = random.integers(0, num_nodes, (2, num_edges))
    edges = pl.DataFrame({name: ids[end] for name, end in zip(("from", "to"), ends, strict=True)})
    files = [folder / f"nodes.{suffix}", folder / f"edges.{suffix}"]
    for frame, file in zip((nodes, edges), files, strict=True):
        frame.write_csv(file) if suffix == "csv" else frame.write_parquet(file)
    return files


def load(files: list[Path]) -> dict[str, object]:
    """What a fresh process says after loading the files."""
    command = [sys.executable, "-c", LOAD, *map(str, files)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, object] = json.loads(done.stdout)
    for name in ("seconds", "peak_gib", "imports_gib"):
        result[name] = round(float(str(result[name])), 2)
    result["notes"] = [note.replace(f"{files[0].parent}/", "") for note in result["notes"]]  # type: ignore[attr-defined]
    return result


if __name__ == "__main__":
    main()
