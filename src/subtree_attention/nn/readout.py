r"""How a level is read out of what walks: a mean, a sum, or something between, learned.

Numerator and denominator of the attention walk together; the read-out divides one by the other,
raised to a power :math:`\beta` of the hop and head. A mean (:math:`\beta = 1`, the paper) does not
know how many walks arrived, a sum (:math:`\beta = 0`) does.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from .. import _check
from .parts import Part, keep_fixed


class Readout(Part):
    """The powers of the denominators: `forward()` -> [K, H], row 0 is hop 1; or None, which is 1.

    Hop 0, the values themselves, has no denominator.
    """

    sizes = ("hops", "heads")
    hops: int
    heads: int

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)

    @abstractmethod
    def forward(self) -> Tensor | None: ...


class MeanReadout(Readout):
    """The paper's: every level is a mean over what arrives."""

    def forward(self) -> None:
        return None


class PowerReadout(Readout):
    r""":math:`\beta` learned, one for each hop and head.

    At first heads are spread evenly from a mean (the first head, 1) to a sum (the last, 0), and a
    single head is half-way: so both are there from the start. Nothing keeps a power within 0 and
    1; beyond 1 it favours roots that little arrives at, below 0 those that much does.
    """

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        self.beta = nn.Parameter(torch.empty(hops, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        spread = torch.linspace(1, 0, self.heads) if self.heads > 1 else torch.tensor([0.5])
        with torch.no_grad():
            self.beta.copy_(spread)

    def forward(self) -> Tensor:
        return self.beta


class SumReadout(PowerReadout):
    r"""Every level is a sum over what arrives, without a denominator: :math:`\beta` stays 0.

    With a constant feature map the level is :math:`\hat A^k V`, and a layer GPR-GNN's
    :math:`\sum_k \alpha_k \hat A^k X W`.
    """

    def __init__(self, hops: int, heads: int) -> None:
        super().__init__(hops, heads)
        keep_fixed(self, "beta")

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.beta)


READOUTS: dict[str, type[Readout]] = {
    "mean": MeanReadout,
    "sum": SumReadout,
    "power": PowerReadout,
}


def build(readout: str | Readout, hops: int, heads: int) -> Readout:
    """The read-out of a layer: by name, or a module that is handed in if it fits."""
    built = Readout.pick("readout", readout, READOUTS, hops, heads)
    beta = built()
    if beta is not None and beta.shape != (hops, heads):
        raise ValueError(
            f"a readout of {hops} hops and {heads} heads has powers {[hops, heads]}, this one "
            f"gave {_check.shape(beta)}"
        )
    return built
