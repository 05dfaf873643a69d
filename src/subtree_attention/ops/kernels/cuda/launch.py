"""Launching kernels from Python, cheaply: a step of a small graph is over before the host is.

Kernels are bound to the arguments that stay the same over some launches. A launch copies that
block, fills in the rest and calls the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from .compiler import Grid, Module
from .tape import note

Macros = tuple[tuple[str, str | int], ...]


@cache
def module(file: str, macros: Macros, device: torch.device) -> Module:
    """A source of this folder, specialised by macros, on a device."""
    source = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return Module(source, dict(macros), device)


class Bound:
    """The kernels of a source, and the arguments that stay the same over some launches.

    Args:
        module: the source, compiled.
        kind: the structure of its kernels' arguments.
        parts: fields of the arguments, for all launches.
    """

    def __init__(self, module: Module, kind: type[ctypes.Structure], **parts: Any) -> None:
        self.module, self.kind, self.block = module, kind, kind()
        _fill(self.block, parts)

    def __call__(self, name: str, grid: Grid, threads: int, **parts: Any) -> None:
        """Queue a kernel on torch's current stream; the parts are more fields of its arguments."""
        # A copy of its own: another thread may be launching the same.
        block = self.kind.from_buffer_copy(self.block)
        _fill(block, parts)
        self.module.launch(name, grid, threads, block)
        note(self.module, name, grid, threads, block)


_NUMBERS = (int, bool, float, type(None))


def _fill(block: ctypes.Structure, parts: dict[str, Any]) -> None:
    """Set fields: pointers are tensors' addresses, None is a null pointer."""
    for name, part in parts.items():
        setattr(block, name, part if type(part) in _NUMBERS else part.data_ptr())


def structure(pointers: str, doubles: str = "", ints: str = "") -> type[ctypes.Structure]:
    """A C structure of these fields, in this order; they are null or 0 until set."""
    kinds = ((pointers, ctypes.c_void_p), (doubles, ctypes.c_double), (ints, ctypes.c_int))
    fields = [(name, kind) for names, kind in kinds for name in names.split()]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


@contextmanager
def side_by_side(device: torch.device) -> Iterator[AbstractContextManager[Any]]:
    """Two things at a time: gives a context that queues work on a second stream."""
    side, main = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(main)
    try:
        yield torch.cuda.stream(side)
    finally:  # also if memory runs out on the way: what runs beside still writes
        main.wait_stream(side)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
