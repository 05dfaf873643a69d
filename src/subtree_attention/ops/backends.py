"""The table of backends, the rule that picks one, and products with other sparse matrices.

A backend is a kernel (`kernels/`) under a name. To add one: write the kernel, test it against
`definition.py`, and add a line to `BACKENDS`.
"""

from __future__ import annotations

import os
from typing import TypeAlias

import torch
from torch import Tensor

from .. import _check
from .._tracing import untraced
from ..compressed import CSR
from . import recurrence
from .kernels import Kernel, cuda
from .kernels.cpu import NumbaKernel
from .kernels.cuda import CudaKernel
from .kernels.cuda.schedule import Scheduled, scheduled
from .kernels.plain import TorchKernel

BACKENDS: dict[str, type[Kernel]] = {
    "cuda": CudaKernel,
    "numba": NumbaKernel,
    "torch": TorchKernel,
}


@untraced
def choose(name: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend to run: `name`, or for "auto" the environment's `STA_BACKEND`, or the rule.

    The rule: the first backend of the table that does not refuse.
    """
    if isinstance(name, str) and name == "auto":
        name = os.environ.get("STA_BACKEND", "auto")
    _check.known("backend", name, ["auto", *BACKENDS])
    if isinstance(name, str) and name == "auto":
        return next(name for name in BACKENDS if not BACKENDS[name].refusal(device, dtype))
    reason = BACKENDS[name].refusal(device, dtype)
    if reason:
        raise ValueError(f"backend '{name}' cannot run here: {reason}")
    return name


Matrix: TypeAlias = CSR | Scheduled


def prepared(matrix: CSR) -> Matrix:
    """A matrix for `product`, with what its device needs to know of it besides."""
    return scheduled(matrix) if matrix.col.is_cuda else matrix


def product(matrix: Matrix, dense: Tensor) -> Tensor:
    """CSR times dense, [N, M] x [M, w] -> [N, w], the same bits every time; no gradient."""
    if not isinstance(matrix, Scheduled) or CudaKernel.refusal(dense.device, dense.dtype):
        return recurrence.product(CSR(*matrix[:3]), dense)
    return cuda.product(matrix, dense)
