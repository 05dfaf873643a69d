"""STAGNN on the real Cora, by the paper's recipe."""

from pathlib import Path

import subtree_attention as sta


def test_cora_reaches_its_accuracy(mirror: Path, tmp_path: Path) -> None:
    config = sta.recipe("cora", runs=1)
    data = sta.datasets.load("cora", data_dir=tmp_path / "data", mirror=mirror)
    result = sta.fit(config, tmp_path / "out", data=data)
    assert config.data.split == "A"
    assert result.mean >= 0.87
