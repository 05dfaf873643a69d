"""The examples run, in an empty folder and in seconds."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("traffic", ["test R2 of the logarithm: 0.", "page 0: ", "of 60 test pages are in"]),
        ("hobbies", ["test micro F1: ", "chess: ", "person-5: ", "{'id': 'person-0'"]),
        ("links", ["test ROC-AUC: ", "person-0 and person-3: ", "perhaps person-"]),
        ("graphs", ["120 graphs", "test accuracy: ", "new-0: yes", "new-1: no"]),
    ],
)
def test_an_example_does_what_it_says(
    name: str,
    says: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name])
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 100
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    printed = capsys.readouterr().out
    for words in says:
        assert words in printed
