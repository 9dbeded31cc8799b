"""One sentence per picture: what it shows, with the number that matters. Titles are made here, never typed in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sim.metrics.inference import num_sampled_tokens
from sim.metrics.summary import ChannelUse, Summary, TierUse
from sim.records import Program
from sim.units import format_seconds


def of_step(name: str, summary: Summary, *, fits: bool, subject: str = "step") -> str:
    """What a step ("answer" of an inference) takes and what binds it."""
    what = "one step" if subject == "step" else f"the whole {subject}"
    takes = f"{name}: {what} takes {format_seconds(summary.step_time_s)}"
    if not fits:
        takes = f"{name} does not fit; with more memory {what} would take {format_seconds(summary.step_time_s)}"
    binds = {"none": "no single resource binds", "overhead": "software overhead binds"}.get(
        summary.bound_by, f"{summary.bound_by} binds"
    )
    return f"{takes}, {binds}"


def of_breakdown(name: str, parts: Mapping[str, float], *, subject: str = "step") -> str:
    """The largest part of the step ("answer" of an inference), and the largest that is not compute."""
    total = sum(parts.values())
    order = sorted(((value, key) for key, value in parts.items() if value > 0), reverse=True)
    largest = order[0]
    text = f"{name}: {100 * largest[0] / total:.3g} % of the {subject} is {_words(largest[1])}"
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


def what_is_shown(program: Program) -> str:
    """What a replay of this program stands for: a step, or the prompt and the sampled tokens of an answer."""
    tokens = num_sampled_tokens(program)
    if tokens is None:
        return "one step"
    return f"the prompt and {tokens} of the answer's other tokens" if tokens else "the prompt"


def time_label(program: Program, unit: str) -> str:
    """Label of the time axis of what is shown."""
    return f"time in the step ({unit})" if num_sampled_tokens(program) is None else f"time since the prompt ({unit})"


_LONG = re.compile(r"([+-]?[0-9]+\.[0-9]+)(.*)")


def short_value(value: object) -> str:
    """A parameter as people read it: drawn numbers with four digits (`30.1208719518%` -> `30.12%`), all else as written."""
    match = _LONG.fullmatch(str(value))
    return str(value) if match is None or len(match[1]) <= 6 else f"{float(match[1]):.4g}{match[2]}"


def short_path(path: str) -> str:
    """A parameter's path without what every path shares: ``gpu1.link.lanes``, ``batch_size``."""
    for prefix in ("workload.training.", "workload.inference.", "topology.", "workload."):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return path


def _words(key: str) -> str:
    return key.replace("_", " ")
