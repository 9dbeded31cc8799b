"""Tornado: what each resource is worth, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.report.style import INK, figure, legend_below, patches, plain, save, titled

LESS, MORE = "#D55E00", "#0072B2"
_MAX_BARS = 16


def tornado_figure(bars: Sequence[tuple[str, float, float]], *, step_share: float, finding: str) -> Any:
    """`bars` are (resource, change of the step time with less, with more of it), as fractions of the step time.

    `step_share` is how much less and more (0.1 = 10 %).
    """
    shown = list(bars[:_MAX_BARS])
    fig = figure(10.0, 2.0 + 0.36 * max(2, len(shown)))
    axes = fig.add_subplot()
    widest = max((abs(value) for _name, low, high in shown for value in (low, high)), default=0.0) or 0.01
    for index, (_name, low, high) in enumerate(shown):
        for value, colour in ((low, LESS), (high, MORE)):
            axes.barh(index, 100 * value, color=colour, height=0.62)
        for value in sorted({low, high}):
            if abs(value) < 0.0005:
                continue
            side = "left" if value > 0 else "right"
            axes.text(100 * value, index, f" {100 * value:+.1f} % ", ha=side, va="center", fontsize=8, color=INK)
    axes.axvline(0.0, color="#888888", linewidth=0.9)
    axes.set_yticks(range(len(shown)), [name for name, _low, _high in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(-130 * widest, 130 * widest)
    axes.set_xlabel("change of the step time (%)")
    plain(axes)
    hidden = len(bars) - len(shown)
    titled(fig, finding, f"{hidden} resources with less effect are not drawn" if hidden > 0 else "")
    share = f"{100 * step_share:.0f} %"
    keys = [(LESS, f"{share} less of it"), (MORE, f"{share} more of it")]
    legend_below(fig, patches(keys), [label for _colour, label in keys])
    return fig


def draw_tornado(bars: Sequence[tuple[str, float, float]], path: Path, *, step_share: float, finding: str) -> Path:
    """As :func:`tornado_figure`, into a file."""
    return save(tornado_figure(bars, step_share=step_share, finding=finding), path)
