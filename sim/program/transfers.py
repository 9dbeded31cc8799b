"""Routes of what a rank does: copies between tiers, CPU traffic, file I/O, collectives; per byte, on one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.placement.plan import Placement
from sim.records import INFINITY, StepOperation, TensorClass, Uses
from sim.topology.machine import Machine, Route
from sim.topology.route import merged

Shares = tuple[tuple[str, float], ...]
#: host traffic of AdamW per parameter and class (bytes): moments read and written, fp32 weights likewise, gradient read
_UPDATE_TRAFFIC = {
    TensorClass.OPTIMIZER_STATES: 16.0, TensorClass.MASTER_WEIGHTS: 8.0, TensorClass.GRADIENTS: 4.0,
}  # fmt: skip
#: tiers that a drive or module controller moves blocks of
STORAGE_KINDS = frozenset({"nvme", "pmem"})


@dataclass(frozen=True, slots=True)
class Flow:
    """How one byte of an operation moves: channels it uses, what bounds it, when it starts."""

    uses: Uses = ()
    rate_cap: float = INFINITY
    latency_s: float = 0.0
    window_bytes: float = 0.0
    write_share: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class Routes:
    """Flows between the tiers of one machine under one placement; pure, cached per device."""

    machine: Machine
    placement: Placement
    _shares: dict[tuple[str, str, int, bool], Shares] = field(default_factory=dict, compare=False, repr=False)

    def shares(self, end: str, device: str, layer: int) -> Shares:
        """Tier names and fractions of accesses that "gpu", a role, a tier name or "home:<class>" means for this device."""
        return self._kept(end, device, layer, True)

    def homes(self, end: str, device: str, layer: int) -> Shares:
        """Tier names and fractions of the bytes that lie there."""
        return self._kept(end, device, layer, False)

    def _kept(self, end: str, device: str, layer: int, is_accessed: bool) -> Shares:
        key = (end, device, layer, is_accessed)
        if key not in self._shares:
            self._shares[key] = self._shares_of(*key)
        return self._shares[key]

    def _shares_of(self, end: str, device: str, layer: int, is_accessed: bool) -> Shares:
        if end.startswith("home:"):
            tensor_class = TensorClass(end.removeprefix("home:"))
            of_class = self.placement.accesses if is_accessed else self.placement.shares
            where: Mapping[str, float] = of_class(tensor_class, layer)
        else:
            where = {end: 1.0}
        held = {role: share for role, share in where.items() if share > 0}
        return tuple(self.machine.tier_shares(held, device).items())

    def copy(self, source: Shares, target: Shares, device: str, *, is_pinned: bool, is_direct: bool = False) -> Flow:
        """A copy by the device's engine; interleaved ends move page by page, all tiers at once."""
        parts = [
            (self.machine.route(a, b, initiator=device, is_pinned=is_pinned, is_direct=is_direct), share_a * share_b)
            for a, share_a in source
            for b, share_b in target
            if a != b
        ]
        return _combined(parts)

    def io(self, source: Shares, target: Shares, device: str) -> Flow:
        """Blocks between storage and memory, moved by the drive."""
        parts = []
        for a, share_a in source:
            for b, share_b in target:
                if a == b:
                    continue
                drive = next((tier for tier in (a, b) if self.machine.tiers[tier].kind in STORAGE_KINDS), a)
                initiator = self.machine.tiers[drive].device or device
                parts.append((self.machine.route(a, b, initiator=initiator), share_a * share_b))
        return _combined(parts)

    def host(
        self, traffic: Mapping[str, float], device: str, write_share: float, num_cores: float, *, is_spread: bool = False
    ) -> Flow:
        """Loads and stores of a rank's CPU threads; `traffic` = bytes per byte of work on each tier.

        Spread threads and pages lie evenly on all sockets of the host, `num_cores` threads on each (less than one where
        fewer threads than sockets run). What is bound to other nodes than the rank's own stays there.
        """
        home = self.machine.host_of(device)
        cpus, cores = self._sockets(home) if is_spread else (home,), max(1, round(num_cores))
        is_near = is_spread and self.machine.resolve("dram", home) in traffic
        parts = [
            (
                self.machine.access(
                    cpu, self._seen_from(cpu, tier, home) if is_near else tier, write_share=write_share, num_cores=cores
                ),
                share / len(cpus),
            )
            for cpu in cpus
            for tier, share in traffic.items()
        ]
        flow = _combined(parts, write_share)
        uses, window_bytes = flow.uses, flow.window_bytes
        # the same threads drive all tiers: what they can move and keep in flight is split among the tiers, not theirs for each
        rate_cap = min((route.rate_cap_bytes_per_s for route, _ in parts), default=INFINITY) * len(cpus) * min(1.0, num_cores)
        if len(cpus) == 1 and len(parts) > 1:
            window_bytes = self._window(parts, uses)
        elif len(cpus) > 1:  # each socket's threads on their own memory, taken at its idle latency
            rates = [route.own_window_bytes / route.idle_latency_s for route, _ in parts if route.own_window_bytes]
            rate_cap = min([rate_cap, *(len(cpus) * min(1.0, num_cores) * rate for rate in rates)])
        if rate_cap < INFINITY:
            uses = merged(uses, *(((cores_channel(cpu), num_cores / rate_cap),) for cpu in cpus))
        return Flow(uses, rate_cap, flow.latency_s, window_bytes, write_share, flow.weight)

    def _window(self, parts: Sequence[tuple[Route, float]], uses: Uses) -> float:
        """What threads keep in flight over interleaved tiers, scaled to the latencies that the sharing law adds up.

        A line waits for its own tier: the mean latency is that by share of bytes.
        """
        idle_s = sum(share * route.idle_latency_s for route, share in parts)
        laws = ((self.machine.channels[name].latency, cost) for name, cost in uses)
        added_s = sum(min(cost, 1.0) * law.idle_latency_s for law, cost in laws if law is not None)
        own = max(route.own_window_bytes for route, _ in parts)
        return own * added_s / idle_s if idle_s > 0.0 else 0.0

    def num_sockets(self, device: str) -> int:
        """Sockets of the device's host."""
        return len(self._sockets(self.machine.host_of(device)))

    def _sockets(self, home: str) -> tuple[str, ...]:
        host = self.machine.devices[home].host
        return tuple(name for name, device in self.machine.devices.items() if device.kind == "cpu" and device.host == host)

    def _seen_from(self, cpu: str, tier: str, home: str) -> str:
        """The tier that plays the same part for `cpu` as `tier` for `home`: the DRAM of each, anything else itself.

        Threads on all sockets have their pages there: what lies in any socket's DRAM is near.
        """
        nodes = {self.machine.resolve("dram", name) for name in self._sockets(home)}
        return self.machine.resolve("dram", cpu) if tier in nodes else tier

    def cores(self, device: str, num_cores: float, rank_cores: float, *, is_spread: bool = False) -> Flow:
        """Work of a rank's processes in core-seconds, `num_cores` of them at most at once.

        Processes share the cores with the rank's optimizer threads (`rank_cores`) by their number. That update's rate is
        in bytes, so the weight converts.
        """
        cpu = self.machine.host_of(device)
        tier = self.machine.resolve("dram", device)
        beside = self.machine.access(cpu, tier, num_cores=max(1, round(rank_cores))).rate_cap_bytes_per_s
        weight = num_cores / beside if beside < INFINITY else 1.0
        cpus = self._sockets(cpu) if is_spread else (cpu,)
        return Flow(tuple((cores_channel(name), 1.0 / len(cpus)) for name in cpus), num_cores, weight=weight)

    def update_traffic(self, operation: StepOperation, device: str) -> dict[str, float]:
        """Share of a host update's bytes that goes to each tier; storage-resident classes are staged in DRAM."""
        classes = self.update_shares(operation)
        if not classes:
            return {self.machine.resolve("dram", device): 1.0}
        traffic: dict[str, float] = {}
        for tensor_class, size in classes.items():
            for tier, share in self.shares(f"home:{tensor_class}", device, operation.layer):
                if self.machine.tiers[tier].kind == "nvme" or tier == self.machine.memory_tier(device):
                    tier = self.machine.resolve("dram", device)
                traffic[tier] = traffic.get(tier, 0.0) + share * size
        return traffic

    @staticmethod
    def update_shares(operation: StepOperation) -> dict[TensorClass, float]:
        """Share of a host update's bytes that is of each tensor class; empty if it names none."""
        if operation.tensor_class is None:
            return {}
        if operation.tensor_class != TensorClass.OPTIMIZER_STATES:
            return {operation.tensor_class: 1.0}
        total = sum(_UPDATE_TRAFFIC.values())
        return {tensor_class: size / total for tensor_class, size in _UPDATE_TRAFFIC.items()}


def cores_channel(cpu: str) -> str:
    """Name of the channel that a socket's cores are."""
    return f"{cpu}.cores"


def sm_channel(device: str) -> str:
    """Name of the channel that a GPU's multiprocessors are."""
    return f"{device}.sm"


def _combined(parts: Iterable[tuple[Route, float]], write_share: float = 0.0) -> Flow:
    """One flow whose bytes go over several routes at once, in fixed shares."""
    listed = [(route, share) for route, share in parts if share > 0]
    if not listed:
        return Flow()
    uses = merged(*(tuple((channel, cost * share) for channel, cost in route.uses) for route, share in listed))
    cap = min(route.rate_cap_bytes_per_s / share for route, share in listed)
    if sum(route.second_stage_bytes_per_s < INFINITY for route, _ in listed) > 1:
        # first stages run beside one another, second stages one after the other
        first_s = max(share * (1 / route.rate_cap_bytes_per_s - 1 / route.second_stage_bytes_per_s) for route, share in listed)
        second_s = sum(share / route.second_stage_bytes_per_s for route, share in listed)
        cap = 1 / (first_s + second_s)
    latency = max(route.latency_s for route, _ in listed)
    window = listed[0][0].window_bytes if len(listed) == 1 else 0.0
    return Flow(uses, cap, latency, window, write_share)


@dataclass(frozen=True)
class Membership:
    """Ranks of a step by process group, from the sizes in `Step.group_sizes` and the fixed rank order."""

    sizes: Mapping[str, int]
    num_local: int  # GPUs per node

    def stride(self, group: str) -> int:
        """Distance of neighbours in the group: tensor fastest, then context, data, pipeline slowest."""
        tensor = self.sizes.get("tensor", 1)
        everyone = self.sizes.get("data", 1)
        is_wide = self.sizes.get("expert", 1) > everyone  # experts spread over the tensor ranks too
        if group in ("tensor", "world") or (group == "expert" and is_wide):
            return 1
        if group == "expert_data":
            return self.sizes.get("expert", 1) * (1 if is_wide else tensor)
        if group == "replica":
            return tensor * self.sizes.get("shard", 1)
        if group == "pipeline":
            return max(1, self.sizes.get("world", 1) // self.sizes.get("pipeline", 1))
        return tensor

    def local(self, group: str, rank: int) -> tuple[tuple[int, ...], int]:
        """GPUs of the rank's node that are in its group (positions on the node), and how many nodes the group spans."""
        stride, size, num = self.stride(group), self.sizes.get(group, 1), self.num_local
        first = rank - (rank // stride) % size * stride
        node = rank // num
        low = max(0, -(-(node * num - first) // stride))
        high = min(size - 1, (node * num + num - 1 - first) // stride)
        local = tuple(first + index * stride - node * num for index in range(low, high + 1))
        last = first + (size - 1) * stride
        return local, min(size, last // num - first // num + 1)
