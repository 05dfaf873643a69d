"""A data folder that lasts for the whole run, so that every graph is preprocessed once."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without this a test could find, or fill, the data folder of whoever runs it."""
    monkeypatch.delenv("STA_MIRROR", raising=False)
    monkeypatch.delenv("STA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every download fails; the list fills with the addresses that were tried."""
    tried: list[str] = []

    def fail(url: str, *_: object, **__: object) -> None:
        tried.append(url)
        raise OSError("no network")

    monkeypatch.setattr("subtree_attention.datasets.folders.fetch", fail)
    return tried
