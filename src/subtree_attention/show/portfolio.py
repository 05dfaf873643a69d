"""What was tried before a model was trained, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runs.portfolio import FAILED, WON, Portfolio, Tried
from ..tasks import of as task_of
from .tables import numbers
from .text import counted, listed, plain

if TYPE_CHECKING:
    from rich.console import Console

    from ..tasks.metrics import Metric

HEADINGS = ("model", "what is different", "validation", "epochs", "seconds", "outcome")
BEST_SEARCHED = 10
"""Proposals of a search that are listed, the best ones; the rest is counted."""


def show(portfolio: Portfolio, console: Console) -> None:
    """What competed, what won, and by how much."""
    metric = task_of(portfolio.base.task).metric
    shown = ([plain(str(cell)) for cell in row] for row in cells(portfolio))
    title = f"{plain(portfolio.base.data.graph)}: validation {metric.label} on the split of run 0"
    texts = (HEADINGS[0], HEADINGS[1], HEADINGS[-1])
    console.print(numbers(HEADINGS, shown, texts=texts, title=title))
    for line in lines(portfolio):
        console.print(line, soft_wrap=True, markup=False)


def cells(portfolio: Portfolio) -> list[tuple[str, ...]]:
    """The lines of the table, see `HEADINGS`."""
    metric, equal = task_of(portfolio.base.task).metric, level(portfolio)

    def row(tried: Tried) -> tuple[str, ...]:
        outcome = "won" if tried.state == WON else tried.why
        outcome = "equal; the earlier one won" if tried in equal else outcome
        spent = f"{tried.epochs}", f"{tried.seconds:.1f}"
        return tried.name, different(tried), metric.show(tried.val), *spent, outcome

    return [row(one) for one in rows(portfolio)]


def level(portfolio: Portfolio) -> list[Tried]:
    """Those that are as good as the winner, which is the first of them."""
    winner = portfolio.winner
    if winner is None:
        return []
    return [one for one in portfolio.scored if one is not winner and one.val == winner.val]


def rows(portfolio: Portfolio) -> list[Tried]:
    """What is listed: all candidates, and the best proposals of a search."""
    sign = task_of(portfolio.base.task).metric.sign
    searched = [one for one in portfolio.scored if one.searched]
    best = sorted(searched, key=lambda one: -sign * (one.val or 0.0))[:BEST_SEARCHED]
    return [one for one in portfolio.tried if not one.searched or one in best]


def lines(portfolio: Portfolio) -> list[str]:
    """Who won and by how much; what was left out; how much is not listed."""
    found = [summary(portfolio)]
    others = sum(one.searched for one in portfolio.tried) - sum(o.searched for o in rows(portfolio))
    if others:
        found.append(f"and {counted(others, 'proposal')} of the search that did no better")
    found += [f"{name} was left out: {why}" for name, why in portfolio.left_out.items()]
    return found


def summary(portfolio: Portfolio) -> str:
    """Who won and by how much, in a sentence."""
    metric, winner = task_of(portfolio.base.task).metric, portfolio.winner
    if winner is None:
        return "there is no winner yet"
    tried = counted(len([one for one in portfolio.tried if one.epochs]), "model")
    untried = [one for one in portfolio.tried if not one.epochs and one.state != FAILED]
    if untried and portfolio.budget is not None:
        number = sum(not one.searched for one in portfolio.tried)
        tried += f" (the time was too short for all {number}; without --tune all are tried)"
    words = f"{winner.name} won of {tried}: {metric.title} {metric.told(winner.val)} on validation"
    others = [one for one in portfolio.scored if one is not winner]
    if not others:
        return words
    if equal := level(portfolio):
        names = listed([one.name for one in equal])
        return f"{words}; {names} {'is' if len(equal) == 1 else 'are'} equal: the earlier one wins"
    first, second = portfolio.tried[0], max(others, key=lambda one: metric.sign * (one.val or 0.0))
    compared = [second, first] if first in others and first is not second else [second]
    told = ", ".join(_compared(metric, winner, other) for other in compared)
    return f"{words}, {told}"


def _compared(metric: Metric, winner: Tried, other: Tried) -> str:
    ahead = metric.sign * ((winner.val or 0.0) - (other.val or 0.0))
    return f"{metric.show(abs(ahead))} {'better' if ahead > 0 else 'worse'} than {other.name}"


def different(tried: Tried) -> str:
    """What a candidate is, in words; of a proposal its settings."""
    return settings(tried.changes) if tried.searched else tried.words


def settings(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in changes.items())


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
