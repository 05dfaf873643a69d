"""References beside run 0: computed once, kept, shown, checked."""

import json

import pytest

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import compared
from subtree_attention.runs import folder as files
from subtree_attention.train import beside
from subtree_attention.train.watch import Watch
from tests.references.graphs import circles


class Heard(Watch):
    def __init__(self):
        self.found = []

    def compared(self, comparison, metric):
        self.found.append(comparison)


def config(data, **changes):
    return sta.recipe(data, graph="mine", runs=2, epochs=3, hops=1, **changes)


def test_once_and_kept(tmp_path, monkeypatch):
    data, heard, out = circles(100), Heard(), tmp_path / "out"
    result = sta.fit(config(data), out, data=data, references=True, watch=heard, device="cpu")
    assert heard.found == [result.references]
    assert files.REFERENCES in files.listed(out)
    assert all(not wrong for _, wrong in files.check(out))
    run, other = sta.open(out / "run-0"), sta.open(out / "run-1")
    assert run.references == result.references
    assert other.references is None
    monkeypatch.setattr(beside, "compare", None)  # it would be called
    again = sta.fit(config(data), out, data=data, references=True, resume=True, device="cpu")
    assert again.references == result.references


def test_not_asked(tmp_path):
    data = circles(100)
    result = sta.fit(config(data), tmp_path / "out", data=data, device="cpu")
    assert result.references is None
    assert not (tmp_path / "out" / files.REFERENCES).exists()
    assert sta.open(tmp_path / "out" / "run-0").references is None


def test_stopped_on_the_way(tmp_path, monkeypatch):
    data, out = circles(100), tmp_path / "out"

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(beside, "compare", stopped)
        with pytest.raises(KeyboardInterrupt) as error:
            sta.fit(config(data), out, data=data, references=True, device="cpu")
        assert error.value.folder == out
        # Asked for once is enough.
        with pytest.raises(KeyboardInterrupt):
            sta.fit(config(data), out, data=data, resume=True, device="cpu")
        assert compared.asked(out)
    # Stopped behind them: what was found is there, before any list has it.
    with monkeypatch.context() as patch:
        patch.setattr("subtree_attention.train.fit._train", stopped)
        with pytest.raises(KeyboardInterrupt):
            sta.fit(config(data), out, data=data, references=True, device="cpu")
    assert files.REFERENCES not in files.listed(out)
    monkeypatch.setattr(beside, "compare", None)
    assert sta.fit(config(data), out, data=data, device="cpu").references is not None


@pytest.mark.parametrize("listed", [True, False])
def test_what_was_changed_is_refused(tmp_path, listed):
    data, out = circles(100), tmp_path / "out"
    sta.fit(config(data), out, data=data, references=True, device="cpu")
    path = out / files.REFERENCES
    content = json.loads(path.read_bytes())
    content["references"][0]["val"] = "much"
    path.write_text(json.dumps(content))
    if not listed:
        files.accept(out)
    words = "does not say what references reached" if not listed else "not what SHA256SUMS says"
    with pytest.raises(io.FileError, match=words):
        _ = sta.open(out / "run-0").references
