"""A small trained run that the tests of the report and of `sta explain` share."""

from pathlib import Path

import pytest

from subtree_attention import fit, recipe


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run on digits."""
    folder = tmp_path_factory.mktemp("explain") / "run"
    fit(recipe("digits", runs=1, epochs=5, hops=2), folder, device="cpu")
    return folder
