"""CUDA C++ compiled at run time by NVRTC, which comes with torch, and launched through the driver.

A source takes a fraction of a second, once per shape and process.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

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
        self.driver, self.device, self.context = _driver(), device, ctypes.c_void_p()
        capability = "{}{}".format(*torch.cuda.get_device_capability(device))
        code, _ = compile_source(source, macros, capability)
        self.handle = ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.synchronize()  # makes torch's context the current one of this thread
            self._check(self.driver.cuCtxGetCurrent(ctypes.byref(self.context)))
            self._check(self.driver.cuModuleLoadData(ctypes.byref(self.handle), code))
        self.functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, grid: Grid, threads: int, arguments: ctypes.Structure) -> None:
        """Queue a kernel on torch's current stream; its one parameter is a structure."""
        with torch.cuda.device(self.device):  # the tensors' GPU need not be the current one
            self._enter_context()
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            function = self._function(name)
            self._check(
                self.driver.cuLaunchKernel(
                    function, *grid, threads, 1, 1, 0, stream, pointers, None
                )
            )

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self.functions:
            function = ctypes.c_void_p()
            found = self.driver.cuModuleGetFunction(
                ctypes.byref(function), self.handle, name.encode()
            )
            self._check(found)
            self.functions[name] = function
        return self.functions[name]

    def _enter_context(self) -> None:
        """A thread that has not called CUDA yet, such as autograd's, has no context."""
        current = ctypes.c_void_p()
        self._check(self.driver.cuCtxGetCurrent(ctypes.byref(current)))
        if not current.value:
            self._check(self.driver.cuCtxSetCurrent(self.context))

    def _check(self, status: int) -> None:
        if status:
            message = ctypes.c_char_p()
            self.driver.cuGetErrorString(status, ctypes.byref(message))
            raise RuntimeError(f"CUDA: {(message.value or b'unknown error').decode()}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def structure(pointers: str, doubles: str = "", ints: str = "") -> type[ctypes.Structure]:
    """A C structure of these fields, in this order; they are null or 0 until set."""
    kinds = ((pointers, ctypes.c_void_p), (doubles, ctypes.c_double), (ints, ctypes.c_int))
    fields = [(name, kind) for names, kind in kinds for name in names.split()]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})
