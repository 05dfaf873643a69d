"""Which weight decay a baseline wants: its validation score on the first split with each.

python benchmarks/weight_decay.py photo --model GCN --out results/weight-decay-photo.json
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from subtree_attention.reproduce.command import jobs_of
from subtree_attention.reproduce.training import Place, run
from subtree_attention.train.folder import environment, write_json
from subtree_attention.train.loop import choose_device

DECAYS = (5e-4, 5e-5, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph")
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--decay", action="append", type=float)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device: torch.device = choose_device(arguments.device)
    first = jobs_of("table1", [arguments.graph], arguments.model, runs=1)
    jobs = [
        replace(job, settings={"weight_decay": decay})
        for decay in arguments.decay or DECAYS
        for job in first
    ]
    records = []
    for outcome in run(jobs, Place(device)):
        if outcome.record is None:
            raise SystemExit(f"{outcome.job}: {outcome.error}")
        records.append(outcome.record)
        decay, train, val = (outcome.record[name] for name in ("settings", "train", "val"))
        print(
            f"{outcome.job}, weight decay {decay['weight_decay']:g}: "
            f"{100 * train:.2f} on training nodes, {100 * val:.2f} on validation nodes",
            flush=True,
        )
        write_json(arguments.out, {"records": records, "environment": environment(device)})


if __name__ == "__main__":
    main()
