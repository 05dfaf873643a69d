"""A sample of the faults that `make faults` injects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_nothing_is_lost() -> None:
    command = [sys.executable, "-m", "tests.faults", "--every", "80", "--processes", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    here = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" faults, ") >= 10, done.stdout  # every command, kills, and bits
