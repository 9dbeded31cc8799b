"""What a benchmark suite shows: curves and matrices of SI numbers, with what was measured on the real machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

Dimension = Literal["bandwidth", "time", "bytes", "share", "count", "rate"]


class Unsuited(Exception):  # noqa: N818 - not an error: the machine lacks what the panel is about
    """Why a machine has no such panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows: its label for people and the dimension of its SI numbers."""

    label: str
    dimension: Dimension
    is_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A published value at one place of a panel (`x` of a curve, or a cell), and what the same inputs are predicted to give."""

    row: str
    citation: str
    measured: float
    predicted: float
    x: float = 0.0

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: points (x, y) in SI."""

    name: str
    points: tuple[tuple[float, float], ...]
    measured: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Lines over one knob."""

    name: str
    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Of all lines."""
        return tuple(item for line in self.lines for item in line.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One number per pair (row, column); a pair without a way is absent."""

    name: str
    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    axes: tuple[str, str]
    value: Axis
    cells: Mapping[tuple[str, str], float]
    measured: Mapping[tuple[str, str], Measurement] = field(default_factory=dict)
    note: str = ""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Of all cells."""
        return tuple(self.measured.values())


Panel = Curve | Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """All panels of one machine, and why some could not be made."""

    machine: str
    title: str
    panels: tuple[Panel, ...]
    skipped: Mapping[str, str]


def median_error(panel: Panel) -> float | None:
    """Median of the absolute errors against measured values; None without any."""
    errors = [abs(item.error) for item in panel.measurements]
    return median(errors) if errors else None


def to_json(suite: Suite) -> dict[str, Any]:
    """The suite as plain data in SI."""
    return {
        "machine": suite.machine,
        "benchmarks": [_panel_json(panel) for panel in suite.panels],
        "skipped": [{"name": name, "reason": reason} for name, reason in suite.skipped.items()],
    }


def _panel_json(panel: Panel) -> dict[str, Any]:
    head = {"name": panel.name, "title": panel.title, "median_abs_error": median_error(panel)}
    if isinstance(panel, Matrix):
        cells = [
            {"row": row, "column": column, "value": value, **_measured_json(panel.measured.get((row, column)))}
            for (row, column), value in panel.cells.items()
        ]
        return {
            **head,
            "kind": "matrix",
            "rows": panel.axes[0],
            "columns": panel.axes[1],
            "value": _axis(panel.value),
            "cells": cells,
        }
    lines = [
        {
            "name": line.name,
            "points": [{"x": x, "y": y} for x, y in line.points],
            "measured": [{"x": item.x, **_measured_json(item)} for item in line.measured],
        }
        for line in panel.lines
    ]
    return {**head, "kind": "curve", "x": _axis(panel.x), "y": _axis(panel.y), "lines": lines}


def _axis(axis: Axis) -> dict[str, str]:
    return {"label": axis.label, "dimension": axis.dimension}


def _measured_json(item: Measurement | None) -> dict[str, Any]:
    if item is None:
        return {}
    return {
        "measured": item.measured,
        "predicted": item.predicted,
        "error": item.error,
        "row": item.row,
        "source": item.citation,
    }
