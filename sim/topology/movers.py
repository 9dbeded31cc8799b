"""Who moves the bytes: what a copy engine, a core that stages pageable memory, or a socket's cores carry at most."""

from __future__ import annotations

from sim.records import INFINITY
from sim.topology.inventory import Device


def number(part: object, key: str, default: float = 0.0) -> float:
    """A figure of a part by name, in SI; `default` where the part does not state one."""
    value = part.get(key, default) if isinstance(part, dict) else default
    return float(value) if isinstance(value, (int, float)) else default


def engine_limits(engine: Device) -> tuple[float, float]:
    """Rate cap in bytes/s and start latency in seconds of who moves the bytes: a copy engine, or a socket's cores."""
    if engine.kind == "cpu":
        cores = int(number(engine.part, "cores", 1))
        return cpu_cap(engine, cores, write_share=0.5) / 2, 0.0  # each byte is read and written
    cap = number(engine.part, "copy_bandwidth") or INFINITY
    return cap, number(engine.part, "copy_latency")


def staging_rate(cpu: Device) -> float:
    """Bytes/s at which one core fills or empties the driver's bounce buffer."""
    stated = number(cpu.part, "staging_bandwidth")
    return stated or cpu_cap(cpu, 1, write_share=0.5) / 2


def cpu_cap(cpu: Device, num_cores: int, *, write_share: float) -> float:
    """Most bytes/s (read + written) that `num_cores` of a socket move, whatever the memory: core, chiplet, socket limits."""
    cap = number(cpu.part, "socket_bandwidth") or INFINITY
    if per_core := number(cpu.part, "core_bandwidth"):
        cap = min(cap, num_cores * per_core)
    chiplet = cpu.part.get("chiplet")
    if isinstance(chiplet, dict):
        num_chiplets = -(-num_cores // int(chiplet["cores"]))
        reads, writes = chiplet["read_bandwidth"], chiplet["write_bandwidth"]
        share = max((1 - write_share) / reads, write_share / writes)
        cap = min(cap, num_chiplets / share)
    return cap
