"""Fixtures of the operator's tests."""

import pytest
import torch

from subtree_attention.ops.backends import BACKENDS


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Every device the operator runs on."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, device: str) -> str:
    """Every backend that can run on that device."""
    reason = BACKENDS[request.param].refusal(torch.device(device), torch.float32)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return request.param
