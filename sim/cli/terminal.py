"""Standard output as the commands use it: its width, plain tables, notes put together."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_WIDTH = 100
#: no table is wider
_WIDEST = 400
_MAX_PLACES = 6


def console() -> Console:
    """Standard output; 100 columns when it is not a terminal, so that a log reads like a screen."""
    width = None if sys.stdout.isatty() else _WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)


def fitting_console(table: Table) -> Console | None:
    """Standard output, wide enough for the whole table where it is not a terminal; None where the terminal is too narrow."""
    out = console()
    needed = Console(width=_WIDEST).measure(table).maximum
    if needed <= out.width:
        return out
    return None if out.is_terminal else Console(file=sys.stdout, width=needed, highlight=False, soft_wrap=False)


def plain_table(*columns: str, title: str = "", numbers: bool = True) -> Table:
    """A borderless table: the first column is text, the others are numbers on the right (or words on the left)."""
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left", title_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if index and numbers else "left",
            header_style="dim",
            no_wrap=numbers or not index,
            overflow="fold",
        )
    return table


def grouped(notes: Sequence[str]) -> list[str]:
    """Notes of the form ``<number>: assumed: <why>`` put together by why, the others as they are."""
    reasons: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        where, mark, why = note.partition(": assumed: ")
        reasons.setdefault(f"assumed, {why}" if mark else note, []).extend([where] if mark else [])
    lines = []
    for reason, every in reasons.items():
        places = _alike(every)
        shown = ", ".join(places[:_MAX_PLACES]) + (
            f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
        )
        lines.append(f"{shown}: {reason}" if places else reason)
    return lines


def _alike(places: Sequence[str]) -> list[str]:
    """``gpu0.latency, gpu1.latency`` as ``gpu0.latency (x2)``: numbers of devices that differ in their index only."""
    counts: dict[tuple[str, str], list[str]] = {}
    for place in places:
        device, _, key = place.partition(".")
        counts.setdefault((device.rstrip("0123456789"), key), []).append(place)
    return [names[0] if len(names) == 1 else f"{names[0]} (x{len(names)})" for names in counts.values()]
