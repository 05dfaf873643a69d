"""What older versions wrote is read as today's; what newer ones write is refused in words."""

import pytest

from subtree_attention import Config, recipe
from subtree_attention.upgrade import FORMAT, upgrade

FLAT = {
    "graph": "cora", "runs": 5, "seed": 0, "split": "A", "encoding": 3, "hidden_channels": 64,
    "hops": 10, "heads": 4, "dropout": 0.6, "feature_map": "elu", "similarity": None,
    "transition": "rw", "aggregation": "gpr", "gate": "softmax", "head_mix": "linear",
    "global_attention": None, "eps": 1e-05, "lr": 0.01, "weight_decay": 0.0001, "epochs": 3000,
    "patience": 200, "metric": "accuracy", "loss": "cross_entropy",
}  # fmt: skip
"""As the first format wrote the recipe for Cora."""


def test_a_flat_configuration_is_one_of_parts() -> None:
    assert Config.from_dict(FLAT) == recipe("cora")


def test_two_options_that_were_one_choice_are_one() -> None:
    assert Config.from_dict(FLAT | {"similarity": "softmax"}).model.feature_map == "softmax"
    assert Config.from_dict(FLAT | {"global_attention": "beside"}).model.global_attention is True


def test_settings_that_are_not_there_have_their_defaults() -> None:
    assert Config.from_dict({"graph": "cora", "hops": 7}) == Config.of("cora", hops=7)


def test_a_setting_that_came_later_has_its_default_in_files_of_before() -> None:
    before = recipe("cora").to_dict()
    del before["fit"]["precision"], before["model"]["readout"]
    assert Config.from_dict(before) == recipe("cora", precision="full", readout="mean")


def test_a_record_and_a_summary_are_upgraded_once() -> None:
    record = upgrade("record", {"graph": "cora", "config": FLAT})
    assert Config.from_dict(record["config"]) == recipe("cora")
    assert upgrade("record", record) is record
    assert upgrade("summary", {"val": 1.0}) == {"val": 1.0, "temperature": None, "format": FORMAT}


@pytest.mark.parametrize("number", [0, FORMAT + 1, "2", None])
def test_another_format_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="install a newer subtree-attention"):
        Config.from_dict(recipe("cora").to_dict() | {"format": number})


def test_a_mistake_in_an_old_file_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown setting 'hoops'"):
        Config.from_dict(FLAT | {"hoops": 3})
