"""Files: where one can be written, and what is read as one."""

import errno
import os
from pathlib import Path

import pytest

from subtree_attention import io
from subtree_attention.io import FileError


class TestTargets:
    def test_a_check_leaves_nothing_behind(self, tmp_path: Path) -> None:
        io.check_target(tmp_path / "new/folder/page.html", (".html",), "a page is", force=False)
        assert list(tmp_path.iterdir()) == []

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(FileError, match=r"cannot write to .*deeper \(.*file is a file\)"):
            io.check_writable(tmp_path / "file" / "deeper")

    @pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
    def test_where_nothing_can_be_written(
        self, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(dir: Path) -> None:
            assert dir == tmp_path
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("tempfile.TemporaryFile", fail)
        with pytest.raises(FileError, match=os.strerror(code)):
            io.check_target(tmp_path / "a" / "page.html", (".html",), "a page is", force=False)

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
    def test_where_nobody_can_write_not_even_an_administrator(self) -> None:
        with pytest.raises(FileError, match="cannot write to /proc"):
            io.check_target(Path("/proc/page.html"), (".html",), "a page is", force=False)


@pytest.mark.parametrize("damaged", ['{"a": 2', '{"a": 1.6', "[1", '"a"', "not JSON"])
def test_json_with_its_own_checksum(damaged: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    io.write_json(file, io.with_checksum(content := {"a": 1.5, "b": [None, "é"]}))
    assert io.parse_checked(file.read_bytes(), file, "delete it") == content
    file.write_text(file.read_text().replace('{\n  "a": 1.5', damaged))
    with pytest.raises(FileError, match=r"file.json .*: delete it"):
        io.parse_checked(file.read_bytes(), file, "delete it")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "link", "."):
        with pytest.raises(FileError, match="not a regular file"):
            io.open_regular(tmp_path / name, links=True)
    with pytest.raises(FileError, match="it is a link"):
        io.open_regular(tmp_path / "link")
    (tmp_path / "file").write_bytes(b"content")
    with io.open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
