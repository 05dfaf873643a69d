"""Fixtures that every part of the tests shares."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from subtree_attention import graph
from subtree_attention.ops.kernels import cpu
from tests.postgresql import postgresql

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["postgresql"]

if "PYTEST_XDIST_WORKER" in os.environ:  # workers side by side: one thread each
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"

# A shell's background job ignores Ctrl-C, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    from hypothesis import settings
except ImportError:  # tests that need it say so
    pass
else:
    # A few examples, always the same; STA_EXAMPLES=1000 tries so many others of each kind.
    EXAMPLES = os.environ.get("STA_EXAMPLES")
    settings.register_profile(
        "here", max_examples=int(EXAMPLES or 25), derandomize=not EXAMPLES, deadline=None
    )
    settings.load_profile("here")


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The offline mirror of the benchmark graphs (`STA_MIRROR`).

    Elsewhere such tests skip; where `STA_REQUIRE_MIRROR=1` is set, a missing mirror is a failure.
    """
    path = os.environ.get("STA_MIRROR")
    if path and Path(path).is_dir():
        return Path(path)
    reason = f"needs the mirror of the benchmark graphs: STA_MIRROR={path or 'is not set'}"
    if os.environ.get("STA_REQUIRE_MIRROR") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser; where `STA_REQUIRE_BROWSER=1` is set, a missing one is a failure."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path:
        return path
    reason = "needs the browser 'chromium', which is not installed"
    if os.environ.get("STA_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")  # where it ends, a module may start a Playwright of its own
def browser(chromium: str) -> "Iterator[Browser]":
    """A browser that draws WebGL without a GPU."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=15_000)  # the processor draws, and is busy with other tests
    sandbox = "--no-sandbox"  # which cannot be had as root, as in most containers
    software = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        browser = launch(executable_path=chromium, args=[sandbox, *software])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiled code asks of graphs is not made for those of the next test."""
    monkeypatch.setattr(graph, "_ASKED_BY_COMPILERS", {})


@pytest.fixture(autouse=True)
def _unbounded_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of memory bounds what the kernels hold for the whole process: for one test here."""
    monkeypatch.setattr(cpu.POOL, "bounded", None)


Outcome = tuple[int, str, str]


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Callable[[list[str]], None]], Callable[..., Outcome]]:
    """Call a command line in an empty folder and in this process: a start of torch takes seconds.

    `in_process(cli.main)("train", "cora")` -> exit code, what it printed, its errors.
    """
    from subtree_attention.cli.app import err_console, out_console

    monkeypatch.chdir(tmp_path)
    for name in ("STA_DATA", "STA_MIRROR"):  # which --data-dir and --mirror set
        monkeypatch.setenv(name, os.environ.get(name, ""))
    for console in (out_console, err_console):
        monkeypatch.setattr(console, "width", 200)

    def of(main: Callable[[list[str]], None]) -> Callable[..., Outcome]:
        def call(*arguments: str) -> Outcome:
            with pytest.raises(SystemExit) as left:
                main(list(arguments))
            printed = capsys.readouterr()
            return int(left.value.code or 0), printed.out, printed.err

        return call

    return of


@pytest.fixture
def run_sta(in_process: Callable[..., Callable[..., Outcome]]) -> Callable[..., Outcome]:
    """`run_sta("train", "cora")` -> exit code, what it printed, its errors."""
    from subtree_attention import cli

    return in_process(cli.main)
