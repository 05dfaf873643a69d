"""A pass over a small graph as one list of launches, written down once and played again.

What Python does for a pass (sizes, layouts, memory, arguments) is the same for the same shapes on
the same graph, and takes longer than a small graph's kernels. So the first pass is written down:
its launches, the memory that was asked for, and which address in which argument lies where in which
of its tensors. Playing it asks for that memory at once, puts the new addresses into a copy of all
arguments, and calls the driver for each launch.

Only launches and allocations can be played. A pass in which torch computes something itself, or a
kernel was handed memory that nobody knows, is not repeated but done anew every time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .. import Pass
from .compiler import Grid, Module, queue, raw_stream

WORD = 8
"""Bytes of an address."""

ALIGNMENT = 256
"""Where memory starts, in bytes."""

LEAST_COUNTERS = 2**14

_aten = torch.ops.aten
_ALLOCATIONS = {
    _aten.empty.memory_format,
    _aten.empty_like.default,
    _aten.empty_strided.default,
    _aten.new_empty.default,
}
_VIEWS = {
    _aten.alias.default,
    _aten.detach.default,
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.split_with_sizes.default,
    _aten.view.default,
    _aten.view.dtype,
}


class Launch(NamedTuple):
    """A kernel as it was launched, with its block of arguments."""

    module: Module
    name: str
    grid: Grid
    threads: int
    arguments: ctypes.Structure


class Recorder(TorchDispatchMode):
    """Writes down what a pass asks of torch and of the driver."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[Tensor] = []
        """Held until the end, so that no address means two things."""
        self.launches: list[Launch] = []
        self.problem: str | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **kwargs or {})
        if func in _ALLOCATIONS:
            self.allocated.append(out)
        elif func not in _VIEWS:
            self.problem = f"torch computes {func}"
        return out

    def __enter__(self) -> Any:
        _PRESENT.recorder = self
        return super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        _PRESENT.recorder = None
        super().__exit__(*failure)


class _Present(threading.local):
    """What holds in this thread for the pass that it does."""

    recorder: Recorder | None = None
    counters: Tensor | None = None


_PRESENT = _Present()


def note(*launch: Any) -> None:
    """Called at every launch, with what makes a `Launch`: whoever records wants to know."""
    if _PRESENT.recorder is not None:
        _PRESENT.recorder.launches.append(Launch(*launch))


def zeros(count: int, device: torch.device) -> Tensor:
    """Counters, at least so many, that a kernel finds as zeros and leaves as zeros."""
    if _PRESENT.counters is not None:
        return _PRESENT.counters
    return torch.zeros(count, dtype=torch.int32, device=device)


_LASTING: dict[tuple[torch.device, int], Tensor] = {}


def _lasting_zeros(count: int, device: torch.device) -> Tensor:
    """The same for all passes on a stream, where one kernel comes after the other."""
    place = device, raw_stream(device.index)
    found = _LASTING.get(place)
    if found is None or found.numel() < count:
        size = max(count, LEAST_COUNTERS)
        found = _LASTING[place] = torch.zeros(size, dtype=torch.int32, device=device)
    return found


class Place(NamedTuple):
    """A place in the memory of a pass: the number of a piece of it, and bytes from its start."""

    piece: int
    offset: int


class Made(NamedTuple):
    """A tensor that a pass makes: which of the memories it asked for, and what it is of that."""

    memory: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


class Tape:
    """A pass that was written down.

    Its memory comes in pieces: the inputs, the counters, each memory in which something lies that
    it makes, and all the rest in one.
    """

    def __init__(
        self,
        recorder: Recorder,
        counters: Tensor,
        inputs: Sequence[Tensor],
        made: Sequence[Tensor | None],
        lasting: Sequence[Tensor],
    ) -> None:
        if recorder.problem or not recorder.launches:
            raise Unrepeatable(recorder.problem or "nothing is launched")
        self.layouts = [(tensor.shape, tensor.stride()) for tensor in inputs]
        self.device, self.module = inputs[0].device, recorder.launches[0].module
        own = {tensor.untyped_storage().data_ptr() for tensor in made if tensor is not None}
        results = [each for each in recorder.allocated if each.data_ptr() in own]
        if not all(each.is_contiguous() for each in results):
            raise Unrepeatable("what is made does not lie row by row")
        rest = [each for each in recorder.allocated if each.data_ptr() not in own]
        self.results = [(each.shape, each.dtype) for each in results]
        self.made = [None if each is None else _made(each, results) for each in made]

        pieces = [*inputs, counters, *results]
        self.known = [(each, Place(piece, 0)) for piece, each in enumerate(pieces)]
        self.rest_bytes = 0
        for each in rest:
            self.known.append((each, Place(len(pieces), self.rest_bytes)))
            self.rest_bytes += -(-each.nbytes // ALIGNMENT) * ALIGNMENT
        self._write_arguments(recorder.launches, lasting)
        del self.known

    def _write_arguments(self, launches: Sequence[Launch], lasting: Sequence[Tensor]) -> None:
        """All blocks of arguments, one after the other, and where in them an address stands."""
        blocks, starts = b"", []
        places: dict[int, Place] = {}  # by the number of a word
        for launch in launches:
            starts.append(len(blocks))
            for field, address in _addresses(launch.arguments):
                if not any(_offset(address, tensor) is not None for tensor in lasting):
                    places[(len(blocks) + field) // WORD] = self._find(address)
            blocks += bytes(launch.arguments)
        self.blocks, self.starts = np.frombuffer(blocks, np.int64), np.array(starts, np.int64)
        self.words = np.array([*places], np.intp)
        self.pieces, offsets = np.array([*places.values()], np.int64).reshape(-1, 2).T
        self.offsets = offsets.copy()
        self.calls = [
            (each.module.function(each.name), each.grid, each.threads) for each in launches
        ]

    def _find(self, address: int) -> Place:
        # Where something starts, that is meant, also if it lies within another.
        known = sorted(self.known, key=lambda each: each[0].data_ptr() != address)
        for tensor, place in known:
            offset = _offset(address, tensor)
            if offset is not None:
                return place._replace(offset=place.offset + offset)
        raise Unrepeatable("a kernel was handed memory that nobody knows")

    def fits(self, inputs: Sequence[Tensor]) -> bool:
        """Whether these inputs lie in memory as those did that were there when it was written."""
        return len(inputs) == len(self.layouts) and all(
            tensor.shape == shape and tensor.stride() == stride and tensor.data_ptr() % 16 == 0
            for tensor, (shape, stride) in zip(inputs, self.layouts, strict=True)
        )

    def play(self, inputs: Sequence[Tensor], counters: Tensor) -> list[Tensor | None]:
        """The same pass on other inputs."""
        results = [torch.empty(*of, dtype=dtype, device=self.device) for of, dtype in self.results]
        rest = torch.empty(self.rest_bytes, dtype=torch.uint8, device=self.device)
        pieces = [each.data_ptr() for each in (*inputs, counters, *results, rest)]
        blocks = self.blocks.copy()  # of its own: another thread may play it too
        blocks[self.words] = np.array(pieces, np.int64)[self.pieces] + self.offsets
        parameters = self.starts + _address(blocks)
        with self.module.entered():
            stream, at = self.module.stream(), _address(parameters)
            for function, grid, threads in self.calls:
                queue(function, grid, threads, stream, at)
                at += WORD
        return [None if made is None else _result(results[made.memory], made) for made in self.made]


class Unrepeatable(Exception):
    """Why a pass cannot be played again."""


def _addresses(arguments: ctypes.Structure) -> Iterator[tuple[int, int]]:
    """Where a block has addresses, in bytes from its start, and those that are not null."""
    for name, kind in type(arguments)._fields_:  # type: ignore[misc]
        address = getattr(arguments, name) if kind is ctypes.c_void_p else None
        if address:
            yield getattr(type(arguments), name).offset, address


def _offset(address: int, tensor: Tensor) -> int | None:
    """How far into a tensor an address is; of one whose rows lie apart only its start is known."""
    offset = address - tensor.data_ptr()
    return offset if offset == 0 or 0 < offset < tensor.nbytes * tensor.is_contiguous() else None


def _made(tensor: Tensor, results: Sequence[Tensor]) -> Made:
    start = tensor.untyped_storage().data_ptr()
    memory = next((i for i, each in enumerate(results) if each.data_ptr() == start), None)
    if memory is None or results[memory].dtype != tensor.dtype:
        raise Unrepeatable("what is made lies in memory that was there before")
    return Made(memory, tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def _result(memory: Tensor, made: Made) -> Tensor:
    if memory.shape == made.shape:
        return memory
    return memory.as_strided(made.shape, made.stride, made.offset)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


PATIENCE = 10
"""A pass is done so often before it is written down: the graph of a mini-batch is walked on a few
times and not again."""


class Repeated:
    """A pass that comes again and again, of tensors of the same shapes.

    It finds its counters where the last pass on its stream left them. Once it has been done often
    enough it is written down, and played from then on.

    Args:
        work: the pass.
        count: how many counters its kernels need.
        device: where they run.
        lasting: tensors that live as long as this object, such as a graph's.
        plays: whether it may be played.
    """

    def __init__(
        self,
        work: Pass,
        count: int,
        device: torch.device,
        lasting: Sequence[Tensor],
        plays: bool = True,
    ) -> None:
        self.work, self.count, self.device, self.lasting = work, count, device, lasting
        self.tape: Tape | None = None
        self.problem = None if plays else "it is not to be played"
        self.done = 0

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor | None]:
        if capturing():
            return self.work(*inputs)
        counters = _lasting_zeros(self.count, self.device)
        if self.tape is not None and self.tape.fits(inputs):
            return self.tape.play(inputs, counters)
        _PRESENT.counters = counters
        try:
            return self._do(inputs, counters)
        finally:
            _PRESENT.counters = None

    def _do(self, inputs: Sequence[Tensor], counters: Tensor) -> Sequence[Tensor | None]:
        self.done += 1
        if self.done <= PATIENCE or self.problem or self.tape is not None or _is_ambiguous(inputs):
            return self.work(*inputs)
        with Recorder() as recorder:
            made = self.work(*inputs)
        try:
            self.tape = Tape(recorder, counters, inputs, made, self.lasting)
        except Unrepeatable as reason:
            self.problem = str(reason)
        return made


def _is_ambiguous(inputs: Sequence[Tensor]) -> bool:
    """Whether one address would mean two things, or nothing."""
    starts = {tensor.data_ptr() for tensor in inputs}
    return len(starts) < len(inputs) or 0 in starts or any(start % 16 for start in starts)


def capturing() -> bool:
    """Whether what is queued now becomes a part of a CUDA graph."""
    return torch.cuda.is_current_stream_capturing()
