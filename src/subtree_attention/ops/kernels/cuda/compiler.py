"""CUDA C++ compiled at run time by NVRTC, which comes with torch, and launched through the driver.

A source takes a fraction of a second, once per shape and process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch

Macros = Mapping[str, str | int]
Grid = tuple[int, int, int]


class CompileError(RuntimeError):
    """NVRTC refused a source: the message is its log."""


@cache
def nvrtc() -> ctypes.CDLL:
    """NVRTC; an OSError says that there is none."""
    for name in _nvrtc_names():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("NVRTC, CUDA's run-time compiler, was not found (pip install nvidia-cuda-nvrtc)")


def _nvrtc_names() -> Iterator[str]:
    """What torch itself has loaded, then the wheels of NVIDIA."""
    if torch.version.cuda:
        yield f"libnvrtc.so.{torch.version.cuda.split('.')[0]}"
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(map(str, Path(folder).glob("**/libnvrtc.so.*")), reverse=True)


def compile_source(source: str, macros: Macros, capability: str) -> tuple[bytes, str]:
    """Machine code of a source for sm_`capability`, and the assembler's report."""
    options = [f"-arch=sm_{capability}", "-std=c++17", "--ptxas-options=-v"]
    options += [f"-D{name}={value}" for name, value in macros.items()]
    encoded = [option.encode() for option in options]
    program = ctypes.c_void_p()
    _check(
        nvrtc().nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"sta", 0, None, None)
    )
    try:
        failed = nvrtc().nvrtcCompileProgram(
            program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
        )
        log = _text(program, "ProgramLog").rstrip(b"\0").decode()
        if failed:
            raise CompileError(f"{macros} for sm_{capability}:\n{log}")
        return _text(program, "CUBIN"), log
    finally:
        nvrtc().nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc(), f"nvrtcGet{what}")(program, content))
    return content.raw


def _check(status: int) -> None:
    if status:
        nvrtc().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {nvrtc().nvrtcGetErrorString(status).decode()}")


class Module:
    """The kernels of one source, specialised by macros, on one device."""

    def __init__(self, source: str, macros: Macros, device: torch.device) -> None:
        with torch.cuda.device(device):
            self.index, self.context = torch.cuda.current_device(), ctypes.c_void_p()
            capability = "{}{}".format(*torch.cuda.get_device_capability(device))
            code, _ = compile_source(source, macros, capability)
            self.handle = ctypes.c_void_p()
            torch.cuda.synchronize()  # makes torch's context the current one of this thread
            _call("cuCtxGetCurrent", ctypes.byref(self.context))
            _call("cuModuleLoadData", ctypes.byref(self.handle), code)
        self.functions: dict[str, int] = {}

    def launch(self, name: str, grid: Grid, threads: int, arguments: ctypes.Structure) -> None:
        """Queue a kernel on torch's current stream; its one parameter is a structure."""
        with self.entered():
            pointers = _POINTERS(ctypes.addressof(arguments))
            queue(self.function(name), grid, threads, self.stream(), ctypes.addressof(pointers))

    def entered(self) -> AbstractContextManager[Any]:
        """The module's device as the current one, in this thread."""
        if (
            torch.cuda.current_device() != self.index
        ):  # the tensors' GPU need not be the current one
            return torch.cuda.device(self.index)
        if self.index not in _entered():
            self._enter_context()
        return nullcontext()

    def stream(self) -> int:
        """torch's current stream of the device."""
        return raw_stream(self.index)

    def function(self, name: str) -> int:
        """The handle of a kernel."""
        return self.functions.get(name) or self._find(name)

    def _find(self, name: str) -> int:
        function = ctypes.c_void_p()
        _call("cuModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        self.functions[name] = function.value or 0
        return self.functions[name]

    def _enter_context(self) -> None:
        """A thread that has not called CUDA yet, such as autograd's, has no context."""
        current = ctypes.c_void_p()
        _call("cuCtxGetCurrent", ctypes.byref(current))
        if not current.value:
            _call("cuCtxSetCurrent", self.context)
        _entered().add(self.index)


def raw_stream(index: int) -> int:
    """The handle of torch's current stream of a device; a Stream object costs the host more."""
    return torch._C._cuda_getCurrentRawStream(index)


_POINTERS = ctypes.c_void_p * 1
_THREAD = threading.local()


def _entered() -> set[int]:
    """The devices whose context this thread has had: from then on torch keeps it."""
    try:
        return _THREAD.devices
    except AttributeError:
        _THREAD.devices = set[int]()
        return _THREAD.devices


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _launcher() -> Any:
    """cuLaunchKernel with its types: what is passed is converted at once instead of looked at."""
    sizes, pointer = [ctypes.c_uint] * 7, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(ctypes.c_int, pointer, *sizes, pointer, pointer, pointer)
    return kind(("cuLaunchKernel", _driver()))


def queue(function: int, grid: Grid, threads: int, stream: int, parameters: int) -> None:
    """Launch a kernel; `parameters` is the address of the address of its argument."""
    failed = _launcher()(function, *grid, threads, 1, 1, 0, stream, parameters, None)
    if failed:
        raise _problem(failed)


def _call(name: str, *arguments: Any) -> None:
    failed = getattr(_driver(), name)(*arguments)
    if failed:
        raise _problem(failed)


def _problem(status: int) -> RuntimeError:
    message = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(message))
    return RuntimeError(f"CUDA: {(message.value or b'unknown error').decode()}")
