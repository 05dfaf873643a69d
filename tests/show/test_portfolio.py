"""What is said of models that competed."""

from subtree_attention.config import Config
from subtree_attention.runs.portfolio import OPEN, STOPPED, WON, Portfolio, Tried
from subtree_attention.show.portfolio import cells, summary
from subtree_attention.show.text import listed, wilson


def tried(name, val, state=STOPPED, why="behind at its end"):
    return Tried(name, f"what {name} is", state=state, why=why, epochs=9, val=val)


def test_equals_of_the_winner_are_not_behind():
    made = [tried("a", 0.9, WON, ""), tried("b", 0.9), tried("c", 0.8), tried("d", 0.9)]
    portfolio = Portfolio(Config.of("mine"), made, won="a")
    outcomes = [row[-1] for row in cells(portfolio)]
    equal = "equal; the earlier one won"
    assert outcomes == ["won", equal, "behind at its end", equal]
    assert summary(portfolio) == (
        "a won of 4 models: accuracy 90.00 % on validation; b and d are equal: the earlier one wins"
    )


def test_a_winner_is_compared_with_the_second_and_the_first():
    made = [tried("a", 0.7), tried("b", 0.9, WON, ""), tried("c", 0.8)]
    portfolio = Portfolio(Config.of("mine"), made, won="b")
    assert summary(portfolio) == (
        "b won of 3 models: accuracy 90.00 % on validation, 10.00 better than c, 20.00 better than "
        "a"
    )


def test_a_time_that_was_too_short_is_said():
    made = [tried("a", 0.9, WON, ""), Tried("b", "b", state=STOPPED, why="no time was left")]
    words = summary(Portfolio(Config.of("mine"), made, won="a", budget=2.0))
    assert words.startswith("a won of 1 model (the time was too short for all 2; without --tune")


def test_nobody_is_level_with_nobody():
    portfolio = Portfolio(Config.of("mine"), [tried("a", None, OPEN, "")])
    assert summary(portfolio) == "there is no winner yet"
    assert cells(portfolio)[0][-1] == ""


def test_lists_and_intervals():
    assert [listed(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert [round(end, 3) for end in wilson(0.5, 100)] == [0.404, 0.596]
    assert wilson(1.0, 2)[1] == 1.0
    assert wilson(0.0, 2)[0] == 0.0
