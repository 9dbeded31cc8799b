"""What ranks ask of a machine: the flow of each operation, and every channel that a rank may cross; looked up once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sim.kept import Kept
from sim.laws.cpu import shared_work
from sim.laws.cpu_matrix import barrier_seconds, core_seconds
from sim.laws.storage import FILE_READS
from sim.laws.storage import rate as storage_rate
from sim.placement.plan import Placement
from sim.program.coherence import Coherence
from sim.program.collectives import collective
from sim.program.kernels import Lent
from sim.program.outline import Outline
from sim.program.ranks import TIER, Footways
from sim.program.transfers import Flow, Membership, Routes, sm_channel
from sim.records import Kind, Residency, Step, StepOperation, TensorClass
from sim.topology.machine import Machine
from sim.topology.route import merged

#: outlines of the steps that were lowered last, by the step's identity
_OUTLINES: Kept[Outline] = Kept(200_000, lambda outline: len(outline.step.operations))


@dataclass(slots=True)
class _Asked:
    """What was asked before of one machine under one placement, by steps whose ranks sit alike."""

    machine: Machine
    routes: Routes
    flows: dict[tuple[object, ...], tuple[float, Flow]] = field(default_factory=dict)
    access: dict[str, Flow] = field(default_factory=dict)


#: points of a sweep that share a machine mostly ask for the same flows, whatever their batch size
_ASKED: Kept[_Asked] = Kept(16, lambda _: 1)
_MOST_FLOWS = 4_000


class Demands:
    """Flows of one step's operations on one machine. Pure, but for its memory of what was asked before."""

    def __init__(self, step: Step, machine: Machine, placement: Placement, coherence: Coherence) -> None:
        self.step, self.machine, self.coherence = step, machine, coherence
        is_by_layer = any(entry.layers is not None for entry in placement.entries)
        self.outline = _OUTLINES.get((id(step), is_by_layer), lambda: Outline(step, is_by_layer=is_by_layer))
        self.seats = machine.seats()
        self.membership = Membership(step.group_sizes, len(self.seats))
        self._crowd = self._ranks_per_cpu()
        asked = self._asked(placement)
        self.routes, self._flows, self._access = asked.routes, asked.flows, asked.access
        self._ways: dict[tuple[object, ...], Footways] = {}
        self._places: dict[int, tuple[object, ...]] = {}

    # ------------------------------------------------------------------------------------------------------ once per step

    def _asked(self, placement: Placement) -> _Asked:
        """Memory of what was asked, emptied once it is large; a new one where other hosts share regions with this job."""
        machine = self.machine
        if self.coherence.regions:
            return _Asked(machine, Routes(machine, placement))
        key = (
            id(machine),
            placement.where(),
            tuple(self.step.group_sizes.items()),
            tuple(self.outline.ranges.items()),
            tuple(self._crowd.items()),
        )
        asked = _ASKED.get(key, lambda: _Asked(machine, Routes(machine, placement)))
        if len(asked.flows) > _MOST_FLOWS:
            asked.flows.clear()
        return asked

    def _ranks_per_cpu(self) -> dict[str, int]:
        """Ranks whose host code runs on each socket of a node; of stages, those that have some."""
        crowd: dict[str, int] = {}
        num_ranks = sum(item.num_ranks for item in self.step.rank_classes)
        for rank, gpu in enumerate(self.seats[: min(len(self.seats), num_ranks)]):
            if self.class_of(rank) in self.outline.on_host:
                cpu = self.machine.host_of(gpu)
                crowd[cpu] = crowd.get(cpu, 0) + 1
        return crowd

    # ------------------------------------------------------------------------------------------------------ once per rank

    def class_of(self, rank: int) -> str:
        """The rank class that a rank belongs to."""
        return next(name for name, ranks in self.outline.ranges.items() if rank in ranks)

    def footways(self, rank: int) -> Footways:
        """Every channel and tier that the rank may cross, hop by hop, in the same order for all ranks of its class."""
        key = (*self._place(rank), self.class_of(rank))
        if key not in self._ways:
            self._ways[key] = self._walk(rank, self.seats[rank % len(self.seats)])
        return self._ways[key]

    def _place(self, rank: int) -> tuple[object, ...]:
        """What tells two ranks apart: their GPU, and which GPUs of their node are in their groups."""
        if rank not in self._places:
            groups = self.outline.groups[self.class_of(rank)]
            self._places[rank] = (rank % len(self.seats), *(self._local(group, rank) for group in groups))
        return self._places[rank]

    def _local(self, group: str, rank: int) -> tuple[int, ...]:
        if group == "pipeline":
            stride, world = self.membership.stride("pipeline"), self.step.group_sizes.get("world", 1)
            first = rank // len(self.seats) * len(self.seats)
            partners = {(rank + stride) % world, (rank - stride) % world}
            return tuple(sorted(other - first if 0 <= other - first < len(self.seats) else -1 for other in partners))
        local, num_nodes = self.membership.local(group, rank)
        return (*local, -num_nodes)

    def _walk(self, rank: int, device: str) -> Footways:
        ways: list[tuple[str, ...]] = [
            tuple(name for name, _ in self.access(device).uses),
            lent.channels if (lent := self.lent(device)) else (),
            (sm_channel(device), TIER + self.machine.memory_tier(device)),
        ]
        for op in self.outline.distinct[self.class_of(rank)]:
            ways.append(tuple(name for name, _ in self.flow(op, rank, device)[1].uses))
            ends = [end for end in (op.source, op.target) if end and op.kind != Kind.COLLECTIVE]
            ways.extend(tuple(TIER + tier for tier, _ in self.routes.shares(end, device, op.layer)) for end in ends)
        tiers = {tier: None for item in self.outline.residencies for tier, _ in self.routes.homes(home_of(item), device, -1)}
        ways.append(tuple(TIER + tier for tier in tiers))
        return tuple(ways)

    # -------------------------------------------------------------------------------------------------- once per demand

    def access(self, device: str) -> Flow:
        """A device's kernels on its own memory, per byte."""
        if device not in self._access:
            route = self.machine.access(device, self.machine.memory_tier(device))
            self._access[device] = Flow(route.uses, route.rate_cap_bytes_per_s)
        return self._access[device]

    def lent(self, device: str) -> Lent | None:
        """What a full GPU's kernels find in host memory."""
        share = self.machine.lent_shares.get(device, 0.0)
        if not share:
            return None
        host = self.machine.resolve("dram", device)
        read, write = (self.machine.access(device, host, write_share=part) for part in (0.0, 1.0))
        return Lent(share, Flow(read.uses, read.rate_cap_bytes_per_s), Flow(write.uses, write.rate_cap_bytes_per_s))

    def key(self, op: StepOperation, rank: int) -> tuple[object, ...]:
        """What decides the flow of an operation of a rank: those that have it in common share the answer."""
        amounts = (
            op.size_bytes,
            op.num_calls,
            op.num_elements,
            op.bytes_per_element,
            op.num_cores,
            op.core_s,
            op.num_copies,
            op.node_share,
            op.kernels,
        )
        return (*self.outline.demand(op), *amounts, op.stream.rsplit(".", 1)[0], self._place(rank))

    def flow(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        """Work in bytes and the flow of one operation of one rank."""
        key = self.key(op, rank)
        if key not in self._flows:
            work, flow = self._flow_of(op, rank, device)
            if self.coherence.regions and op.kind in (Kind.TRANSFER, Kind.HOST_UPDATE):
                flow = replace(flow, uses=merged(flow.uses, self.coherence.uses(self._accesses(op, device))))
            self._flows[key] = work, flow
        return self._flows[key]

    def _accesses(self, op: StepOperation, device: str) -> Iterator[tuple[str, TensorClass, float, float]]:
        """(tier, class, bytes per byte of work, write share) of what an operation reads and writes away from the GPU."""
        if op.kind == Kind.HOST_UPDATE:
            for tensor_class, share in self.routes.update_shares(op).items():
                for tier, part in self.routes.shares(f"home:{tensor_class}", device, op.layer):
                    yield tier, tensor_class, share * part, op.write_share
            return
        for end, write_share in ((op.source, 0.0), (op.target, 1.0)):
            moved = TensorClass(end.removeprefix("home:")) if end.startswith("home:") else op.tensor_class
            if end and moved is not None:
                for tier, part in self.routes.shares(end, device, op.layer):
                    yield tier, moved, part, write_share

    def _flow_of(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        if op.kind == Kind.COLLECTIVE:
            return self._collective(op, rank, device)
        if op.kind == Kind.HOST_UPDATE:
            traffic = self.routes.update_traffic(op, device)
            is_spread = op.is_spread or self._is_one_sided(device)
            sockets = self.routes.num_sockets(device) if is_spread else 1
            cores = op.num_cores / sockets or self._cores_share(device)
            return op.num_elements * op.bytes_per_element, self.routes.host(
                traffic, device, op.write_share, cores, is_spread=is_spread
            )
        if op.kind == Kind.HOST_WORK:
            part = self.machine.part(self.machine.host_of(device))
            sockets = self.routes.num_sockets(device) if op.is_spread else 1
            cores = op.num_cores or self._cores_share(device) * sockets
            flow = self.routes.cores(device, cores, self._cores_share(device), is_spread=op.is_spread)
            waits_s = sum(barrier_seconds(kernel, flow.rate_cap) for kernel in op.kernels)
            prepared = shared_work(op.core_s, op.num_cores, self._cores_share(device))
            work = prepared + sum(core_seconds(kernel, part) for kernel in op.kernels)
            return work, replace(flow, latency_s=flow.latency_s + waits_s)
        source = self.routes.shares(op.source, device, op.layer) if op.source else ()
        target = self.routes.shares(op.target, device, op.layer) if op.target else ()
        if op.kind == Kind.IO:
            flow = self.routes.io(source, target, device)
            return op.size_bytes, self._by_files(op, flow, source) if op.file_bytes else flow
        return op.size_bytes, self.routes.copy(source, target, device, is_pinned=op.is_pinned, is_direct=op.is_direct)

    def _by_files(self, op: StepOperation, flow: Flow, source: Iterable[tuple[str, float]]) -> Flow:
        """The flow of reading file by file: a drive spends on each of them what it could stream meanwhile."""
        costs = dict(flow.uses)
        for tier, _ in source:
            drive, channel = self.machine.devices[self.machine.tiers[tier].device], self.machine.media[tier].channel
            if drive.kind != "nvme" or channel not in costs:
                continue
            latency, operations = (float(drive.part[key]) for key in ("read_latency", "read_operations"))  # type: ignore[arg-type]
            streamed = self.machine.channels[channel].bandwidth_per_s
            in_flight = op.num_in_flight * sum(self._crowd.values())
            rate = storage_rate(
                op.file_bytes, in_flight, FILE_READS * latency, streamed / drive.count, operations / FILE_READS, drive.count
            )
            costs[channel] *= streamed / rate
        return replace(flow, uses=tuple(costs.items()))

    def _is_one_sided(self, device: str) -> bool:
        """Whether all ranks have their GPUs on some of the host's sockets though there are ranks for each.

        Launchers deal the cores of the whole host out to the ranks in order (DeepSpeed's --bind_cores_to_rank), so every
        socket's memory works, whichever the GPUs hang on.
        """
        return sum(self._crowd.values()) >= self.routes.num_sockets(device) > len(self._crowd)

    def _cores_share(self, device: str) -> float:
        cpu = self.machine.host_of(device)
        cores = float(self.machine.part(cpu).get("cores", 1) or 1)  # type: ignore[arg-type]
        return max(1.0, cores / self._crowd.get(cpu, 1))

    def _collective(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        if op.collective == "point_to_point":
            return self._point_to_point(op, rank, device)
        local, num_nodes = self.membership.local(op.group or "world", rank)
        own = [(0, self.seats[index]) for index in local]
        members = [*own, *((node, device) for node in range(1, num_nodes))]  # of other nodes, their number is all that counts
        kind, me = op.collective or "all_reduce", own.index((0, device))
        flow = collective(
            self.machine, kind, op.size_bytes, members, me, is_fused=op.is_fused, copies=(op.num_copies, op.node_share)
        )
        return flow.work_bytes * op.num_calls, Flow(flow.uses, flow.rate_cap, flow.latency_s * op.num_calls)

    def _point_to_point(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        target, own = self.outline.ranges[self.outline.known_class(op.target)], self.outline.ranges[self.class_of(rank)]
        partner = target.start + rank - own.start
        if partner // len(self.seats) == rank // len(self.seats):
            other = self.seats[partner % len(self.seats)]
            route = self.machine.peer(device, other) if other != device else None
        else:
            route = self.machine.network(device)
        if route is None:
            return 0.0, Flow()
        return op.size_bytes * op.num_calls, Flow(route.uses, route.rate_cap_bytes_per_s, route.latency_s * op.num_calls)


def home_of(item: Residency) -> str:
    """Where a residency is, as `Routes.shares` understands it."""
    return f"home:{item.tensor_class}" if item.tier == "home" else item.tier
