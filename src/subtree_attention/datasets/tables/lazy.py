"""Polars, imported when it is first used: the rest of the package works without it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Polars:
    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(import_module("polars"), name)
        except ModuleNotFoundError:
            raise ImportError(
                'tables need polars: pip install "subtree-attention[tables]"'
            ) from None


if TYPE_CHECKING:
    import polars as pl
else:
    pl = _Polars()
