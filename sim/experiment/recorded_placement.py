"""Placements of a recorded step that change nothing: a replay moves recorded copies, not what stayed where it was."""

from __future__ import annotations

from sim.placement.plan import Placement
from sim.records import Kind, Step
from sim.units import format_bytes


def idle_placements(step: Step, placement: Placement) -> tuple[str, ...]:
    """A sentence for each tensor class that is placed and that no copy of a recorded step carries."""
    if step.origin == "generated":
        return ()
    copies = [op for op in step.operations if op.kind is Kind.TRANSFER]
    carried = {end.removeprefix("home:") for op in copies for end in (op.source, op.target) if end.startswith("home:")}
    idle = dict.fromkeys(entry.tensor_class.value for entry in placement.entries if entry.tensor_class.value not in carried)
    if not idle:
        return ()
    names = ", ".join(idle)
    if not copies:
        return (
            f"placement of {names}: no effect, the recording has no copies between host and GPU; describe the job as "
            "workload.training to see what moving them would cost",
        )
    total = format_bytes(sum(op.size_bytes for op in copies))
    return (
        f"placement of {names}: no effect, no recorded copy is known to carry them; name theirs ({len(copies)} recorded, "
        f"{total}) with rules of the trace, such as 'h2d phase=update min=1MB = {next(iter(idle))}'",
    )
