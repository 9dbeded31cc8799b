"""What is known of errors that no law explains: notes on rows of a validation table, and how they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Notes:
    """Of one table: a note on all rows, or notes on rows by id ("row", or "row.metric" where a row has several values)."""

    of_all: str = ""
    of_rows: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def of(self, row_id: str, metric: str) -> str:
        """The note on this value, "" if there is none."""
        for key in (f"{row_id}.{metric}", row_id):
            if key in self.of_rows:
                self.used.add(key)
                return self.of_rows[key]
        return self.of_all

    def unused(self) -> list[str]:
        """Ids that no row of the table has had."""
        return [key for key in self.of_rows if key not in self.used]


def read_notes(value: Any, fault: Callable[[str, str], None]) -> Notes:
    """Notes as a table writes them: a text for all rows, or a mapping of texts to lists of rows. `fault(what, remedy)`."""
    if isinstance(value, Mapping) and all(isinstance(rows, list) for rows in value.values()):
        return Notes(of_rows={str(row): str(text) for text, rows in value.items() for row in rows})
    if value is not None and not isinstance(value, str):
        fault(f"expected a text or a mapping of texts to lists of rows, got {value!r}", "write 'why': [row, row.metric]")
    return Notes(of_all=value if isinstance(value, str) else "")


def lines(noted: Iterable[tuple[str, str, str, float]]) -> Iterator[str]:
    """One line for each note of a table, the largest error first, of (note, table, row id, signed error)."""
    groups: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for note, table, row_id, error in noted:
        groups.setdefault((note, table), []).append((row_id, error))
    for (note, table), rows in sorted(groups.items(), key=lambda item: -max(abs(error) for _, error in item[1])):
        errors = [error for _, error in rows]
        if len(rows) == 1:
            yield f"not explained: {100 * errors[0]:+.0f} %  {rows[0][0]}: {note}"
        else:
            yield f"not explained: {100 * min(errors):+.0f} to {100 * max(errors):+.0f} %  {table}, {len(rows)} values: {note}"
