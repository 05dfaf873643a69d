"""What was made of tensors, found again when the same tensors come back unchanged.

The same: the same object, and as often changed in place as torch has counted. It is remembered as
long as the tensors live, and keeps neither alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class _Made(NamedTuple):
    """A thing, and the second tensor that it was made of, if there was one."""

    second: weakref.ref[Tensor] | None
    version: Hashable
    thing: Any


class _Things(NamedTuple):
    """All that was made of a tensor as it is in this version."""

    tensor: weakref.ref[Tensor]
    version: Hashable
    made: dict[Hashable, _Made]


class Remembered(Generic[T]):
    """Things made of one tensor or of two.

    Threads may share it: a dictionary takes one thing at a time, and at worst a thing is made
    twice.

    Args:
        most: how many things of a tensor are remembered at a time; the oldest goes first.
        most_tensors: of how many tensors, so that a list of many small ones does not pile up.
    """

    def __init__(self, most: int, most_tensors: int) -> None:
        self.most, self.most_tensors = most, most_tensors
        self._things: dict[int, _Things] = {}

    def __len__(self) -> int:
        """Of how many tensors something is remembered."""
        return len(self._things)

    def __call__(
        self, make: Callable[[], T], tensor: Any, second: Any = None, key: Hashable = None
    ) -> T:
        """What was made of these tensors under this key, or else `make()`."""
        if _is_watched():
            return make()
        version, second_version = _version(tensor), _version(second)
        if version is None or (second_version is None and second is not None):
            return make()
        place = id(second), key
        things = self._things.get(id(tensor))
        if things is not None and things.version == version and things.tensor() is tensor:
            made = things.made.get(place)
            if made is not None and made.version == second_version and _is(made.second, second):
                return made.thing
        thing = make()
        self._keep(thing, tensor, version, place, second, second_version)
        return thing

    def _keep(
        self,
        thing: T,
        tensor: Tensor,
        version: Hashable,
        place: Hashable,
        second: Tensor | None,
        second_version: Hashable,
    ) -> None:
        address = id(tensor)
        things = self._things.get(address)
        if things is None or things.version != version or things.tensor() is not tensor:
            reference = weakref.ref(tensor, partial(self._forget, address))
            things = self._things[address] = _Things(reference, version, {})
            _cut(self._things, self.most_tensors)
        other = None
        if second is not None:
            other = weakref.ref(second, partial(self._forget_one, address, place))
        things.made[place] = _Made(other, second_version, thing)
        _cut(things.made, self.most)

    # A tensor died. What came to the same place after it, stays.

    def _forget(self, address: int, dead: weakref.ref[Tensor]) -> None:
        things = self._things.get(address)
        if things is not None and things.tensor is dead:
            self._things.pop(address, None)

    def _forget_one(self, address: int, place: Hashable, dead: weakref.ref[Tensor]) -> None:
        things = self._things.get(address)
        made = None if things is None else things.made.get(place)
        if things is not None and made is not None and made.second is dead:
            things.made.pop(place, None)


def _is(reference: weakref.ref[Tensor] | None, tensor: Tensor | None) -> bool:
    return (None if reference is None else reference()) is tensor


def _cut(things: dict[Any, Any], most: int) -> None:
    for oldest in list(things)[: max(len(things) - most, 0)]:
        things.pop(oldest, None)


def _version(tensor: Any) -> Hashable:
    """How often it was changed in place, and where it lies; None of what cannot be known by that.

    That is: a tensor of an inference mode, which has no count; one that learns; a sparse matrix,
    since the tensors that it was made of may be changed unseen; anything else.
    """
    if type(tensor) is Tensor:
        unknown = tensor.is_inference() or tensor.requires_grad or tensor.layout != torch.strided
        return None if unknown else (tensor._version, tensor.data_ptr(), tensor.shape)
    if hasattr(tensor, "sparse_size") and type(getattr(tensor, "_data", None)) is Tensor:
        plain = tensor._data  # of PyG's EdgeIndex, which counts changes through itself only
        if tensor.is_inference() or plain.is_inference():
            return None
        return tensor._version, plain._version, tensor.sparse_size()
    return None


def _is_watched() -> bool:
    """Whether tensors may stand for others: in a mode, under a transform or while tracing."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
    )
