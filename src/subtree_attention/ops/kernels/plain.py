"""The torch kernel: one sparse product per hop in plain torch, on any device.

It keeps no states but walks them again in the backward pass, and forms the gradients of read-outs
where it needs them, so that nothing but the read-outs grows with K.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from ...compressed import CSR
from .. import recurrence
from . import Exchange, Kept, Kernel, Operands, Place


class TorchKernel(Kernel):
    """States [N, H, d, c + 1]; `recurrence.py` has the formulas."""

    summary = "one sparse product per hop in plain torch; any device, float32 and float64"
    rooms = 3  # what is read out or added lies beside old and new

    def __init__(self, operands: Operands, kept: Kept) -> None:
        super().__init__(operands, kept)
        self.query, self.key, self.value = operands.query, operands.key, operands.value
        self.hop_weights, self.eps = operands.hop_weights, operands.eps

    def first(self, exchange: Exchange, place: Place) -> Tensor:
        return recurrence.first_state(exchange(self.key), exchange(self.value))

    def step(self, matrix: CSR, old: Tensor, new: None, hop: int) -> Tensor:
        state = self._walk(matrix, old)
        readout = recurrence.read(self.query, state)
        if self.kept.readouts is not None:
            self.kept.readouts[hop - 1] = readout
        level = recurrence.quotient(readout, self.eps, self.operands.power(hop))
        if self.hop_weights is None:
            self.out[hop] = level
        else:
            self.out.addcmul_(level, self.hop_weights[hop, :, None])
        return state.to(self.operands.state_dtype)

    @cached_property
    def out(self) -> Tensor:
        """The output, with hop 0 in it to begin with."""
        if self.hop_weights is not None:
            return self.value * self.hop_weights[0, :, None]
        out = self.value.new_empty(self.operands.hops + 1, *self.value.shape)
        out[0] = self.value
        return out

    def finish(self) -> Tensor:
        return self.out

    def turn(self, grad: Tensor) -> None:
        self.grad, self.grad_query = grad, torch.zeros_like(self.query)

    def step_for_query(self, matrix: CSR, old: Tensor, new: None, hop: int) -> Tensor:
        state = self._walk(matrix, old)
        if self.kept.unread and self.kept.readouts is not None:
            self.kept.readouts[hop - 1] = recurrence.read(self.query, state)
        self.grad_query += torch.matmul(state, self._grad_readout(hop).unsqueeze(-1)).squeeze(-1)
        return state.to(self.operands.state_dtype)

    def last_gradient(self, exchange: Exchange, place: Place) -> Tensor | None:
        hops = self.operands.hops
        if not hops:
            return None
        return recurrence.outer(exchange(self.query), exchange(self._grad_readout(hops)))

    def step_back(self, transpose: CSR, old: Tensor, new: None, hop: int) -> Tensor:
        state = self._walk(transpose, old)
        state.addcmul_(self.query.unsqueeze(-1), self._grad_readout(hop).unsqueeze(-2))
        return state.to(self.operands.state_dtype)

    def home(self, transpose: CSR, old: Tensor | None) -> None:
        self.grad_value = self._grad_level(0).clone()
        if old is None:
            self.grad_key = torch.zeros_like(self.key)
            return
        state = self._walk(transpose, old)
        ones = recurrence.with_ones(self.value).unsqueeze(-1)
        self.grad_key = torch.matmul(state, ones).squeeze(-1)
        self.grad_value += recurrence.read(self.key, state)[..., :-1]

    def gradients(self) -> tuple[Tensor, ...]:
        grads = [self.grad_query, self.grad_key, self.grad_value]
        if self.hop_weights is not None:
            grads.append(self._grad_weights())
        if self.operands.beta is not None:
            grads.append(self._grad_beta(self.operands.beta))
        return tuple(grads)

    def _grad_weights(self) -> Tensor:
        """[K + 1, H]"""
        found = [(self.grad * self.value).sum((0, 2))]
        for hop, readout in self._readouts():
            level = recurrence.quotient(readout, self.eps, self.operands.power(hop))
            found.append((self.grad * level).sum((0, 2)))
        return torch.stack(found)

    def _grad_beta(self, beta: Tensor) -> Tensor:
        """[K, H]"""
        out = torch.zeros_like(beta)
        for hop, readout in self._readouts():
            at_hop = self._grad_level(hop), readout, self.eps, beta[hop - 1]
            out[hop - 1] = recurrence.beta_backward(*at_hop)
        return out

    def _readouts(self) -> Iterator[tuple[int, Tensor]]:
        """The kept read-outs [N, H, c + 1] of hops 1 .. K."""
        assert self.kept.readouts is not None  # the forward pass knew that this one would come
        return enumerate(self.kept.readouts, start=1)

    def _walk(self, matrix: CSR, state: Tensor) -> Tensor:
        return recurrence.step(matrix, state.to(self.value.dtype))

    def _grad_level(self, hop: int) -> Tensor:
        """The gradient of STA_hop, [N, H, c]."""
        if self.hop_weights is None:
            return self.grad[hop]
        return self.grad * self.hop_weights[hop, :, None]

    def _grad_readout(self, hop: int) -> Tensor:
        """dR_hop [N, H, c + 1]."""
        assert self.kept.readouts is not None  # the forward pass knew that this one would come
        readout = self.kept.readouts[hop - 1]
        at_hop = self._grad_level(hop), readout, self.eps, self.operands.power(hop)
        return recurrence.quotient_backward(*at_hop)
