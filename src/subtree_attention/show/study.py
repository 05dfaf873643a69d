"""What is left of a search: the best trials, the recipe to paste, and plots of the study."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from ..io import write_bytes
from ..train.recipes import RECIPES
from ..tune.space import settings
from ..tune.study import Plan, Study
from .tables import numbers
from .text import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BEST = 10


def publish(study: Study, console: Console) -> None:
    """Print the best trials, what failed, the recipe and the command; draw the study."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    done = study.done()
    for line in _others(study):
        say(line)
    if not done:
        say("no trial is done yet: give it more time, with the same command")
        return
    console.print(best_trials(study))
    plan, point = study.plan, done[0].params
    say(f"best by validation: trial {done[0].number}. For RECIPES in train/recipes.py:\n")
    say("    " + recipe_line(plan, point))
    say("\nor as a command (add --out to name the folder):\n")
    say("    " + train_command(plan, point) + "\n")
    say(draw(study))


def recipe_line(plan: Plan, point: Mapping[str, Any]) -> str:
    """The line of `RECIPES` that a point is, in Python."""
    chosen = {**RECIPES[plan.graph], **plan.changes, **settings(point)}
    return f'"{plan.graph}": {chosen},'.replace("'", '"')


def train_command(plan: Plan, point: Mapping[str, Any]) -> str:
    """The command that trains a point by the protocol."""
    options = {**plan.changes, **settings(point)}
    if plan.seed:
        options["seed"] = plan.seed
    words = (f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return " ".join(["sta", "train", plan.graph, *words])


def best_trials(study: Study) -> Table:
    """The best trials by validation score, and their settings."""
    metric = study.metric
    title = f"{study.plan.graph}: the best trials by validation {metric.label}"
    headings = ("trial", "validation", "std", "epochs", "seconds", "settings")
    rows = (
        (
            str(trial.number),
            metric.show(trial.value),
            metric.show(stdev(scores)) if len(scores := trial.user_attrs["scores"]) > 1 else "-",
            f"{mean(trial.user_attrs['epochs']):.0f}",
            f"{trial.user_attrs['seconds']:.1f}",
            ", ".join(f"{name} {value}" for name, value in settings(trial.params).items()),
        )
        for trial in study.done()[:BEST]
    )
    return numbers(headings, rows, texts=("settings",), no_wrap=True, title=title)


def _others(study: Study) -> list[str]:
    """A line each for the trials that have no score: under way, given up, failed and why."""
    trials = study.trials()
    states = Counter(trial.state.name for trial in trials)
    others = {"RUNNING": "under way elsewhere", "PRUNED": "given up"}
    lines = [f"{counted(states[s], 'trial')} {words}" for s, words in others.items() if states[s]]
    reasons = Counter(t.user_attrs["reason"] for t in trials if t.state.name == "FAIL")
    lines += [f"{count} failed: {reason}" for reason, count in reasons.most_common(3)]
    if len(reasons) > 3:
        lines.append(f"{sum(reasons.values())} failed in all")
    return lines


# ------------------------------------------------------------------------------------------ plots


def draw(study: Study) -> str:
    """Draw the study into its folder; returns what to tell about it."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        return 'no plots: they need matplotlib, pip install "subtree-attention[plot]"'
    from optuna.visualization import matplotlib as plots

    kinds: dict[str, Any] = {
        "history": plots.plot_optimization_history,
        "importance": plots.plot_param_importances,
        "slices": plots.plot_slice,
    }
    drawn, left_out = [], []
    for name, plot in kinds.items():
        path, content = study.folder / f"{name}.png", BytesIO()
        # Another process may draw the same; and Optuna warns that its plots may still change.
        with study.alone(), warnings.catch_warnings(), plt.style.context("default"):
            warnings.simplefilter("ignore")
            try:
                if name == "importance" and len(study.done()) < 2:
                    raise ValueError("two trials are needed to tell what matters")
                plot(study.optuna, target_name="validation score")
                plt.savefig(content, format="png", dpi=120, bbox_inches="tight")
                write_bytes(path, content.getvalue())
                drawn.append(path.name)
            except (ValueError, RuntimeError, ZeroDivisionError) as error:
                left_out.append(f"not drawn: {path.name} ({error})")
            finally:
                plt.close("all")
    return "\n".join([f"drawn in {study.folder}: {', '.join(drawn)}"] * bool(drawn) + left_out)
