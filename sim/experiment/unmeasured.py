"""What a step takes at either end of what is assumed of a memory whose bandwidth nobody has measured."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import msgspec

from sim.experiment.solving import step_seconds
from sim.scenario import Scenario
from sim.topology.machine import Machine
from sim.units import format_seconds


class Ends(NamedTuple):
    """Seconds of the step with all unmeasured memories at their fastest and at their slowest, and one sentence on it."""

    fast_s: float
    slow_s: float
    note: str


def ends_of(scenario: Scenario, step_time_s: float) -> Ends | None:
    """The step of a scenario's only job at both ends of the assumed bandwidths; None where all memories were measured.

    Two more replays. The step itself may leave the range only by rounding: bandwidth never slows a step down.
    """
    if not scenario.machine.bandwidth_ranges:
        return None
    slow_s, fast_s = (
        step_seconds(dataclasses.replace(scenario, machine=_at(scenario.machine, end)))[0] for end in (0, 1)
    )  # fmt: skip
    fast_s, slow_s = min(fast_s, step_time_s), max(slow_s, step_time_s)
    tiers = ", ".join(scenario.machine.bandwidth_ranges)
    note = f"{format_seconds(fast_s)} to {format_seconds(slow_s)} over the assumed bandwidths of {tiers}"
    return Ends(fast_s, slow_s, note)


def _at(machine: Machine, end: int) -> Machine:
    changed = {
        machine.media[tier].channel: factors[end]
        for tier, factors in machine.bandwidth_ranges.items()
        if tier in machine.media
    }  # fmt: skip
    channels = {
        name: msgspec.structs.replace(channel, bandwidth_per_s=channel.bandwidth_per_s * changed.get(name, 1.0))
        for name, channel in machine.channels.items()
    }
    return dataclasses.replace(machine, channels=channels)
