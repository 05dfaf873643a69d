"""The competition: candidates in turns from rung to rung, what a search proposes, and a winner.

Who goes on is decided by scores and by sizes, never by a clock; only a budget may end it sooner.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import _check
from ..config import Config
from ..runs import folder as files
from ..runs import portfolio as kept
from ..runs import stacked
from ..runs.portfolio import FAILED, STOPPED, WON, Portfolio, Rung, Tried, changes_to
from ..tasks import Problem
from .candidates import Candidate
from .estimate import estimate, refuse_too_large
from .fit import Interrupted, can_capture
from .jobs import Place, Stopped, work
from .logs import Log, Logged, opened
from .run import Diverged, Material, SavingRun, Unfitted
from .watch import Watch

RUNGS: tuple[Rung, ...] = (Rung(30, 0.4), Rung(60, 0.0), Rung(400, 0.0))

DEARER = 2.0
"""Times the work of the first one's that an epoch may be without being one of fewer."""

DENSE = 1 / 8
"""What a product of matrices costs beside a step along an edge, number by number."""

FINALISTS = 2
"""How many of those that were trained to their end are kept while a search goes on."""

ASKED = 20
"""How often a proposal is asked for that is new, before there is nothing left to try."""

FADES = 0.9
"""What a long epoch of before still counts after another one."""

SPARE_SECONDS, SPARE_EPOCHS = 0.5, 3
"""Of a budget, for what comes after the last epoch: the winner is scored, calibrated and saved."""

More = Callable[[Portfolio], Candidate | None]
"""Told all that was tried, it proposes what to try next; None if there is nothing left to try."""


@dataclass(frozen=True)
class How:
    """How it goes on, checked: where it is trained, who is told, and when it must end."""

    place: Place
    watch: Watch
    stop: Callable[[], bool] | None
    checkpoint_seconds: float
    more: More | None
    references: bool | None
    log: list[Log]
    started: float

    @classmethod
    def of(
        cls,
        *,
        device: str | Place,
        watch: Watch | None,
        stop: Callable[[], bool] | None,
        checkpoint_seconds: float,
        more: More | None,
        references: bool | None,
        log: Logged,
        since: float | None,
    ) -> How:
        """From what a user says, begun now."""
        started = time.monotonic() if since is None else _check.number("since", since)
        for name, function in (("stop", stop), ("more", more)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {_check.said(function)}")
        return cls(
            Place.of(device),
            Watch() if watch is None else _check.kind("watch", watch, Watch, "a Watch"),
            stop,
            _check.number("checkpoint_seconds", checkpoint_seconds),
            more,
            None if references is None else _check.flag("references", references),
            opened(log),
            started,
        )


class _Attempt(SavingRun):
    """The run of a candidate: what goes wrong with it ends it, and nobody else."""

    failure = ""

    def advance(self) -> None:
        try:
            super().advance()
        except (RuntimeError, MemoryError) as error:
            if not _check.out_of_memory(error):
                raise
            self.failure = "it does not fit into memory"

    def record(self) -> None:
        try:
            super().record()
        except Diverged as error:
            self.failure = f"it is not finite any more after epoch {error.epoch}"

    @property
    def last_epoch(self) -> int:
        return self.epoch if self.failure else super().last_epoch


class _Late(Exception):
    """The time is up."""


class _Out(Exception):
    """A candidate cannot be trained, as the words say."""


class Competition:
    """The candidates of a folder on their way to a winner.

    Args:
        folder: what it is kept in, which this process holds.
        portfolio: how far it is.
        material: the graph, under the first configuration.
        how: where, and until when.
    """

    def __init__(self, folder: Path, portfolio: Portfolio, material: Material, how: How) -> None:
        self.folder, self.portfolio, self.how = folder, portfolio, how
        self.material = material
        self.sign = material.task.metric.sign
        self.before = portfolio.seconds
        self.active: dict[str, _Attempt] = {}
        self.epoch_seconds = 0.0  # the longest lately: an epoch is not begun that would be late
        self.late = False

    def run(self) -> None:
        """To the end; what was stopped before is taken up where it was."""
        try:
            if not self.portfolio.won:
                self._sweep()
                with suppress(_Late):
                    self._portfolio()
                    self._search()
                self._choose()
            self._crown()
        except KeyboardInterrupt:
            raise Interrupted(self.folder) from None

    # ------------------------------------------------------------------------------- the rungs

    def _portfolio(self) -> None:
        """All candidates in turns, from rung to rung."""
        for number, rung in enumerate(self.portfolio.rungs):
            entered = [one for one in self.portfolio.tried if not one.searched]
            self._train([one for one in entered if one.open], number)
            going = [one for one in entered if one.open]
            if not going:
                break
            most = max(1, math.ceil(rung.keep * len(entered)))
            if number + 1 < len(self.portfolio.rungs):
                self._stop(self._ranked(going, number)[most:])

    def _search(self) -> None:
        """What is proposed, one after the other, each as far as it is among the better ones."""
        while self.how.more is not None:
            tried = next((one for one in self.portfolio.tried if self._waits(one)), None)
            if tried is None:
                if self._is_late():
                    raise _Late
                tried = self._proposed()
            if tried is None:
                return
            for number, rung in enumerate(self.portfolio.rungs):
                self._train([tried], number)
                reached = [one for one in self.portfolio.tried if len(one.rungs) > number]
                most = max(1, math.ceil(rung.keep * len(reached)))
                last = number + 1 == len(self.portfolio.rungs)
                if not tried.open or last:
                    break
                if tried in self._ranked(reached, number)[most:]:
                    self._stop([tried])
                    break
            going = [one for one in self.portfolio.tried if one.open and one.rungs]
            self._stop(self._ranked(going, -1)[FINALISTS:])

    def _waits(self, tried: Tried) -> bool:
        """Whether a proposal was stopped on its way."""
        return tried.searched and tried.open and len(tried.rungs) < len(self.portfolio.rungs)

    def _proposed(self) -> Tried | None:
        """What is proposed, if it is new: nothing is trained twice."""
        assert self.how.more is not None
        for _ in range(ASKED):
            candidate = self.how.more(self.portfolio)
            if candidate is None:
                return None
            config = self.portfolio.base.replace(**candidate.changes)
            if self.portfolio.having(config) is None:
                own = changes_to(self.portfolio.base, config)
                tried = Tried(candidate.name, candidate.words, own, searched=True)
                self.portfolio.tried.append(tried)
                self._save()
                return tried
        return None

    def _ranked(self, some: list[Tried], number: int) -> list[Tried]:
        """By the score at a rung, best first; of equals the earlier one."""
        return sorted(some, key=lambda one: -self.sign * one.rungs[number])

    def _train(self, some: list[Tried], number: int) -> None:
        """Train candidates up to a rung."""
        place = self.how.place
        capture = place.capture and all(can_capture(self.portfolio.config(one)) for one in some)

        def waiting() -> Iterator[_Attempt]:
            for tried in some:
                if len(tried.rungs) > number:
                    continue
                if tried.ended:
                    assert tried.val is not None
                    tried.rungs.append(tried.val)
                    continue
                if self._is_late() and self.portfolio.scored:
                    return
                try:
                    run = self._opened(tried, capture)
                except _Out as out:
                    self._fail(tried, str(out))
                    continue
                run.until, self.active[run.name] = self._until(tried, number), run
                yield run

        try:
            for run in work(waiting(), place.at_a_time(capture), _Timed(self), self._is_over):
                if run is not None:
                    self._reached(run, number)
            self._save()
        except Stopped:
            for run in self.active.values():
                self._note(run)
            self.active.clear()
            self._save()
            if self.how.stop is not None and not self._is_late():
                raise
            raise _Late from None
        finally:
            self.active.clear()
            _free(place)
        if self._is_late():
            raise _Late

    def _until(self, tried: Tried, number: int) -> int:
        """Up to which epoch a candidate is trained: of dear epochs there are fewer."""
        first, own = (
            epoch_work(config, self.material)
            for config in (self.portfolio.base, self.portfolio.config(tried))
        )
        return math.ceil(self.portfolio.rungs[number].epochs * min(1.0, DEARER * first / own))

    def _opened(self, tried: Tried, capture: bool) -> _Attempt:
        """The run of a candidate, fresh or from where it was, if it can be trained here."""
        try:
            material = self.material.under(self.portfolio.config(tried))
            if not tried.epochs:
                self._refuse_too_large(tried, material)
            self._take_reference(tried)
            problem, every = self._problem(material), self.how.checkpoint_seconds
            run = _Attempt(material, 0, problem, self._place_of(tried), capture, every)
        except Unfitted as error:
            raise _Out(str(error)) from None
        except (RuntimeError, MemoryError) as error:
            if not _check.out_of_memory(error):
                raise
            raise _Out("it does not fit into memory") from None
        run.name = tried.name
        return run

    def _take_reference(self, tried: Tried) -> None:
        """What it stands on, if another one does too: that is not fitted again."""
        config, place = self.portfolio.config(tried), self._place_of(tried) / "run-0"
        name = getattr(config.task, "reference", "")
        if not name or (place / files.REFERENCE).exists():
            return
        for other in self.portfolio.tried:
            there, its = self._place_of(other) / "run-0", self.portfolio.config(other)
            same = (its.task, its.data, its.fit.seed) == (config.task, config.data, config.fit.seed)
            if same and (there / files.REFERENCE).exists():
                stacked.write(place, stacked.read(there, name, "delete it to fit it again"))
                return

    def _refuse_too_large(self, tried: Tried, material: Material) -> None:
        """Not begun at all if it is known that it does not fit."""
        how = material.dataset, material.config, material.device
        try:
            found = estimate(*how, budget=material.memory)
            warning = refuse_too_large(found, material.dataset)
        except ValueError as error:
            raise _Out(str(error)) from None
        if warning:
            self.how.watch.say(f"{tried.name}: {warning}")

    def _problem(self, material: Material) -> Problem:
        """The split of run 0; what a search proposes may be nothing that can be learnt on it."""
        try:
            return material.problem(material.config.fit.seed)
        except ValueError as error:
            raise _Out(str(error)) from None

    def _reached(self, run: _Attempt, number: int) -> None:
        """A run is at a rung, at its end, or cannot go on."""
        tried = self.portfolio.named(run.name)
        self.active.pop(run.name)
        if run.failure:
            self._note(run)
            self._fail(tried, run.failure)
            return
        run.checkpoint()
        self._note(run)
        assert tried.val is not None
        tried.rungs.append(tried.val)
        self._save()
        show = self.material.task.metric.show
        line = f"{tried.epochs} epochs  val {show(tried.val)}  {tried.seconds:.1f} s"
        self.how.watch.end(run.name, line, notable=True)

    def _note(self, run: _Attempt) -> None:
        """How far a run is."""
        tried = self.portfolio.named(run.name)
        if run.best is not None:
            tried.epochs, tried.ended = run.epoch, run.epoch >= run.end
            tried.best_epoch, tried.val = run.best.epoch, run.best.val
            tried.seconds = round(run.elapsed(), 3)

    # ---------------------------------------------------------------------------- who is out

    def _stop(self, some: list[Tried]) -> None:
        """These cannot win any more: their lines are kept, their runs are not."""
        for tried in some:
            tried.state, tried.why = STOPPED, _behind(tried)
        if some:
            self._save()  # before anything is removed
            self._sweep()

    def _fail(self, tried: Tried, why: str) -> None:
        tried.state, tried.why = FAILED, why
        self._save()
        self._sweep()
        self.how.watch.end(tried.name, f"left out: {why}", notable=True)

    def _sweep(self) -> None:
        """Remove the runs of those that are out."""
        for tried in self.portfolio.tried:
            if not tried.open and tried.name != self.portfolio.won:
                shutil.rmtree(self._place_of(tried), ignore_errors=True)

    # -------------------------------------------------------------------------------- who wins

    def _choose(self) -> None:
        """The best on validation, of equals the first."""
        going = [one for one in self.portfolio.tried if one.open and one.val is not None]
        if not going:
            reasons = "; ".join(f"{one.name}: {one.why}" for one in self.portfolio.tried)
            raise RuntimeError(f"no model could be trained ({reasons}): try a smaller lr")
        winner = max(going, key=lambda one: self.sign * (one.val or 0.0))
        self.portfolio.won = winner.name
        for tried in self.portfolio.tried:
            if tried.open:
                tried.state, tried.why = STOPPED, _behind(tried)
        winner.state, winner.why = WON, ""
        self._save()

    def _crown(self) -> None:
        """The winner's run becomes run 0, and its configuration that of the folder."""
        winner = self.portfolio.winner
        assert winner is not None
        final, place = self.folder / "run-0", self._place_of(winner) / "run-0"
        if not files.is_done(final):
            if not files.is_done(place):
                try:
                    run = self._opened(winner, capture=False)
                except _Out as out:
                    words = f"{winner.name} has won, and cannot be taken up again: {out}"
                    raise RuntimeError(words) from None
                run.finish()
            os.replace(place, final)
        self.portfolio.seconds = self._spent()
        kept.close(self.folder, self.portfolio, self.portfolio.config(winner))

    # ------------------------------------------------------------------------------ and the time

    def _place_of(self, tried: Tried) -> Path:
        return self.folder / files.COMPETING / tried.name

    def _save(self) -> None:
        self.portfolio.seconds = self._spent()
        kept.write(self.folder, self.portfolio)

    def _spent(self) -> float:
        return round(self.before + time.monotonic() - self.how.started, 3)

    def _is_late(self) -> bool:
        """Whether another epoch would end after the budget; once so, it stays so, or candidates
        that were passed over would be compared with others."""
        budget = self.portfolio.budget
        spare = SPARE_SECONDS + SPARE_EPOCHS * self.epoch_seconds
        self.late |= budget is not None and self._spent() + spare >= budget
        return self.late

    def _is_over(self) -> bool:
        return self._is_late() or (self.how.stop is not None and self.how.stop())


def _behind(tried: Tried) -> str:
    """Why it has not won."""
    if tried.val is None:
        return "no time was left"
    return f"behind at {tried.epochs} epoch{'s' * (tried.epochs != 1)}"


class _Timed(Watch):
    """Tells the display, and measures rounds: an epoch, or a few, of each run under way."""

    def __init__(self, competition: Competition) -> None:
        self.competition, self.last = competition, time.monotonic()
        self.shown = competition.how.watch
        self.seen, self.seconds = set[str](), 0.0  # of this round

    def start(self, run: Any) -> None:
        self.last = time.monotonic()
        self.shown.start(run)

    def epoch(self, run: Any) -> None:
        now = time.monotonic()
        if run.name in self.seen:  # the next round
            self.seen, self.seconds = set(), 0.0
            self.competition.epoch_seconds *= FADES
        self.seen.add(run.name)
        self.seconds, self.last = self.seconds + now - self.last, now
        self.competition.epoch_seconds = max(self.competition.epoch_seconds, self.seconds)
        self.shown.epoch(run)


def epoch_work(config: Config, material: Material) -> float:
    """What an epoch does, in numbers that walk along an edge: from sizes alone, never by a clock,
    and good for no more than to compare two configurations on one graph."""
    model, x = config.model, material.dataset.features
    nodes, edges = material.dataset.num_nodes, material.dataset.num_edges
    entries = x.values().numel() if x.is_sparse_csr else DENSE * x.numel()
    hidden, hops, layers = model.hidden_channels, model.hops, getattr(model, "layers", 1)
    values = getattr(model, "key_channels", material.sizes["out_channels"])
    wide = layers * nodes * hidden * (2 * hidden + values)
    return entries * hidden + layers * hops * (edges + nodes) * hidden * values + DENSE * wide


def _free(place: Place) -> None:
    """The next ones have other shapes."""
    if place.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
