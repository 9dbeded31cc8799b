"""`lower`: a Step onto a Machine: rank classes become groups, operations become flows on channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.laws.cpu_matrix import socket_rate
from sim.laws.kernels import multiplied_in, peak
from sim.placement.plan import Placement
from sim.program.coherence import Coherence
from sim.program.lower_demands import Demands, home_of
from sim.program.operation_numbers import OperationNumbers
from sim.program.ranks import TIER, Group, arrange
from sim.program.transfers import sm_channel
from sim.program.written import WRITTEN, Numbers, Written
from sim.records import (
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
        self.numbers = OperationNumbers(self.demands, machine)
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
            written.renew(lambda op, group: self.numbers.of(op, groups[group]))
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
                return self.numbers.of(op, group)

            for op in self.outline.by_class[group.rank_class]:
                written.add(op, index, (index, *self.numbers.key(op, group)), ask, self._text(op, group, joins.get(op.id)))
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
                stream = f"{groups[0].own(op.stream)}_join"
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
            "id": group.own(op.id),
            "kind": op.kind,
            "stream": group.own(op.stream),
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

    def _renamed(self, wait: str, group: Group) -> list[str]:
        """The operation that `group` waits for: its own, or every group's of another class."""
        rank_class = wait.split(".", 1)[0]
        if rank_class == group.rank_class:
            return [group.own(wait)]
        return [other.own(wait) for other in self.ranks.of_class[rank_class]]

    def _joined(self, op: StepOperation, twin: Group) -> list[str]:
        """What a collective waits for on behalf of a group of its class: its inputs, and its stream's turn."""
        waits = [twin.own(wait) for wait in op.after if wait.split(".", 1)[0] == twin.rank_class]
        if op.sequence:
            waits.append(twin.own(f"{op.stream}.{op.sequence - 1}"))
        return waits

    def _allocations(self, items: Sequence[Residency], group: Group) -> tuple[Allocation, ...]:
        return tuple(allocation for item in items for allocation in self._allocation(item, group)) if items else ()

    def _allocation(self, item: Residency, group: Group) -> Iterable[Allocation]:
        for tier, share in self.demands.routes.homes(home_of(item), group.device, -1):
            yield Allocation(
                tier=group.channel(TIER + tier).removeprefix(TIER),
                tensor_class=item.tensor_class,
                size_bytes=item.size_bytes * share,
            )

    def _resident(self, group: Group) -> Iterable[tuple[Allocation, int]]:
        return ((allocation, group.count) for item in self.step.resident for allocation in self._allocation(item, group))

    # ------------------------------------------------------------------------------------------------- channels and tiers

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
