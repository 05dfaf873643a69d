"""Checks of what a user passes in, and the words in which a refusal is put; without torch."""

from __future__ import annotations

import math
import numbers
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**31 - 1
"""Of any count. Where no tensor proves how many there are, the lower ceilings below hold: in calls,
in configurations and in files alike, so that a number alone cannot ask for all memory."""
MOST_HOPS = 10_000
MOST_LAYERS = 1_000
MOST_EIGENVECTORS = 1_000
MOST_RUNS = 10_000
MOST_EPOCHS = 200_000  # their lines are files that are still read, see `io.MOST_BYTES`
MOST_SEED = 2**53 - 1  # JSON holds it exactly, whoever reads it


def known(what: str, name: Any, allowed: Iterable[str]) -> str:
    """Return `name` if it is one of `allowed`; otherwise a ValueError with a suggestion."""
    allowed = list(allowed)
    if not isinstance(name, str):
        raise TypeError(f"{what} must be one of {', '.join(allowed)}, got {said(name)}")
    if name not in allowed:
        close = get_close_matches(name.lower(), allowed, n=1)
        close += [one for one in allowed if name and name.lower() in one.split("_")]
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ValueError(
            f"unknown {what} '{name}'.{hint} Known: {', '.join(filter(None, allowed))}"
        )
    return name


def said(value: Any) -> str:
    """A value as an error names it: in one short line, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Python does not write integers of thousands of digits, for one
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


_SECRET = r"\w*(?:password|passwd|pwd|passfile|secret|token|scram_\w+_key)"
"""Names of settings of which nothing is shown."""


def is_secret(setting: str) -> bool:
    """Whether the value of a setting must not be shown."""
    return re.fullmatch(_SECRET, setting, re.IGNORECASE) is not None


def without_passwords(text: str) -> str:
    """A text in which addresses have no user and no password, and settings no secrets.

    Slashes and colons of an address may be missing: it is no less secret for being wrong.

    >>> without_passwords("postgresql://ann:secret@db.example/shop?password=secret")
    'postgresql://***@db.example/shop?password=***'
    >>> without_passwords("postgresql:ann:secret@db.example/shop")
    'postgresql:***@db.example/shop'
    """
    text = re.sub(r"(?i)\b([a-z][a-z0-9+.\-]*(?::/{0,2}|//))\S*@", r"\1***@", text)
    value = r"(?:'[^']*'|\"[^\"]*\")?[^&\s]*"  # to & or white space, which quotes may hold
    return re.sub(rf"(?i)\b({_SECRET}\s*=\s*){value}", r"\1***", text)


def integer(what: str, value: Any, least: int, most: int = MOST) -> int:
    """Return `value` if it is a whole number from `least` to `most`."""
    if type(value).__name__ == "SymInt":  # of a compiler that leaves it open: a look would fix it
        return value
    if type(value) is not int:  # compilers know its type, but not its methods
        value = _as_integer(what, value)
    if value < least:
        raise ValueError(f"{what} must be at least {least:,}, got {said(value)}")
    if value > most:
        raise ValueError(f"{what} must be at most {most:,}, got {said(value)}")
    return value


def _as_integer(what: str, value: Any) -> int:
    """Numpy's integers too."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer, got {said(value)}")
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # an array or a tensor of something else
        raise TypeError(f"{what} must be an integer, got {said(value)}") from None


def index(what: str, value: Any, count: int) -> int:
    """Return `value` if it is one of 0 .. count - 1."""
    if integer(what, value, 0, sys.maxsize) >= count:
        raise ValueError(f"{what} {said(value)} is not there: they are 0 to {count - 1}")
    return operator.index(value)


def flag(what: str, value: Any) -> bool:
    """Return `value` if it is true or false: the text "no" is neither."""
    if not isinstance(value, bool) and type(value).__name__ != "bool":  # numpy's is one too
        raise TypeError(f"{what} must be True or False, got {said(value)}")
    return bool(value)


def kind(what: str, value: Any, wanted: type | tuple[type, ...], words: str) -> Any:
    """Return `value` if it is one of the types `wanted`, which `words` name."""
    if not isinstance(value, wanted):
        raise TypeError(f"{what} must be {words}, got {said(value)}")
    return value


def path(what: str, value: Any) -> Path:
    """A file or folder by what a user calls it."""
    value = kind(what, value, (str, os.PathLike), "a path")
    if not os.fspath(value) or "\0" in os.fspath(value):
        raise ValueError(f"{what} must be a path, got {said(value)}")
    return Path(value)


def name(what: str, value: Any) -> str:
    """Return `value` if folders can be named after it."""
    text = kind(what, value, str, "a text")
    if not text.strip() or text in (".", "..") or re.search(r"[/\\\x00-\x1f\x7f]", text):
        raise ValueError(
            f"{what} must be a name without slashes and control characters, got {said(text)}"
        )
    if len(text.encode(errors="replace")) > 200:
        raise ValueError(f"{what} must be a name of at most 200 bytes, got {said(text)}")
    return text


def out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory did not suffice; torch says that of the CPU's in many ways."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    signs = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def fits(what: str, *counts: int) -> Iterator[None]:
    """Where a user's numbers decide how much memory is taken: say so, if there is not that much.

    `counts` fill the braces of `what`, then and not before: those of a compiler are not known yet.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error) or type(error).__name__ == "OutOfMemoryError":  # CUDA's stays
            raise
        raise MemoryError(
            f"{what.format(*counts) if counts else what} does not fit into memory"
        ) from None


def finite(what: str, values: Tensor) -> None:
    """Refuse NaN and infinity. It looks at values, so it belongs where data enters only."""
    if values.is_floating_point() and not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise ValueError(f"{what} must be finite, but {bad} of {values.numel()} values are not")


def tensor(what: str, values: Any) -> Tensor:
    """Return `values` if it is a tensor."""
    if not hasattr(values, "is_floating_point") or not hasattr(values, "layout"):  # without torch
        raise TypeError(f"{what} must be a torch.Tensor, got {type(values).__name__}")
    return values


def plain(what: str, values: Any) -> Tensor:
    """Return `values` if it is a tensor with an entry in every place."""
    if str(tensor(what, values).layout) != "torch.strided" or values.device.type == "meta":
        kind = "meta" if values.device.type == "meta" else values.layout
        raise TypeError(f"{what} must be a dense tensor with values, got {kind}")
    return values


def floating(what: str, values: Any) -> None:
    """Refuse whatever is not a tensor of floating-point numbers."""
    if not tensor(what, values).is_floating_point():
        raise TypeError(f"{what} must hold floating-point numbers, got {values.dtype}")


def whole(what: str, values: Any) -> Tensor:
    """Return `values` if it is a tensor of integers: nothing is cut off, and a mask is none."""
    inexact = tensor(what, values).is_floating_point() or values.is_complex()
    if inexact or str(values.dtype) == "torch.bool":
        raise TypeError(f"{what} must hold integers, got {values.dtype}")
    return values


def shape(values: Tensor) -> str:
    """The shape of a tensor as people write it: [3, 4]."""
    return str(list(values.shape))


UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000 ** (power + 1) for power, prefix in enumerate("KMGT")},
    **{f"{prefix}iB": 1024 ** (power + 1) for power, prefix in enumerate("KMGT")},
}
"""Of memory, and how many bytes each is."""
FREE = "free"
"""As much memory as is free."""


def memory(what: str, value: Any) -> int | str | None:
    """A budget in bytes, by "8GB", "512MiB" or a number of bytes; "free" and None as they are."""
    if value is None or (isinstance(value, str) and value == FREE):
        return value
    if not isinstance(value, str):
        return integer(what, value, 1, sys.maxsize)
    units = {unit.lower(): size for unit, size in UNITS.items()}
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*", value)
    unit = parts[2].lower() if parts else ""
    if parts is None or (unit or "b") not in units:
        raise ValueError(
            f"{what} must be a size such as '8GB' or '512MiB', a number of bytes or '{FREE}', "
            f"got {said(value)}"
        )
    return integer(what, int(float(parts[1]) * units[unit or "b"]), 1, sys.maxsize)


def number(what: str, value: Any, least: float = 0.0, below: float = math.inf) -> float:
    """Return `value` if it is a finite number of at least `least` and below `below`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {said(value)}")
    try:
        number = float(value)
    except OverflowError:  # an integer that no float reaches
        number = math.inf
    if not least <= number < below:
        bounds = f"a finite number of at least {least:g}"
        if below < math.inf:
            bounds = f"at least {least:g} and below {below:g}"
        raise ValueError(f"{what} must be {bounds}, got {said(value)}")
    return number


@contextmanager
def needs(what: str, extra: str) -> Iterator[None]:
    """Around imports: what needs them says how to install them."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in ("starlette", "uvicorn"):
            raise
        raise ImportError(
            f"{what} needs {missing.name}, which is not installed: "
            f'pip install "subtree-attention[{extra}]"'
        ) from None
