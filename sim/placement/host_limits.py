"""What the system of a host limits besides memory itself: all that a job uses, what it page-locks, what it shares.

A container or a batch job gets part of the host's memory (cgroup `memory.max`), WSL 2 half of the RAM unless `.wslconfig` says
otherwise (learn.microsoft.com/windows/wsl/wsl-config). Windows and WSL 2 let processes page-lock half of the system's memory
(CUDA on WSL user guide, "pinned system memory"; DirectX: shared GPU memory is half of the RAM); `ulimit -l` bounds what
mlock locks (DeepSpeed's asynchronous I/O). Docker mounts /dev/shm with 64 MiB, in which loader workers hand over their batches
and NCCL joins GPUs that do not reach each other. The system's own services are outside.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.placement.capacity import TierNeed, plan_footprint, used_gpus
from sim.placement.plan import Placement
from sim.records import TensorClass
from sim.topology.machine import Machine
from sim.workload.footprint import Footprint, Term, phase_of
from sim.workload.footprint.ledger import is_of_system
from sim.workload.inference import Inference
from sim.workload.training import Training

#: shared memory of one NCCL connection between GPUs without peer access, and channels with one to the next GPU each, as its
#: log prints them (nccl issues 342 and 1518: two GPUs start in Docker's 64 MiB, four do not)
NCCL_SEGMENT_BYTES, NCCL_CHANNELS = 9_637_888.0, 2


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
                size = found.peak_of(_counted(name, machine), (moment,)).size_bytes + _joined_bytes(name, found, machine)
                row[name] = max(row.get(name, 0.0), size)
    return phases


def _need(name: str, found: Footprint, machine: Machine) -> TierNeed:
    peak, joined = found.peak_of(_counted(name, machine)), _joined_bytes(name, found, machine)
    return TierNeed(
        tier=name,
        capacity_bytes=machine.limits[name],
        peak_bytes=peak.size_bytes + joined,
        phase=peak.phase or "init",
        by_class={**peak.by_class, "nccl_connections": joined} if joined else peak.by_class,
        largest=(*((_joined_term(joined, found.moments),) if joined else ()), *peak.largest),
    )


def _joined_term(size_bytes: float, moments: tuple[str, ...]) -> Term:
    """The same as a term of the plan, which the footprint of a workload without a machine cannot know."""
    count = round(size_bytes / NCCL_SEGMENT_BYTES)
    return Term(
        name="connections of GPUs without peer access (NCCL)", tensor_class=TensorClass.BUFFERS, tier="dram",
        size_bytes=size_bytes, moments=moments, formula=f"{count} segments x {NCCL_SEGMENT_BYTES:.0f} B", per="host",
        is_shared=True,
    )  # fmt: skip


def _joined_bytes(name: str, found: Footprint, machine: Machine) -> float:
    """Shared memory through which NCCL joins the GPUs of one host that have neither GPU links nor peer access."""
    gpus = used_gpus(machine, found.ranks_per_host)
    if name != "shared_limit" or len(gpus) < 2 or not machine.gpus():
        return 0.0
    staged = sum(machine.peer(gpu, after).is_staged for gpu, after in zip(gpus, (*gpus[1:], gpus[0]), strict=True))
    return staged * NCCL_CHANNELS * NCCL_SEGMENT_BYTES


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
