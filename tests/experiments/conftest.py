"""Fixtures for the tests of the experiments."""

from collections.abc import Callable

import pytest

from experiments import cli


@pytest.fixture
def run_experiments(in_process: Callable[..., Callable[..., tuple[int, str, str]]]):
    """`run_experiments("bench", "cora")` -> exit code, what it printed, its errors."""
    return in_process(cli.main)
