"""How long each phase of a step took on the clock: what a framework's own timers print."""

from __future__ import annotations

from collections.abc import Mapping

from sim.records import Program, Replay

#: phases in the order in which a micro-batch meets them
_ORDER = {"load": 0, "forward": 1, "backward": 2, "update": 3}


def phase_seconds(program: Program, replay: Replay) -> Mapping[str, float]:
    """Phase -> seconds of the clock, in the sense of timers that stop when the phase's last operation ends.

    Micro-batches run one after the other: forward 0, backward 0, forward 1, ..., update. A phase's span begins where
    the one before it ended, so the spans of a step without a pipeline add up to it (work that runs beside a later
    phase counts there only if it outlasts it).
    """
    phases = {operation.id: (operation.phase, operation.micro_batch) for operation in program.operations}
    ends: dict[tuple[int, int, str], float] = {}
    for record in replay.operations:
        phase, micro_batch = phases[record.id]
        if phase not in _ORDER:
            continue
        is_last = phase == "update"
        key = (10**9 if is_last else max(micro_batch, 0), _ORDER[phase], phase)
        ends[key] = max(ends.get(key, 0.0), record.end_s)
    seconds: dict[str, float] = {}
    before = 0.0
    for (_, _, phase), end in sorted(ends.items()):
        seconds[phase] = seconds.get(phase, 0.0) + max(0.0, end - before)
        before = max(before, end)
    return seconds
