"""A recording over time, with the prediction drawn over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.report.style import COLOURS, SERIES, figure, legend_below, plain, save, titled

#: (name, unit "share" or "bytes", recorded (s, value), predicted (s within one step, value))
Series = tuple[str, str, Sequence[tuple[float, float]], Sequence[tuple[float, float]]]


def draw_recording(rows: Sequence[Series], path: Path, *, finding: str) -> Path:
    """One panel per quantity: recorded samples, and the predicted step repeated over the recording."""
    fig = figure(10.0, 1.2 + 1.7 * len(rows))
    panels = fig.subplots(len(rows), 1, sharex=True, squeeze=False)
    for axes, (name, unit, recorded, predicted) in zip(panels[:, 0], rows, strict=True):
        factor = 100.0 if unit == "share" else 2.0**-30
        times, values = [time for time, _value in recorded], [factor * value for _time, value in recorded]
        axes.plot(times, values, color=COLOURS["compute"], linewidth=1.4, label="recorded")
        again, level = _repeated(predicted, times[0], times[-1])
        axes.plot(again, [factor * value for value in level], color=SERIES[1], linewidth=1.2, label="predicted")
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{name}\n({'%' if unit == 'share' else 'GiB'})", fontsize=8)
        plain(axes, grid="both")
    panels[-1, 0].set_xlabel("seconds since the command started")
    titled(fig, finding)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend_below(fig, handles, labels)
    return save(fig, path)


def _repeated(step: Sequence[tuple[float, float]], start: float, end: float) -> tuple[list[float], list[float]]:
    """The predicted step over and over from `start` to `end`; one level line when a step is shorter than a pixel."""
    length = step[-1][0]
    if length <= 0 or (end - start) / length > 200:
        mean = sum(value for _time, value in step) / len(step)
        return [start, end], [mean, mean]
    times: list[float] = []
    values: list[float] = []
    offset = start
    while offset < end:
        for time, value in step:
            if offset + time > end:
                break
            times.append(offset + time)
            values.append(value)
        offset += length
    return times or [start], values or [step[0][1]]
