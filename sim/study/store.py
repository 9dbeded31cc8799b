"""The study's truth: one SQLite file (write-ahead log) with one row per result, written by the coordinator only.

`results` holds what a point came to, keyed by the hash of its resolved inputs and the model version; `points` says
which result each position of a sweep has, per plan (the fingerprint of the scenario file and everything it reads). So
a changed file re-runs only the points whose resolved inputs changed, and a finished plan is recognised without
resolving anything. Every write is one transaction: a killed run leaves whole rows or none.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.records import Struct

SCHEMA_VERSION = 1
FILE_NAME = "study.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY, status TEXT NOT NULL, reason TEXT NOT NULL, point BLOB NOT NULL,
    seconds REAL NOT NULL, model_version TEXT NOT NULL, written_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points (
    plan TEXT NOT NULL, position INTEGER NOT NULL, parameters BLOB NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (plan, position)) WITHOUT ROWID;
"""
_BUSY_S = 60.0
#: primary error codes of a disk that takes no more
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

#: a point ran and fits | ran out of a tier | its inputs are wrong | the simulator failed | its worker died (run again)
STATUSES = ("fits", "does_not_fit", "invalid", "failed", "lost")


class Outcome(Struct, frozen=True, kw_only=True):
    """What one point came to. `point` is the JSON object that `tiersim run --json` prints for it."""

    position: int
    key: str
    status: str
    reason: str = ""
    parameters: dict[str, object] = {}  # noqa: RUF012 - msgspec copies it
    point: bytes = b"{}"
    seconds: float = 0.0
    is_known: bool = False  # found in the store, not run: `point` is empty

    @property
    def summary(self) -> dict[str, Any]:
        """The decoded point; its parameters are this outcome's, not those of the run that filled the row."""
        decoded: dict[str, Any] = msgspec.json.decode(self.point)
        return {**decoded, "parameters": dict(self.parameters)}


class Store:
    """Open (or create) the store in `folder`; use as a context manager, from one thread.

    Two runs into one folder are safe: SQLite serialises their transactions, rows are idempotent. The folder must be on
    a local disk (SQLite's log needs shared memory), which results on a network share are copied to afterwards.
    """

    def __init__(self, folder: Path | str, *, is_read_only: bool = False) -> None:
        self.path = Path(folder) / FILE_NAME
        if is_read_only and not self.path.is_file():
            raise InputError(Fault(what=f"no study at {str(folder)!r}", remedy="run the scenario's sweep first"))
        try:
            if not is_read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
            if is_read_only:
                self._connection.execute("PRAGMA query_only=ON")
                self._check_version()
            else:
                self._prepare()
        except sqlite3.DatabaseError as error:
            raise InputError(
                Fault(
                    what=f"cannot use {str(self.path)!r} as a study: {error}",
                    remedy="move the file away, or use another folder",
                )
            ) from error

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing; only power loss may
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
        self._check_version()

    def _check_version(self) -> None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        if row is None or row[0] != str(SCHEMA_VERSION):
            raise InputError(
                Fault(
                    what=f"{str(self.path)!r} has schema {row[0] if row else 'unknown'}, this version writes {SCHEMA_VERSION}",
                    remedy="use another folder, or the version of tiersim that wrote it",
                )
            )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:  # a full disk has ended it already
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _DISK:
                what = f"cannot write {str(self.path)!r}: {error}"
                raise InputError(Fault(what=what, remedy="free some space, or use another folder (--out)")) from error
            raise

    # ------------------------------------------------------------------------------------------------------- writing

    def write(self, outcomes: Iterable[Outcome], *, plan: str, model_version: str) -> None:
        """Write outcomes in one transaction. A known outcome adds its position only; the first result of a key stays.

        A key is a hash of inputs, so two runs that race write equal rows; a `lost` row gives way to a real one.
        """
        now = time.time()
        with self._transaction():
            for outcome in outcomes:
                if not outcome.is_known:
                    self._connection.execute(
                        "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET status ="
                        " excluded.status, reason = excluded.reason, point = excluded.point, seconds = excluded.seconds,"
                        " written_at = excluded.written_at WHERE results.status = 'lost'",
                        (
                            outcome.key,
                            outcome.status,
                            outcome.reason,
                            outcome.point,
                            outcome.seconds,
                            model_version,
                            now,
                        ),
                    )
                if outcome.position >= 0:
                    self._connection.execute(
                        "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)",
                        (plan, outcome.position, msgspec.json.encode(outcome.parameters), outcome.key),
                    )

    def note(self, name: str, value: str) -> None:
        """Remember a named text (the plan's scenario, say)."""
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # ------------------------------------------------------------------------------------------------------- reading

    def noted(self, name: str) -> str:
        """A text written by :meth:`note`, or ""."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def finished(self, plan: str) -> set[int]:
        """Positions of `plan` that have a result (lost ones do not count)."""
        query = "SELECT position FROM points JOIN results USING (key) WHERE plan = ? AND status != 'lost'"
        return {row[0] for row in self._connection.execute(query, (plan,))}

    def known_keys(self) -> frozenset[str]:
        """Keys of every result that need not be run again."""
        return frozenset(row[0] for row in self._connection.execute("SELECT key FROM results WHERE status != 'lost'"))

    def counts(self, plan: str) -> dict[str, int]:
        """status -> number of points of `plan`."""
        query = "SELECT status, COUNT(*) FROM points JOIN results USING (key) WHERE plan = ? GROUP BY status"
        return dict(self._connection.execute(query, (plan,)).fetchall())

    def outcomes(self, plan: str) -> Iterator[Outcome]:
        """Outcomes of `plan` in the order of the sweep, read lazily."""
        query = (
            "SELECT position, key, status, reason, parameters, point, seconds FROM points JOIN results USING (key)"
            " WHERE plan = ? ORDER BY position"
        )
        for position, key, status, reason, parameters, point, seconds in self._connection.execute(query, (plan,)):
            yield Outcome(
                position=position,
                key=key,
                status=status,
                reason=reason,
                parameters=msgspec.json.decode(parameters),
                point=point,
                seconds=seconds,
            )

    def result(self, key: str) -> Mapping[str, Any] | None:
        """The stored point of one key, or None."""
        row = self._connection.execute("SELECT point FROM results WHERE key = ? AND status != 'lost'", (key,)).fetchone()
        return msgspec.json.decode(row[0]) if row else None

    def check(self) -> str:
        """SQLite's own integrity check: "ok", or what is wrong."""
        return str(self._connection.execute("PRAGMA integrity_check").fetchone()[0])
