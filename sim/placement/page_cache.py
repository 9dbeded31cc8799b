"""Pages of a model's file beside its weights, where CPU and GPU have one memory: what a driver does not take back.

Reading a checkpoint fills the page cache. Linux gives those pages up to any process that asks, but NVIDIA's driver on shared
memory (DGX Spark, Jetson) counts them as taken: its allocations fail although the memory is reclaimable (NVIDIA DGX Spark
playbooks, "flush the buffer cache"; two DGX Spark, pull request 19, is a report).
"""

from __future__ import annotations

from sim.placement.capacity import capacity_plan
from sim.placement.plan import Placement
from sim.topology.machine import Machine
from sim.units import format_bytes
from sim.workload.footprint.inference import weight_bytes
from sim.workload.inference import Inference
from sim.workload.shapes import parameters
from sim.workload.training import Training


def load_notes(workload: object, placement: Placement, machine: Machine) -> tuple[str, ...]:
    """A sentence where a job fits, but not beside the cached pages of its own checkpoint."""
    gpu = next(iter(machine.gpus()), "")
    if not gpu or not isinstance(workload, (Training, Inference)) or machine.part(gpu).get("vendor") != "nvidia":
        return ()
    own = machine.memory_tier(gpu)
    need = capacity_plan(workload, placement, machine).get(own)
    if machine.resolve("dram", gpu) != own or need is None or need.verdict == "does_not_fit":
        return ()
    file = weight_bytes(workload) if isinstance(workload, Inference) else 2.0 * parameters(workload.model).total
    if need.peak_bytes + file <= need.capacity_bytes:
        return ()
    need_size, file_size = format_bytes(need.peak_bytes), format_bytes(file)
    return (
        f"{own} does not hold {need_size} and the {file_size} of the model's file in the page cache: the driver counts cached "
        "pages as taken, so loading may fail until they are dropped (/proc/sys/vm/drop_caches)",
    )
