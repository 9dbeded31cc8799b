"""Bars: where the step's seconds went, and how full the memory tiers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.metrics.summary import TierUse
from sim.report.style import (
    BREAKDOWN,
    GRID,
    INK,
    figure,
    legend_below,
    patches,
    plain,
    save,
    seconds_axis,
    tensor_colour,
    titled,
)
from sim.units import format_bytes, format_seconds


def breakdown_figure(rows: Sequence[tuple[str, Mapping[str, float]]], *, finding: str, subject: str = "step") -> Any:
    """One stacked bar per (label, breakdown_s); the parts of a bar sum to the time of its step (or "answer")."""
    total_s = max(sum(parts.values()) for _label, parts in rows)
    factor, unit = seconds_axis(total_s)
    fig = figure(10.0, 2.0 + 0.62 * len(rows))
    axes = fig.add_subplot()
    used: list[str] = [key for key in BREAKDOWN if any(parts.get(key, 0.0) > 0.0 for _label, parts in rows)]
    for index, (_label, parts) in enumerate(rows):
        left = 0.0
        for key in used:
            width = parts.get(key, 0.0)
            colour = BREAKDOWN[key][0]
            axes.barh(index, width * factor, left=left * factor, height=0.62, color=colour, edgecolor="white", linewidth=0.6)
            if width > 0.055 * total_s:
                ink = INK if key in ("idle", "exposed_collective", "data", "paging") else "white"
                text = f"{width * factor:.3g}"
                axes.text((left + width / 2) * factor, index, text, ha="center", va="center", color=ink, fontsize=9)
            left += width
        axes.text(left * factor, index, f"  {format_seconds(left)}", ha="left", va="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(rows)), [label for label, _parts in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, total_s * factor * 1.12)
    axes.set_xlabel(f"time of the slowest rank's {subject} ({unit})")
    plain(axes)
    titled(fig, finding)
    keys = [BREAKDOWN[key] for key in used]
    legend_below(fig, patches(keys), [label for _colour, label in keys], num_columns=5)
    return fig


def draw_breakdown(rows: Sequence[tuple[str, Mapping[str, float]]], path: Path, *, finding: str, subject: str = "step") -> Path:
    """As :func:`breakdown_figure`, into a file."""
    return save(breakdown_figure(rows, finding=finding, subject=subject), path)


def tiers_figure(tiers: Mapping[str, TierUse], *, finding: str) -> Any:
    """One bar per tier: peak bytes by tensor class, as a share of its capacity; a line marks 100 %."""
    shown = {name: tier for name, tier in tiers.items() if tier.peak_bytes > 0 and 0 < tier.capacity_bytes < float("inf")}
    classes = sorted({key for tier in shown.values() for key in tier.by_class})
    colours = {key: tensor_colour(key) for key in classes}
    fig = figure(10.0, 2.0 + 0.55 * max(1, len(shown)))
    axes = fig.add_subplot()
    widest = 100.0
    for index, tier in enumerate(shown.values()):
        left = 0.0
        for key in classes:
            width = 100.0 * tier.by_class.get(key, 0.0) / tier.capacity_bytes
            if width > 0:
                axes.barh(index, width, left=left, height=0.62, color=colours[key], edgecolor="white", linewidth=0.6)
            left += width
        total = 100.0 * tier.peak_bytes / tier.capacity_bytes
        if left < total:
            axes.barh(index, total - left, left=left, height=0.62, color=GRID)
        text = f"  {format_bytes(tier.peak_bytes)} of {format_bytes(tier.capacity_bytes)}"
        axes.text(max(total, left), index, text, ha="left", va="center", fontsize=9, color=INK)
        widest = max(widest, total)
    axes.axvline(100, color=INK, linewidth=1.2, linestyle="--")
    axes.set_yticks(range(len(shown)), list(shown))
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
    axes.set_xlim(0, widest * 1.3)
    axes.set_xlabel("peak bytes as a share of the tier's capacity (%), dashed = full", fontsize=9)
    plain(axes)
    titled(fig, finding)
    keys = [(colours[key], key.replace("_", " ")) for key in classes]
    legend_below(fig, patches(keys), [label for _colour, label in keys], num_columns=5)
    return fig


def draw_tiers(tiers: Mapping[str, TierUse], path: Path, *, finding: str) -> Path:
    """As :func:`tiers_figure`, into a file."""
    return save(tiers_figure(tiers, finding=finding), path)
