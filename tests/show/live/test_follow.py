"""What is told of a folder that grows: each epoch once, test scores at the end only."""

import json
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.runs import folder as files
from subtree_attention.runs import portfolio as kept
from subtree_attention.runs.portfolio import STOPPED, Portfolio, Tried
from subtree_attention.show.live import Followed, follow
from subtree_attention.show.live.server import STATIC, create_app
from tests.show.live.conftest import Growing, epoch

PORT = 8767
HERE = f"http://127.0.0.1:{PORT}"


def test_each_epoch_is_told_once(growing: Growing) -> None:
    followed = Followed(growing.folder)
    assert followed.state()["runs"] == []
    growing.grow(0, 1, 3)
    first = followed.state()
    assert [row[0] for row in first["runs"][0]["rows"]] == [1, 2, 3]
    growing.grow(0, 4, 5)
    growing.grow(1, 1, 1)
    then = followed.state(first["session"], [3])
    assert [[row[0] for row in run["rows"]] for run in then["runs"]] == [[4, 5], [1]]
    assert then["session"] == first["session"]
    again = followed.state(then["session"], [5, 1])
    assert [run["rows"] for run in again["runs"]] == [[], []]
    other = followed.state("of a server before", [5, 1])
    assert [len(run["rows"]) for run in other["runs"]] == [5, 1]


def test_the_test_score_comes_with_the_end_of_a_run(growing: Growing) -> None:
    followed = Followed(growing.folder)
    growing.grow(0, 1, 110)
    going = followed.state()
    assert "0.123456" not in json.dumps(going)
    run = going["runs"][0]
    assert (run["test"], run["best"]) == (None, {"epoch": 60, "val": 0.9})
    assert run["end"] == 110  # 60 and its patience of 50
    growing.end(0, 110)
    run = followed.state()["runs"][0]
    assert (run["test"], run["seconds"], run["best"]["epoch"]) == (0.8, 12.0, 60)
    assert "0.123456" not in json.dumps(followed.state())


def test_half_a_line_waits_and_foreign_lines_are_passed_over(growing: Growing) -> None:
    followed = Followed(growing.folder)
    growing.grow(0, 1, 2)
    path = growing.run(0) / files.METRICS
    whole = path.read_bytes()
    line = json.dumps({"epoch": 3, "loss": 1, "train": 1, "val": 1, "test": 1}).encode()
    for more in (b'{"epoch": 3, "lo', b"not json\n[]\n", b'{"epoch": "3"}\n', b"[" * 100_000):
        io.write_bytes(path, whole + more)
        assert followed.state()["runs"][0]["epochs"] == 2
    io.write_bytes(path, whole + b"x\n" + line + b"\n")
    assert followed.state()["runs"][0]["epochs"] == 3


def test_a_run_that_comes_again_from_its_checkpoint_is_the_same(growing: Growing) -> None:
    followed = Followed(growing.folder)
    growing.grow(0, 1, 30)
    before = followed.state()
    files.write_curves(growing.run(0), [epoch(number) for number in range(1, 21)])
    after = followed.state(before["session"], [30])
    assert (after["session"], after["runs"][0]["rows"]) == (before["session"], [])
    growing.grow(0, 21, 31)
    after = followed.state(before["session"], [30])
    assert [row[0] for row in after["runs"][0]["rows"]] == [31]


def test_a_run_that_was_begun_anew_is_told_anew(growing: Growing) -> None:
    followed = Followed(growing.folder)
    growing.grow(0, 1, 30)
    before = followed.state()
    files.write_curves(growing.run(0), [epoch(number, 0.2) for number in range(1, 3)])
    after = followed.state(before["session"], [30])
    assert after["session"] != before["session"]
    assert [row[3] for row in after["runs"][0]["rows"]] == [epoch(n, 0.2).val for n in (1, 2)]
    assert after["runs"][0]["best"]["epoch"] == 2


def test_whether_somebody_trains(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "GONE_SECONDS", 0.0)
    followed = Followed(growing.folder)
    with files.claimed(growing.folder):
        assert followed.state()["state"] == "training"
    time.sleep(0.01)
    assert followed.state()["state"] == "stopped"
    growing.finish()
    assert followed.state()["state"] == "finished"


def test_who_looks_keeps_nobody_from_training(growing: Growing) -> None:
    for _ in range(50):
        assert not files.is_claimed(growing.folder)
        with files.claimed(growing.folder):
            assert files.is_claimed(growing.folder)


def test_long_curves_are_thinned_and_keep_their_best(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_POINTS", 10)
    growing.grow(0, 1, 95)
    run = Followed(growing.folder).state()["runs"][0]
    numbers = [row[0] for row in run["rows"]]
    assert len(numbers) <= 11
    assert numbers == sorted(numbers)
    assert {60, 95} <= {*numbers}
    assert run["epochs"] == 95


def test_time_left_is_that_of_epochs_and_of_runs_to_come(growing: Growing) -> None:
    followed = Followed(growing.folder, trains=lambda: True)
    growing.grow(0, 1, 10)
    assert followed.state()["left"] is None
    growing.grow(0, 11, 20)
    followed._seen[0] = (followed._seen[0][0] - 2.0, 10)  # two seconds ago
    # To epoch 70 by its patience, and two runs more that may take as long: at five epochs a second.
    assert followed.state()["left"] == pytest.approx((50 + 2 * 70) / 5, rel=0.05)


def test_models_that_compete(growing: Growing) -> None:
    base = sta.recipe("digits", runs=3, epochs=200, patience=50)
    portfolio = Portfolio(base, [Tried("a", "as it is"), Tried("b", "small", {"hops": 1})])
    out = growing.folder.parent / "models"
    kept.write(out, portfolio)
    followed = Followed(out)
    place = out / files.COMPETING / "a" / "run-0"
    place.mkdir(parents=True)
    files.append_curves(place, [epoch(1), epoch(2)])
    state = followed.state()
    assert (state["competing"], state["runs"]) == (True, [])
    assert [(one["name"], one["words"], one["epochs"]) for one in state["models"]] == [
        ("a", "as it is", 2),
        ("b", "small", 0),
    ]
    tried = portfolio.tried[0]
    tried.state, tried.why = STOPPED, "behind at 4 epochs"
    tried.epochs, tried.best_epoch, tried.val = 4, 3, 0.75
    kept.write(out, portfolio)
    (place / files.METRICS).unlink()  # its run is removed; its curve stays
    state = followed.state(state["session"], [2, 0])
    model = state["models"][0]
    assert (model["out"], model["epochs"], model["trained"]) == ("behind at 4 epochs", 2, 4)
    assert model["best"] == {"epoch": 3, "val": 0.75}
    json.dumps(state, allow_nan=False)


class TestServer:
    @pytest.fixture
    def client(self, growing: Growing) -> TestClient:
        return TestClient(create_app(Followed(growing.folder), PORT), base_url=HERE)

    def test_it_answers_the_page_only(self, client: TestClient) -> None:
        assert client.get("/").status_code == 200
        assert client.get("/api/state", headers={"host": "evil.example"}).status_code == 421
        assert (
            client.get("/api/state", headers={"origin": "http://evil.example"}).status_code == 403
        )
        assert client.post("/api/state").status_code == 405
        policy = client.get("/api/state").headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy

    @pytest.mark.parametrize("have", ["x", "-1", "1,,2", "1" * 40, "1.5"])
    def test_mistakes_are_told(self, client: TestClient, have: str) -> None:
        answer = client.get("/api/state", params={"have": have})
        assert (answer.status_code, "whole numbers" in answer.json()["error"]) == (400, True)

    def test_what_is_asked_for_too_much_is_nothing(
        self, client: TestClient, growing: Growing
    ) -> None:
        growing.grow(0, 1, 2)
        session = client.get("/api/state").json()["session"]
        asked = {"session": session, "have": "99,1,1"}
        assert client.get("/api/state", params=asked).json()["runs"][0]["rows"] == []

    def test_a_damaged_folder_is_told_in_words(self, client: TestClient, growing: Growing) -> None:
        (growing.folder / files.LIST).write_text("nonsense")
        answer = client.get("/api/state")
        assert (answer.status_code, "is damaged" in answer.json()["error"]) == (400, True)

    def test_scripts_and_colours(self, client: TestClient) -> None:
        for name in ("page.js", "chart.js", "curves.js", "dom.js"):
            answer = client.get(f"/static/{name}")
            assert answer.headers["content-type"].startswith("text/javascript")
        assert "--class-0" in client.get("/static/colours.css").text
        assert client.get("/static/..%2fserver.py").status_code == 404


def test_the_page_is_short_and_never_makes_markup_of_text() -> None:
    for path in Path(STATIC).glob("*.*"):
        text = path.read_text()
        assert len(text.splitlines()) < 300, path.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name
