"""The threads of the CPU backend."""

import subprocess
import sys
import threading
import time

import pytest

from subtree_attention.ops.kernels import workers


def test_every_number_comes_once_or_too_late():
    for count in (1, 2, 4):
        came: list[int] = []
        everybody = threading.Barrier(count, timeout=30)

        def work(number: int, add: int, came=came, everybody=everybody) -> None:
            everybody.wait()
            came.append(number + add)

        workers.run(work, count, 10)
        assert sorted(came) == list(range(10, 10 + count))


def test_who_has_not_begun_is_not_waited_for():
    busy, came = threading.Event(), []
    with ThreadsTaken(busy):
        workers.run(came.append, len(workers._THREADS) + 1)
        assert came == [0]


def test_an_error_of_a_helper_reaches_the_caller():
    begun = threading.Barrier(2, timeout=30)

    def work(number: int) -> None:
        begun.wait()
        if number:
            raise ArithmeticError("of a helper")

    with pytest.raises(ArithmeticError, match="of a helper"):
        workers.run(work, 2)
    workers.run(time.sleep, 1)  # and the thread lives on


class ThreadsTaken:
    """All threads at work for somebody else."""

    def __init__(self, busy: threading.Event) -> None:
        self.busy = busy
        workers._start(1)
        begun = threading.Semaphore(0)
        count = len(workers._THREADS)

        def work(number: int) -> None:
            begun.release()
            busy.wait(30)

        self.caller = threading.Thread(target=workers.run, args=(work, count + 1))
        self.caller.start()
        for _ in range(count + 1):
            begun.acquire(timeout=30)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.busy.set()
        self.caller.join()


ENDING = """
import atexit

@atexit.register  # before the module's own, so it is called after that
def ended():
    print([thread.join(10) or thread.is_alive() for thread in threads])

from subtree_attention.ops.kernels import workers

workers._start(3)
threads = [*workers._THREADS]
workers._THREADS.pop(1)  # as if Ctrl-C had come when it had been started
"""


def test_all_threads_end_with_the_interpreter_listed_or_not():
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "[False, False, False]"
