"""What the system of a host limits besides memory itself: all that a job uses, what it page-locks, what it shares.

A container or a batch job gets part of the host's memory (cgroup `memory.max`), WSL 2 half of the RAM unless `.wslconfig` says
otherwise (learn.microsoft.com/windows/wsl/wsl-config). Windows and WSL 2 let processes page-lock half of the system's memory
(CUDA on WSL user guide, "pinned system memory"; DirectX: shared GPU memory is half of the RAM); `ulimit -l` bounds what
mlock locks (DeepSpeed's asynchronous I/O). Docker mounts /dev/shm with 64 MiB. The system's own services are outside.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.placement.capacity import TierNeed, plan_footprint
from sim.placement.plan import Placement
from sim.topology.machine import Machine
from sim.workload.footprint import Footprint, Term, phase_of
from sim.workload.footprint.ledger import is_of_system
from sim.workload.inference import Inference
from sim.workload.training import Training


def limit_needs(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, TierNeed]:
    """What the job needs of each limit of its host, by the limit's key; empty where the machine has none."""
    if not machine.limits:
        return {}
    found = plan_footprint(workload, placement, machine)
    return {name: _need(name, found, machine) for name in machine.limits}


def limit_phases(workload: Training | Inference, placement: Placement, machine: Machine) -> dict[str, dict[str, float]]:
    """The same in each phase: phase -> limit -> bytes."""
    phases: dict[str, dict[str, float]] = {}
    if machine.limits:
        found = plan_footprint(workload, placement, machine)
        for moment in found.moments:
            row = phases.setdefault(phase_of(moment), {})
            for name in machine.limits:
                row[name] = max(row.get(name, 0.0), found.peak_of(_counted(name, machine), (moment,)).size_bytes)
    return phases


def _need(name: str, found: Footprint, machine: Machine) -> TierNeed:
    peak = found.peak_of(_counted(name, machine))
    return TierNeed(
        tier=name,
        capacity_bytes=machine.limits[name],
        peak_bytes=peak.size_bytes,
        phase=peak.phase,
        by_class=peak.by_class,
        largest=peak.largest,
    )


def _counted(name: str, machine: Machine) -> Callable[[Term], bool]:
    """Which terms a limit counts."""
    if name == "pinned_limit":
        return lambda term: term.is_locked
    if name == "shared_limit":
        return lambda term: term.is_shared
    seat = machine.seats()[0]
    own = machine.memory_tier(seat) if seat in machine.gpus() else ""

    def is_host_memory(term: Term) -> bool:
        if term.tier == "gpu" or is_of_system(term):
            return False
        tier = machine.resolve(term.tier, seat)
        return tier != own and machine.tiers[tier].kind != "nvme"

    return is_host_memory
