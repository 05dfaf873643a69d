"""Every command in Python's development mode: no warning comes from our files."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.samples import csv_text, friends, people

ROOT = Path(__file__).parents[1]
QUICK = "--runs 1 --epochs 3 --hops 2 --device cpu"
TABLES = "--nodes nodes.csv --edges edges.csv"
CORA = [f"train cora {QUICK} --data-dir data --out cora"] * ("STA_MIRROR" in os.environ)
COMMANDS = [
    *CORA,
    "--version",
    "info",
    "datasets",
    f"train digits {QUICK} --out digits",
    f"train {TABLES} --target label --weight strength {QUICK} --out mine",
    "train --resume --out mine",
    "evaluate mine",
    "predict mine --out p.csv",
    "predict mine --out p.parquet",
    f"predict mine {TABLES} --out new.csv",
    "explain mine p1",
    "explain digits 7 --json",
    "report mine",
    "check mine",
    "predict mine --blocks --part-rows 20 --out parts",
    "explore mine --no-open --port",  # the next free one
    "serve mine --port",
    "tune digits --trials 2 --runs 1 --epochs 3 --out study",
    "train nonsense",
    "evaluate nowhere",
]
# What warns is kept with where; a file that is left open warns when it is collected.
DRIVER = """
import gc, json, os, shlex, signal, socket, sys, threading, time, urllib.request, warnings
seen, codes = [], []
def keep(message, category, filename, line, *_):
    seen.append((category.__name__, filename, line, str(message)))
warnings.showwarning = keep
warnings.simplefilter("always")
sys.unraisablehook = lambda it: seen.append(("unraisable", repr(it.object), 0, repr(it.exc_value)))
from subtree_attention import cli

def look(path, port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                answer.read()
            break
        except OSError:
            time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
for line in json.load(sys.stdin):
    words = shlex.split(line)
    if words[-1] == "--port":
        with socket.create_server(("127.0.0.1", 0)) as free:
            words.append(str(free.getsockname()[1]))
        path = "api/graph" if words[0] == "explore" else "model"
        threading.Thread(target=look, args=[path, words[-1]]).start()
    try:
        cli.main(words)
    except SystemExit as end:
        codes.append(end.code or 0)
    gc.collect()
with open("seen.json", "w", encoding="utf-8") as file:
    json.dump([codes, seen], file)
"""


def test_no_command_warns_because_of_us(tmp_path: Path) -> None:
    for name, columns in (("nodes.csv", people()), ("edges.csv", friends())):
        (tmp_path / name).write_text(csv_text(columns), encoding="utf-8")
    command = [sys.executable, "-X", "dev", "-X", "warn_default_encoding", "-c", DRIVER]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command,
        input=json.dumps(COMMANDS),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    codes, seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert codes == [0] * (len(COMMANDS) - 2) + [2, 2], done.stderr
    of_ours = [one for one in seen if one[0] in ("ResourceWarning", "unraisable")]
    inside = [one for one in seen if Path(one[1]).is_relative_to(ROOT)]
    of_ours += [one for one in inside if "site-packages" not in one[1]]  # .venv lies there too
    assert not of_ours


@pytest.mark.parametrize("folder", ["src", "experiments", "examples", "docs", "tests"])
def test_no_file_warns_when_it_is_compiled(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in (ROOT / folder).rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), path, "exec")
