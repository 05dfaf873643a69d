"""What the replaceable parts of a layer have in common: aggregations, gates and mixes of heads.

A part of one's own is a subclass of their base, and an instance of it is passed to the layer.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from torch import nn

from .. import _check


class Part(nn.Module, ABC):
    """A part of a layer, known by the `sizes` it was made for: names of its attributes."""

    sizes: ClassVar[tuple[str, ...]]

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        for name, size in zip(self.sizes, sizes, strict=True):
            least, most = (0, _check.MOST_HOPS) if name == "hops" else (1, _check.MOST)
            setattr(self, name, _check.integer(name, size, least, most))

    @classmethod
    def pick(
        cls, what: str, given: Any, kinds: Mapping[str, type[Self]], *sizes: int, **rest: Any
    ) -> Self:
        """One by name, made with these sizes, or the module that is given if it fits them."""
        if not isinstance(given, nn.Module):
            made = kinds[_check.known(what, given, kinds)]
            words = ", ".join(
                f"{size:,} {name}" for name, size in zip(cls.sizes, sizes, strict=True)
            )
            with _check.fits(f"{what} for {words}"):
                return made(*sizes, **rest)
        if not isinstance(given, cls):
            name = type(given).__name__
            raise TypeError(f"{what} must be a name or a {cls.__name__}, got {name}")
        for name, size in zip(cls.sizes, sizes, strict=True):
            made_for = getattr(given, name)
            if made_for != size:
                raise ValueError(
                    f"this {what} ({type(given).__name__}) was made for {name}={made_for}, "
                    f"but the layer has {name}={size}"
                )
        return given

    def reset_parameters(self) -> None:
        """Back to fresh initial values; whoever has parameters of its own says which."""
        reset_children(self)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.sizes)


def reset_children(module: nn.Module) -> None:
    """Reset all inside, also what belongs to a module that has no `reset_parameters` of its own."""
    for child in module.children():
        own = getattr(child, "reset_parameters", None)
        own() if callable(own) else reset_children(child)


def keep_fixed(module: nn.Module, name: str) -> None:
    """Make a parameter a constant, which is neither learned nor saved."""
    value = getattr(module, name).detach()
    delattr(module, name)
    module.register_buffer(name, value, persistent=False)


def takes(function: Any, name: str) -> bool:
    """Whether a function has an argument of that name, or takes any."""
    has = signature(function).parameters
    return name in has or any(each.kind is Parameter.VAR_KEYWORD for each in has.values())


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimiser: what a model, or any part of it, names in `no_weight_decay()` is not
    decayed."""
    _check.kind("model", model, nn.Module, "a model")
    weight_decay = _check.number("weight_decay", weight_decay)
    kept: dict[int, nn.Parameter] = {}
    for part in model.modules():
        named: Any = getattr(part, "no_weight_decay", list)
        kept |= {id(parameter): parameter for parameter in named()}
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in kept]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": weight_decay}]
    return [*groups, {"params": [*kept.values()], "weight_decay": 0.0}] if kept else groups
