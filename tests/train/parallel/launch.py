"""Jobs of a few processes on this machine, started by torchrun as people start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SRC = Path(__file__).parents[3] / "src"
SECONDS = 240


DIES = """
import os, runpy, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(9)
runpy.run_module("subtree_attention", run_name="__main__", alter_sys=True)
"""
"""A program whose first attempt ends before anything is done."""


def start(
    folder: Path, ranks: int, *words: str, restarts: int = 0, program: Path | None = None
) -> subprocess.Popen[str]:
    """A job of `sta` with these words, in a folder; on a CPU unless they say where."""
    words = words if "--device=cuda" in words else (*words, "--device=cpu")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    how = [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [*launcher, *how, *([program] if program else ["-m", "subtree_attention"]), *words],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def ended(job: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a job, and what it said; a job that does not end is killed."""
    try:
        said, _ = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        for pid in [*_ranks(job).values(), job.pid]:
            os.kill(pid, signal.SIGKILL)
        said, _ = job.communicate()
        raise AssertionError(f"the job did not end: {said}") from None
    return job.returncode, said


def run(folder: Path, ranks: int, *words: str) -> str:
    """What a job says that goes well."""
    code, said = ended(start(folder, ranks, *words))
    assert code == 0, said
    return said


def kill_a_rank(job: subprocess.Popen[str], rank: int, when: Path) -> float:
    """Kill a rank as soon as a file is there; when that was."""
    until = time.monotonic() + SECONDS
    while not when.exists():
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < until, "nothing was saved"
        time.sleep(0.05)
    os.kill(_ranks(job)[rank], signal.SIGKILL)
    return time.monotonic()


def _ranks(job: subprocess.Popen[str]) -> dict[int, int]:
    """The process of each rank: children of torchrun, in sessions of their own."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            words = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = next((word for word in words if word.startswith(b"RANK=")), None)
        if parent == job.pid and rank is not None:
            found[int(rank[5:])] = int(place.name)
    return found


def curves(folder: Path, run: int = 0) -> list[dict[str, Any]]:
    """The epochs of a run."""
    lines = (folder / f"run-{run}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
