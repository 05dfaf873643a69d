"""Run folders that were damaged, or made by somebody who means harm, opened in a bounded process.

Damage is named, or changes nothing. Whoever signs a folder anew may make it say other numbers, but
it cannot take memory or time, and errors stay in words.
"""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import folder as files
from tests.samples import friends, people

pytest.importorskip("hypothesis")
resource = pytest.importorskip("resource")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as some  # noqa: E402

SECONDS = 60
MORE_BYTES = 2**30
"""That a folder may take beyond what the undamaged one took."""

# Answers with the numbers of each folder that it is told, or with the error.
WORKER = f"""
import hashlib, json, resource, sys
import torch
from subtree_attention.runs import evaluate, open_all, predict
torch.set_num_threads(1)

def numbers(folder):
    scores = [(one.run.folder.name, one[1:4], one.quality.accuracy) for one in evaluate(folder)]
    runs = [(run.result, run.curves, repr(run.config)) for run in open_all(folder)]
    [run.environment for run in open_all(folder)]  # may be missing, in a copy
    [(run.dataset.title(5), run.dataset.found("o")) for run in open_all(folder)]  # likewise
    made = predict(folder, device="cpu")
    texts = repr([scores, runs, made.ids, made.classes, made.known, made.calibration])
    return hashlib.sha256(texts.encode() + made.probabilities.tobytes()).hexdigest()

for line in sys.stdin:
    try:
        answer = [numbers(line.strip()), ""]
    except BaseException as error:
        answer = [[kind.__name__ for kind in type(error).__mro__], str(error)]
    print(json.dumps(answer), flush=True)
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:  # after the first
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + {MORE_BYTES}, -1))
"""


class Worker:
    """A process that opens folders, started again when it has died."""

    def __init__(self, good: Path) -> None:
        self._good, self._process = good, None

    def ask(self, folder: Path) -> Any:
        if self._process is None or self._process.poll() is not None:
            path = os.pathsep.join(sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-c", WORKER],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self.numbers, _ = self._asked(self._good)
            assert isinstance(self.numbers, str)
        return self._asked(folder)

    def _asked(self, folder: Path) -> Any:
        self._process.stdin.write(f"{folder}\n".encode())
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.end()
            pytest.fail("it does not come back" if not ready else "it died")
        return json.loads(line)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two short runs on tables."""
    data = sta.from_tables(people(24), friends(24, 60), target="label", weight="strength")
    small = {"hops": 2, "heads": 2, "hidden_channels": 4, "encoding": 2, "epochs": 4, "runs": 2}
    config = sta.recipe(data, graph="people", **small)
    return sta.fit(config, tmp_path_factory.mktemp("good") / "run", device="cpu", data=data).folder


@pytest.fixture(scope="module")
def worker(good: Path) -> Iterator[Worker]:
    worker = Worker(good)
    yield worker
    worker.end()


FILES = [
    "config.json", "environment.json", "graph.safetensors", "told.safetensors", "summary.json",
    "SHA256SUMS",
    *(f"run-{n}/{name}" for n in range(2)
      for name in ("metrics.jsonl", "summary.json", "model.safetensors", "SHA256SUMS")),
]  # fmt: skip
TENSORS = [name for name in FILES if name.endswith(".safetensors")]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def copied(good: Path, places: Path) -> Path:
    folder = places / "run"
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(good, folder)


def test_the_list_of_files_is_whole(good: Path) -> None:
    found = {str(path.relative_to(good)) for path in good.rglob("*") if path.is_file()}
    assert found == set(FILES)


# ---------------------------------------------------------------------------------------- damage


def flipped(content: bytes, at: int, what: bytes) -> bytes:
    at = at % (8 * len(content))
    return content[: at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1 :]


def inserted(content: bytes, at: int, what: bytes) -> bytes:
    at %= len(content)
    return content[:at] + what + content[at:]


def overwritten(content: bytes, at: int, what: bytes) -> bytes:
    at %= len(content)
    return content[:at] + what + content[at + len(what) :]


def deleted(content: bytes, at: int, what: bytes) -> bytes:
    at %= len(content)
    return content[:at] + content[at + len(what) :]


def cut(content: bytes, at: int, what: bytes) -> bytes:
    return content[: at % len(content)]


def doubled(content: bytes, at: int, what: bytes) -> bytes:
    return content + content


@given(
    name=some.sampled_from(FILES),
    change=some.sampled_from([flipped, flipped, inserted, overwritten, deleted, cut, doubled]),
    at=some.one_of(some.integers(0, 400), some.integers(0, 2**40)),
    what=some.one_of(some.binary(min_size=1, max_size=9), some.just(b"\0" * 4096)),
)
def test_damage_is_named_or_changes_nothing(
    name: str, change: Any, at: int, what: bytes, good: Path, places: Path, worker: Worker
) -> None:
    folder = copied(good, places)
    (folder / name).write_bytes(change((folder / name).read_bytes(), at, what))
    same_or_refused(worker, folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_or_another_is_named_or_changes_nothing(
    name: str, good: Path, places: Path, worker: Worker
) -> None:
    for other in ("/dev/zero", "/dev/tty", "/proc/self/mem", str(good / name), "nowhere", "."):
        folder = copied(good, places)
        (folder / name).unlink()
        (folder / name).symlink_to(other)
        same_or_refused(worker, folder)
    folder = copied(good, places)
    (folder / name).unlink()
    same_or_refused(worker, folder)
    os.mkfifo(folder / name)
    same_or_refused(worker, folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    same_or_refused(worker, folder)
    for other in FILES:
        folder = copied(good, places)
        shutil.copyfile(good / other, folder / name)
        same_or_refused(worker, folder)


def same_or_refused(worker: Worker, folder: Path) -> None:
    found, words = worker.ask(folder)
    if isinstance(found, str):
        assert found == worker.numbers, "other numbers"
    else:
        refused(found, words)


def refused(found: list[str], words: str) -> None:
    assert "ValueError" in found, f"{found[0]}: {words}"
    assert 10 < len(words) < 2000, words
    assert "alloc" not in words, f"it asked for the memory first: {words}"


# ---------------------------------------------------------------------------- signed by a stranger

HOSTILE = [
    "0", "-1", "1", "2", "7", "true", "null", "1000000000", "-1000000000", "1" + "0" * 18,
    "1" + "0" * 30, "9" * 5000, "1e308", "1e999", "-1e999", "NaN", "0.5", '""', '"x"', '"../../x"',
    '"\\ud800"', '"\\u0000"', '"' + "x" * 10**6 + '"', "[]", "{}", "[[]]", '{"a": 1}', "[1e9, 2]",
    "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000,
]  # fmt: skip
MARK = "\u2603 here"


def paths_of(content: Any, before: tuple = ()) -> list[tuple]:
    """The way to every value in a nest of dictionaries and lists."""
    inside = content.items() if isinstance(content, dict) else enumerate(content)
    found = []
    for key, value in inside:
        found.append((*before, key))
        if isinstance(value, dict | list):
            found += paths_of(value, (*before, key))
    return found


def poisoned(content: Any, draw: Any) -> str:
    """JSON in which one value, or a new one, is hostile."""
    *way, last = draw(some.sampled_from(paths_of(content)), "where")
    holder = content
    for key in way:
        holder = holder[key]
    if isinstance(holder, dict) and draw(some.booleans(), "another key"):
        last = draw(some.sampled_from(["x", "", "hops", "sizes", "bias", "format", "__class__"]))
    if isinstance(holder, dict) and last in holder and draw(some.integers(0, 5), "taken out") == 0:
        del holder[last]
        return json.dumps(content)
    holder[last] = MARK
    hostile = draw(some.sampled_from(HOSTILE), "value")
    return json.dumps(content).replace(json.dumps(MARK), hostile)


def sign(path: Path, words: str, places: str, data: bytes) -> None:
    """Write safetensors with a header, places and data of one's own, and the right checksums."""
    try:
        crc = [io._crc(words), io.zlib.crc32(data, io._crc(words, json.loads(places)))]
    except (RecursionError, ValueError):  # nobody can: any will do
        crc = [0, 0]
    about = json.dumps({"json": words, "crc32": " ".join(f"{number:08x}" for number in crc)})
    head = f'{{"__metadata__": {about}, {places.strip()[1:]}'.encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def parts(path: Path) -> tuple[str, dict[str, Any], bytes]:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    places = json.loads(content[8:start])
    return places.pop("__metadata__")["json"], places, content[start:]


def list_anew(folder: Path) -> None:
    for path in (folder, folder / "run-0", folder / "run-1"):
        names = [n for n in files.listed(path) if (path / n).exists()]
        files._write_list(path, {n: files._sha256((path / n).read_bytes()) for n in names})


def bounded(worker: Worker, folder: Path) -> None:
    found, words = worker.ask(folder)
    if not isinstance(found, str):
        refused(found, words)


@given(data=some.data(), name=some.sampled_from(FILES))
def test_who_signs_hostile_values_gets_no_more_than_words(
    data: Any, name: str, good: Path, places: Path, worker: Worker
) -> None:
    folder = copied(good, places)
    path = folder / name
    if name in TENSORS:
        words, where, content = parts(path)
        how = data.draw(some.sampled_from(["header", "places", "data"]), "part")
        if how == "header":
            sign(path, poisoned(json.loads(words), data.draw), json.dumps(where), content)
        elif how == "places":
            sign(path, words, poisoned(where, data.draw), content)
        else:
            at, what = data.draw(some.integers(0, 2**40)), data.draw(some.binary(min_size=1))
            content = overwritten(content, at, what)[: len(content)]
            sign(path, words, json.dumps(where), content)
    elif name.endswith(".json"):
        path.write_text(poisoned(json.loads(path.read_bytes()), data.draw), encoding="utf-8")
    elif name.endswith(".jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[0] = poisoned(json.loads(lines[0]), data.draw)
        path.write_text("\n".join(lines), encoding="utf-8")
    list_anew(folder)
    bounded(worker, folder)


HUGE = 10**9


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("config", "model", "hops"), HUGE),
        (("config", "model", "heads"), HUGE),
        (("config", "model", "hidden_channels"), HUGE),
        (("config", "data", "encoding"), HUGE),
        (("config", "fit", "runs"), HUGE),
        (("sizes", "in_channels"), HUGE),
        (("sizes", "out_channels"), HUGE),
        (("sizes",), {"in_channels": 3, "out_channels": 2, "hops": HUGE}),
        (("sizes",), {"in_channels": 3, "out_channels": 2, "feature_map": "softmax"}),
        (("sizes",), {"in_channels": 3}),
        (("sizes",), []),
        (("format",), 1),
        (("format",), HUGE),
        (("config",), {"graph": "people", "hops": HUGE}),
    ],
)
def test_a_model_with_hostile_sizes_takes_nothing(
    way: tuple[str, ...], value: Any, good: Path, places: Path, worker: Worker
) -> None:
    for changes in ({}, {"aggregation": "sum", "gate": "none"}, {"feature_map": "rbf-features"}):
        folder = copied(good, places)
        for run in ("run-0", "run-1"):
            path = folder / run / "model.safetensors"
            words, where, content = parts(path)
            header = json.loads(words)
            header["config"]["model"] |= changes
            holder = header
            for key in way[:-1]:
                holder = holder[key]
            holder[way[-1]] = value
            sign(path, json.dumps(header), json.dumps(where), content)
        bounded(worker, folder)
