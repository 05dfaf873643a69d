"""What compilers are told of a function, and whether an export is at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def untraced(function: T) -> T:
    """Mark a function that a compiler calls instead of tracing it; its result is a constant to it.

    As `torch.compiler.assume_constant_result` does, which imports the whole compiler for that: as
    long again as torch takes, at every start.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def uncompiled(function: Callable[..., T], reason: str) -> Callable[..., T]:
    """The function outside of compiled code, which goes on after it; `fullgraph` says the reason.

    As `torch.compiler.disable` does, which imports the compiler at once.
    """
    outside: Any = torch._disable_dynamo(function)
    outside._torchdynamo_disable, outside._torchdynamo_disable_msg = True, reason
    return outside


def exporting() -> bool:
    """Whether `torch.export` traces; `is_exporting()` of torch 2.11 says so of a compiler too."""
    return torch.compiler._is_exporting_flag
