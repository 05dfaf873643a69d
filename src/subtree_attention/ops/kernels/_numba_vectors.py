# mypy: ignore-errors
# (the types in here are Numba's)
"""Vectors of a fixed width for Numba code: load, store, multiply and add, sum up, prefetch.

The inner axes of a state are short (8 or 16 key channels), too short for what a compiler makes of
a loop of unknown length. Here the width is known: half a cache line, 8 floats or 4 doubles, or a
whole one. LLVM turns these into whatever vectors the processor has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LINE_BYTES = 64
"""A cache line: what one prefetch brings."""

HALF_BYTES = LINE_BYTES // 2

_FLAGS = ("contract", "reassoc", "nsz")


class Vector(types.Type):
    """`lanes` numbers of one type, in a register."""

    def __init__(self, dtype: types.Float, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        scalar = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, vector.lanes))


def _address(context, builder, signature, arguments):
    """Pointer to array[index], for an intrinsic whose first arguments are these."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    index = context.cast(builder, arguments[1], signature.args[1], types.intp)
    return builder.gep(array.data, [index])


def _loader(count: int) -> Callable[..., Any]:
    """`load(array, index)`: the vector of `count` bytes that starts at array[index]."""

    @intrinsic
    def load(context, array, index):
        def generate(context, builder, signature, arguments):
            pointer = context.get_value_type(signature.return_type).as_pointer()
            address = _address(context, builder, signature, arguments)
            size = array.dtype.bitwidth // 8
            return builder.load(builder.bitcast(address, pointer), align=size)

        return Vector(array.dtype, count * 8 // array.dtype.bitwidth)(array, index), generate

    return load


load_line, load_half = _loader(LINE_BYTES), _loader(HALF_BYTES)


def _counter(count: int) -> Callable[..., Any]:
    """`numbers(array)`: how many of its numbers fill `count` bytes. LLVM takes the array's own
    `itemsize` for a variable."""

    @intrinsic
    def numbers(context, array):
        def generate(context, builder, signature, arguments):
            return context.get_constant(types.intp, count * 8 // array.dtype.bitwidth)

        return types.intp(array), generate

    return numbers


line, half = _counter(LINE_BYTES), _counter(HALF_BYTES)


@intrinsic
def get(context, array, index):
    """array[index], without a look at its sign."""

    def generate(context, builder, signature, arguments):
        return builder.load(_address(context, builder, signature, arguments))

    return array.dtype(array, index), generate


@intrinsic
def store(context, array, index, given):
    """array[index] = a number, or array[index:index + lanes] = a vector."""

    def generate(context, builder, signature, arguments):
        address, value = _address(context, builder, signature, arguments), arguments[2]
        if isinstance(given, Vector):
            address = builder.bitcast(address, context.get_value_type(given).as_pointer())
        else:
            value = context.cast(builder, value, given, array.dtype)
        builder.store(value, address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, given), generate


def _zeros(count: int) -> Callable[..., Any]:
    """`zeros(array)`: a vector of `count` bytes for the numbers of this array."""

    @intrinsic
    def zeros(context, array):
        def generate(context, builder, signature, arguments):
            return ir.Constant(context.get_value_type(signature.return_type), None)

        return Vector(array.dtype, count * 8 // array.dtype.bitwidth)(array), generate

    return zeros


zeros_line, zeros_half = _zeros(LINE_BYTES), _zeros(HALF_BYTES)


def _spread(context, builder, number, kind, vector):
    """The number in every lane, unless it is a vector already."""
    if isinstance(kind, Vector):
        return number
    number, width = context.cast(builder, number, kind, vector.dtype), ir.IntType(32)
    nothing = ir.Constant(context.get_value_type(vector), ir.Undefined)
    first = builder.insert_element(nothing, number, width(0))
    everywhere = ir.Constant(ir.VectorType(width, vector.lanes), None)
    return builder.shuffle_vector(first, nothing, everywhere)


@intrinsic
def multiply(context, factor, vector):
    """factor * vector; the factor is a number or a vector."""

    def generate(context, builder, signature, arguments):
        left = _spread(context, builder, arguments[0], factor, vector)
        return builder.fmul(left, arguments[1], flags=_FLAGS)

    return vector(factor, vector), generate


@intrinsic
def multiply_add(context, factor, vector, total):
    """factor * vector + total; the factor is a number or a vector."""

    def generate(context, builder, signature, arguments):
        left = _spread(context, builder, arguments[0], factor, vector)
        product = builder.fmul(left, arguments[1], flags=_FLAGS)
        return builder.fadd(product, arguments[2], flags=_FLAGS)

    return total(factor, vector, total), generate


@intrinsic
def sum_lanes(context, vector):
    """The sum of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(vector)
        name = f"llvm.vector.reduce.fadd.v{kind.count}f{vector.dtype.bitwidth}"
        signature = ir.FunctionType(kind.element, [kind.element, kind])
        function = cgutils.get_or_insert_function(builder.module, signature, name)
        start = ir.Constant(kind.element, -0.0)
        return builder.call(function, [start, arguments[0]], fastmath=_FLAGS)

    return vector.dtype(vector), generate


@intrinsic
def prefetch(context, array, index):
    """Ask for the cache line of array[index], and go on."""

    def generate(context, builder, signature, arguments):
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(_address(context, builder, signature, arguments), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # to read, into all but the nearest cache, data
        builder.call(function, [address, flag(0), flag(2), flag(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate
