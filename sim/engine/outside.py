"""What the world does to a running kernel: new operations, other bandwidths and caps, spilled allocations.

A kernel that these are used on must have been built open (`build(program, is_open=True)`): every channel may couple flows.
"""

from __future__ import annotations

from heapq import heappush

from sim.engine.build import append
from sim.engine.flows import CAPPED, IDLE, START
from sim.engine.kernel import Kernel
from sim.engine.ledger import Rows
from sim.records import Operation


def reserve(kernel: Kernel, operation: Operation, now: float) -> int:
    """Add `operation`, ready at `now` or when the last one of its stream has ended; return its number."""
    arrays, fluid = kernel.arrays, kernel.fluid
    if len(arrays.work) == kernel.num_operations:
        kernel.is_holding[:] = [True] * len(kernel.is_holding)  # from now on each end has to be looked at
    flow = append(arrays, operation)
    fluid.couplings.append(arrays.paths[arrays.path[flow]].couplings)
    fluid.limit.append(IDLE)
    fluid.finish.append(0.0)
    if fluid.cap is not fluid.most:
        fluid.cap.append(arrays.cap[flow])
        fluid.own_limit.append(arrays.own_limit[flow])
    for times in (kernel.ready, kernel.start, kernel.end):
        times.append(-1.0)
    kernel.successors.append([])
    kernel.is_holding.append(True)
    kernel.is_gated.append(flow in arrays.allocates or flow in arrays.servers)
    before = max((i for i in range(kernel.num_operations, flow) if arrays.stream[i] == arrays.stream[flow]), default=-1)
    if before >= 0 and kernel.end[before] < 0.0:
        kernel.successors[before].append(flow)
        kernel.waits.append(1)
    else:
        kernel.waits.append(0)
        kernel.ready[flow] = max(now, kernel.now)
        heappush(kernel.heap, (max(now, kernel.now), flow << 2 | START))
    if operation.allocates and operation.frees:
        (target,), (source,) = arrays.allocates[flow], arrays.frees[flow]
        kernel.moves[flow] = (source[0], target[0], target[1], target[2])
    return flow


def set_bandwidth(kernel: Kernel, channel: int, bandwidth_per_s: float, now: float) -> None:
    """Change the bandwidth of one member of `channel` in the batch at `now`; caps that follow from it change too."""

    def apply(time_s: float) -> None:
        arrays, fluid = kernel.arrays, kernel.fluid
        fluid.set_bandwidth(channel, bandwidth_per_s)
        changed = set()
        for i, path in enumerate(arrays.paths):
            if channel in path.channels:
                changed.add(i)
                limits = [(fluid.bandwidth[c] / load, c) for c, load in zip(path.channels, path.loads, strict=True)]
                path.limit, path.tight = min(limits)
        for flow, path_index in enumerate(arrays.path):
            if path_index in changed and kernel.end[flow] < 0.0:
                _recap(kernel, flow, time_s)

    kernel.change(now, apply)


def set_cap(kernel: Kernel, flow: int, rate_cap: float, now: float) -> None:
    """Change the rate cap of `flow`, running or not, in the batch at `now`."""

    def apply(time_s: float) -> None:
        kernel.rate_caps[flow] = rate_cap
        if kernel.end[flow] < 0.0:
            _recap(kernel, flow, time_s)

    kernel.change(now, apply)


def spill(kernel: Kernel, flow: int, rows: Rows, now: float) -> None:
    """Let the blocked `flow` allocate `rows` instead; what is then not where the program believes leaves last."""
    for tier, tensor_class, size in kernel.arrays.allocates[flow]:
        here = sum(row[2] for row in rows if row[:2] == (tier, tensor_class))
        for where, other_class, there in rows:
            if where != tier and other_class == tensor_class and here < size:
                kernel.ledger.note_elsewhere(tier, where, tensor_class, min(there, size - here))
    kernel.arrays.allocates[flow] = rows
    retry(kernel, flow, now)


def retry(kernel: Kernel, flow: int, now: float) -> None:
    """Try the blocked `flow` again in the batch at `now`, and ask the policy again if it still does not fit."""
    kernel.ask_again.add(flow)
    kernel.change(now, lambda _: None)


def cut(kernel: Kernel) -> None:
    """The program has ended: so do the operations of daemons, with the work done so far."""
    arrays, fluid, now = kernel.arrays, kernel.fluid, kernel.now
    for flow in range(kernel.num_operations, len(arrays.work)):
        if kernel.end[flow] >= 0.0:
            continue
        kernel.end[flow] = now
        if fluid.limit[flow] != IDLE:
            arrays.work[flow] -= fluid.remaining(flow, now)
            _take_out(kernel, flow, now)
            continue
        arrays.work[flow] = 0.0
        kernel.start[flow] = now
        if kernel.ready[flow] < 0.0:
            kernel.ready[flow] = now
    fluid.settle(now)


def _take_out(kernel: Kernel, flow: int, now: float) -> None:
    if kernel.fluid.couplings[flow]:
        kernel.fluid.leave(flow, now)
    else:
        kernel.fluid.limit[flow] = IDLE


def _recap(kernel: Kernel, flow: int, now: float) -> None:
    arrays, fluid = kernel.arrays, kernel.fluid
    path = arrays.paths[arrays.path[flow]]
    rate_cap = kernel.rate_caps.get(flow, arrays.operations[flow].rate_cap)
    is_running = fluid.limit[flow] != IDLE
    work = fluid.remaining(flow, now) if is_running else 0.0
    if is_running:
        _take_out(kernel, flow, now)
    cap = min(rate_cap, path.limit)
    own_limit = path.tight if rate_cap >= path.limit else -1
    if flow in arrays.windows:
        idle_cap = arrays.idle_cap(arrays.paths[arrays.path[flow]], arrays.windows[flow][0])
        if idle_cap < cap:
            cap, own_limit = idle_cap, -1
    fluid.most[flow] = fluid.cap[flow] = cap
    fluid.most_limit[flow] = fluid.own_limit[flow] = own_limit
    if not is_running:
        return
    if fluid.couplings[flow]:
        fluid.join(flow, work, now)
        return
    begin = max(now, kernel.start[flow])
    fluid.limit[flow] = CAPPED
    fluid.finish[flow] = finish = begin + min(work, arrays.work[flow]) / cap
    heappush(kernel.heap, (finish, flow << 2))
