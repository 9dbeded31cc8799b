"""Pictures of a simulated machine's microbenchmarks: curves and matrices, with what was measured on the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.report.style import INK, MARKERS, SERIES, figure, legend_below, plain, readable, save, titled

#: dimension -> (factor from SI, unit)
SCALES = {
    "bandwidth": (1e-9, "GB/s"), "time": (1e9, "ns"), "bytes": (1.0, ""), "share": (100.0, "%"), "count": (1.0, ""),
    "rate": (1e-9, "billion/s"),
}  # fmt: skip
_SIZES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_COUNTS = ((1e9, " B"), (1e6, " M"), (1e3, " k"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How an axis is drawn: label, dimension of its SI numbers (a key of SCALES), logarithmic or not."""

    label: str
    dimension: str
    is_log: bool = False

    def title(self) -> str:
        """Label with the unit."""
        unit = SCALES[self.dimension][1]
        return f"{self.label} ({unit})" if unit else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One line: simulated points and measured ones, in SI."""

    name: str
    points: Sequence[tuple[float, float]]
    measured: Sequence[tuple[float, float]] = ()


def draw_curves(lines: Sequence[Drawn], x: Scale, y: Scale, path: Path, *, finding: str, detail: str = "") -> Path:
    """Lines are simulated; open markers of the same colour are measured."""
    fig = figure(9.0, 5.2)
    axes = fig.add_subplot()
    across, up = SCALES[x.dimension][0], SCALES[y.dimension][0]
    handles, labels = [], []
    for index, line in enumerate(lines):
        colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
        points = sorted(line.points)
        xs, ys = [across * a for a, _b in points], [up * b for _a, b in points]
        # dashes tell apart lines that lie on each other
        (handle,) = axes.plot(xs, ys, color=colour, linewidth=1.8, linestyle=_DASHES[index % len(_DASHES)])
        handles.append(handle)
        labels.append(line.name)
        if line.measured:
            at = [across * a for a, _b in line.measured], [up * b for _a, b in line.measured]
            (dots,) = axes.plot(
                *at,
                marker,
                linestyle="none",
                markersize=6,
                markerfacecolor="white",
                markeredgecolor=colour,
                markeredgewidth=1.4,
            )
            handles.append(dots)
            labels.append(f"measured: {line.name}")
    _scaled(axes, x, y)
    plain(axes, grid="both")
    titled(fig, finding, detail)
    legend_below(fig, handles, labels, num_columns=2 if max(map(len, labels), default=0) > 34 else 3)
    return save(fig, path)


_DASHES = ("-", (0, (5, 2)), "-.", (0, (1, 1.5)))


def _scaled(axes: Any, x: Scale, y: Scale) -> None:
    if x.is_log:
        axes.set_xscale("log", base=2 if x.dimension == "bytes" else 10)
        axes.xaxis.set_major_formatter(_formatter(x.dimension))
        if x.dimension == "count":
            axes.xaxis.set_minor_formatter(_nothing())
    elif x.dimension == "count":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if y.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_formatter("count"))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x.title(), fontsize=9, color=INK)
    axes.set_ylabel(y.title(), fontsize=9, color=INK)


def _formatter(dimension: str) -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _position: in_words(value, dimension))


def _nothing() -> Any:
    from matplotlib.ticker import NullFormatter

    return NullFormatter()


def in_words(value: float, dimension: str) -> str:
    """A knob's value for people: sizes in binary units, counts with k, M, B, the rest in the axis' unit."""
    if dimension in ("bytes", "count"):
        for step, unit in _SIZES if dimension == "bytes" else _COUNTS:
            if value >= step:
                return f"{value / step:.4g}{' ' if dimension == 'bytes' else ''}{unit}"
        return f"{value:.4g} B" if dimension == "bytes" else f"{value:.4g}"
    if dimension == "number":
        return readable(value)
    factor, unit = SCALES[dimension]
    return f"{readable(factor * value)} {unit}"


def draw_matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], float],
    measured: Mapping[tuple[str, str], float],
    scale: Scale,
    path: Path,
    *,
    axes_names: tuple[str, str],
    finding: str,
    detail: str = "",
) -> Path:
    """A number per cell, the measured one below it in brackets; empty cells have no way. Light is good."""
    import numpy as np
    from matplotlib.colors import LogNorm

    factor = SCALES[scale.dimension][0]
    grid = np.array([[factor * cells.get((row, column), float("nan")) for column in columns] for row in rows])
    width, height = 0.92 if len(columns) <= 10 else 0.72, 0.52
    fig = figure(max(6.5, 2.6 + width * len(columns)), max(3.2, 2.2 + height * len(rows)))
    axes = fig.add_subplot()
    axes.set_facecolor("#F2F2F2")
    known = grid[np.isfinite(grid)]
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 2.0)
    colours = "cividis_r" if scale.dimension == "time" else "cividis"
    mesh = axes.pcolormesh(grid, cmap=colours, norm=LogNorm(vmin=low, vmax=max(high, 1.01 * low)), edgecolors="white")
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            _cell(axes, mesh, grid[i, j], (j, i), measured.get((row, column)), factor)
    axes.set_xticks(
        np.arange(len(columns)) + 0.5,
        columns,
        rotation=30 if len(columns) > 5 else 0,
        ha="right" if len(columns) > 5 else "center",
    )
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.invert_yaxis()
    axes.set_xlabel(axes_names[1], fontsize=9)
    axes.set_ylabel(axes_names[0], fontsize=9)
    bar = fig.colorbar(mesh, ax=axes, pad=0.02)
    bar.set_label(scale.title(), fontsize=9)
    for axis in (bar.ax.yaxis.set_major_formatter, bar.ax.yaxis.set_minor_formatter):
        axis(_formatter("number"))
    bar.ax.tick_params(which="both", labelsize=8)
    plain(axes, grid="")
    titled(fig, finding, detail)
    return save(fig, path)


def _cell(axes: Any, mesh: Any, value: float, at: tuple[int, int], measured: float | None, factor: float) -> None:
    if value != value:  # no way
        axes.text(at[0] + 0.5, at[1] + 0.5, "-", ha="center", va="center", fontsize=9, color="#777777")
        return
    red, green, blue, _alpha = mesh.cmap(mesh.norm(value))
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
    text = readable(value) if measured is None else f"{readable(value)}\n[{readable(factor * measured)}]"
    axes.text(
        at[0] + 0.5, at[1] + 0.5, text, ha="center", va="center", fontsize=8, color=INK if is_light else "white",
        fontweight="normal" if measured is None else "bold",
    )  # fmt: skip
