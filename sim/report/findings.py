"""One sentence per picture: what it shows, with the number that matters. Titles are made here, never typed in."""

from __future__ import annotations

from collections.abc import Mapping

from sim.metrics.summary import ChannelUse, Summary, TierUse
from sim.units import format_seconds


def of_step(name: str, summary: Summary, *, fits: bool) -> str:
    """What a step takes and what binds it."""
    takes = f"{name}: one step takes {format_seconds(summary.step_time_s)}"
    if not fits:
        takes = f"{name} does not fit; with more memory one step would take {format_seconds(summary.step_time_s)}"
    binds = {"none": "no single resource binds", "overhead": "software overhead binds"}.get(
        summary.bound_by, f"{summary.bound_by} binds"
    )
    return f"{takes}, {binds}"


def of_breakdown(name: str, parts: Mapping[str, float]) -> str:
    """The largest part of the step, and the largest that is not compute."""
    total = sum(parts.values())
    order = sorted(((value, key) for key, value in parts.items() if value > 0), reverse=True)
    largest = order[0]
    text = f"{name}: {100 * largest[0] / total:.3g} % of the step is {_words(largest[1])}"
    other = next(((value, key) for value, key in order if key not in ("compute", "idle") and key != largest[1]), None)
    return f"{text}; {_words(other[1])} costs {100 * other[0] / total:.3g} %" if other else text


def of_tiers(name: str, tiers: Mapping[str, TierUse]) -> str:
    """The tier that overflows, or the fullest one."""
    shares = {key: tier.peak_bytes / tier.capacity_bytes for key, tier in tiers.items() if tier.capacity_bytes > 0}
    if not shares:
        return f"{name}: no tier holds anything"
    fullest = max(shares, key=lambda key: (shares[key], key))
    over = [key for key in shares if shares[key] > 1.0]
    if over:
        return f"{name} does not fit: {fullest} would need {100 * shares[fullest]:.4g} % of its capacity"
    return f"{name} fits: the fullest tier is {fullest} at {100 * shares[fullest]:.3g} %"


def of_channels(name: str, channels: Mapping[str, ChannelUse]) -> str:
    """The channel with the highest mean utilisation."""
    if not channels:
        return f"{name}: nothing moves"
    busiest = max(channels, key=lambda key: (channels[key].utilisation, key))
    return f"{name}: the busiest channel is {busiest}, at {100 * channels[busiest].utilisation:.3g} % of its bandwidth"


def short_path(path: str) -> str:
    """A parameter's path without what every path shares: ``gpu1.link.lanes``, ``batch_size``."""
    for prefix in ("workload.training.", "workload.inference.", "topology.", "workload."):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def _words(key: str) -> str:
    return key.replace("_", " ")
