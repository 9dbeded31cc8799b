"""The machine as the rest of the simulator sees it: what there is in it, which memory a role means, how bytes move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.topology import accesses, copies, messages, tiers
from sim.topology.inventory import Device, Inventory
from sim.topology.route import Route

__all__ = ["Device", "Machine", "Route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Inventory):
    """What there is, and the ways through it. All methods are pure; those that cannot answer raise InputError."""

    # ---- which memory is meant

    def host_of(self, device: str) -> str:
        """The CPU device nearest to `device` (itself for a CPU): where its host code runs and its DRAM hangs."""
        return tiers.host_of(self, self.device(device).name)

    def memory_tier(self, device: str) -> str:
        """Name of the device's own memory tier (a socket with HBM and DDR: the DDR)."""
        return tiers.memory_tier(self, self.device(device).name)

    def resolve(self, tier_role_or_name: str, device: str) -> str:
        """Tier name of a role as seen from `device`: "gpu" own memory, "dram" / "cxl" / "nvme" / "pmem" / "hbm" the nearest.

        A tier name is returned as it is. Raises InputError with suggestions for what the machine lacks.
        """
        return self.kept(
            ("resolve", tier_role_or_name, device), lambda: tiers.resolve(self, tier_role_or_name, self.device(device).name)
        )

    def members(self, tier_role_or_name: str, device: str) -> dict[str, float]:
        """Tiers that a role means and the share of pages on each: "cxl" and "pmem" mean all cards that are equally near.

        Pages alternate over them in proportion to their bandwidth, as Linux's weighted interleave does by default (since
        6.16, from the firmware's HMAT); any other role is one tier.
        """
        names = tiers.members(self, tier_role_or_name, self.device(device).name)
        rates = {name: self.channels[self.media[name].channel].bandwidth_per_s for name in names}
        return {name: rate / sum(rates.values()) for name, rate in rates.items()}

    def tier_shares(self, shares: Mapping[str, float], device: str) -> dict[str, float]:
        """Shares by role or tier name as shares by tier name, as seen from `device`."""
        found: dict[str, float] = {}
        for role, share in shares.items():
            for name, part in self.members(role, device).items():
                found[name] = found.get(name, 0.0) + share * part
        return found

    # ---- how bytes move

    def route(
        self, source_tier: str, target_tier: str, *, initiator: str, is_pinned: bool = True, is_direct: bool = False
    ) -> Route:
        """A bulk copy by the initiator's copy engine (a GPU), its DMA (a drive) or its cores (a CPU).

        Uses the source's media at its read cost, each link direction on the way, the target's media at its write cost.
        `is_pinned=False` stages through a bounce buffer filled by one core. Storage to GPU memory goes through host
        memory unless `is_direct` (GPUDirect Storage).
        """
        return self.kept(
            (source_tier, target_tier, initiator, is_pinned, is_direct),
            lambda: copies.copy(self, source_tier, target_tier, initiator, is_pinned=is_pinned, is_direct=is_direct),
        )

    def access(
        self, initiator: str, tier: str, *, write_share: float = 0.0, num_cores: int | None = None, kernel: str = "triad"
    ) -> Route:
        """Load/store traffic of the initiator's compute to a tier; one unit of work is one byte, read or written.

        A GPU kernel on its own memory, a GPU on host memory over a coherent link, a CPU on DRAM or CXL.
        `window_bytes` is what the initiator keeps in flight; `num_cores` (CPU) defaults to all of the socket; `kernel`
        (GPU on its own memory) is triad, copy, read or init.
        """
        return self.kept(
            ("access", initiator, tier, write_share, num_cores, kernel),
            lambda: accesses.access(self, initiator, tier, write_share=write_share, num_cores=num_cores, kernel=kernel),
        )

    def peer(self, gpu_a: str, gpu_b: str, *, by_collective: bool = False) -> Route:
        """Copy from the memory of `gpu_a` to that of `gpu_b`: GPU links, else PCIe peer-to-peer, else host memory.

        `by_collective`: kernels of a collective library push it over the GPU links, at what its rings reach there.
        """
        return messages.peer(self, self.device(gpu_a).name, self.device(gpu_b).name, by_collective=by_collective)

    def network(self, gpu: str) -> Route:
        """From the memory of `gpu` out to another node through the nearest network adapter; InputError without one."""
        return messages.network(self, self.device(gpu).name)

    def latency(self, initiator: str, tier: str) -> float:
        """Idle latency of a dependent load, seconds."""
        return accesses.idle_latency(self, initiator, tier)
