"""Steps that repeat: what two short replays say about one with many micro-batches.

After its start a step with many micro-batches reaches a state that repeats every `period` micro-batches. Then a longer step
is a shorter one with whole periods put in, and everything that adds up over time (seconds by owner, bytes by channel) grows
by the same amount with each. :func:`repeats` is the certificate, checked on every operation of the two replays.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sim.errors import InternalError
from sim.metrics.critical_path import bound_by
from sim.metrics.summary import ChannelUse, Summary
from sim.records import Program, Replay

#: rounding: times of equal operations agree within this share of the makespan
_TOLERANCE = 1e-9


def repeats(short: tuple[Program, Replay], longer: tuple[Program, Replay]) -> bool:
    """Whether the longer replay is the short one with a piece put in between the same beginning and the same end.

    On every stream the short replay's operations must be a prefix with the same times and a suffix with times shifted
    by the difference of the makespans, within 1e-9 of the makespan, and the piece that was put in must lie between them.
    """
    shift = longer[1].makespan_s - short[1].makespan_s
    tolerance = _TOLERANCE * longer[1].makespan_s
    if shift <= tolerance:
        return False
    before, after = _by_stream(*short), _by_stream(*longer)
    return set(before) == set(after) and all(_is_grown(before[name], after[name], shift, tolerance) for name in before)


def _by_stream(program: Program, replay: Replay) -> dict[str, list[tuple[float, float]]]:
    """Per stream, in program order: start and end of every operation."""
    times = {record.id: record for record in replay.operations}
    rows: dict[str, list[tuple[int, float, float]]] = {}
    for operation in program.operations:
        record = times[operation.id]
        rows.setdefault(operation.stream, []).append((operation.sequence, record.start_s, record.end_s))
    return {name: [(start_s, end_s) for _, start_s, end_s in sorted(found)] for name, found in rows.items()}


def _is_grown(short: list[tuple[float, float]], longer: list[tuple[float, float]], shift: float, tolerance: float) -> bool:
    num = len(short)
    if num > len(longer):
        return False
    head = 0
    while head < num and _are_equal(short[head], longer[head], 0.0, tolerance):
        head += 1
    tail = 0
    while tail < num - head and _are_equal(short[num - 1 - tail], longer[len(longer) - 1 - tail], shift, tolerance):
        tail += 1
    return head + tail == num


def _are_equal(one: tuple[float, float], other: tuple[float, float], shift: float, tolerance: float) -> bool:
    return abs(other[0] - one[0] - shift) <= tolerance and abs(other[1] - one[1] - shift) <= tolerance


def extrapolated(short: Summary, longer: Summary, periods: float, program: Program) -> Summary:
    """The summary of the longer step with `periods` more periods; `program` states tokens and FLOPs of that whole step."""
    step_s = _grown(short.step_time_s, longer.step_time_s, periods)
    owners = _grown_all(short.owners_s, longer.owners_s, periods)
    mfu = program.model_flops / (step_s * program.peak_flops_per_s) if program.peak_flops_per_s > 0 else 0.0
    if not longer.step_time_s <= step_s < float("inf") or mfu > 1.0 + 1e-6:
        raise InternalError(f"{program.name!r} repeated to {step_s!r} s and an MFU of {100 * mfu:.4g} %")
    return Summary(
        step_time_s=step_s,
        tokens_per_s=program.num_tokens / step_s,
        mfu=mfu,
        breakdown_s=_grown_all(short.breakdown_s, longer.breakdown_s, periods),
        bound_by=bound_by(owners, step_s),
        owners_s=owners,
        channels=_grown_uses(short, longer, longer.channels, short.channels, periods, step_s),
        cores=_grown_uses(short, longer, longer.cores, short.cores, periods, step_s),
        tiers=longer.tiers,
    )


def per_step(summary: Summary, num_steps: int) -> Summary:
    """The mean step of a summary of `num_steps` steps in a row: what adds up is divided, shares stay."""

    def divided(uses: Mapping[str, ChannelUse]) -> dict[str, ChannelUse]:
        return {name: msgspec.structs.replace(use, bytes=use.bytes / num_steps) for name, use in uses.items()}

    return msgspec.structs.replace(
        summary,
        step_time_s=summary.step_time_s / num_steps,
        breakdown_s={name: seconds / num_steps for name, seconds in summary.breakdown_s.items()},
        owners_s={name: seconds / num_steps for name, seconds in summary.owners_s.items()},
        channels=divided(summary.channels),
        cores=divided(summary.cores),
    )


def _grown(short: float, longer: float, periods: float) -> float:
    return longer + periods * (longer - short)


def _grown_all(short: Mapping[str, float], longer: Mapping[str, float], periods: float) -> dict[str, float]:
    return {key: max(0.0, _grown(short.get(key, 0.0), value, periods)) for key, value in longer.items()}


def _grown_uses(
    short: Summary,
    longer: Summary,
    after: Mapping[str, ChannelUse],
    before: Mapping[str, ChannelUse],
    periods: float,
    step_s: float,
) -> dict[str, ChannelUse]:
    uses = {}
    for name, use in after.items():
        amount = _grown(before[name].bytes, use.bytes, periods)
        full_s = _grown(before[name].saturated * short.step_time_s, use.saturated * longer.step_time_s, periods)
        uses[name] = msgspec.structs.replace(
            use,
            bytes=amount,
            utilisation=min(1.0, amount / (use.bandwidth_bytes_per_s * step_s)),
            saturated=min(1.0, max(0.0, full_s / step_s)),
        )
    return uses
