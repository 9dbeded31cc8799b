"""One look for every picture: palette, fonts, saving. Figures are built without pyplot, so nothing global changes.

Colours are Okabe and Ito's set (distinguishable with any colour vision), one per category everywhere.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.metrics.breakdown import KEYS

#: category of an operation -> colour
COLOURS = {
    "compute": "#0072B2",
    "collective": "#E69F00",
    "transfer": "#D55E00",
    "cpu_optimizer": "#009E73",
    "storage": "#CC79A7",
    "paging": "#B8A800",
    "data": "#56B4E9",
    "idle": "#C8C8C8",
}
#: key of a breakdown -> colour and label
BREAKDOWN = {key: (COLOURS[category], key.replace("_", " ")) for category, key in KEYS.items()}
#: lines of a plot with several series; the last one is dark for a baseline
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#B8A800", "#404040")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: tensor class -> colour, the same in every picture
TENSORS = {
    "weights": "#0072B2", "master_weights": "#56B4E9", "gradients": "#E69F00", "optimizer_states": "#009E73",
    "activations": "#D55E00", "kv_cache": "#CC79A7", "logits": "#B8A800", "buffers": "#8C8C8C",
}  # fmt: skip
GRID = "#D9D9D9"
INK = "#222222"


def tensor_colour(tensor_class: str) -> str:
    """Colour of a tensor class; grey for one that a trace brought along."""
    return TENSORS.get(tensor_class, "#404040")


def figure(width: float = 9.0, height: float = 5.0) -> Any:
    """An empty figure of that size in inches, with the fonts of all pictures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "tiersim"  # the same picture gives the same file
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def titled(fig: Any, finding: str, detail: str = "") -> None:
    """A title that states the finding, and one smaller line on what is shown."""
    width = int(fig.get_figwidth() * 9.3)
    fig.suptitle(_filled(finding, width), x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    if detail:
        fig.axes[0].set_title(_filled(detail, int(width * 1.25)), loc="left", fontsize=9, color="#555555")


def _filled(text: str, width: int) -> str:
    """The text in lines; a number stays beside its unit."""
    held = re.sub(r"(?<=\d) (?=(?:[kMGT]i?B|tokens|GB|TB|[num]?s|x|%|W)(?:/s)?(?:\W|$))", "\xa0", text)
    return textwrap.fill(held, width).replace("\xa0", " ")


def plain(axes: Any, *, grid: str = "x") -> None:
    """Light grid behind the data, no box around it."""
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=GRID, linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)


def legend_below(fig: Any, handles: Sequence[Any], labels: Sequence[str], *, num_columns: int = 4) -> None:
    """The legend under the axes, never over data, in as many columns as fit beside each other."""
    if handles:
        column_inch = 0.6 + 0.068 * max(len(label) for label in labels)  # the sample, and letters of 9 points
        num_columns = max(1, min(num_columns, len(labels), int(fig.get_figwidth() / column_inch)))
        fig.legend(handles, labels, loc="outside lower left", ncols=num_columns, frameon=False, fontsize=9)


def patches(keys: Sequence[tuple[str, str]]) -> list[Any]:
    """Legend handles: a filled box per (colour, label)."""
    from matplotlib.patches import Patch

    return [Patch(facecolor=colour, label=label) for colour, label in keys]


def save(fig: Any, path: Path) -> Path:
    """Write the picture as PNG, atomically and without a date, so that equal runs give equal files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    scratch = path.with_name(f".{path.name}")
    FigureCanvasAgg(fig)
    try:
        fig.savefig(scratch, format="png", dpi=150, metadata={"Software": "tiersim"})
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def png_of(fig: Any) -> bytes:
    """The picture as PNG in memory, for an HTML page."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(fig)
    fig.savefig(buffer, format="png", dpi=150, metadata={"Software": "tiersim"})
    return buffer.getvalue()


def readable(value: float) -> str:
    """Three digits, or whole numbers with separators from 1,000 on; never an exponent that a label would not need."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def seconds_axis(total_s: float) -> tuple[float, str]:
    """Factor and unit in which an axis of `total_s` seconds reads well."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if total_s * factor >= 1.0:
            return factor, unit
    return 1e9, "ns"
