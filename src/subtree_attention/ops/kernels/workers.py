"""Threads of our own for machine code that lets go of Python's lock.

Threads that wait sleep; OpenMP's spin, and on busy cores they are in everybody's way. Nor does
anybody wait for a thread that has not begun, which may take long there: the others do its share.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import torch


class _Call:
    """A function that several threads run at once, each with a number of its own.

    It holds the arguments as long as any of them runs, whatever becomes of the caller.
    """

    def __init__(self, work: Callable[..., object], count: int, arguments: tuple[Any, ...]) -> None:
        self.work, self.arguments = work, arguments
        self.numbers = list(range(1, count))  # nobody's yet; the caller is number 0
        self.error: BaseException | None = None
        self.done: SimpleQueue[None] = SimpleQueue()

    def help(self) -> None:
        """Run it, unless there is nothing left to take part in."""
        with suppress(IndexError):
            number = self.numbers.pop()
            try:
                self.work(number, *self.arguments)
            except BaseException as error:  # the caller's to deal with
                self.error = error
            finally:
                self.done.put(None)

    def run(self) -> None:
        """Take part, and wait for those that do."""
        helpers = len(self.numbers)
        for _ in range(helpers):
            _CALLS.put(self)
        self.work(0, *self.arguments)
        with suppress(IndexError):
            while True:
                self.numbers.pop()
                helpers -= 1
        for _ in range(helpers):
            self.done.get()
        self.arguments = ()  # in the queue there may still be those who come too late
        if self.error is not None:
            raise self.error


_CALLS: SimpleQueue[_Call | None] = SimpleQueue()
_THREADS: list[threading.Thread] = []


def run(work: Callable[..., object], count: int, *arguments: Any) -> None:
    """work(number, *arguments) for 0 and those of the numbers below count that come in time.

    The function itself shares out what there is to do: for a number that comes late it may be
    nothing.
    """
    if count == 1:
        work(0, *arguments)
        return
    _start(count - 1)
    _Call(work, count, arguments).run()


def _start(count: int) -> None:
    """Have so many threads at least."""
    while len(_THREADS) < count:
        name = f"subtree-attention-{len(_THREADS) + 1}"
        thread = threading.Thread(target=_serve, args=(_CALLS,), name=name, daemon=True)
        thread.start()  # Ctrl-C here leaves one that is not listed, never one that does not run
        _THREADS.append(thread)


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.help()
        del call  # which would hold its arguments up to the next
    calls.put(None)  # for the others


@atexit.register
def _stop() -> None:
    """Let them come to an end before the interpreter does, which would end the process badly."""
    _CALLS.put(None)
    for thread in _THREADS:
        thread.join()


def _after_fork() -> None:
    """In the child no thread but one is left. Where ours were at work torch's were too, and they do
    not survive it either: OpenMP would wait for them for ever, so torch gets along with one."""
    global _CALLS
    if _THREADS:
        torch.set_num_threads(1)
    _CALLS = SimpleQueue()
    _THREADS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
