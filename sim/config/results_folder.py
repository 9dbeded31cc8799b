"""The results folder: files that appear whole or not at all, and a manifest that says what they came from."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sim.errors import Fault, InputError
from sim.records import Program, Replay

MANIFEST = "manifest.json"
_PACKAGES = ("simpy", "numpy", "networkx", "msgspec", "numba")


class ResultsFolder:
    """One folder of results. Each file is written beside its place and renamed, so a killed run leaves no half file.

    `finish` writes the manifest last and removes what an earlier run left and this one did not write; files that no run
    of ours lists (a study's database) are never touched.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.written: list[str] = []
        with _explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / f".{os.getpid()}.probe"
            probe.write_bytes(b"")
            probe.unlink()

    def text(self, name: str, content: str) -> Path:
        """Write a text file."""
        with self.file(name) as scratch:
            scratch.write_text(content, encoding="utf-8")
        return self.path / name

    def json(self, name: str, content: object) -> Path:
        """Write JSON, readable and with sorted keys where the order has no meaning."""
        return self.text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def rows(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
        """Write a CSV table."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        return self.text(name, buffer.getvalue())

    def draw(self, name: str, drawer: Callable[[Path], object]) -> Path:
        """Let `drawer` write a file of its own (a picture, a timeline)."""
        with self.file(name) as scratch:
            drawer(scratch)
        return self.path / name

    @contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A scratch path that becomes `name` when the block ends without an error."""
        scratch = self.path / f".{os.getpid()}.{name}"
        try:
            with _explained(self.path):
                yield scratch
                scratch.replace(self.path / name)
            self.written.append(name)
        finally:
            scratch.unlink(missing_ok=True)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest and remove files of an earlier run that this one did not write."""
        before = _listed(self.path / MANIFEST)
        for name in before - set(self.written):
            if Path(name).name == name:
                (self.path / name).unlink(missing_ok=True)
        self.json(MANIFEST, {**manifest, "files": sorted(self.written)})


def _listed(manifest: Path) -> set[str]:
    try:
        found = json.loads(manifest.read_text(encoding="utf-8")).get("files", [])
    except (OSError, ValueError, AttributeError):
        return set()
    return {name for name in found if isinstance(name, str)}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        what = f"the results folder cannot be written: {reason}"
        raise InputError(Fault(what=what, file=str(path), remedy="choose another with --out")) from None


def digest(inputs: object) -> str:
    """Hash of resolved inputs (plain data): equal inputs, equal hash, whatever the order of their keys."""
    text = json.dumps(inputs, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of tiersim, Python and the packages that a result depends on."""
    from importlib import metadata

    from sim import __version__

    found = {"tiersim": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


RECORD_COLUMNS = (
    "id", "stream", "sequence", "kind", "category", "phase", "layer", "micro_batch", "name",
    "ready_s", "start_s", "end_s", "bytes", "flops",
)  # fmt: skip


def record_rows(program: Program, replay: Replay) -> Iterator[tuple[object, ...]]:
    """One row per operation, in the order of the replay; columns as in RECORD_COLUMNS."""
    by_id = {operation.id: operation for operation in program.operations}
    for record in replay.operations:
        o = by_id[record.id]
        yield (
            o.id, o.stream, o.sequence, o.kind.value, o.category, o.phase, o.layer, o.micro_batch, o.name,
            repr(record.ready_s), repr(record.start_s), repr(record.end_s), repr(o.size_bytes), repr(o.flops),
        )  # fmt: skip


def point_rows(points: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of points.csv: nested values of each point become dotted columns."""
    flat = [dict(_flattened(point)) for point in points]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    return columns, [[row.get(column, "") for column in columns] for row in flat]


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _flattened(item, f"{name}.")
        else:
            yield name, "" if item is None else item
