"""Temperatures and calibration errors, by hand and by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtree_attention.tasks.calibration import (
    best_temperature,
    calibration_error,
    negative_log_likelihood,
    softmax,
    trust,
)


def draw(temperature: float, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are right if they are divided by the temperature, and labels."""
    random = np.random.default_rng(0)
    honest = random.normal(size=(count, 3)) * 2
    labels = (softmax(honest).cumsum(1) < random.random((count, 1))).sum(1)
    return honest * temperature, labels.clip(max=2)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_temperature_is_found(temperature: float) -> None:
    logits, labels = draw(temperature)
    half = np.arange(len(labels)) < len(labels) // 2
    chosen = best_temperature(logits[half], labels[half])
    found = trust(logits[~half], logits[~half] / chosen, labels[~half])
    # 10,000 labels tell a temperature to about two per cent.
    assert chosen == pytest.approx(temperature, rel=0.06)
    assert found.nll[1] <= found.nll[0] + 1e-3
    assert found.ece[1] < 0.02
    assert (softmax(logits / chosen).argmax(1) == logits.argmax(1)).all()


@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 1000))
def test_it_never_makes_the_validation_nodes_less_likely(n: int, classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits, labels = random.normal(size=(n, classes)) * 5, random.integers(0, classes, n)
    temperature = best_temperature(logits, labels)
    before, after = (negative_log_likelihood(logits / t, labels) for t in (1.0, temperature))
    assert after <= before + 1e-12


def test_a_few_nodes_that_are_all_right_do_not_make_it_sure() -> None:
    logits, labels = np.tile([3.0, 0.0, 0.0], (20, 1)), np.zeros(20, int)
    assert softmax(logits / best_temperature(logits, labels)).max() < 0.9999


def test_calibration_error_by_hand() -> None:
    # Two nodes at 0.9, one of them right; two at 0.6, both right.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    expected = 0.5 * abs(0.9 - 0.5) + 0.5 * abs(0.6 - 1.0)
    assert calibration_error(probabilities, np.array([0, 1, 0, 0])) == pytest.approx(expected)
    assert np.isnan(calibration_error(probabilities[:0], np.array([], int)))
    sure = calibration_error(np.array([[1.0, 0.0]]), np.array([0]))  # the last bin has its end
    assert sure == 0
