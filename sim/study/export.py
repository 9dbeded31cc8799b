"""Exports of a study: CSV, Parquet, JSON. Written row by row, so that a million points need no more memory than one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sim.errors import Fault, InputError
from sim.study.store import Outcome

Outcomes = Callable[[], Iterator[Outcome]]
_PARQUET_BATCH = 2000


def flat(outcome: Outcome) -> dict[str, object]:
    """One row of a table: position, status, reason, ``parameters.<path>``, and the point with dotted columns."""
    row: dict[str, object] = {"position": outcome.position, "status": outcome.status}
    row |= dict(_flattened(outcome.summary))
    row["reason"] = outcome.reason
    return row


def _flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flattened(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def columns_of(outcomes: Outcomes) -> list[str]:
    """Every column that any row has, in order of first appearance, the reason last."""
    found: dict[str, None] = {}
    for outcome in outcomes():
        found.update(dict.fromkeys(flat(outcome)))
    found.pop("reason", None)
    return [*found, "reason"]


def write_csv(outcomes: Outcomes, path: Path) -> Path:
    """One row per point; numbers in full precision, nothing as an empty cell."""
    columns = columns_of(outcomes)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for outcome in outcomes():
            row = flat(outcome)
            writer.writerow(["" if row.get(column) is None else row[column] for column in columns])
    return path


def write_parquet(outcomes: Outcomes, path: Path) -> Path:
    """The same table as Parquet (extra `table`); a column of mixed kinds becomes text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InputError(Fault(what="Parquet needs pyarrow", remedy="pip install 'tiersim[table]'")) from error
    kinds: dict[str, set[type]] = {}
    for outcome in outcomes():
        for key, value in flat(outcome).items():
            kinds.setdefault(key, set()).add(type(value))
    arrow = {key: _arrow_type(pa, found - {type(None)}) for key, found in kinds.items()}
    schema = pa.schema(list(arrow.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        batch: list[dict[str, object]] = []
        for outcome in outcomes():
            row = flat(outcome)
            batch.append({key: _cell(row.get(key), is_text=pa.types.is_string(kind)) for key, kind in arrow.items()})
            if len(batch) >= _PARQUET_BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch.clear()
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema))
    return path


def _arrow_type(pa: Any, kinds: set[type]) -> Any:
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def _cell(value: object, *, is_text: bool) -> object:
    return str(value) if is_text and value is not None else value


def write_summary(head: Mapping[str, Any], outcomes: Outcomes, path: Path) -> Path:
    """``{..head, "points": [...]}``, one point per line."""
    with path.open("wb") as file:
        file.write(msgspec.json.encode(dict(head))[:-1] + (b',"points":[' if head else b'"points":['))
        for index, outcome in enumerate(outcomes()):
            file.write((b",\n" if index else b"\n") + msgspec.json.encode({**outcome.summary, "status": outcome.status}))
        file.write(b"\n]}\n")
    return path
