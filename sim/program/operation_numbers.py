"""What of an operation depends on how fast the machine is: its work, rates and latencies, as a group's member meets them."""

from __future__ import annotations

from sim.laws.cpu import fault_time
from sim.laws.paging import gpu_fault_rate
from sim.program.kernels import Compute, compute
from sim.program.lower_demands import Demands
from sim.program.ranks import Group
from sim.program.transfers import STORAGE_KINDS, sm_channel
from sim.program.written import Numbers
from sim.records import INFINITY, Kind, StepOperation
from sim.topology.machine import Machine

#: a kernel gives way to whatever moves data beside it: copy engines and collectives are not throttled by arithmetic
_COMPUTE_WEIGHT = 1e-3
_WITHOUT_WORK = (Kind.MARKER, Kind.ALLOCATE, Kind.FREE)


class OperationNumbers:
    """The numbers of a step's operations on one machine; kernels that several operations have in common are timed once."""

    def __init__(self, demands: Demands, machine: Machine) -> None:
        self.demands, self.machine = demands, machine
        self._computes: dict[tuple[str, int, float, bool], Compute] = {}

    def key(self, op: StepOperation, group: Group) -> tuple[object, ...]:
        """What decides the numbers: operations of a group with the same key have the same."""
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

    def of(self, op: StepOperation, group: Group) -> Numbers:
        """The fields of `Operation` that depend on how fast the machine is, in SI."""
        if op.kind == Kind.COMPUTE:
            return self._compute(op, group)
        if op.kind in _WITHOUT_WORK:
            return {"latency_s": op.fixed_s}
        work, flow = self.demands.flow(op, group.ranks[0], group.device)
        uses = group.uses(flow.uses)
        rate = min([flow.rate_cap, *(self.machine.channels[name].bandwidth_per_s / cost for name, cost in flow.uses if cost)])
        if op.compute_share and flow.rate_cap:
            uses = (*uses, (group.channel(sm_channel(group.device)), op.compute_share / rate)) if rate < INFINITY else uses
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
        uses = group.uses(done.uses)
        if self.demands.outline.has_sm and done.work:
            uses = (*uses, (group.channel(sm_channel(group.device)), done.busy_s / done.work))
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
