"""The page of curves in a real browser: it grows, says how it ends, and keeps what it has."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import subtree_attention as sta
from subtree_attention.runs import folder as files
from subtree_attention.runs import portfolio as kept
from subtree_attention.runs.portfolio import STOPPED, Portfolio, Tried
from subtree_attention.show.live import follow
from subtree_attention.show.live.page import watched
from tests.show.live.conftest import Growing, epoch

SIZES = {"light": (1280, 800), "dark": (1280, 800), "phone": (390, 844)}
GONE = "net::ERR_CONNECTION_REFUSED"
Outcome = tuple[int, str, str]


@pytest.fixture(params=["light"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page whose every complaint fails the test, but that a server has gone."""
    width, height = SIZES[request.param]
    scheme: Any = "light" if request.param == "light" else "dark"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: GONE in said.text or complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert complaints == []


def points(page: Page, kind: str) -> int:
    """How many points a line of the chart of scores has."""
    path = page.locator(f'#score path[class="line {kind}"]').first.get_attribute("d") or ""
    return path.count("L") + 1


def test_it_grows_while_a_run_trains(page: Page, url: str, growing: Growing) -> None:
    with files.claimed(growing.folder):
        page.goto(url)
        expect(page.locator("#doing")).to_have_text("About to begin")
        growing.grow(0, 1, 30)
        expect(page.locator("#doing")).to_have_text("Run 0 (1 of 3), epoch 30")
        before = points(page, "val")
        growing.grow(0, 31, 90)
        expect(page.locator("#doing")).to_have_text("Run 0 (1 of 3), epoch 90")
        assert (before, points(page, "val"), points(page, "train")) == (30, 90, 90)
        expect(page.locator("#state")).to_have_text("Training")
        expect(page.locator("#score .dot.best")).to_have_count(1)
        expect(page.locator("#score text.best")).to_have_text("best: 90.00 %, epoch 60")
        expect(page.locator("#rest")).to_contain_text(
            "best validation 90.00 % at epoch 60 · ends after epoch 110 unless validation "
            "improves: 20 epochs left"
        )
        assert page.locator("#bar").evaluate("bar => [bar.value, bar.max]") == [90, 110]
        expect(page.locator("#runs-body td").nth(3)).to_have_text("")  # no test score yet
        assert page.title() == "Training: digits, 90.00 %"


@pytest.mark.parametrize("page", SIZES, indirect=True)
def test_several_runs_lie_faint_behind_their_mean(
    page: Page, url: str, growing: Growing, request: pytest.FixtureRequest
) -> None:
    for index in (0, 1):
        growing.grow(index, 1, 110)
        growing.end(index, 110)
    with files.claimed(growing.folder):
        page.goto(url)
        expect(page.locator("#doing")).to_have_text("Run 2 (3 of 3) is about to begin")
        growing.grow(2, 1, 40)
        expect(page.locator("#doing")).to_have_text("Run 2 (3 of 3), epoch 40")
        expect(page.locator('#score path[class="line val faint"]')).to_have_count(2)
        expect(page.locator('#score path[class="line mean"]')).to_have_count(1)
        expect(page.locator('#loss path[class="line loss faint"]')).to_have_count(2)
        expect(page.locator("#score .dot.small")).to_have_count(2)
        tests = page.locator("#runs-body tr td:nth-child(5)")
        expect(tests).to_have_text(["80.00", "81.00", ""])
        expect(page.locator("#mean")).to_have_text(
            "Test accuracy, mean of the 2 runs that have ended: 80.50 ± 0.71 %"
        )
    # Nothing is cut off or scrolls sideways, and dark is dark.
    overflow = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(overflow) <= 0
    tables = "all => all.map(one => one.scrollWidth - one.clientWidth)"
    assert page.locator(".wide").evaluate_all(tables) == [0, 0]
    paper = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    dark = page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert (sum(int(part) for part in paper[4:-1].split(",")) < 150) == dark
    # A run can be chosen, by a key too.
    button = page.locator("#runs-body button").first
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#legend li").first).to_have_text("run 0: validation")
    expect(page.locator("#score text.best")).to_have_text("best: 90.00 %, epoch 60")


def test_numbers_are_read_off_by_pointer_and_by_keys(
    page: Page, url: str, growing: Growing
) -> None:
    growing.grow(0, 1, 50)
    page.goto(url)
    chart = page.locator("#score svg")
    expect(chart).to_have_attribute("aria-valuetext", "epoch 50")
    chart.focus()
    for key, number in (("Home", 1), ("ArrowRight", 2), ("End", 50), ("ArrowLeft", 49)):
        page.keyboard.press(key)
        expect(page.locator("#readout")).to_contain_text(f"Epoch {number}: run 0: val ")
    expect(page.locator("#readout")).to_have_text(
        "Epoch 49: run 0: val 88.79 %, train 54.90 %, loss 0.04082"
    )
    expect(chart).to_have_attribute(
        "aria-valuetext", "epoch 49: run 0: val 88.79 %, train 54.90 %, loss 0.04082"
    )
    expect(page.locator(".cursor")).to_have_count(2)  # in both charts
    page.keyboard.press("Escape")
    expect(page.locator("#readout")).to_have_text("")
    page.locator("#loss svg").hover()
    expect(page.locator("#readout")).to_contain_text("Epoch 2")


def test_how_it_ends_is_said(
    page: Page, url: str, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "GONE_SECONDS", 0.0)
    with files.claimed(growing.folder):
        growing.grow(0, 1, 110)
        page.goto(url)
        expect(page.locator("#state")).to_have_text("Training")
        growing.end(0, 110)
        expect(page.locator("#said")).to_have_text("run 0 has ended, 1 of 3: test 80.00 %.")
    expect(page.locator("#state")).to_have_text("Stopped")
    expect(page.locator("#next")).to_have_text(
        f"Go on with: sta train --resume --out {growing.folder}"
    )
    growing.finish()
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("#said")).to_have_text("Finished.")
    expect(page.locator("#next")).to_contain_text(f"sta explore {growing.folder}")


def test_models_that_compete(page: Page, url: str, growing: Growing) -> None:
    base = sta.recipe("digits", runs=3, epochs=200, patience=50)
    hostile = "<img src=x onerror=alert(1)>"
    models = [Tried("plain", hostile), Tried("small", "one hop", {"hops": 1})]
    models[0].state, models[0].why = STOPPED, "behind"
    kept.write(growing.folder, Portfolio(base, models))
    (growing.folder / files.LIST).unlink()
    for model, last in (("plain", 30), ("small", 9)):
        place = growing.folder / files.COMPETING / model / "run-0"
        place.mkdir(parents=True)
        files.append_curves(place, [epoch(number) for number in range(1, last + 1)])
    with files.claimed(growing.folder):
        page.goto(url)
        expect(page.locator("#doing")).to_have_text("Model small, epoch 9")
    expect(page.locator("#bar")).to_be_hidden()
    expect(page.locator("#models-title")).to_have_text("Models that compete")
    expect(page.locator("#models-body .words")).to_have_text([f"{hostile} (behind)", "one hop"])
    expect(page.locator('#score path[class="line val faint"]')).to_have_count(1)
    expect(page.locator('#score path[class="line mean"]')).to_have_count(0)


@pytest.mark.parametrize("terminal", [True, False])
def test_after_the_end_it_stays_in_a_terminal_only(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, asked = list[str](), list[str]()
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("builtins.input", lambda: asked.append("Enter"))
    with watched(0, False, said.append) as shown:
        shown.stay()
    assert len(asked) == terminal
    assert (
        said[1:]
        == [f"The curves stay at {shown.address} until you press Enter or Ctrl-C."] * terminal
    )


def trained(out: Path, port: int, *more: str) -> subprocess.Popen[str]:
    """`sta train --watch` in a process of its own, in a pipe."""
    words = [sys.executable, "-m", "subtree_attention", "train", "--device", "cpu", "--out"]
    words += [str(out), "--watch", "--no-open", "--port", str(port), *more]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    pipes["stdin"] = subprocess.DEVNULL
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=environment, text=True, **pipes)


def test_a_training_that_is_killed_and_resumed(page: Page, tmp_path: Path) -> None:
    """The page keeps its curves, and takes up the thread by itself."""
    out = tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    short = ["digits", "--hops", "1", "--heads", "1", "--hidden-channels", "8"]
    short += ["--runs", "2", "--epochs", "400", "--patience", "400", "--checkpoint-seconds", "1"]
    first = trained(out, port, *short)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == f"curves are at http://127.0.0.1:{port}/\n"
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator("#doing")).to_contain_text("Run 0 (1 of 2), epoch", timeout=60_000)
        expect(page.locator("#score .dot.best")).to_be_visible()
    finally:
        first.kill()
        first.communicate(timeout=20)
    expect(page.locator("#state")).to_have_text("No answer")
    expect(page.locator("#score .dot.best")).to_be_visible()
    expect(page.locator("#next")).to_contain_text(f"sta train --resume --out {out}")
    again = trained(out, port, "--resume")
    try:
        expect(page.locator("#state")).to_have_text("Training", timeout=60_000)
        expect(page.locator("#state")).to_have_text("Finished", timeout=60_000)
        expect(page.locator("#runs-body tr")).to_have_count(2)
        assert again.wait(timeout=20) == 0
    finally:
        again.kill()
        again.communicate(timeout=20)
    expect(page.locator("#state")).to_have_text("Finished")  # though nobody answers any more


def test_ctrl_c_ends_as_ever(tmp_path: Path) -> None:
    out = tmp_path / "out"
    running = trained(out, 0, "digits", "--epochs", "3000", "--patience", "3000")
    try:
        until = time.monotonic() + 60
        while not (out / "run-0" / files.METRICS).exists() and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 130
    assert said.splitlines()[-1] == f"Stopped. Go on with: sta train --resume --out {out}"


class TestCommands:
    def test_mistakes_are_one_line(
        self, run_sta: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for words, said in (
                (["watch"], "no run in runs/: name its folder"),
                (["watch", str(tmp_path)], f"there is no run in {tmp_path}"),
                (["train", "--watch", "--port", port], f"port {port} cannot be had"),
                (["train", "--port", "1"], "--port is for the page of --watch"),
                (["train", "--no-open"], "--no-open is for the page of --watch"),
            ):
                code, out, err = run_sta(*words)
                assert (code, out, len(err.splitlines())) == (2, "", 1)
                assert said in err

    def test_without_the_extra_it_says_how_to_install(
        self, run_sta: Callable[..., Outcome], growing: Growing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        for name in [name for name in sys.modules if name.startswith("subtree_attention.show.")]:
            if name.split(".")[2] in ("live", "pages"):
                monkeypatch.delitem(sys.modules, name)
        for words in (["watch", str(growing.folder)], ["train", "--watch"]):
            code, _, err = run_sta(*words)
            assert (code, 'pip install "subtree-attention[explore]"' in err) == (1, True)

    def test_the_newest_folder_is_watched_until_ctrl_c(self, growing: Growing) -> None:
        here = growing.folder.parent
        (here / "runs").mkdir()
        growing.folder.rename(here / "runs" / "mine")
        words = [sys.executable, "-m", "subtree_attention", "watch", "--no-open", "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running = subprocess.Popen(words, env=environment, cwd=here, text=True, **pipes)
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith("curves of runs/mine are at http://127.0.0.1:")
            with urllib.request.urlopen(line.split()[5], timeout=20) as answer:
                assert b"sta watch" in answer.read()
            running.send_signal(signal.SIGINT)
            assert running.communicate(timeout=20)[1] == ""
        finally:
            running.kill()
        assert running.returncode == 0
