"""`lower`: a Step onto a Machine: rank classes become groups, operations become flows on channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.laws.cpu import fault_time
from sim.laws.cpu_matrix import socket_rate
from sim.laws.kernels import multiplied_in, peak
from sim.laws.paging import gpu_fault_rate
from sim.placement.plan import Placement
from sim.program.coherence import Coherence
from sim.program.kernels import Compute, compute
from sim.program.lower_demands import Demands, home_of
from sim.program.ranks import TIER, Group, arrange
from sim.program.transfers import STORAGE_KINDS, sm_channel
from sim.program.written import WRITTEN, Numbers, Written
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
    Uses,
)
from sim.topology.machine import Machine

#: a kernel gives way to whatever moves data beside it: copy engines and collectives are not throttled by arithmetic
_COMPUTE_WEIGHT = 1e-3
_WITHOUT_WORK = (Kind.MARKER, Kind.ALLOCATE, Kind.FREE)


def lower(
    step: Step, machine: Machine, placement: Placement, *, is_folded: bool = True, coherence: Coherence | None = None
) -> Program:
    """Bind a step to channels, tiers and streams of a machine.

    `coherence` names what other hosts share with this job. Identical ranks become one stream with a multiplicity unless
    `is_folded` is false. Raises InputError when the machine lacks a tier, a network or GPUs that the step needs.
    """
    return _Lowering(step, machine, placement, is_folded=is_folded, coherence=coherence or Coherence()).program()


class _Lowering:
    def __init__(self, step: Step, machine: Machine, placement: Placement, *, is_folded: bool, coherence: Coherence) -> None:
        self.step, self.machine = step, machine
        self.demands = Demands(step, machine, placement, coherence)
        self.outline = self.demands.outline
        self._computes: dict[tuple[str, int, float, bool], Compute] = {}
        self.ranks = arrange(step, machine, self.demands.footways, is_folded=is_folded)

    def program(self) -> Program:
        """All groups' operations, the channels and tiers they use, and the totals."""
        written = self._written()
        return Program(
            name=self.step.name,
            channels=self._channels(written.channels()),
            tiers=self._tiers(),
            streams=self._streams(written.streams()),
            operations=written.ordered(),
            resident=tuple(item for group in self.ranks.groups for item in self._resident(group)),
            model_flops=self.step.model_flops,
            num_tokens=self.step.num_tokens,
            peak_flops_per_s=sum(self._peak(group) * group.count for group in self.ranks.groups),
            notes=self.step.notes,
        )

    # ----------------------------------------------------------------------------------------------------- operations

    def _written(self) -> Written:
        """All operations: as written for another machine with the same arrangement and renewed, or written now."""
        groups, fresh = self.ranks.groups, list[Written]()
        written = WRITTEN.get(self._layout(), lambda: self._write(fresh))
        if not fresh:
            written.renew(lambda op, group: self._numbers(op, groups[group]))
        return written

    def _layout(self) -> tuple[object, ...]:
        """What decides everything about the operations but their numbers."""
        shares, items = self.demands.routes.homes, self.outline.residencies
        return (
            id(self.step),
            self.outline.is_by_layer,
            *(
                (
                    group.name, group.rank_class, group.ranks[0], group.device, tuple(group.folded.items()),
                    tuple(shares(home_of(item), group.device, -1) for item in items),
                )
                for group in self.ranks.groups
            ),
        )  # fmt: skip

    def _write(self, fresh: list[Written]) -> Written:
        written = Written(self.step)
        joins = self._joins()
        for index, group in enumerate(self.ranks.groups):

            def ask(op: StepOperation, group: Group = group) -> Numbers:
                return self._numbers(op, group)

            for op in self.outline.by_class[group.rank_class]:
                written.add(op, index, (index, *self._slot(op, group)), ask, self._text(op, group, joins.get(op.id)))
        written.operations.extend(joins.values())
        fresh.append(written)
        return written

    def _peak(self, group: Group) -> float:
        """FLOP/s of one rank's device in the fastest number format that the step computes in; of a socket, what cores reach."""
        kernels = self.outline.kernels
        formats = {(kernel.dtype, kernel.variant) for item in kernels for kernel in item if kernel.flops} or {("bf16", "")}
        part = self.machine.part(group.device)
        if group.device not in self.machine.gpus():
            return socket_rate(part, (kernel for item in kernels for kernel in item))
        return max(peak(part, multiplied_in(part, *found))[1] for found in formats)

    def _joins(self) -> dict[str, Operation]:
        """For each collective of a class of several groups, the instant at which all of them have come to it.

        One marker waits for every group and every group waits for the marker: the waits grow with the groups, not with
        their square.
        """
        joins: dict[str, Operation] = {}
        for name, groups in self.ranks.of_class.items():
            if len(groups) < 2:
                continue
            counts: dict[str, int] = {}
            for op in self.outline.by_class[name]:
                if op.kind != Kind.COLLECTIVE:
                    continue
                stream = f"{self._id(op.stream, groups[0])}_join"
                sequence = counts[stream] = counts.get(stream, -1) + 1
                waits = tuple(wait for group in groups for wait in self._joined(op, group))
                joins[op.id] = Operation(
                    id=f"{stream}.{sequence}", kind=Kind.MARKER, stream=stream, sequence=sequence, name="join",
                    after=waits, phase=op.phase, category=op.category, layer=op.layer, micro_batch=op.micro_batch,
                )  # fmt: skip
        return joins

    def _text(self, op: StepOperation, group: Group, join: Operation | None) -> dict[str, object]:
        """The fields of an operation that the speed of the machine does not change."""
        after = op.after
        if len(self.ranks.groups) > 1:
            after = tuple(name for wait in op.after for name in self._renamed(wait, group))
        if join is not None:
            after += (join.id,)
        return {
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

    def _slot(self, op: StepOperation, group: Group) -> tuple[object, ...]:
        """What decides the numbers of an operation of a group."""
        if op.kind == Kind.COMPUTE:
            return (id(op.kernels), op.dispatch_s, op.is_host_allocated, op.fixed_s)
        if op.kind in _WITHOUT_WORK:
            return (op.fixed_s,)
        return (
            *self.demands.key(op, group.ranks[0]),
            op.rate_share,
            op.is_faulted,
            op.is_clean,
            op.compute_share,
            op.fixed_s,
            op.mapped_bytes,
        )

    def _numbers(self, op: StepOperation, group: Group) -> Numbers:
        """The fields of an operation that depend on how fast the machine is."""
        if op.kind == Kind.COMPUTE:
            return self._compute(op, group)
        if op.kind in _WITHOUT_WORK:
            return {"latency_s": op.fixed_s}
        work, flow = self.demands.flow(op, group.ranks[0], group.device)
        uses = self._named(flow.uses, group)
        rate = min([flow.rate_cap, *(self.machine.channels[name].bandwidth_per_s / cost for name, cost in flow.uses if cost)])
        if op.compute_share and flow.rate_cap:
            uses = (*uses, (self._name(sm_channel(group.device), group), op.compute_share / rate)) if rate < INFINITY else uses
        return {
            "work": work if uses else 0.0,
            "uses": uses if work else (),
            "rate_cap": self._rate_cap(op, group, flow.rate_cap, rate),
            "latency_s": (flow.latency_s if work else 0.0) + op.fixed_s + self._mapping_s(op, group),
            "window_bytes": flow.window_bytes,
            "write_share": flow.write_share,
            "weight": flow.weight,
        }

    def _mapping_s(self, op: StepOperation, group: Group) -> float:
        """Seconds until the host's kernel has mapped the fresh memory that an operation works on."""
        if not op.mapped_bytes:
            return 0.0
        page = self.machine.part(self.machine.host_of(group.device)).get("page")
        return fault_time(op.mapped_bytes, float(page)) if page else 0.0  # type: ignore[arg-type]

    def _rate_cap(self, op: StepOperation, group: Group, own: float, path: float) -> float:
        """Bytes/s of a transfer alone: what the path does, less what a framework or page faults lose on it."""
        if op.is_faulted and not self.machine.part(group.device).get("c2c"):  # over a coherent link nothing has to move first
            return gpu_fault_rate(path, is_clean=op.is_clean)
        return own if op.rate_share == 1.0 or self._is_storage(op, group) else op.rate_share * path

    def _is_storage(self, op: StepOperation, group: Group) -> bool:
        """Whether a drive is at an end of the copy: its own rate is slower than what a framework loses on the link."""
        ends = (tier for end in (op.source, op.target) for tier, _ in self.demands.routes.shares(end, group.device, op.layer))
        return any(self.machine.tiers[tier].kind in STORAGE_KINDS for tier in ends)

    def _compute(self, op: StepOperation, group: Group) -> Numbers:
        key = (group.device, id(op.kernels), op.dispatch_s, op.is_host_allocated)
        if key not in self._computes:
            self._computes[key] = compute(
                op, self.machine.part(group.device), self.demands.access(group.device), self.demands.lent(group.device)
            )
        done = self._computes[key]
        uses = self._named(done.uses, group)
        if self.outline.has_sm and done.work:
            uses = (*uses, (self._name(sm_channel(group.device), group), done.busy_s / done.work))
        return {
            "work": done.work,
            "uses": uses,
            "rate_cap": done.rate_cap,
            "latency_s": op.fixed_s,
            "weight": _COMPUTE_WEIGHT,
            "flops": done.flops,
            "arithmetic_s": done.arithmetic_s,
            "launch_s": done.launch_s,
        }

    def _renamed(self, wait: str, group: Group) -> list[str]:
        """The operation that `group` waits for: its own, or every group's of another class."""
        rank_class = wait.split(".", 1)[0]
        if rank_class == group.rank_class:
            return [self._id(wait, group)]
        return [self._id(wait, other) for other in self.ranks.of_class[rank_class]]

    def _joined(self, op: StepOperation, twin: Group) -> list[str]:
        """What a collective waits for on behalf of a group of its class: its inputs, and its stream's turn."""
        waits = [self._id(wait, twin) for wait in op.after if wait.split(".", 1)[0] == twin.rank_class]
        if op.sequence:
            waits.append(self._id(f"{op.stream}.{op.sequence - 1}", twin))
        return waits

    @staticmethod
    def _id(name: str, group: Group) -> str:
        return name if group.name == group.rank_class else group.name + name[len(group.rank_class) :]

    def _allocations(self, items: Sequence[Residency], group: Group) -> tuple[Allocation, ...]:
        return tuple(allocation for item in items for allocation in self._allocation(item, group)) if items else ()

    def _allocation(self, item: Residency, group: Group) -> Iterable[Allocation]:
        for tier, share in self.demands.routes.homes(home_of(item), group.device, -1):
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

    def _named(self, uses: Sequence[tuple[str, float]], group: Group) -> Uses:
        total: dict[str, float] = {}
        for channel, cost in uses:
            name = self._name(channel, group)
            total[name] = total.get(name, 0.0) + cost
        return tuple(total.items())

    def _channels(self, used: set[str]) -> tuple[Channel, ...]:
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

    def _streams(self, names: Iterable[str]) -> tuple[Stream, ...]:
        by_name = {group.name: group for group in self.ranks.groups}
        return tuple(
            Stream(
                name=name,
                device=by_name[name.rsplit(".", 1)[0]].device,
                role=name.rsplit(".", 1)[1],
                multiplicity=by_name[name.rsplit(".", 1)[0]].count,
            )
            for name in names
        )
