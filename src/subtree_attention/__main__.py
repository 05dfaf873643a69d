"""`python -m subtree_attention` is the same as the command `sta`.

Ctrl-C ends it with one line and exit code 130 from here on, while torch is imported too: so this
file imports next to nothing, and the command line only once Ctrl-C is taken care of. It is as soon
as this file is imported, since the script `sta` does other things before it calls `main`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


STA = "subtree_attention.cli"
"""The command line of `sta`."""

SPINS = "1000"
"""How often a thread of OpenMP looks for work before it sleeps: for some microseconds. By itself it
looks for milliseconds, and on a busy core keeps away those that have work."""


def main(command_line: str = STA) -> None:
    """Start a command line, which is a module with a function `main`; Ctrl-C ends it in words."""
    try:
        if command_line == STA and "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is loaded
        _load(command_line).main()
    except KeyboardInterrupt:
        _leave()
    except SystemExit as end:
        if "RANK" not in os.environ or not isinstance(end.code, int | None):
            raise
        _leave_ranks(end.code or 0)


def _listen() -> None:
    """Take care of Ctrl-C, unless whoever started us wants it ignored."""
    import atexit
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        # Runs last: threads are joined, all is done, and the interpreter takes itself apart.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C: a KeyboardInterrupt, for whoever has something to save. Within an import, the end:
    libraries swallow the exception there, or make another of it. After the command too.
    """
    running = False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        running |= frame.f_code is main.__code__
        frame = frame.f_back
    if not running:
        _leave()
    raise KeyboardInterrupt


def _leave() -> NoReturn:
    """End at once: unwinding would run the code of libraries, and could be interrupted again."""
    try:
        sys.stdout.flush()
    finally:
        os.write(2, b"\nStopped.\n" if os.isatty(2) else b"Stopped.\n")
        os._exit(130)


def _leave_ranks(code: int) -> NoReturn:
    """End one of many processes at once. Threads of gloo still let go of the last tensors that were
    sent, ask for Python's lock to do so, and abort the process where the interpreter takes itself
    apart: torchrun then calls a job that went well a failure.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _load(command_line: str):  # type: ignore[no-untyped-def]
    """The module, or what it lacks in words: the library works without typer and rich."""
    from importlib import import_module

    try:
        return import_module(command_line)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(
            f"error: the command line needs {package}, which is not installed: pip install "
            "typer rich. From Python everything works without it."
        )


_listen()
if __name__ == "__main__":
    main()
