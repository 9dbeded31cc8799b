"""What a reader should know of a placement on a machine, whether its time is simulated or only its memory planned."""

from __future__ import annotations

from sim.placement.lent import lent_notes
from sim.placement.page_cache import load_notes
from sim.placement.plan import Placement
from sim.placement.roles import role_notes
from sim.placement.zones import zone_notes
from sim.topology.machine import Machine


def placement_notes(workload: object, placement: Placement, machine: Machine) -> tuple[str, ...]:
    """Sentences on roles, zones, memory that a driver lends, and files that are read at load."""
    return (
        *role_notes(placement, machine),
        *zone_notes(workload, machine),
        *lent_notes(workload, placement, machine),
        *load_notes(workload, placement, machine),
    )
