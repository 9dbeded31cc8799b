"""Files of validation rows: compact tables, or scenarios that say what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sim.config import read_yaml
from sim.errors import Fault, InputError
from sim.study.scenario_rows import is_scenario, rows_of_scenario
from sim.study.validation_rows import Row, rows_of


def read_rows(paths: Iterable[str | Path]) -> list[Row]:
    """Rows of files and folders (searched for `*.yaml` recursively), in file order; every fault of all files at once."""
    rows: list[Row] = []
    faults: list[Fault] = []
    for file in _files(paths):
        try:
            document = read_yaml(file)
            rows.extend(rows_of_scenario(document) if is_scenario(document) else rows_of(document))
        except InputError as error:
            faults.extend(error.faults)
    faults.extend(_repeated(rows))
    if faults:
        raise InputError(faults)
    return rows


def _files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(path.rglob("*.yaml"))
            if not found:
                raise InputError(Fault(what="no .yaml file in this folder", file=str(path)))
            yield from found
        else:
            yield path


def _repeated(rows: Sequence[Row]) -> Iterator[Fault]:
    seen: dict[str, Row] = {}
    for row in rows:
        if first := seen.get(row.id):
            yield Fault(
                what=f"two rows have the id {row.id!r} (the other is in {first.file})",
                remedy="give the rows of the table an 'id' column, or the table another id",
                file=row.file,
            )
        seen[row.id] = row
