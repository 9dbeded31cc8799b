"""What a run came to: step time, throughput, MFU, breakdown, utilisation, peaks, and what binds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sim.errors import InternalError
from sim.metrics.breakdown import Stretch, breakdown_s
from sim.metrics.critical_path import bound_by, owners_s
from sim.metrics.seen import Seen
from sim.records import Program, Replay, Struct, TierPeak

#: rounding of a replay: a channel or a processor may exceed its limit by this share, no more
_TOLERANCE = 1e-6


class ChannelUse(Struct, frozen=True, kw_only=True):
    """One member of a channel over the step. For cores, "bandwidth" is their number and "bytes" are core-seconds."""

    bandwidth_bytes_per_s: float
    bytes: float
    utilisation: float
    saturated: float  # share of the step
    multiplicity: int = 1


class TierUse(Struct, frozen=True, kw_only=True):
    """The peak of one member of a tier, when and by what."""

    capacity_bytes: float
    peak_bytes: float
    peak_operation: str = ""
    peak_phase: str = ""
    multiplicity: int = 1
    by_class: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def share(self) -> float:
        """Peak as a share of the capacity."""
        return self.peak_bytes / self.capacity_bytes if self.capacity_bytes > 0 else 0.0


class Summary(
    Struct,
    frozen=True,
    kw_only=True,
):
    """Statistics of one replay; SI units, shares 0..1."""

    step_time_s: float
    tokens_per_s: float
    mfu: float
    breakdown_s: dict[str, float]
    bound_by: str
    owners_s: dict[str, float]  # seconds of the critical path by resource
    channels: dict[str, ChannelUse]
    cores: dict[str, ChannelUse]
    tiers: dict[str, TierUse]


def summarise(program: Program, replay: Replay, *, stretch: Stretch | None = None) -> Summary:
    """Statistics of one replay of one step, or with `stretch` of the whole answer that a sampled decode stands for.

    Raises InternalError for an impossible result: MFU or a utilisation above 1, or a time that is not positive.
    """
    step_s = stretch.seconds(0.0, replay.makespan_s) if stretch else replay.makespan_s
    if not 0.0 < step_s < float("inf"):
        raise InternalError(f"the step of {program.name!r} takes {step_s!r} s")
    mfu = program.model_flops / (step_s * program.peak_flops_per_s) if program.peak_flops_per_s > 0 else 0.0
    if mfu > 1.0 + _TOLERANCE:
        raise InternalError(f"MFU of {100 * mfu:.4g} %: the step of {program.name!r} is faster than its arithmetic allows")
    uses = _channel_uses(program, replay, stretch)
    seen = Seen(program, replay)
    owners = owners_s(seen, stretch=stretch)
    units = {channel.name: channel.unit for channel in program.channels}
    return Summary(
        step_time_s=step_s,
        tokens_per_s=program.num_tokens / step_s,
        mfu=mfu,
        breakdown_s=breakdown_s(seen, stretch=stretch),
        bound_by=bound_by(owners, step_s),
        owners_s=owners,
        channels={name: use for name, use in uses.items() if units[name] == "bytes"},
        cores={name: use for name, use in uses.items() if units[name] == "cores"},
        tiers=tier_uses(program, replay.tiers),
    )


def _channel_uses(program: Program, replay: Replay, stretch: Stretch | None) -> dict[str, ChannelUse]:
    totals = {total.name: total for total in replay.channels}
    amounts = _stretched(program, replay, stretch) if stretch else {total.name: total.amount for total in replay.channels}
    step_s = stretch.seconds(0.0, replay.makespan_s) if stretch else replay.makespan_s
    uses: dict[str, ChannelUse] = {}
    for channel in program.channels:
        total, amount = totals.get(channel.name), amounts.get(channel.name, 0.0)
        utilisation = amount / (channel.bandwidth_per_s * step_s)
        if utilisation > 1.0 + _TOLERANCE:
            raise InternalError(f"channel {channel.name!r} carried {100 * utilisation:.6g} % of its bandwidth")
        uses[channel.name] = ChannelUse(
            bandwidth_bytes_per_s=channel.bandwidth_per_s,
            bytes=amount,
            utilisation=min(1.0, utilisation),
            saturated=(total.saturated_s if total else 0.0) / replay.makespan_s,
            multiplicity=channel.multiplicity,
        )
    return uses


def _stretched(program: Program, replay: Replay, stretch: Stretch) -> dict[str, float]:
    """Bytes per member of each channel, with those of stretched operations counted as often as their seconds."""
    multiplicity = {stream.name: stream.multiplicity for stream in program.streams}
    members = {channel.name: channel.multiplicity for channel in program.channels}
    by_id = {operation.id: operation for operation in program.operations}
    amounts: dict[str, float] = {}
    for record in replay.operations:
        operation = by_id[record.id]
        span = record.end_s - record.start_s
        times = stretch.seconds(record.start_s, record.end_s) / span if span > 0 else 1.0
        for name, cost in operation.uses:
            amount = times * operation.work * cost * multiplicity[operation.stream] / members[name]
            amounts[name] = amounts.get(name, 0.0) + amount
    return amounts


def tier_uses(program: Program, seen: Iterable[TierPeak]) -> dict[str, TierUse]:
    """Peak of one member of every tier in the replayed step, from the peaks that were seen."""
    peaks = {peak.name: peak for peak in seen}
    uses: dict[str, TierUse] = {}
    for tier in program.tiers:
        peak = peaks.get(tier.name)
        uses[tier.name] = TierUse(
            capacity_bytes=tier.capacity_bytes,
            peak_bytes=peak.peak_bytes if peak else 0.0,
            peak_operation=peak.operation if peak else "",
            by_class=peak.by_class if peak else {},
            multiplicity=tier.multiplicity,
        )
    return uses
