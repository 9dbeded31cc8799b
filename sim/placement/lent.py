"""Host memory that a driver lends to full GPUs: what spills there, and how much of what kernels touch lies there.

Windows' video memory manager gives a process that overcommits GPU memory system memory instead of an error, up to half of the
RAM ("shared GPU memory" of the task manager; NVIDIA's CUDA sysmem fallback policy, driver 536.40 and later). Kernels reach it
over PCIe where it lies; Linux drivers fail instead. What is spilled is taken to be touched as often as the rest: whole
allocations move, the least recently used first, and a training step touches all of them.
"""

from __future__ import annotations

import dataclasses

from sim.placement.capacity import spilled_by_gpu
from sim.placement.plan import Placement
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.inference import Inference
from sim.workload.training import Training


def with_lent_memory(workload: object, placement: Placement, machine: Machine) -> Machine:
    """The machine whose GPU kernels find part of their operands in host memory; as it is where all of them fits."""
    shares = {gpu: spilled / needed for gpu, (spilled, needed) in _spilled(workload, placement, machine).items()}
    return dataclasses.replace(machine, lent_shares=shares) if shares else machine


def lent_notes(workload: object, placement: Placement, machine: Machine) -> tuple[str, ...]:
    """What lies in lent memory, in words."""
    found = _spilled(workload, placement, machine)
    if not found:
        return ()
    gpu, (spilled, needed) = next(iter(found.items()))
    return (
        f"{format_bytes(spilled)} of the {format_bytes(needed)} that {gpu} needs lie in shared GPU memory: its kernels reach "
        "them over the link to the host (Windows; a Linux driver fails instead)",
    )


def _spilled(workload: object, placement: Placement, machine: Machine) -> dict[str, tuple[float, float]]:
    """As :func:`spilled_by_gpu`; empty where nothing is lent, or the work is of another kind."""
    if not machine.lent_bytes or not isinstance(workload, (Training, Inference)):
        return {}
    return spilled_by_gpu(workload, placement, machine)
