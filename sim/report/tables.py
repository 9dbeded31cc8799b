"""Tables and verdicts of points (as `--json` shows them), as blocks of an HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.report.findings import short_path, short_value
from sim.report.html import Block, Facts, Note, Paragraph, Table
from sim.units import format_bandwidth, format_bytes, format_rate, format_seconds

MAX_POINTS = 200
_MAX_CHANNELS = 12


def point_blocks(point: Mapping[str, Any]) -> list[Block]:
    """Verdict, memory and breakdown of one point."""
    breakdown = [breakdown_table(point)] if point.get("breakdown_s") else []
    return [*verdict_blocks(point), tiers_table(point), *breakdown]


def verdict_blocks(point: Mapping[str, Any]) -> list[Any]:
    """Whether the point fits, its figures with their error band, its claim."""
    if not point.get("fits"):
        seconds = point.get("step_time_if_it_fitted_s")
        extra = (
            [Paragraph(f"With more memory, and all else equal, a step would take {format_seconds(seconds)}.")]
            if seconds
            else []
        )
        return [Note(f"Does not fit: {point.get('reason', '')}", "bad"), *extra]
    band = point.get("uncertainty") or {}
    facts = [
        ("step time", _seconds(point.get("step_time_s"))),
        ("time to first token", _seconds(point.get("time_to_first_token_s"))),
        ("time per output token", _seconds(point.get("time_per_output_token_s"))),
        ("tokens/s", format_rate(point["tokens_per_s"]) if point.get("tokens_per_s") else ""),
        ("MFU", f"{100 * point['mfu']:.1f} %" if point.get("mfu") is not None else ""),
        ("offload penalty", f"{point['offload_penalty']:.3g} x" if point.get("offload_penalty") is not None else ""),
        ("binds", str(point.get("bound_by") or "")),
    ]
    blocks: list[Any] = [Note("Fits.", "good"), Facts([(name, value) for name, value in facts if value])]
    if "low_s" in band:
        low, high = format_seconds(band["low_s"]), format_seconds(band["high_s"])
        blocks.append(Paragraph(f"Expected between {low} and {high} ({band['basis']})."))
    claim = point.get("claim")
    if claim:
        blocks.append(Note(f"Claim {claim['id']}: {claim['verdict']}; stated {claim['stated']!r}."))
    return blocks


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def tiers_table(point: Mapping[str, Any]) -> Table:
    """Peak against capacity of every tier that holds something."""
    rows = [
        (
            name,
            format_bytes(tier["peak_bytes"]),
            format_bytes(tier["capacity_bytes"]),
            f"{100 * tier['peak_bytes'] / tier['capacity_bytes']:.1f} %" if tier["capacity_bytes"] else "",
            ", ".join(
                f"{key.replace('_', ' ')} {format_bytes(size)}" for key, size in tier.get("by_class", {}).items() if size
            ),
        )
        for name, tier in point.get("tiers", {}).items()
        if tier["peak_bytes"]
    ]
    return Table(("tier", "peak", "capacity", "used", "what is in it"), rows, "Peak of every memory tier")


def breakdown_table(point: Mapping[str, Any]) -> Table:
    """Seconds of the slowest rank by what they went into."""
    parts = {key: value for key, value in point["breakdown_s"].items() if value > 0}
    total = sum(parts.values())
    rows = [(key.replace("_", " "), format_seconds(value), f"{100 * value / total:.1f} %") for key, value in parts.items()]
    return Table(("part", "time", "share"), rows, "Seconds of the slowest rank; they add up to the step")


def channels_table(point: Mapping[str, Any]) -> Table:
    """The busiest channels: bandwidth, bytes, mean utilisation."""
    uses = sorted(point.get("channels", {}).items(), key=lambda item: -item[1]["utilisation"])
    rows = [
        (name, format_bandwidth(use["bandwidth_bytes_per_s"]), format_bytes(use["bytes"]), f"{100 * use['utilisation']:.1f} %")
        for name, use in uses[:_MAX_CHANNELS]
        if use["bytes"]
    ]
    return Table(("channel", "bandwidth", "carried", "utilisation"), rows, "The busiest channels")


def shortage(point: Mapping[str, Any]) -> str:
    """The tier (or limit) that lacks most, as "gpu0.hbm 51.1 GiB > 32 GiB"; "" for a point that was not planned."""
    tiers = {name: tier for name, tier in (point.get("tiers") or {}).items() if tier["verdict"] == "does_not_fit"}
    if not tiers:  # a limit of the host: "pinned_limit needs 40 GiB of 8 GiB in phase init, ..."
        needs, is_planned, _rest = str(point.get("reason", "")).partition(" in phase")
        return needs if is_planned else ""
    name = max(tiers, key=lambda tier: tiers[tier]["peak_bytes"] / tiers[tier]["capacity_bytes"])
    return f"{name} {format_bytes(tiers[name]['peak_bytes'])} > {format_bytes(tiers[name]['capacity_bytes'])}"


def nearest(points: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of points that do not fit, the one whose fullest tier lacks least; None if no tier of any was planned."""
    planned = (point for point in points if point.get("tiers") and shortage(point))
    return min(
        planned,
        key=lambda one: max(tier["peak_bytes"] / tier["capacity_bytes"] for tier in one["tiers"].values()),
        default=None,
    )


def points_table(points: Sequence[Mapping[str, Any]]) -> Table:
    """The first points of a sweep: parameters, verdict, time, throughput."""
    keys = list(dict.fromkeys(key for point in points for key in point["parameters"]))
    rows = []
    for point in points[:MAX_POINTS]:
        seconds = point.get("step_time_s", point.get("time_per_output_token_s"))
        penalty = point.get("offload_penalty")
        rows.append(
            (
                *(short_value(point["parameters"].get(key, "")) for key in keys),
                "fits" if point.get("fits") else str(point.get("status", "does not fit")).replace("_", " "),
                _seconds(seconds),
                format_rate(point["tokens_per_s"]) if point.get("tokens_per_s") else "",
                f"{penalty:.3g} x" if penalty is not None else "",
                str(point.get("bound_by") or shortage(point)),
            )
        )
    hidden = len(points) - len(rows)
    caption = f"the first {len(rows)} points; {hidden} more are in points.csv" if hidden else "All points"
    return Table((*map(short_path, keys), "verdict", "time", "tokens/s", "penalty", "binds"), rows, caption)
