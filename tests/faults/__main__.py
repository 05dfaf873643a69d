"""Inject every fault into every command: `python -m tests.faults --out results/faults.json`."""

import tests.faults.without_numba  # isort: skip  # noqa: F401

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from subtree_attention import io
from subtree_attention.runs import evaluate
from subtree_attention.runs import folder as files
from subtree_attention.runs.environment import environment
from tests.faults.commands import COMMANDS, call, copied, warm_up
from tests.faults.disk import flip
from tests.faults.injection import (
    Case,
    Lost,
    Reference,
    check_left,
    inject,
    is_finished,
)

KILLS = 20
"""Of each command that trains, at random times."""
FLIPS = 20
"""Of each file of a finished run folder."""
MOST = 300
"""Faults of a command; of one that takes more steps, every second or third."""
MEMORY = Path("/dev/shm")
"""Where nobody waits for a disk, if there is such a place."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file of the results")
    parser.add_argument("--only", nargs="*", choices=COMMANDS, help="some commands only")
    parser.add_argument("--every", type=int, default=1, help="only every so manieth fault")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    started = time.monotonic()
    torch.set_num_threads(1)  # threads do not survive a fork
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=place) as name:
        folder = Path(name)
        warm_up(folder / "warm")
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(arguments.processes, context) as pool:
            names, every = arguments.only or [*COMMANDS], arguments.every
            results = dict(_all(names, every, folder, pool.map))
    lost = [words for found in results.values() for words in found["lost"]]
    for words in lost:
        print(f"LOST  {words}")
    result = {"seconds": round(time.monotonic() - started), "results": results}
    if arguments.out:
        io.write_json(arguments.out, result | {"environment": environment(torch.device("cpu"))})
    sys.exit(bool(lost))


def _all(
    names: list[str], every: int, folder: Path, map: Callable[..., Any]
) -> Iterator[tuple[str, Any]]:
    """What was tried with each command, how it ended, and what was lost."""
    for name in names:
        begun = time.monotonic()
        reference = Reference.of(name, folder / name.replace(" ", "-"))
        cases = list(reference.cases())[every // 2 :: every]
        cases = cases[:: 1 + len(cases) // MOST]
        ends = list(map(partial(_injected, reference, folder), cases))
        about = {"files": len({step.file for step in reference.steps})}
        about |= {"faults": Counter(case.fault.kind for case in cases)}
        yield name, _told(name, begun, ends, **about)
        if name in ("train", "tune"):
            begun, what = time.monotonic(), f"{name}, killed at random"
            ends = list(map(partial(_killed, reference, folder), range(0, KILLS, every)))
            yield what, _told(what, begun, ends, faults={"death": len(ends)})
        if name == "predict":
            begun, what = time.monotonic(), "bits of a finished run"
            ends = list(_flipped(reference.start / "out", folder / "flipped", every))
            yield what, _told(what, begun, ends, faults={"flip": len(ends)})


def _told(what: str, begun: float, ends: list[str], **about: Any) -> dict[str, Any]:
    lost = [end for end in ends if ":" in end]
    counts = Counter("lost" if ":" in end else end for end in ends)
    words = ", ".join(f"{count} {end}" for end, count in counts.items())
    print(f"{what}: {len(ends)} faults, {words} ({time.monotonic() - begun:.0f} s)", flush=True)
    return about | {"outcomes": counts, "lost": lost}


def _injected(reference: Reference, folder: Path, case: Case) -> str:
    try:
        return inject(case, reference, folder / f"case-{os.getpid()}")
    except Lost as error:
        return f"{case}: {error}"


def _killed(reference: Reference, folder: Path, seed: int) -> str:
    """Kill a command at random times, again and again until it gets through."""
    chance, run = random.Random(seed), COMMANDS[reference.name].run
    here, code, said = copied(reference.start, folder / f"case-{os.getpid()}"), -9, ""
    for _ in range(30):
        if code == -9:
            code, said, _ = call(run, here, kill=chance.uniform(0.01, 1.0))
    try:
        if code == -9:
            code, said, _ = call(run, here)
        if code != 0 and not is_finished(said):
            raise Lost(said)
        check_left(reference, here)
    except Lost as error:
        return f"{reference.name}, kill {seed}: {error}"
    return "went on"


def _flipped(whole: Path, here: Path, every: int) -> Iterator[str]:
    """Bits of a finished run: checking the folder must notice each, and asking its models must
    give what they gave, or words."""
    chance, scores = random.Random(0), [found[1:4] for found in evaluate(whole, device="cpu")]
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        for number in range(0, FLIPS, every):
            name = path.relative_to(whole)
            flip(copied(whole, here) / name, chance.random())
            end = "named"
            if not any(words for _, words in files.check(here)):
                end = f"flip {number} of {name}: not noticed"
            try:
                found = [found[1:4] for found in evaluate(here, device="cpu")]
                if found != scores:
                    end = f"flip {number} of {name}: other scores"
            except io.FileError:
                pass
            yield end


if __name__ == "__main__":
    main()
