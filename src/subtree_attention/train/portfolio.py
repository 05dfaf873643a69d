"""A portfolio: a few configurations compete on one split, and the winner's run is kept.

    from subtree_attention import fit_portfolio
    result = fit_portfolio(data, graph="papers")     # or what `sta train --nodes ...` does

No one configuration is the best on every graph. Each candidate is trained up to a first rung, the
better ones go on to the next, and the best at last to the end of their patience, all on the split
of run 0 and chosen by its validation score: test scores are not looked at. The winner's run becomes
run 0, and the other runs, on splits of their own, are trained with its configuration.

Who goes on is decided by scores and by sizes, never by a clock, so the same call comes to the same
end; only a budget of seconds, if one is given, may end it sooner. Whoever is killed on the way goes
on where it was: see `runs.portfolio` for what is on disk.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import _check, io
from ..datasets import Dataset, as_dataset
from ..runs import compared
from ..runs import folder as files
from ..runs import portfolio as kept
from ..runs.portfolio import Portfolio, Rung
from ..runs.saved import dataset_of, save_dataset
from .candidates import PORTFOLIO, Candidate, differences, entered, stand_on_best
from .competition import RUNGS, Competition, How, More
from .estimate import clock
from .fit import (
    Result,
    begun_in,
    expectation,
    fit,
    given_data,
    references_beside,
    refuse_other_graph,
    say_compiling,
    threads_of,
    warn_of_few,
)
from .jobs import Place
from .logs import Logged
from .run import Material
from .watch import Watch


def fit_portfolio(
    data: Any,
    out: str | Path | None = None,
    *,
    candidates: Sequence[Candidate] = PORTFOLIO,
    more: More | None = None,
    budget: float | None = None,
    rungs: Sequence[Rung] = RUNGS,
    device: str | Place = "auto",
    resume: bool = False,
    watch: Watch | None = None,
    checkpoint_seconds: float = 5.0,
    stop: Callable[[], bool] | None = None,
    references: bool | None = None,
    log: Logged = None,
    since: float | None = None,
    **changes: Any,
) -> Result:
    """Let some configurations compete on a graph of one's own, and train the winner.

    >>> result = fit_portfolio(data, "runs/mine", graph="papers")  # doctest: +SKIP
    >>> result.portfolio.won  # doctest: +SKIP

    Args:
        data: a graph of one's own with a target of each node: of `from_tables`, or a PyG `Data`.
        out: folder of the results; by default a new one under `runs/`.
        candidates: what competes, the simplest first; those that the task cannot be learnt with,
            or that are the same as an earlier one, are left out.
        more: proposes further candidates, one after the other, as long as there is time.
        budget: seconds in all, those before a stop included, after which the best so far wins; at
            least one epoch is trained.
        rungs: when candidates are compared, and how many go on.
        device, watch, checkpoint_seconds, stop, references: see `fit`.
        log: likewise, of the winner's runs.
        resume: go on with what is in `out`, to the same end; what decides it, the candidates, rungs
            and budget too, must be as it was begun.
        since: when the budget began, by `time.monotonic()`; by default with this call.
        changes: settings that all candidates share, as `recipe` takes them.
    """
    dataset = as_dataset(data)
    how = How.of(
        device=device,
        watch=watch,
        stop=stop,
        checkpoint_seconds=checkpoint_seconds,
        more=more,
        references=references,
        log=log,
        since=since,
    )
    resume, out = _check.flag("resume", resume), None if out is None else _check.path("out", out)
    if budget is not None:
        budget = _check.number("budget", budget)
    asked = entered(dataset, candidates, changes, budget)
    asked.rungs = [_check.kind("a rung", each, Rung, "a Rung") for each in rungs]
    if not asked.rungs:
        raise ValueError("a portfolio needs a rung")
    asked.searches = more is not None
    how.place.check(asked.base)
    folder = _may_write(asked, out, resume)
    dataset = given_data(asked.base, dataset)
    return _compete(asked, folder, dataset, how, resume)


def resume_portfolio(
    folder: str | Path,
    *,
    more: More | None = None,
    device: str | Place = "auto",
    watch: Watch | None = None,
    checkpoint_seconds: float = 5.0,
    stop: Callable[[], bool] | None = None,
    references: bool | None = None,
    log: Logged = None,
) -> Result:
    """Go on with the portfolio of a folder by what is in it alone, see `fit_portfolio`."""
    how = How.of(
        device=device,
        watch=watch,
        stop=stop,
        checkpoint_seconds=checkpoint_seconds,
        more=more,
        references=references,
        log=log,
        since=None,
    )
    folder = _check.path("folder", folder)
    there = kept.read(folder)
    if there is None:
        raise io.FileError(f"{folder} holds no portfolio: fit_portfolio begins one")
    if not there.won and there.searches != (more is not None):
        raise io.FileError(f"{folder} was begun {'with' if there.searches else 'without'} a search")
    if not there.rungs and not there.won:
        raise io.FileError(f"{folder} was begun by an older version: begin again elsewhere")
    how.place.check(there.base)
    dataset = given_data(there.base, dataset_of(there.base, folder))
    return _compete(there, folder, dataset, how, resume=True)


def _may_write(asked: Portfolio, out: Path | None, resume: bool) -> Path | None:
    """The folder to write to, if it may be written to; None if a new one is to be made."""
    there = None if out is None else kept.read(out)
    if out is None or there is None:
        out = files.may_write(asked.base, out, resume)
        if out is not None and files.listed(out):
            raise io.FileError(
                f"{out} holds a run that was begun without a portfolio: go on with it by "
                f"'sta train --resume --out {out}', or choose another folder"
            )
        return out
    if not resume:
        files.check_open(out)
    changed = differences(there, asked)
    if changed:
        raise io.FileError(
            f"{out} holds a portfolio already, which was started with other settings: "
            f"{'; '.join(changed)}: choose another folder"
        )
    return out


def _compete(
    asked: Portfolio, folder: Path | None, dataset: Dataset, how: How, resume: bool
) -> Result:
    """From the first candidate to the last run."""
    material = Material(
        dataset.encoded(asked.base.data.encoding), asked.base, how.place.device, how.place.memory
    )
    problem = material.problem(asked.base.fit.seed)  # refused before a folder is made
    expected = expectation(material, how.place)
    folder = folder or files.new_folder(asked.base.data.graph)
    with files.claimed(folder):
        _may_write(asked, folder, resume)  # again: somebody may have been faster
        portfolio = kept.read(folder) or asked
        if files.PORTFOLIO not in files.listed(folder):
            _begin(folder, portfolio, material, how)
            expected.tell(how.watch, f"{portfolio.tried[0].name}: ")
            if type(how.watch) is not Watch:  # nothing is measured for nobody
                how.watch.say(whole_time(portfolio, expected.found.seconds / expected.found.runs))
            warn_of_few(problem, material, how.watch)
            beside = references_beside(folder, material, problem, how.watch, how.references)
            stand_on_best(portfolio, beside, material.task.metric, folder)
            kept.write(folder, portfolio)  # before any run is there
            with threads_of(folder, how.place.device, how.watch):
                Competition(folder, portfolio, material, how).run()
        shutil.rmtree(folder / files.COMPETING, ignore_errors=True)  # nobody competes any more
    winner = portfolio.winner
    assert winner is not None  # `run` ends with one
    result = fit(
        portfolio.config(winner),
        folder,
        data=dataset,
        device=how.place,
        resume=True,
        watch=how.watch,
        checkpoint_seconds=how.checkpoint_seconds,
        stop=how.stop,
        references=False,  # they are there, and shown
        log=how.log,
    )
    return replace(result, portfolio=portfolio)


def whole_time(portfolio: Portfolio, epoch: float) -> str:
    """What all of it takes, as a range: an epoch of the first candidate takes so many seconds.

    At the least, whoever is at the last rung ends there at once; at the most, after all epochs.
    """
    fit, number = portfolio.base.fit, len(portfolio.tried)
    if portfolio.budget is not None:
        return f"{number} models and a search, in {clock(portfolio.budget)} at most"
    least, going, before = 0, number, 0
    for rung in portfolio.rungs:
        most = least + going * (min(rung.epochs, fit.epochs) - before)
        last, before = least, min(rung.epochs, fit.epochs)
        least, going = most, max(1, math.ceil(rung.keep * number))
    others = fit.runs - 1
    times = [
        clock(epoch * (last + others * min(fit.patience, fit.epochs))),
        clock(epoch * (most + others * fit.epochs)),
    ]
    runs = f", then {others} more run{'s' * (others > 1)} of the best" if others else ""
    return f"{number} models compete{runs}: {' to '.join(dict.fromkeys(times))} in all"


def _begin(folder: Path, portfolio: Portfolio, material: Material, how: How) -> None:
    """Write what belongs to all candidates. Nothing is in a list before there is a winner."""
    again = (folder / files.PORTFOLIO).exists()
    if not again:  # runs of which nobody knows any more how far they came
        shutil.rmtree(folder / files.COMPETING, ignore_errors=True)
    models = f"{len(portfolio.tried)} model{'s' * (len(portfolio.tried) > 1)} compete"
    line = f"{models} on {portfolio.base.data.graph}, into {folder}"
    how.watch.begin(line + (" (resumed)" if again else ""), None, "turns", folder)
    say_compiling(how.place.device, how.watch)
    refuse_other_graph(folder, material.dataset)
    where = begun_in(folder, how.place.device)
    kept.write(folder, portfolio)  # first: it has a checksum, and all that the next one says
    io.write_json(folder / files.CONFIG, portfolio.base.to_dict())
    if how.references:
        compared.ask(folder)
    io.write_json(folder / files.ENVIRONMENT, where)
    save_dataset(folder, material.dataset)
    io.sweep(folder, files.FILES)


__all__ = ["PORTFOLIO", "RUNGS", "Candidate", "Rung", "fit_portfolio", "resume_portfolio"]
