"""One preprocessed graph in one safetensors file: tensors only, a checksum, no pickle."""

import zlib
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data

from .features import from_named_parts, named_parts


def save_graph(data: Data, path: Path, source: str) -> None:
    """Write x, edge_index, y and own_splits (if any); `source` says where the raw files lay."""
    tensors = {"edge_index": data.edge_index, "y": data.y, **named_parts(data.x)}
    if "own_splits" in data:
        tensors["own_splits"] = data.own_splits
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {
        "num_nodes": str(data.x.shape[0]),
        "num_features": str(data.x.shape[1]),
        "crc32": _checksum(tensors, tuple(data.x.shape)),
        "source": source,
    }
    save_file(tensors, path, metadata=metadata)


def read_graph(path: Path) -> Data | None:
    """Read what `save_graph` wrote; None if there is no such file or it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    shape = _shape(metadata)
    if metadata.get("crc32") != _checksum(tensors, shape):
        return None
    x = from_named_parts(tensors, shape)
    data = Data(x=x, edge_index=tensors["edge_index"], y=tensors["y"])
    if "own_splits" in tensors:
        data.own_splits = tensors["own_splits"]
    return data


def _shape(metadata: dict[str, str]) -> tuple[int, int]:
    try:
        return int(metadata["num_nodes"]), int(metadata["num_features"])
    except (KeyError, ValueError):
        return 0, 0


def _checksum(tensors: dict[str, Tensor], shape: tuple[int, ...]) -> str:
    """Safetensors notices a short file but not a changed byte, which could crash a CSR kernel."""
    crc = zlib.crc32(f"{shape} {sorted(tensors)}".encode())
    for name in sorted(tensors):
        crc = zlib.crc32(tensors[name].contiguous().numpy().tobytes(), crc)
    return f"{crc:08x}"
