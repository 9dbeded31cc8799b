"""`lower`: a Step onto a Machine: rank classes become groups, operations become flows on channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.errors import Fault, InputError
from sim.laws.kernels import peak
from sim.placement.plan import Placement
from sim.program.collectives import collective
from sim.program.kernels import Compute, compute
from sim.program.ranks import TIER, Footways, Group, arrange
from sim.program.transfers import Flow, Membership, Routes, groups_used, sm_channel
from sim.records import (
    INFINITY,
    Allocation,
    Channel,
    Kind,
    Operation,
    Program,
    Residency,
    Step,
    StepOperation,
    Stream,
    Tier,
)
from sim.topology.machine import Machine

#: a kernel gives way to whatever moves data beside it: copy engines and collectives are not throttled by arithmetic
_COMPUTE_WEIGHT = 1e-3


def lower(step: Step, machine: Machine, placement: Placement, *, is_folded: bool = True) -> Program:
    """Bind a step to channels, tiers and streams of a machine.

    Identical ranks become one stream with a multiplicity unless `is_folded` is false. Raises InputError when the
    machine lacks a tier, a network or GPUs that the step needs.
    """
    return _Lowering(step, machine, placement, is_folded=is_folded).program()


class _Lowering:
    def __init__(self, step: Step, machine: Machine, placement: Placement, *, is_folded: bool) -> None:
        self.step, self.machine = step, machine
        self.routes = Routes(machine, placement)
        self.membership = Membership(step.group_sizes, len(machine.gpus()))
        self.gpus = machine.gpus()
        self.groups_used = groups_used(step)
        self._templates = {item.name: self._distinct(step.operations, item.name) for item in step.rank_classes}
        self._ways: dict[tuple[object, ...], Footways] = {}
        self._flows: dict[tuple[object, ...], tuple[float, Flow]] = {}
        self._computes: dict[tuple[str, int, float], Compute] = {}
        self.has_sm = any(op.compute_share > 0 for op in step.operations)
        self.ranks = arrange(step, machine, self._footways, is_folded=is_folded)
        self._crowd = self._ranks_per_cpu()
        self._flows.clear()  # walked before it was known how many ranks share a socket

    # ------------------------------------------------------------------------------------------------- what ranks cross

    @staticmethod
    def _demand(op: StepOperation) -> tuple[object, ...]:
        """What decides an operation's route, apart from who runs it."""
        layer = op.layer if "home:" in op.source + op.target else -1
        return (op.kind, op.source, op.target, layer, op.is_pinned, op.collective, op.group, op.tensor_class, op.write_share)

    def _distinct(self, operations: Sequence[StepOperation], rank_class: str) -> tuple[StepOperation, ...]:
        """One operation of the class for each route that it asks for."""
        prefix, kinds = rank_class + ".", (Kind.COMPUTE, Kind.MARKER)
        own = (op for op in reversed(operations) if op.kind not in kinds and op.stream.startswith(prefix))
        return tuple({self._demand(op): op for op in own}.values())

    def _class_of(self, rank: int) -> str:
        return next(item.name for item in self.step.rank_classes if rank in self.ranks_of(item.name))

    def _footways(self, rank: int) -> Footways:
        local = rank % len(self.gpus)
        neighbours = tuple(self._local(group, rank) for group in self.groups_used)
        key = (local, neighbours, self._class_of(rank))
        if key not in self._ways:
            self._ways[key] = self._walk(rank, self.gpus[local])
        return self._ways[key]

    def _local(self, group: str, rank: int) -> tuple[int, ...]:
        """Offsets of the members of the group that share the rank's node, and a mark when it leaves the node."""
        members = self.membership.members(group, rank) if group != "pipeline" else self._partners(rank)
        node = rank // len(self.gpus)
        local = tuple(member - node * len(self.gpus) for member in members if member // len(self.gpus) == node)
        return (*local, -1) if len(local) < len(members) else local

    def _partners(self, rank: int) -> tuple[int, ...]:
        stride, world = self.membership.stride("pipeline"), self.step.group_sizes.get("world", 1)
        return tuple(sorted({rank, (rank + stride) % world, (rank - stride) % world}))

    def _walk(self, rank: int, device: str) -> Footways:
        ways: list[tuple[str, ...]] = [
            tuple(name for name, _ in self._access(device).uses),
            (sm_channel(device), TIER + self.machine.memory_tier(device)),
        ]
        for op in self._templates[self._class_of(rank)]:
            ways.append(tuple(name for name, _ in self._flow(op, rank, device)[1].uses))
            ends = [end for end in (op.source, op.target) if end and op.kind != Kind.COLLECTIVE]
            ways.extend(tuple(TIER + tier for tier, _ in self.routes.shares(end, device, op.layer)) for end in ends)
        ways.append(tuple(TIER + tier for tier in self._resident_tiers(device)))
        return tuple(ways)

    def _resident_tiers(self, device: str) -> list[str]:
        tiers: dict[str, None] = {}
        for item in self._residencies():
            for tier, _ in self.routes.shares(_end(item), device, -1):
                tiers[tier] = None
        return list(tiers)

    def _residencies(self) -> Iterable[Residency]:
        yield from self.step.resident
        seen = set()
        for op in self.step.operations:
            for item in (*op.allocates, *op.frees):
                key = (item.tier, item.tensor_class)
                if key not in seen:
                    seen.add(key)
                    yield item

    # ---------------------------------------------------------------------------------------------------- flows per byte

    def _access(self, device: str) -> Flow:
        route = self.machine.access(device, self.machine.memory_tier(device))
        return Flow(route.uses, route.rate_cap_bytes_per_s)

    def _flow(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        """Work in bytes and the flow of one operation of one rank; operations that ask for the same share the answer."""
        key = (rank, self._demand(op), op.stream.rsplit(".", 1)[0], op.num_cores, *_amounts(op))
        if key not in self._flows:
            self._flows[key] = self._flow_of(op, rank, device)
        return self._flows[key]

    def _flow_of(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        if op.kind == Kind.COLLECTIVE:
            return self._collective(op, rank, device)
        if op.kind == Kind.HOST_UPDATE:
            traffic = self.routes.update_traffic(op, device)
            cores = op.num_cores or self._cores_share(device)
            return op.num_elements * op.bytes_per_element, self.routes.host(traffic, device, op.write_share, cores)
        source = self.routes.shares(op.source, device, op.layer) if op.source else ()
        target = self.routes.shares(op.target, device, op.layer) if op.target else ()
        if op.kind == Kind.IO:
            return op.size_bytes, self.routes.io(source, target, device)
        return op.size_bytes, self.routes.copy(source, target, device, is_pinned=op.is_pinned)

    def _cores_share(self, device: str) -> float:
        cpu = self.machine.host_of(device)
        cores = float(self.machine.part(cpu).get("cores", 1) or 1)  # type: ignore[arg-type]
        return max(1.0, cores / self._crowd.get(cpu, 1)) if hasattr(self, "_crowd") else cores

    def _ranks_per_cpu(self) -> dict[str, int]:
        """Ranks whose host code runs on each socket of a node."""
        crowd: dict[str, int] = {}
        for gpu in self.gpus[: min(len(self.gpus), sum(item.num_ranks for item in self.step.rank_classes))]:
            cpu = self.machine.host_of(gpu)
            crowd[cpu] = crowd.get(cpu, 0) + 1
        return crowd

    def _collective(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        node = rank // len(self.gpus)
        if op.collective == "point_to_point":
            return self._point_to_point(op, rank, device)
        members = self.membership.members(op.group or "world", rank)
        places = [(member // len(self.gpus), self.gpus[member % len(self.gpus)]) for member in members]
        flow = collective(self.machine, op.collective or "all_reduce", op.size_bytes, places, places.index((node, device)))
        work = flow.work_bytes * op.num_calls
        return work, Flow(flow.uses, flow.rate_cap, flow.latency_s * op.num_calls)

    def _point_to_point(self, op: StepOperation, rank: int, device: str) -> tuple[float, Flow]:
        target = self.ranks_of(op.target)
        own = self.ranks_of(op.stream.rsplit(".", 1)[0])
        partner = target.start + rank - own.start if rank in own else rank
        if partner // len(self.gpus) == rank // len(self.gpus):
            other = self.gpus[partner % len(self.gpus)]
            route = self.machine.peer(device, other) if other != device else None
        else:
            route = self.machine.network(device)
        if route is None:
            return 0.0, Flow()
        return op.size_bytes * op.num_calls, Flow(route.uses, route.rate_cap_bytes_per_s, route.latency_s * op.num_calls)

    def ranks_of(self, rank_class: str) -> range:
        """Ranks of a class of the step."""
        for item in self.step.rank_classes:
            if item.name == rank_class:
                return range(item.first_rank, item.first_rank + item.num_ranks)
        raise InputError(Fault(what=f"unknown rank class {rank_class!r}", remedy="name a class of rank_classes"))

    # -------------------------------------------------------------------------------------------------------- operations

    def program(self) -> Program:
        """All groups' operations, the channels and tiers they use, and the totals."""
        operations: list[Operation] = []
        for group in self.ranks.groups:
            twins = [other for other in self.ranks.of_class[group.rank_class] if other is not group]
            prefix = group.rank_class + "."
            own = (op for op in self.step.operations if op.stream.startswith(prefix))
            operations.extend(self._operation(op, group, twins) for op in own)
        return Program(
            name=self.step.name,
            channels=self._channels(operations),
            tiers=self._tiers(),
            streams=self._streams(operations),
            operations=tuple(operations),
            resident=tuple(item for group in self.ranks.groups for item in self._resident(group)),
            model_flops=self.step.model_flops,
            num_tokens=self.step.num_tokens,
            peak_flops_per_s=sum(peak(self.machine.part(group.device), "bf16")[1] * group.count for group in self.ranks.groups),
            notes=self.step.notes,
        )

    def _operation(self, op: StepOperation, group: Group, twins: Sequence[Group]) -> Operation:
        after = tuple(name for wait in op.after for name in self._renamed(wait, group))
        if op.kind == Kind.COLLECTIVE and twins:
            after += tuple(name for twin in twins for name in self._joined(op, twin))
        common = {
            "id": self._id(op.id, group),
            "kind": op.kind,
            "stream": self._id(op.stream, group),
            "sequence": op.sequence,
            "name": op.name,
            "after": after,
            "phase": op.phase,
            "category": op.category,
            "layer": op.layer,
            "micro_batch": op.micro_batch,
            "allocates": self._allocations(op.allocates, group),
            "frees": self._allocations(op.frees, group),
            "size_bytes": op.size_bytes,
        }
        if op.kind == Kind.COMPUTE:
            return self._compute(op, group, common)
        if op.kind in (Kind.MARKER, Kind.ALLOCATE, Kind.FREE):
            return Operation(**common, latency_s=op.fixed_s)  # type: ignore[arg-type]
        work, flow = self._flow(op, group.ranks[0], group.device)
        uses = self._named(flow.uses, group)
        if op.compute_share and flow.rate_cap:
            rate = min(
                [flow.rate_cap, *(self.machine.channels[name].bandwidth_per_s / cost for name, cost in flow.uses if cost)]
            )
            uses = (*uses, (self._name(sm_channel(group.device), group), op.compute_share / rate)) if rate < INFINITY else uses
        return Operation(
            **common,  # type: ignore[arg-type]
            work=work if uses else 0.0,
            uses=uses if work else (),
            rate_cap=flow.rate_cap,
            latency_s=flow.latency_s + op.fixed_s if work else op.fixed_s,
            window_bytes=flow.window_bytes,
            write_share=flow.write_share,
            weight=flow.weight,
        )

    def _compute(self, op: StepOperation, group: Group, common: dict[str, object]) -> Operation:
        key = (group.device, id(op.kernels), op.dispatch_s)
        if key not in self._computes:
            self._computes[key] = compute(op, self.machine.part(group.device), self._access(group.device))
        done = self._computes[key]
        uses = self._named(done.uses, group)
        if self.has_sm and done.work:
            uses = (*uses, (self._name(sm_channel(group.device), group), done.busy_s / done.work))
        return Operation(
            **common,  # type: ignore[arg-type]
            work=done.work,
            uses=uses,
            rate_cap=done.rate_cap,
            latency_s=op.fixed_s,
            weight=_COMPUTE_WEIGHT,
            flops=done.flops,
            arithmetic_s=done.arithmetic_s,
            launch_s=done.launch_s,
        )

    def _renamed(self, wait: str, group: Group) -> list[str]:
        """The operation that `group` waits for: its own, or every group's of another class."""
        rank_class = wait.split(".", 1)[0]
        if rank_class == group.rank_class:
            return [self._id(wait, group)]
        return [self._id(wait, other) for other in self.ranks.of_class[rank_class]]

    def _joined(self, op: StepOperation, twin: Group) -> list[str]:
        """What a collective waits for on behalf of the other groups of its class: their inputs, and their streams' turn."""
        waits = [self._id(wait, twin) for wait in op.after if wait.split(".", 1)[0] == twin.rank_class]
        if op.sequence:
            waits.append(self._id(f"{op.stream}.{op.sequence - 1}", twin))
        return waits

    @staticmethod
    def _id(name: str, group: Group) -> str:
        return name if group.name == group.rank_class else group.name + name[len(group.rank_class) :]

    def _allocations(self, items: Sequence[Residency], group: Group) -> tuple[Allocation, ...]:
        return tuple(allocation for item in items for allocation in self._allocation(item, group))

    def _allocation(self, item: Residency, group: Group) -> Iterable[Allocation]:
        for tier, share in self.routes.shares(_end(item), group.device, -1):
            yield Allocation(
                tier=self._name(TIER + tier, group).removeprefix(TIER),
                tensor_class=item.tensor_class,
                size_bytes=item.size_bytes * share,
            )

    def _resident(self, group: Group) -> Iterable[tuple[Allocation, int]]:
        return ((allocation, group.count) for item in self.step.resident for allocation in self._allocation(item, group))

    # ------------------------------------------------------------------------------------------------- channels and tiers

    @staticmethod
    def _name(channel: str, group: Group) -> str:
        return group.folded[channel][0] if channel in group.folded else channel

    def _named(self, uses: Sequence[tuple[str, float]], group: Group) -> tuple[tuple[str, float], ...]:
        return tuple((self._name(channel, group), cost) for channel, cost in uses)

    def _channels(self, operations: Sequence[Operation]) -> tuple[Channel, ...]:
        used = {name for op in operations for name, _ in op.uses}
        found: dict[str, Channel] = {}
        for group in self.ranks.groups:
            for channel, (name, count) in group.folded.items():
                if name not in used or name in found:
                    continue
                if channel == sm_channel(group.device):
                    found[name] = Channel(name=name, bandwidth_per_s=1.0, unit="cores", device=group.device, multiplicity=count)
                    continue
                own = self.machine.channels[channel]
                found[name] = Channel(
                    name=name,
                    bandwidth_per_s=own.bandwidth_per_s,
                    latency=own.latency,
                    multiplicity=count * own.multiplicity,
                    is_server=own.is_server,
                    unit=own.unit,
                    device=own.device,
                )
        return tuple(found[name] for name in sorted(found))

    def _tiers(self) -> tuple[Tier, ...]:
        found: dict[str, Tier] = {}
        for group in self.ranks.groups:
            for channel, (name, count) in group.folded.items():
                if channel.startswith(TIER):
                    own = self.machine.tiers[channel.removeprefix(TIER)]
                    name = name.removeprefix(TIER)
                    found[name] = Tier(
                        name=name, capacity_bytes=own.capacity_bytes, multiplicity=count, device=own.device, kind=own.kind
                    )
        return tuple(found[name] for name in sorted(found))

    def _streams(self, operations: Sequence[Operation]) -> tuple[Stream, ...]:
        by_name = {group.name: group for group in self.ranks.groups}
        names = dict.fromkeys(op.stream for op in operations)
        return tuple(
            Stream(
                name=name,
                device=by_name[name.rsplit(".", 1)[0]].device,
                role=name.rsplit(".", 1)[1],
                multiplicity=by_name[name.rsplit(".", 1)[0]].count,
            )
            for name in names
        )


def _amounts(op: StepOperation) -> tuple[float, ...]:
    """What an operation's flow depends on beside its route; a host update's traffic may differ by layer."""
    layer = op.layer if op.kind == Kind.HOST_UPDATE else -1
    return (op.size_bytes, op.num_calls, op.num_elements, op.bytes_per_element, layer)


def _end(item: Residency) -> str:
    return f"home:{item.tensor_class}" if item.tier == "home" else item.tier
