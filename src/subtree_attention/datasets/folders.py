"""Where files lie: the data folder, the offline mirror, and a private copy that is checked.

Raw files are looked for in the data folder, then in the mirror (which is never written to), and are
downloaded only after that. Some are pickles, which can run code. So all are copied, or downloaded,
into a folder that nobody else can write to, checked there, and read there: whoever changes the
originals meanwhile changes nothing.
"""

import errno
import hashlib
import http.client
import lzma
import os
import shutil
import socket
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

from .. import _check
from ..io import FileError, check_writable, open_regular
from .registry import GraphInfo, info, sha256

APP = "subtree-attention"
# A machine without a network should say so at once, not after the system's own minutes.
DOWNLOAD_TIMEOUT_S = 10.0
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, RuntimeError)
"""What zipfile raises for an archive that is damaged, encrypted or compressed in unknown ways."""

Folder = str | os.PathLike[str]


class MissingData(FileNotFoundError):
    """A file is neither in the data folder nor in the mirror, and could not be downloaded."""


class Whereabouts(NamedTuple):
    """Where a graph would be loaded from now.

    Attributes:
        status: "embedded" (needs no file), "cached" (already preprocessed), "data folder" or
            "mirror" (raw files are there), or "download".
        path: the cache file, or the folder of the raw files; for "download" the folder that they
            will be put in; None for "embedded".
    """

    status: Literal["embedded", "cached", "data folder", "mirror", "download"]
    path: Path | None


def data_folder(data_dir: Folder | None = None) -> Path:
    """The folder for raw and preprocessed files.

    It is `data_dir`, else the environment's `STA_DATA`, else a folder in the user's cache.
    """
    chosen = os.environ.get("STA_DATA") if data_dir is None else _check.path("data_dir", data_dir)
    folder = Path(chosen).expanduser().absolute() if chosen else _user_cache() / APP
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"the data folder {folder} is a file; name a folder (STA_DATA)")
    return folder


def check_data_folder(folder: Path) -> None:
    """Refuse a data folder that could not keep what is about to be downloaded."""
    try:
        check_writable(folder)
    except FileError as error:
        raise FileError(f"the data folder (STA_DATA) cannot keep a download: {error}") from None


def mirror_folder(mirror: Folder | None = None) -> Path | None:
    """The offline mirror: `mirror`, else the environment's `STA_MIRROR`, else None."""
    chosen = os.environ.get("STA_MIRROR") if mirror is None else _check.path("mirror", mirror)
    if not chosen:
        return None
    folder = Path(chosen).expanduser().absolute()
    if not folder.is_dir():
        raise ValueError(f"the mirror {folder} is not a folder; correct STA_MIRROR or unset it")
    return folder


def cache_files(graph: GraphInfo, folder: Path) -> tuple[Path, Path]:
    """The file that holds the preprocessed graph, and the one that did in an older format.

    The number goes up when the format or the preprocessing changes.
    """
    new, old = (folder / "processed" / f"{graph.name}.v{n}.safetensors" for n in (2, 1))
    return new, old


def where(name: str, data_dir: Folder | None = None, mirror: Folder | None = None) -> Whereabouts:
    """Tell where a graph would come from, without loading it."""
    graph = info(name)
    if not graph.raw_files:
        return Whereabouts("embedded", None)
    folder = data_folder(data_dir)
    cached = [path for path in cache_files(graph, folder) if path.is_file()]
    if cached:
        return Whereabouts("cached", cached[0])
    found = find_raw(graph, folder, mirror_folder(mirror))
    if found is None:
        return Whereabouts("download", folder / graph.raw_dir)
    return Whereabouts("data folder" if found == folder / graph.raw_dir else "mirror", found)


def missing_files(graph: GraphInfo, folder: Path) -> list[str]:
    """The raw files of a graph that a data folder or mirror does not hold."""
    return [name for name in graph.raw_files if not (folder / graph.raw_dir / name).is_file()]


def find_raw(graph: GraphInfo, folder: Path, mirror: Path | None) -> Path | None:
    """The folder with all raw files of a graph: the data folder's, the mirror's, or None."""
    places = (p for p in (folder, mirror) if p and not missing_files(graph, p))
    return next((place / graph.raw_dir for place in places), None)


def copy_raw(graph: GraphInfo, found: Path, raw: Path) -> None:
    """Copy the raw files of a graph into a private folder."""
    for name in graph.raw_files:
        with open_regular(found / name, links=True) as file, (raw / name).open("xb") as copy:
            shutil.copyfileobj(file, copy)


def check_raw_files(graph: GraphInfo, raw: Path, files: list[str]) -> None:
    """Refuse damaged files in a private folder before a parser sees them; `files` names each."""
    pairs = zip(graph.raw_files, files, strict=True)
    damaged = [file for name, file in pairs if not _intact(raw / name, f"{graph.raw_dir}/{name}")]
    if damaged:
        raise FileError(f"damaged or foreign raw file of {graph.name!r}: {', '.join(damaged)}")


def _intact(path: Path, key: str) -> bool:
    """Compare the SHA-256 where it is known, else the checksums inside an archive."""
    if key in sha256():
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256()[key]
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except DAMAGED:
        return False


def download(graph: GraphInfo, into: Path, data: Path) -> None:
    """Fetch the raw files of a graph from their public addresses into a folder.

    `data` is the data folder, which is named when an address cannot be reached.
    """
    # PyG's download takes no timeout of its own; it heeds the socket module's default.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_S)
    try:
        for url in graph.urls:
            fetch(url, file := into / url.rpartition("/")[2])
        if graph.members:
            _unpack(file, graph.members)
    except (OSError, http.client.HTTPException) as error:
        refuse_full_disk(error, into, "TMPDIR")
        raise MissingData(
            f"the raw files of {graph.name!r} are missing, and {url} could not be fetched "
            f"({getattr(error, 'reason', None) or error}).\n"
            f"Put {', '.join(missing_files(graph, data))} into {data / graph.raw_dir}, "
            f"or set STA_MIRROR to a folder that holds {graph.raw_dir}/."
        ) from None
    finally:
        socket.setdefaulttimeout(before)


def _unpack(archive: Path, names: tuple[str, ...]) -> None:
    """Take some files out of an archive, whatever folder they are in there; they lie beside it."""
    try:
        with zipfile.ZipFile(archive) as opened:
            inside = {Path(name).name: name for name in opened.namelist()}
            for name in names:
                (archive.parent / name).write_bytes(opened.read(inside[name]))
    except (KeyError, *DAMAGED) as error:
        raise FileError(f"{archive.name} is damaged, or another archive ({error})") from None


def fetch(url: str, path: Path) -> None:
    """Download a file."""
    from torch_geometric.data import download_url

    download_url(url, str(path.parent), filename=path.name)


def refuse_full_disk(error: Exception, folder: Path, variable: str = "STA_DATA") -> None:
    """Turn the many faces of a full disk into one plain error; the variable names the folder."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    full = full or "No space left" in str(error)
    if full or (folder.is_dir() and shutil.disk_usage(folder).free == 0):
        words = f"no space left for graphs; free some, or name another folder with {variable}"
        raise OSError(errno.ENOSPC, words, str(folder)) from None


def _user_cache() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    return Path.home() / ".cache"
