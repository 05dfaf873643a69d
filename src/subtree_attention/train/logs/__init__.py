"""Where people already look: epochs also go to a table, TensorBoard, Weights & Biases or MLflow.

`log` says what a log is, `telling` tells some of them without keeping training waiting; `files` and
`services` are those that have a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from ... import _check
from .files import Table, TensorBoard
from .log import Log, LoggedRun
from .services import MLflow, WeightsAndBiases
from .telling import told_too

LOGS: dict[str, tuple[type[Log], str]] = {
    "csv": (Table, ""),
    "tensorboard": (TensorBoard, "tensorboard"),
    "wandb": (WeightsAndBiases, "wandb"),
    "mlflow": (MLflow, "mlflow"),
}
"""Name -> the log, and the package that it needs."""

Logged = str | Log | Sequence[str | Log] | None
"""What a user says: a name, a log of their own, or several."""


def opened(log: Logged) -> list[Log]:
    """The logs that a user has named or made; what cannot be is refused before any work."""
    given = [] if log is None else [log] if isinstance(log, str | Log) else log
    if not isinstance(given, Sequence):
        raise TypeError(
            f"log must be a name ({', '.join(LOGS)}), a Log with begin, epoch and end, or a list "
            f"of them, got {_check.said(log)}"
        )
    unique = [one for at, one in enumerate(given) if one not in given[:at]]
    return [one if isinstance(one, Log) else _named(one) for one in unique]


def _named(name: str) -> Log:
    made, package = LOGS[_check.known("log", name, LOGS)]
    if package and find_spec(package) is None:
        wanted = '"subtree-attention[log]"' if package == "tensorboard" else package
        raise ImportError(
            f"log {name} needs {package}, which is not installed: pip install {wanted}"
        )
    return made()


__all__ = ["LOGS", "Log", "Logged", "LoggedRun", "opened", "told_too"]
