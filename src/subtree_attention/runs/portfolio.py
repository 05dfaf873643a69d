"""What was tried on one split, as OUT/portfolio.json has it: who competed, how far, and who won.

The file is written after every step of the competition, and stands in the list of checksums of its
folder only when there is a winner: what is not in the list is under way. No test score is in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import _check, io
from ..config import Config
from ..io import FileError
from ..upgrade import FORMAT
from . import folder as files
from .folder import PORTFOLIO

OPEN, STOPPED, FAILED, WON = "open", "stopped", "failed", "won"
STATES = (OPEN, STOPPED, FAILED, WON)


@dataclass(frozen=True)
class Rung:
    """A point at which candidates are compared.

    Attributes:
        epochs: up to which each is trained; of one whose epochs are dearer than the first one's,
            as many fewer.
        keep: share of the candidates that go on from here; at least one does.
    """

    epochs: int
    keep: float

    def __post_init__(self) -> None:
        _check.integer("epochs", self.epochs, 1, _check.MOST_EPOCHS)
        _check.number("keep", self.keep)

    def __str__(self) -> str:
        return f"{self.keep:g} at {self.epochs}"


@dataclass
class Tried:
    """One configuration that competes.

    Attributes:
        name: what it is called, also its folder while it competes.
        words: what it is, for people.
        changes: the settings that differ from the first one's: `base.replace(**changes)` is it.
        searched: whether a search proposed it.
        state: "open" as long as it may win; then "stopped", "failed" or "won".
        why: why it was stopped, or failed.
        epochs: so many were trained.
        best_epoch: the one with the best validation score.
        val: that score; None before the first epoch.
        seconds: that it took.
        rungs: the best score when each rung was reached.
        ended: whether its patience has ended it.
    """

    name: str
    words: str
    changes: dict[str, Any] = field(default_factory=dict)
    searched: bool = False
    state: str = OPEN
    why: str = ""
    epochs: int = 0
    best_epoch: int = 0
    val: float | None = None
    seconds: float = 0.0
    rungs: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def open(self) -> bool:
        return self.state == OPEN

    @classmethod
    def from_dict(cls, content: Any) -> Tried:
        """What `asdict` made; anything else is a ValueError or a TypeError."""
        _check.kind("what was tried", content, dict, "a table")
        for name in content:
            _check.known("part of what was tried", name, [about.name for about in fields(cls)])
        tried = cls(**content)
        for name in ("name", "words", "why"):
            _check.kind(name, getattr(tried, name), str, "a text")
        if not is_name(tried.name):
            raise ValueError(f"{_check.said(tried.name)} is no name of a model that was tried")
        _check.kind("changes", tried.changes, dict, "a table of settings")
        _check.known("state", tried.state, STATES)
        for name in ("epochs", "best_epoch"):
            _check.integer(name, getattr(tried, name), 0, _check.MOST_EPOCHS)
        for name in ("searched", "ended"):
            _check.flag(name, getattr(tried, name))
        _check.number("seconds", tried.seconds)
        _check.kind("rungs", tried.rungs, list, "a list of scores")
        for value in [*tried.rungs, *([] if tried.val is None else [tried.val])]:
            _check.number("val", value, -math.inf)
        return tried


@dataclass
class Portfolio:
    """All that competed on the split of run 0.

    Attributes:
        base: the first configuration, which the others are changes of.
        tried: what competed, in order: of equals the earlier wins.
        left_out: what was not trained, by its name, and why.
        given: the settings that the user has chosen, by name: no candidate changes them.
        won: the name of the winner; empty while there is none.
        seconds: spent so far.
        budget: seconds in all, if there is such an end.
        rungs: where they are compared.
        searches: whether a search proposes more.
    """

    base: Config
    tried: list[Tried]
    left_out: dict[str, str] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    won: str = ""
    seconds: float = 0.0
    budget: float | None = None
    rungs: list[Rung] = field(default_factory=list)
    searches: bool = False

    def named(self, name: str) -> Tried:
        return next(tried for tried in self.tried if tried.name == name)

    @property
    def winner(self) -> Tried | None:
        """None while it is under way."""
        return self.named(self.won) if self.won else None

    def config(self, tried: Tried) -> Config:
        """What it trains."""
        return self.base.replace(**tried.changes)

    def having(self, config: Config) -> Tried | None:
        """The one that trains this already."""
        return next((one for one in self.tried if self.config(one) == config), None)

    @property
    def scored(self) -> list[Tried]:
        """Those with a validation score, in order; what failed has none that counts."""
        return [one for one in self.tried if one.val is not None and one.state != FAILED]

    def to_dict(self) -> dict[str, Any]:
        """What portfolio.json holds."""
        lists = {name: [asdict(one) for one in getattr(self, name)] for name in ("tried", "rungs")}
        plain = {about.name: getattr(self, about.name) for about in fields(self)}
        return {"format": FORMAT, **plain, "base": self.base.to_dict(), **lists}

    @classmethod
    def from_dict(cls, content: Any) -> Portfolio:
        """The inverse of `to_dict`; anything else is a ValueError or a TypeError."""
        content = dict(_check.kind("a portfolio", content, dict, "a table"))
        if content.pop("format", None) != FORMAT:
            raise ValueError(f"this version reads format {FORMAT}")
        for name in content:
            _check.known("part of a portfolio", name, [about.name for about in fields(cls)])
        base = Config.from_dict(content.pop("base", None))
        listed = _check.kind("tried", content.pop("tried", None), list, "a list")
        rungs = _check.kind("rungs", content.pop("rungs", []), list, "a list")
        portfolio = cls(base, [Tried.from_dict(one) for one in listed], **content)
        portfolio.rungs = [Rung(**_check.kind("a rung", one, dict, "a table")) for one in rungs]
        _check.flag("searches", portfolio.searches)
        names = [one.name for one in portfolio.tried]
        if not names or len({*names}) < len(names):
            raise ValueError("it names nothing that was tried, or something twice")
        for one in portfolio.tried:
            portfolio.config(one)  # refuses settings that do not exist
        left_out = _check.kind("left_out", portfolio.left_out, dict, "a table")
        given = _check.kind("given", portfolio.given, list, "a list of settings")
        for text in [*left_out, *left_out.values(), *given]:
            _check.kind("what is left out or given", text, str, "a text")
        if portfolio.won != "":
            _check.known("won", portfolio.won, names)
            if portfolio.named(portfolio.won).val is None:
                raise ValueError(f"'{portfolio.won}' cannot have won without a score")
        for name in ("seconds", *(() if portfolio.budget is None else ("budget",))):
            _check.number(name, getattr(portfolio, name))
        return portfolio


def is_name(name: str) -> bool:
    """Whether a folder may be called so."""
    return name.replace("-", "").isalnum() and name.isascii() and len(name) <= 40


def changes_to(base: Config, other: Config) -> dict[str, Any]:
    """The fewest settings with which `base.replace(**changes)` is the other one."""
    kinds = {
        part: getattr(other, part).name
        for part in ("model", "task")
        if type(getattr(other, part)) is not type(getattr(base, part))
    }
    ours, theirs = base.replace(**kinds).flat(), other.flat()
    return kinds | {name: value for name, value in theirs.items() if ours[name] != value}


def under_way(folder: Path) -> bool:
    """Whether a portfolio was begun there that has no winner yet."""
    return (folder / PORTFOLIO).exists() and PORTFOLIO not in files.listed(folder)


def read(folder: Path) -> Portfolio | None:
    """The portfolio of a folder, under way or not; None if there is none."""
    path = folder / PORTFOLIO
    if not path.exists() and PORTFOLIO not in files.listed(folder):
        return None
    written = io.read_bytes(path) if under_way(folder) else files.read_listed(path)
    content = io.parse_checked(written, path, "delete it, and the models compete again")
    try:
        return Portfolio.from_dict(content)
    except (TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} is no portfolio of ours: {error}") from None


def write(folder: Path, portfolio: Portfolio) -> None:
    """As it stands now: it does not count yet, and has its own checksum meanwhile."""
    io.write_json(folder / PORTFOLIO, io.with_checksum(portfolio.to_dict()))


def close(folder: Path, portfolio: Portfolio, config: Config) -> None:
    """There is a winner, whose run lies there: the folder is that of its configuration now."""
    where = files.read_environment(folder)
    contents: Mapping[str, Any] = {
        files.CONFIG: config.to_dict(),
        files.ENVIRONMENT: where,
        PORTFOLIO: io.with_checksum(portfolio.to_dict()),
    }
    files.write_listed(folder, {name: io.json_bytes(each) for name, each in contents.items()})
