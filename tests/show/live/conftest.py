"""A folder of runs that can be made to grow, as training would, and a page that follows it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import folder as files
from subtree_attention.runs.folder import Epoch, RunResult
from subtree_attention.show.live import Followed, follow
from subtree_attention.show.live.server import create_app
from subtree_attention.show.pages.serving import address, listen, server, serving


def epoch(number: int, shift: float = 0.0) -> Epoch:
    """Validation is best at epoch 60, and test is nothing that any other number could be."""
    val = 0.9 - 0.0001 * (number - 60) ** 2 + shift
    return Epoch(number, 2.0 / number, 0.5 + 0.001 * number, round(val, 6), 0.123456)


class Growing:
    """What `sta train digits --runs 3` leaves on its way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = sta.recipe("digits", runs=3, epochs=200, patience=50)
        contents = {files.CONFIG: config.to_dict(), files.ENVIRONMENT: {}}
        files.write_listed(folder, {name: io.json_bytes(each) for name, each in contents.items()})

    def run(self, index: int) -> Path:
        path = self.folder / f"run-{index}"
        path.mkdir(exist_ok=True)
        return path

    def grow(self, index: int, first: int, last: int) -> None:
        epochs = [epoch(number, 0.01 * index) for number in range(first, last + 1)]
        files.append_curves(self.run(index), epochs)

    def end(self, index: int, last: int) -> None:
        """The run is done, with its 60th epoch as the best."""
        (self.run(index) / files.MODEL).write_bytes(b"")
        epochs = [epoch(number, 0.01 * index) for number in range(1, last + 1)]
        val, test = epochs[59].val, 0.8 + 0.01 * index
        result = RunResult(index, index, val, test, best_epoch=60, epochs=last, seconds=12.0)
        files.write_result(self.run(index), result, epochs)

    def finish(self) -> None:
        files.write_listed(self.folder, {files.SUMMARY: json.dumps({"format": 7}).encode()})


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.0)
    return Growing(tmp_path / "out")


@pytest.fixture
def url(growing: Growing) -> Iterator[str]:
    """A page that follows the folder, while this process holds it as one that trains would."""
    with listen(0) as listening:
        app = create_app(Followed(growing.folder), listening.getsockname()[1])
        with serving(server(app), listening):
            yield f"{address(listening)}/"
