"""What to try on a graph of one's own when its portfolio is done: proposals that learn from it.

There is no study on disk: all that was tried stands in portfolio.json, and the next proposal
follows from that alone. Whoever goes on after a stop is proposed what would have been proposed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..config import Config, STAFormerSettings, STAGNNSettings
from ..runs.portfolio import FAILED, Portfolio, Tried
from ..tasks import of as task_of
from ..train.candidates import Candidate
from .space import Range, Space, distributions, settings
from .study import need_optuna, quiet

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

STAGNN, DEEP = STAGNNSettings.name, STAFormerSettings.name
SHARED: Space = {
    "lr": Range(1e-3, 3e-2, log=True),
    "weight_decay": Range(1e-6, 1e-2, log=True),
    "dropout": Range(0.0, 0.8),
}
OWN_SPACES: dict[str, Space] = {
    STAGNN: {
        **SHARED,
        "hops": Range(1, 10),
        "heads": Range(1, 8),
        "hidden_channels": (16, 32, 64, 128),
        "gate": ("softmax", "plain", "none"),
    },
    DEEP: {
        **SHARED,
        "layers": Range(1, 4),
        "hops": Range(1, 4),
        "heads": (1, 2, 4, 8),
        "hidden_channels": (32, 64, 128, 256),
        "input_dropout": Range(0.0, 0.6),
        "gate": ("plain", "none"),
    },
}
"""Model -> what is searched, as far as the task has it and the user has not chosen it. What else a
model knows, of labels and of references, is as in the best one so far."""

STARTUP = 10
"""Trials, the portfolio's among them, before proposals follow what they say."""

ATTEMPTS = 20
"""Proposals of what was tried before, in a row, after which there is nothing left to try."""


class Proposals:
    """The `more` of `train.portfolio.fit_portfolio`: told what was tried, it proposes the next."""

    def __init__(self) -> None:
        need_optuna()

    def __call__(self, portfolio: Portfolio) -> Candidate | None:
        """What has the best chance to be better; None if nothing new comes up."""
        number = sum(one.searched for one in portfolio.tried) + 1
        for attempt in range(ATTEMPTS):
            changes = _asked(portfolio, 1_000_003 * portfolio.base.fit.seed + 97 * number + attempt)
            try:
                config = portfolio.base.replace(**changes)
            except ValueError:  # heads that leave no channel, or do not divide them
                continue
            if portfolio.having(config) is None:
                return Candidate(f"search-{number}", "proposed by the search", changes)
        return None


def space_for(portfolio: Portfolio, model: str) -> Space:
    """What is searched of a model: what it and the task have, and the user has not chosen."""
    there = portfolio.base.replace(model=model).flat().keys() - set(portfolio.given)
    return {name: values for name, values in OWN_SPACES[model].items() if name in there}


def models_of(portfolio: Portfolio) -> list[str]:
    """The models that compete, in order: those that the user and the task allow."""
    return list(dict.fromkeys(portfolio.config(one).model.name for one in portfolio.tried))


def _asked(portfolio: Portfolio, seed: int) -> dict[str, Any]:
    """What Optuna proposes, as changes of the first configuration."""
    import optuna

    quiet()
    models = models_of(portfolio)
    sign = task_of(portfolio.base.task).metric.sign
    study = optuna.create_study(
        direction="maximize" if sign > 0 else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=STARTUP),
    )
    for one in portfolio.tried:
        if one.val is not None and one.state != FAILED:
            study.add_trial(_told(portfolio, one, models))
    trial = study.ask({"model": optuna.distributions.CategoricalDistribution(models)})
    model = trial.params["model"]
    point = {
        name: _suggested(trial, f"{model} {name}", values)
        for name, values in space_for(portfolio, model).items()
    }
    like = _starting_point(portfolio, model)
    return {**like, **settings(point)}


def _suggested(trial: Trial, name: str, values: tuple[Any, ...] | Range) -> Any:
    if not isinstance(values, Range):
        return trial.suggest_categorical(name, values)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, step=values.step)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _starting_point(portfolio: Portfolio, model: str) -> dict[str, Any]:
    """What is not searched is as in the best one of the same model, of equals the first."""
    sign = task_of(portfolio.base.task).metric.sign
    those = [one for one in portfolio.tried if portfolio.config(one).model.name == model]
    scored = [one for one in those if one in portfolio.scored]
    best = max(scored, key=lambda one: sign * (one.val or 0.0), default=those[0])
    return dict(best.changes)


def _told(portfolio: Portfolio, one: Tried, models: list[str]) -> FrozenTrial:
    """What was tried, in Optuna's words: what was stopped is so far as it came."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    config = portfolio.config(one)
    space = space_for(portfolio, config.model.name)
    # Under names of its own: another model has another range of the same setting.
    point = {f"{config.model.name} {name}": each for name, each in _inside(space, config).items()}
    kinds = distributions({f"{config.model.name} {name}": each for name, each in space.items()})
    whole = one.ended or one.open or one.state == "won"
    return create_trial(
        state=TrialState.COMPLETE if whole else TrialState.PRUNED,
        value=one.val if whole else None,
        params={"model": config.model.name, **point},
        distributions={
            "model": CategoricalDistribution(models),
            **{name: kinds[name] for name in point},
        },
        intermediate_values={} if whole or one.val is None else {one.epochs: one.val},
    )


def _inside(space: Space, config: Config) -> dict[str, Any]:
    """The settings of a configuration as a point of the space; what lies outside is left out."""
    flat, point = config.flat(), dict[str, Any]()
    for name, values in space.items():
        value = flat[name]
        if isinstance(values, Range):
            if values.low <= value <= values.high and math.isfinite(value):
                point[name] = value
        elif value in values:
            point[name] = value
    return point
