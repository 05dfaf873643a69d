"""Where the trials of a study are kept, who chooses alone, and who is alive.

    a journal     a file of Optuna's and locks beside it: processes of one machine, or of several on
                  a file system whose locks reach from one machine to another
    a database    Optuna's tables in SQLite (one machine) or in PostgreSQL (any number)

A process that uses a journal holds a lock as long as it lives, which the system drops with it. One
that uses a database writes every `HEARTBEAT` seconds that it lives, by Optuna's heartbeat and the
clock of the database, and is taken for dead after `GRACE` seconds of silence. Of an address nothing
but `Address.shown` is told, and its password reaches nobody but the driver.
"""

from __future__ import annotations

import os
import re
import sqlite3
import uuid
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from .. import _check
from ..datasets.tables.sources.databases import in_words
from ..datasets.tables.sources.query import FILES, Address, is_database
from ..io import check_writable, drop_torn_line, has_locks, lock, lock_if_free, locked

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial
    from sqlalchemy import Engine

HEARTBEAT, GRACE = 20, 120
"""Seconds between two signs of life in a database, and of silence after which a process is dead."""
JOURNALS = (".jsonl", ".log")
MEANT = "postgresql://host/name, sqlite:///file.db, or a journal such as /shared/study.jsonl"


class StorageError(ValueError):
    """A place where a study cannot be kept: the message says why, without any secret."""


class Storage(ABC):
    """A place of studies.

    Attributes:
        shown: what it is called in messages.
        worker: the name of this process there.
    """

    shown: str

    def __init__(self) -> None:
        self.worker = f"worker-{uuid.uuid4().hex[:12]}.lock"

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be used, before any work is done; nothing is made."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[object]:
        """No other process that shares the place is in this part."""

    @abstractmethod
    def open(self) -> BaseStorage:
        """The place as Optuna uses it, made if it is not there; to be called alone."""

    @abstractmethod
    def working(self) -> AbstractContextManager[object]:
        """This process counts as alive meanwhile."""

    @abstractmethod
    def dead(self, study: OptunaStudy) -> Iterator[FrozenTrial]:
        """The trials under way whose process is gone; to be called alone."""

    def claim(self, trial: Trial) -> None:
        """A new trial is this process's; to be called alone."""
        trial.set_user_attr("worker", self.worker)

    def sweep(self) -> None:
        """Remove what processes that are gone left here."""
        return

    def in_words(self) -> AbstractContextManager[object]:
        """What goes wrong with the place is said in our words."""
        return nullcontext()


def storage_of(text: str) -> Storage:
    """What is meant by `--storage`."""
    _check.kind("storage", text, str, f"a text: {MEANT}")
    if is_database(text):
        return Database(text)
    path = Path(text)
    if path.suffix.lower() not in JOURNALS:
        raise StorageError(
            f"storage {_check.said(_check.without_passwords(text))} is no place for a study: "
            f"write {MEANT}"
        )
    return Journal(path, shared=True)


def _check_folder(path: Path) -> None:
    """Others must find it: no folder is made, since a mistyped one would be a new study."""
    if not path.parent.is_dir():
        raise StorageError(f"{path.parent} is no folder: make it first, for {path.name}")
    check_writable(path.parent)


def running(study: OptunaStudy) -> list[FrozenTrial]:
    """The trials under way."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]


# ---------------------------------------------------------------------------------------- journals


class Journal(Storage):
    """A file with a line for each thing that happened, and locks beside it."""

    def __init__(self, path: Path, shared: bool = False) -> None:
        super().__init__()
        self.path, self.shared, self.shown = path, shared, str(path)

    def check(self) -> None:
        folder = self.path.parent
        _check_folder(self.path)
        if self.shared and not has_locks(folder):
            raise StorageError(
                f"{folder} has no locks on files, so processes would write over one another: keep "
                "the study in PostgreSQL, --storage postgresql://host/name"
            )
        if self.path.is_dir():
            raise StorageError(f"{self.path} is a folder: name a file")
        if self.path.exists() and not self._is_ours():
            raise StorageError(f"{self.path} is no journal of Optuna: choose another file")

    def _is_ours(self) -> bool:
        with self.path.open("rb") as file:
            head = file.read(4096)
        return not head or (head.startswith(b"{") and b'"op_code"' in head)

    def alone(self) -> AbstractContextManager[int]:
        return locked(self.path.with_suffix(".lock"))

    def open(self) -> BaseStorage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this part of Optuna may still change
            lock: Any = _JournalLock(self.path.with_name("journal.lock"), self.path)
            return JournalStorage(JournalFileBackend(str(self.path), lock))

    @contextmanager
    def working(self) -> Iterator[None]:
        mine = self.path.with_name(self.worker)
        with locked(mine):
            try:
                yield
            finally:
                mine.unlink(missing_ok=True)

    def dead(self, study: OptunaStudy) -> Iterator[FrozenTrial]:
        for trial in running(study):
            worker = trial.user_attrs.get("worker")
            if not (worker and _is_held(self.path.with_name(worker))):
                yield trial

    def sweep(self) -> None:
        for worker in self.path.parent.glob("worker-*.lock"):
            _is_held(worker)


class _JournalLock:
    """The lock of Optuna's journal, in the form that Optuna asks for.

    Its own are files, which stay behind when their process is killed: others then wait for 30 s.
    And a line that was cut off with its process would spoil what others write behind it.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self.path, self.journal = path, journal
        self.held: int | None = None

    def acquire(self) -> bool:
        if self.held is None:  # Ctrl-C may have come before the release
            self.held = lock(self.path)
        with suppress(FileNotFoundError):  # before the first line
            journal = os.open(self.journal, os.O_RDWR)
            try:
                drop_torn_line(journal)
            finally:
                os.close(journal)
        return True

    def release(self) -> None:
        if self.held is not None:
            os.close(self.held)
            self.held = None


def _is_held(path: Path) -> bool:
    """Whether a process that lives holds the lock; what a dead one left behind is removed."""
    free = lock_if_free(path)
    if free is None:
        return True
    with suppress(OSError):
        path.unlink()
    os.close(free)
    return False


# --------------------------------------------------------------------------------------- databases


class Database(Storage):
    """Tables of Optuna's in PostgreSQL or SQLite."""

    def __init__(self, text: str) -> None:
        super().__init__()
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.\-]+(?=:)", text)  # C: is none
        known = ("postgresql", "postgres", *FILES)
        if scheme and scheme[0].lower() not in known:
            raise StorageError(f"a study is not kept in {_check.said(scheme[0])}: write {MEANT}")
        self.address = Address.of(text)
        self.shown, self.kind = self.address.shown, self.address.kind
        if self.kind not in DIALECTS:  # DuckDB, which one process at a time may write
            raise StorageError(f"a study is not kept in {_check.said(self.kind)}: write {MEANT}")
        if self.kind == "sqlite" and self.address.target in ("", ":memory:"):
            raise StorageError(f"a study in memory cannot be shared: write {MEANT}")
        self.optuna: BaseStorage | None = None
        self.trial: int | None = None  # the latest of this process

    def check(self) -> None:
        if self.kind == "sqlite":
            self._check_file(Path(self.address.target))
            return
        with self.in_words(), self._engine.connect():
            pass

    def _check_file(self, path: Path) -> None:
        _check_folder(path)
        if not path.exists():
            return
        if not path.is_file():
            raise StorageError(f"{path} is not a file: choose another name")
        with path.open("rb") as file:
            if not b"SQLite format 3".startswith(file.read(15)):
                raise StorageError(f"{path} is no SQLite database: choose another file")

    @contextmanager
    def alone(self) -> Iterator[None]:
        if self.kind == "sqlite":
            with locked(Path(f"{self.address.target}.lock")):
                yield
            return
        from sqlalchemy import text

        with self._engine.begin() as connection:  # the server drops the lock with the connection
            name = zlib.crc32(b"subtree-attention")
            connection.execute(text("select pg_advisory_xact_lock(:name)"), {"name": name})
            yield

    def open(self) -> BaseStorage:
        from optuna.storages import RDBStorage

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that heartbeats may still change
            self.optuna = RDBStorage(
                DIALECTS[self.kind],
                engine_kwargs=self._how,
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
            )
        return self.optuna

    @contextmanager
    def working(self) -> Iterator[None]:
        ended = Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT):
                with suppress(Exception):  # a server that is away may be back for the next one
                    self._beat()

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(GRACE)

    def claim(self, trial: Trial) -> None:
        self.trial = trial._trial_id
        self._beat()  # first: who has a name but was never heard of would never be missed
        super().claim(trial)

    def dead(self, study: OptunaStudy) -> Iterator[FrozenTrial]:
        from optuna.storages import fail_stale_trials

        under_way = {trial.number for trial in running(study)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above
            fail_stale_trials(study)
        for trial in study.get_trials(deepcopy=False):
            failed = trial.state.name == "FAIL" or "worker" not in trial.user_attrs
            if trial.number in under_way and failed:
                yield trial

    @contextmanager
    def in_words(self) -> Iterator[None]:
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            cause = error.__cause__ if isinstance(error, StorageInternalError) else error
            wrong = in_words(self.address, getattr(cause, "orig", None) or cause or error)
            raise StorageError(f"{self.shown}: {wrong}") from None

    def _beat(self) -> None:
        if self.optuna is not None and self.trial is not None:
            self.optuna.record_heartbeat(self.trial)  # type: ignore[attr-defined]

    @cached_property
    def _engine(self) -> Engine:
        from sqlalchemy import create_engine

        return create_engine(DIALECTS[self.kind], **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        """The driver gets the address from us: neither SQLAlchemy nor Optuna knows it."""
        from sqlalchemy import NullPool  # no connection waits idle through the hours of a trial

        target = self.address.target
        if self.kind == "sqlite":
            return {
                "creator": lambda: sqlite3.connect(target, timeout=60, check_same_thread=False),
                "poolclass": NullPool,
            }
        try:
            import psycopg
        except ImportError:
            raise ImportError(
                f"{self.shown}: a study in postgresql needs psycopg: pip install "
                '"subtree-attention[tune,databases]"'
            ) from None
        return {"creator": lambda: psycopg.connect(target), "poolclass": NullPool}


DIALECTS = {"postgresql": "postgresql+psycopg://", "sqlite": "sqlite://"}
