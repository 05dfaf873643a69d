"""The operator and the models on 2 and 4 ranks give what one process gives."""

from collections.abc import Callable
from pathlib import Path

import pytest

from subtree_attention.ops.kernels import cpu
from tests.parallel import cases, ranks

ROUNDING = {"float32": 1e-4, "bfloat16": 3e-2}
"""Of what a case's name ends with, relative to the largest entry; of float64 1e-10."""

Found = Callable[[int], list[dict[str, object]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What all cases gave on so many ranks, each of them: run once."""
    folder, known = tmp_path_factory.mktemp("ranks"), {}

    def of(count: int) -> list[dict[str, object]]:
        if count not in known:
            known[count] = ranks.run("tests.parallel.cases", count, Path(folder))
        return known[count]

    return of


@pytest.mark.skipif(cpu._numba_problem() is not None, reason="needs Numba")
@pytest.mark.parametrize(
    "name", [f"{count}:{name}" for count in cases.CASES for name in cases.CASES[count]]
)
def test_as_in_one_process(found: Found, name: str):
    count, name = name.split(":")
    most = ROUNDING.get(name.rpartition("-")[2], 1e-10)
    for rank, gave in enumerate(found(int(count))):
        assert name in gave, f"rank {rank} ended before, in {[*gave][-1]}: {[*gave.values()][-1]}"
        assert isinstance(gave[name], dict), f"rank {rank}: {gave[name]}"
        wrong = {what: error for what, error in gave[name].items() if not error <= most}
        assert not wrong, f"rank {rank}"
