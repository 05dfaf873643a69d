"""Batches made by threads while others are used, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def in_order(make: Callable[[int], T], count: int, threads: int, ahead: int) -> Iterator[T]:
    """`make(0)`, `make(1)`, ...: by so many threads, each up to `ahead` of them in advance.

    Threads, for what takes long lets go of Python's lock. An error is raised where its turn comes,
    and whoever leaves early waits for what is being made, and leaves no thread behind.
    """
    if not threads:
        yield from map(make, range(count))
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="subtree-attention-loader") as pool:
        try:
            for number in range(count):
                waiting.append(pool.submit(make, number))
                if len(waiting) >= threads * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
