"""A PostgreSQL of the tests' own, for whoever asks for the fixture `postgresql`."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PASSWORD = "pg s3cret/w@rd:7%"
QUOTED = "pg%20s3cret%2Fw%40rd%3A7%25"


def _program(name: str) -> str | None:
    """Debian keeps the server's programs out of the path, a folder for each version."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(versions[-1]) if versions else None)


def _as_postgres() -> list[str]:
    """The server refuses to run as root: then it is the user that its package made."""
    if os.getuid():
        return []
    pwd.getpwnam("postgres")
    return ["runuser", "-u", "postgres", "--"]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address, with the password, of a server of its own that runs as long as the tests.

    Elsewhere such tests skip; where `STA_REQUIRE_POSTGRES=1` is set, a missing one is a failure.
    """
    initdb, control = _program("initdb"), _program("pg_ctl")
    reason = ""
    if not initdb or not control:
        reason = "needs the server PostgreSQL, which is not installed (apt-get install postgresql)"
    else:
        try:
            prefix = _as_postgres()
        except KeyError:
            reason = "PostgreSQL does not run as root, and there is no user 'postgres'"
    if reason:
        if os.environ.get("STA_REQUIRE_POSTGRES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    # Not pytest's folder, which only its owner can enter; and a path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        (place / "password").write_text(PASSWORD)
        if prefix:
            for path in (place, place / "password"):
                shutil.chown(path, "postgres")

        def call(*command: str) -> None:
            done = subprocess.run([*prefix, *command], cwd=place, capture_output=True, text=True)
            log = place / "log"
            more = log.read_text() if log.exists() else ""
            assert done.returncode == 0, done.stdout + done.stderr + more

        data = str(place / "data")
        call(
            *(str(initdb), "-D", data, "-U", "ann", "--auth=scram-sha-256", "--no-sync"),
            *(f"--pwfile={place / 'password'}", "--encoding=UTF8", "--locale=C"),
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-p {port} -h 127.0.0.1 -k {place} -c fsync=off"
        call(str(control), "-D", data, "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            yield f"postgresql://ann:{QUOTED}@127.0.0.1:{port}/postgres"
        finally:
            call(str(control), "-D", data, "-w", "-m", "immediate", "stop")
