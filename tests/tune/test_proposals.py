"""What a search proposes after a portfolio: new, within its space, and by what was tried alone."""

import pytest
from torch_geometric.data import Data

import subtree_attention as sta
from subtree_attention.datasets import load
from subtree_attention.runs.portfolio import Portfolio, Tried
from subtree_attention.train.candidates import PORTFOLIO, Candidate, entered

pytest.importorskip("optuna")

from subtree_attention.tune.proposals import OWN_SPACES, Proposals, space_for
from subtree_attention.tune.space import Range


def portfolio(**changes: object) -> Portfolio:
    """Of the digits as if they were one's own: all candidates are scored."""
    digits = load("digits")
    mine = sta.from_pyg(Data(x=digits.x, edge_index=digits.edge_index, y=digits.y))
    found = entered(mine, PORTFOLIO, changes)
    for number, one in enumerate(found.tried):
        one.val, one.epochs, one.ended = 0.5 + number / 100, 40, number % 2 == 0
        one.state = "open" if one.ended else "stopped"
    return found


def with_searched(found: Portfolio, count: int) -> list[Candidate]:
    """So many proposals, each scored better where dropout is near 0.5."""
    proposed, proposals = [], Proposals()
    for _ in range(count):
        candidate = proposals(found)
        assert candidate is not None
        proposed.append(candidate)
        tried = Tried(candidate.name, "", dict(candidate.changes), searched=True)
        tried.val, tried.epochs, tried.ended = 1 - abs(candidate.changes["dropout"] - 0.5), 40, True
        found.tried.append(tried)
    return proposed


def test_proposals_are_new_and_follow_from_what_was_tried_alone() -> None:
    found = portfolio()
    proposed = with_searched(found, 6)
    configs = [found.config(one) for one in found.tried]
    assert all(configs.count(config) == 1 for config in configs)
    assert {config.model.name for config in configs} == {"stagnn", "staformer"}
    assert with_searched(portfolio(), 6) == proposed
    other = portfolio()
    other.tried = other.tried + found.tried[len(other.tried) :][:3]  # stopped after three of them
    assert with_searched(other, 3) == proposed[3:]


def test_what_the_user_has_chosen_is_not_searched() -> None:
    found = portfolio(hops=2, model="stagnn")
    assert "hops" not in space_for(found, "stagnn")
    for candidate in with_searched(found, 4):
        config = found.base.replace(**candidate.changes)
        assert (config.model.name, config.model.hops) == ("stagnn", 2)
        for name, values in OWN_SPACES["stagnn"].items():
            if isinstance(values, Range) and name != "hops":
                assert values.low <= config.flat()[name] <= values.high


def test_what_else_the_best_one_knows_is_kept() -> None:
    found = portfolio(model="stagnn")
    found.named("stacked").val = 0.99
    for candidate in with_searched(found, 3):
        config = found.base.replace(**candidate.changes)
        assert (config.task.show_labels, config.task.reference) == (0.5, "logistic_neighbours")
        assert config.model.smoothing == 1


def test_where_nothing_is_left_to_try_there_is_no_proposal() -> None:
    given = {name: found for name, found in portfolio().base.flat().items() if name != "encoding"}
    given = {name: given[name] for name in OWN_SPACES["stagnn"] if name in given}
    assert Proposals()(portfolio(model="stagnn", **given)) is None
