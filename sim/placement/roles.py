"""What a role such as `cxl` or `nvme` means on a machine with several cards, in words."""

from __future__ import annotations

from sim.placement.plan import Placement
from sim.topology.machine import Machine


def role_notes(placement: Placement, machine: Machine) -> tuple[str, ...]:
    """One sentence for each role of the placement that stands for several cards, or for one of several."""
    if not machine.seats():
        return ()
    gpu, notes = machine.seats()[0], []
    for role in dict.fromkeys(tier for entry in placement.entries for tier in entry.shares if tier not in machine.tiers):
        parts = machine.members(role, gpu)
        kind = machine.tiers[next(iter(parts))].kind
        others = [name for name, tier in machine.tiers.items() if tier.kind == kind and name not in parts]
        if len(parts) > 1:
            shares = " : ".join(f"{100 * share:.3g} %" for share in parts.values())
            notes.append(f"{role} means {', '.join(parts)}, all that are equally near: pages alternate ({shares})")
        elif kind == "nvme" and others:
            used, idle = next(iter(parts)), ", ".join(others)
            verb = "stays" if len(others) == 1 else "stay"
            notes.append(
                f"{role} means {used}, one file system: {idle} {verb} idle unless named (RAID0: one device with count)"
            )
    return tuple(notes)
