"""Crossover map: one metric over two knobs, with the boundary of what fits, and where one choice overtakes another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report.curves import METRICS
from sim.report.style import INK, figure, plain, readable, save, titled
from sim.report.swept import cut

#: grey of cells that do not fit
MISFIT = "#E4E4E4"


def map_figure(
    columns: Sequence[object],
    rows: Sequence[object],
    values: Mapping[tuple[object, object], float | None],
    *,
    names: tuple[str, str],
    metric: str,
    finding: str,
    is_ratio: bool = False,
) -> Any:
    """`values[column, row]` is the metric, None where the point does not fit; `names` are those of (columns, rows).

    With `is_ratio` the values are time over the other choice's: the line where they cross 1 is drawn, blue is better.
    """
    import numpy as np
    from matplotlib.colors import LogNorm, TwoSlopeNorm

    label, factor, unit, is_more = METRICS.get(metric, (metric, 1.0, "", False))
    if is_ratio:
        label, factor, unit, is_more = metric, 1.0, "x", False
    grid = np.array([[_cell(values.get((column, row)), factor) for column in columns] for row in rows], dtype=float)
    fig = figure(1.6 + 1.05 * max(6, len(columns)), 2.1 + 0.55 * max(4, len(rows)))
    axes = fig.add_subplot()
    known = grid[np.isfinite(grid)]
    colours = "viridis" if is_more else "viridis_r"
    norm: Any = None
    if known.size and is_ratio:
        reach = max(1.0001, float(known.max()), 1 / float(known.min()))
        norm, colours = TwoSlopeNorm(vmin=1 / reach, vcenter=1.0, vmax=reach), "RdYlBu_r"
    elif known.size and known.min() > 0 and known.max() / known.min() > 20:
        norm = LogNorm(vmin=float(known.min()), vmax=float(known.max()))
    axes.set_facecolor(MISFIT)
    mesh = axes.pcolormesh(np.arange(len(columns) + 1), np.arange(len(rows) + 1), grid, cmap=colours, norm=norm)
    _numbers(axes, grid, mesh)
    _boundary(axes, ~np.isfinite(grid), INK, 2.2)
    if is_ratio:
        _boundary(axes, grid > 1.0, "#B00020", 1.6)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [cut(value, 22) for value in columns])
    axes.set_yticks(np.arange(len(rows)) + 0.5, [cut(value, 22) for value in rows])
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    bar = fig.colorbar(mesh, ax=axes, pad=0.02)
    bar.set_label(f"{label} ({unit})" if unit else label)
    plain(axes, grid="")
    detail = "grey: does not fit; the thick line is the boundary"
    titled(fig, finding, f"{detail}; the red line is where the two are equal" if is_ratio else detail)
    return fig


def draw_map(path: Path, *arguments: Any, **keywords: Any) -> Path:
    """As :func:`map_figure`, into a file."""
    return save(map_figure(*arguments, **keywords), path)


def _cell(value: float | None, factor: float) -> float:
    return float("nan") if value is None else factor * value


def _numbers(axes: Any, grid: Any, mesh: Any) -> None:
    """The value in every cell, dark on light and light on dark; left out when there are too many to read."""
    if grid.size > 240:
        return
    for (row, column), value in _cells(grid):
        if value == value:  # not NaN
            red, green, blue, _alpha = mesh.cmap(mesh.norm(value))
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            axes.text(
                column + 0.5,
                row + 0.5,
                readable(value),
                ha="center",
                va="center",
                fontsize=8,
                color=INK if is_light else "white",
            )


def _cells(grid: Any) -> Any:
    import numpy as np

    return np.ndenumerate(grid)


def _boundary(axes: Any, inside: Any, colour: str, width: float) -> None:
    """Lines between cells of which exactly one is `inside`."""
    num_rows, num_columns = inside.shape
    for row in range(num_rows):
        for column in range(num_columns):
            if column + 1 < num_columns and inside[row, column] != inside[row, column + 1]:
                axes.plot([column + 1] * 2, [row, row + 1], color=colour, linewidth=width, solid_capstyle="round")
            if row + 1 < num_rows and inside[row, column] != inside[row + 1, column]:
                axes.plot([column, column + 1], [row + 1] * 2, color=colour, linewidth=width, solid_capstyle="round")
