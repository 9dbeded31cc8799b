"""What happens over the step: bytes in each tier against its capacity, and how busy each channel is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.metrics.summary import ChannelUse, TierUse
from sim.records import ChannelSegment, Program, Replay
from sim.report.findings import time_label
from sim.report.style import INK, figure, legend_below, patches, plain, save, seconds_axis, tensor_colour, titled
from sim.units import GIB, format_bandwidth

#: time bins of the utilisation map
_NUM_BINS = 400
MAX_CHANNELS = 16
MAX_TIERS = 6


def draw_occupancy(program: Program, replay: Replay, planned: Mapping[str, TierUse], path: Path, *, finding: str) -> Path:
    """Bytes in each tier over time, stacked by tensor class; the dashed line is the capacity. Needs level full.

    The replay holds the live tensors of a steady step; `planned` is the peak of the whole life of the job with what the
    allocator and the driver keep beside them, which the verdict is about. Where they differ the panel says both.
    """
    factor, unit = seconds_axis(replay.makespan_s)
    used = {peak.name: peak.peak_bytes for peak in replay.tiers if peak.peak_bytes > 0}
    tiers = [tier for tier in program.tiers if tier.name in used]
    tiers = sorted(tiers, key=lambda tier: -used[tier.name] / tier.capacity_bytes)[:MAX_TIERS]
    classes = sorted({row.tensor_class for row in replay.occupancy})
    colours = {key: tensor_colour(key) for key in classes}
    fig = figure(10.0, 1.4 + 2.0 * max(1, len(tiers)))
    panels = fig.subplots(max(1, len(tiers)), 1, sharex=True, squeeze=False)[:, 0]
    for axes, tier in zip(panels, tiers, strict=False):
        times, stacks = _stacks(replay, tier.name, classes)
        present = [key for key in classes if any(stacks[key])]
        axes.stackplot(
            [time * factor for time in times],
            [[value / GIB for value in stacks[key]] for key in present],
            colors=[colours[key] for key in present],
            step="post",
            linewidth=0,
        )
        top = max(used[tier.name], tier.capacity_bytes if used[tier.name] > 0.3 * tier.capacity_bytes else 0.0)
        if top >= tier.capacity_bytes:
            axes.axhline(tier.capacity_bytes / GIB, color=INK, linestyle="--", linewidth=1.2)
        axes.set_ylim(0, top / GIB * 1.1)
        axes.set_xlim(0, replay.makespan_s * factor)
        axes.set_ylabel("GiB", fontsize=9)
        label = _peak_label(tier.name, used[tier.name], tier.capacity_bytes, planned.get(tier.name))
        axes.set_title(label, loc="left", fontsize=9, color="#555555")
        plain(axes, grid="y")
    panels[-1].set_xlabel(time_label(program, unit), fontsize=9)
    titled(fig, finding)
    keys = [(colours[key], key.replace("_", " ")) for key in classes]
    legend_below(fig, patches(keys), [label for _colour, label in keys], num_columns=5)
    return save(fig, path)


def _peak_label(name: str, live_bytes: float, capacity_bytes: float, planned: TierUse | None) -> str:
    label = f"{name}: live tensors peak at {live_bytes / GIB:.4g} of {capacity_bytes / GIB:.4g} GiB"
    if planned is not None and planned.peak_bytes > 1.01 * live_bytes:
        kept = f"{planned.peak_bytes / GIB:.4g} GiB ({100 * planned.share:.3g} %)"
        label += f"; with the allocator's reserve, the driver and start-up {kept}"
    return label


def _stacks(replay: Replay, tier: str, classes: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
    """Times, and per class the bytes from each time on."""
    times: list[float] = [0.0]
    now = dict.fromkeys(classes, 0.0)
    stacks: dict[str, list[float]] = {key: [0.0] for key in classes}
    for row in replay.occupancy:
        if row.tier != tier:
            continue
        now[row.tensor_class] = row.size_bytes
        if row.time_s > times[-1]:
            times.append(row.time_s)
            for key in classes:
                stacks[key].append(now[key])
        else:
            stacks[row.tensor_class][-1] = row.size_bytes
    times.append(replay.makespan_s)
    for key in classes:
        stacks[key].append(now[key])
    return times, stacks


def draw_channels(program: Program, replay: Replay, uses: Mapping[str, ChannelUse], path: Path, *, finding: str) -> Path:
    """Utilisation of each channel over time as a map, busiest first, with its mean beside it. Needs level full."""
    factor, unit = seconds_axis(replay.makespan_s)
    names = sorted((name for name, use in uses.items() if use.bytes > 0), key=lambda name: (-uses[name].utilisation, name))
    hidden = max(0, len(names) - MAX_CHANNELS)
    names = names[:MAX_CHANNELS]
    bandwidth = {channel.name: channel.bandwidth_per_s for channel in program.channels}
    bins = utilisation_bins(replay.segments, names, bandwidth, replay.makespan_s)
    fig = figure(10.5, 1.9 + 0.36 * max(1, len(names)))
    grid = fig.add_gridspec(1, 2, width_ratios=(5, 1.25), wspace=0.02)
    axes, mean = fig.add_subplot(grid[0]), fig.add_subplot(grid[1])
    extent = (0, replay.makespan_s * factor, len(names) - 0.5, -0.5)
    image = axes.imshow(
        [bins[name] for name in names] or [[0.0]], aspect="auto", extent=extent, cmap="cividis", vmin=0, vmax=1,
        interpolation="nearest",
    )  # fmt: skip
    labels = [f"{name}  ({format_bandwidth(bandwidth[name])})" for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize=9)
    axes.set_xlabel(time_label(program, unit), fontsize=9)
    axes.tick_params(labelsize=9)
    mean.barh(range(len(names)), [100 * uses[name].utilisation for name in names], color="#0072B2", height=0.6)
    for index, name in enumerate(names):
        value = 100 * uses[name].utilisation
        mean.text(value, index, f" {value:.3g} %", va="center", fontsize=8, color=INK)
    mean.set_ylim(len(names) - 0.5, -0.5)
    mean.set_xlim(0, max([100 * uses[name].utilisation for name in names], default=1.0) * 1.6)
    mean.set_yticks([])
    mean.set_xlabel("mean (%)", fontsize=9)
    plain(mean)
    bar = fig.colorbar(image, ax=mean, location="right", fraction=0.18, ticks=(0, 0.5, 1))
    bar.ax.set_yticklabels(["0 %", "50 %", "100 %"], fontsize=8)
    note = f" ({hidden} quieter channels not drawn)" if hidden else ""
    titled(fig, finding, f"share of each channel's bandwidth in use{note}")
    return save(fig, path)


def utilisation_bins(
    segments: Sequence[ChannelSegment],
    names: Sequence[str],
    bandwidth: Mapping[str, float],
    total_s: float,
    num_bins: int = _NUM_BINS,
) -> dict[str, list[float]]:
    """Channel -> mean utilisation in each of `num_bins` equal slices of the step; areas (bytes) are kept."""
    width = total_s / num_bins
    amounts: dict[str, list[float]] = defaultdict(lambda: [0.0] * num_bins)
    wanted = set(names)
    for segment in segments:
        if segment.name not in wanted:
            continue
        first = min(num_bins - 1, int(segment.start_s / width))
        last = min(num_bins - 1, int(segment.end_s / width))
        for index in range(first, last + 1):
            overlap = min(segment.end_s, (index + 1) * width) - max(segment.start_s, index * width)
            amounts[segment.name][index] += max(0.0, overlap) * segment.rate_per_s
    return {name: [min(1.0, amount / (width * bandwidth[name])) for amount in amounts[name]] for name in names}
