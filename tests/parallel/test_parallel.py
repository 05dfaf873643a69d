"""The operator and the models on 2 and 4 ranks give what one process gives."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from subtree_attention.ops.kernels import cpu
from tests.parallel import cases, ranks

ROUNDING = {"float32": 1e-4, "bfloat16": 3e-2}
"""Of what a case's name ends with, relative to the largest entry; of float64 1e-10."""

Found = Callable[..., list[dict[str, object]]]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What all cases gave on so many ranks, each of them: run once."""
    folder, known = tmp_path_factory.mktemp("ranks"), {}

    def of(count: int, which: str = "CASES", backend: str = "gloo") -> list[dict[str, object]]:
        place = folder / f"{which}-{count}"
        if place not in known:
            place.mkdir()
            known[place] = ranks.run("tests.parallel.cases", count, Path(place), which, backend)
        return known[place]

    return of


def named(some: dict[int, cases.Cases]) -> list[str]:
    return [f"{count}:{name}" for count in some for name in some[count]]


def assert_right(found: list[dict[str, object]], name: str) -> None:
    most = ROUNDING.get(name.rpartition("-")[2], 1e-10)
    for rank, gave in enumerate(found):
        assert name in gave, f"rank {rank} ended before, in {[*gave][-1]}: {[*gave.values()][-1]}"
        assert isinstance(gave[name], dict), f"rank {rank}: {gave[name]}"
        wrong = {what: error for what, error in gave[name].items() if not error <= most}
        assert not wrong, f"rank {rank}"


@pytest.mark.skipif(cpu._numba_problem() is not None, reason="needs Numba")
@pytest.mark.parametrize("case", named(cases.CASES))
def test_as_in_one_process(found: Found, case: str):
    count, name = case.split(":")
    assert_right(found(int(count)), name)


@needs_gpu
@pytest.mark.parametrize("case", named(cases.CASES_ON_GPU))
def test_ranks_that_share_a_gpu_over_gloo(found: Found, case: str):
    count, name = case.split(":")
    assert_right(found(int(count), "CASES_ON_GPU"), name)


@needs_gpu
@pytest.mark.parametrize("case", named(cases.CASES_BY_NCCL))
def test_a_rank_by_nccl(found: Found, case: str):
    count, name = case.split(":")
    assert_right(found(int(count), "CASES_BY_NCCL", "nccl"), name)
