"""The replay kernel in plain Python: operations as state, and batches of simultaneous changes.

What happens in one batch, always in this order (docs/model.md, chapter Sharing, latency, replay and folding):
1. every flow that ends now leaves, every start latency that is over starts its flow, outside changes are applied;
2. in waves until nothing moves: frees of the ended, release of their dependents, starts; operations without work end in the
   next wave; when no wave is left, admissions (allocations, then requests of exclusive servers), which may start new waves;
3. the sharing law is restored on the channels that the batch touched.
Inside a wave the order is the canonical number of the operation. A flow ends by its event, never by its remaining work.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from sim.engine.arrays import Arrays
from sim.engine.fluid import CAPPED, FLOW, LEVEL, START, Fluid
from sim.engine.ledger import Ledger
from sim.engine.observe import Observer
from sim.errors import MisfitError
from sim.laws.sharing import TIE
from sim.records import ChannelTotal
from sim.units import format_bytes, format_seconds

CHANGE = 3  # kind of event: something from outside the kernel


class Kernel:
    """State of one replay. `advance` runs batches up to a horizon or to an interrupt.

    Interrupts: a watched operation ended (`ended_watched`), an allocation does not fit (`misfits`).
    """

    def __init__(self, arrays: Arrays, *, is_full: bool = False, is_enforced: bool = True) -> None:
        num, num_channels = len(arrays.work), len(arrays.channels)
        self.arrays = arrays
        self.heap: list[tuple[float, int]] = []  # (time, index << 2 | kind)
        self.fluid = Fluid(arrays, self.heap)
        self.ledger = Ledger(arrays, is_logged=is_full)
        self.observer = Observer(arrays, self.fluid) if is_full else None
        self.is_enforced = is_enforced
        self.now = 0.0
        self.num_batches = self.num_done = 0
        self.waits = list(arrays.waits)
        self.ready, self.start, self.end = [-1.0] * num, [-1.0] * num, [-1.0] * num
        self.shared = [arrays.paths[path].shared for path in arrays.path]
        self.num_users = [0] * num_channels  # of channels that several streams use
        self.busy_s, self.busy_since = [0.0] * num_channels, [0.0] * num_channels
        self.blocked: list[int] = []  # admissions that wait for bytes
        self.queues: dict[int, list[int]] = {}  # exclusive server -> operations in order of arrival, the first is served
        self.granted: set[int] = set()
        self.vacated: set[int] = set()  # servers whose head may have changed
        self.changes: list[Callable[[float], None]] = []
        self.watched: set[int] = set()
        self.ended_watched: list[int] = []
        self.misfits: list[tuple[int, int, float]] = []  # (operation, tier, missing bytes)

    @property
    def is_done(self) -> bool:
        """All operations have ended."""
        return self.num_done == len(self.end)

    @property
    def is_interrupted(self) -> bool:
        """Something outside has to react before the next batch."""
        return bool(self.ended_watched or self.misfits)

    def begin(self) -> None:
        """The batch at time zero: whatever waits for nothing."""
        started: list[int] = []
        queued: list[int] = []
        for flow, waits in enumerate(self.waits):
            if not waits:
                self.ready[flow] = 0.0
                (queued if flow in self.arrays.gated else started).append(flow)
        self._batch(0.0, [], started, queued)

    def change(self, time_s: float, apply: Callable[[float], None]) -> None:
        """Apply an outside change in the batch at `time_s` (not before the last batch)."""
        heappush(self.heap, (max(time_s, self.now), len(self.changes) << 2 | CHANGE))
        self.changes.append(apply)

    def advance(self, horizon_s: float) -> None:
        """Run every batch before `horizon_s` (equal times belong to whoever waits there), or up to an interrupt."""
        heap, fluid = self.heap, self.fluid
        limit, finish, due_s = fluid.limit, fluid.finish, fluid.due_s
        while heap:
            time_s, code = heap[0]
            index, kind = code >> 2, code & 3
            if (kind == FLOW and (finish[index] != time_s or limit[index] != CAPPED)) or (
                kind == LEVEL and due_s[index] != time_s
            ):
                heappop(heap)  # the event of a rate that is no more
                continue
            if time_s >= horizon_s:
                return
            until = time_s + TIE * time_s
            ended: list[int] = []
            started: list[int] = []
            applied: list[int] = []
            while heap and heap[0][0] <= until:
                event_s, code = heappop(heap)
                index, kind = code >> 2, code & 3
                if kind == FLOW:
                    if finish[index] == event_s and limit[index] == CAPPED:
                        finish[index] = -1.0  # a second entry of the same flow is stale from now on
                        ended.append(index)
                elif kind == LEVEL:
                    if due_s[index] == event_s:
                        fluid.collect(index, until, ended)
                elif kind == START:
                    started.append(index)
                else:
                    applied.append(index)
            for index in applied:
                self.changes[index](time_s)
            self._batch(time_s, ended, started, [])
            if self.ended_watched or self.misfits:
                return

    def _batch(self, now: float, ended: list[int], started: list[int], queued: list[int]) -> None:
        self.now = now
        self.num_batches += 1
        fluid, arrays, waits = self.fluid, self.arrays, self.waits
        start, end, work = self.start, self.end, arrays.work
        shared, num_users, observer = self.shared, self.num_users, self.observer
        successors, latency_s, gated, frees = arrays.successors, arrays.latency_s, arrays.gated, arrays.frees
        for flow in ended:
            fluid.leave(flow, now)
            if observer is not None:
                del observer.active[flow]
            for channel in shared[flow]:
                num_users[channel] -= 1
                if not num_users[channel]:
                    self.busy_s[channel] += now - self.busy_since[channel]
        while True:
            if len(ended) > 1:
                ended.sort()
            released: list[int] = []
            for flow in ended:
                end[flow] = now
                for successor in successors[flow]:
                    left = waits[successor] - 1
                    waits[successor] = left
                    if not left:
                        released.append(successor)
                if flow in frees or flow in gated:
                    self._return(flow, now)
                if flow in self.watched:
                    self.ended_watched.append(flow)
            self.num_done += len(ended)
            ended = []
            for flow in released:
                self.ready[flow] = now
                if flow in gated:
                    queued.append(flow)
                else:
                    started.append(flow)
            if not started:
                # every operation without work has ended, so every free of this batch is applied: now admissions
                if not queued and not self.blocked and not self.vacated:
                    break
                started, queued = self._admit(sorted(queued), now), []
                if not started:
                    break
            if len(started) > 1:
                started.sort()
            for flow in started:
                latency = latency_s[flow]
                if latency > 0.0 and start[flow] < 0.0 and now + latency > now:
                    start[flow] = now + latency
                    heappush(self.heap, (now + latency, flow << 2 | START))
                    continue
                start[flow] = now
                if work[flow] > 0.0:
                    fluid.join(flow, work[flow], now)
                    if observer is not None:
                        observer.active[flow] = None
                    for channel in shared[flow]:
                        if not num_users[channel]:
                            self.busy_since[channel] = now
                        num_users[channel] += 1
                else:
                    ended.append(flow)
            started = []
            if not ended and not queued:
                break
        if fluid.dirty or fluid.fresh or fluid.relink:
            fluid.settle(now)
        if observer is not None:
            observer.observe(now)

    # ------------------------------------------------------------------------------------------------ admission

    def _admit(self, queued: list[int], now: float) -> list[int]:
        """Operations that may start: their bytes are allocated, and they head the queue of each of their servers."""
        allocates, servers = self.arrays.allocates, self.arrays.servers
        waiting, self.blocked = self.blocked, []
        started = []
        for flow in (*waiting, *queued):
            rows = allocates.get(flow, ())
            if rows and self.is_enforced:
                tier, missing = self.ledger.shortfall(rows)
                if tier >= 0:
                    self.blocked.append(flow)
                    if flow not in waiting:
                        self.misfits.append((flow, tier, missing))
                    continue
            if rows:
                self.ledger.allocate(rows, flow, now)
            if flow not in servers:
                started.append(flow)
                continue
            for channel in servers[flow]:
                self.queues.setdefault(channel, []).append(flow)
                self.vacated.add(channel)
        for channel in sorted(self.vacated):
            queue = self.queues[channel]
            if queue and queue[0] not in self.granted and all(self.queues[c][0] == queue[0] for c in servers[queue[0]]):
                self.granted.add(queue[0])
                started.append(queue[0])
        self.vacated.clear()
        return started

    def _return(self, flow: int, now: float) -> None:
        """Give back what an ended operation held."""
        if flow in self.arrays.frees:
            self.ledger.free(self.arrays.frees[flow], flow, now)
        for channel in self.arrays.servers.get(flow, ()):
            self.queues[channel].remove(flow)
            self.vacated.add(channel)

    def misfit_error(self, flow: int, tier: int, missing: float) -> MisfitError:
        """The error for an allocation that does not fit: tier, phase, operation, shortfall, what is held."""
        operation, place = self.arrays.operations[flow], self.arrays.tiers[tier]
        largest = sorted(self.ledger.classes[tier].items(), key=lambda item: (-item[1], item[0]))[:4]
        held = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest if size > 0.0) or "nothing"
        return MisfitError(
            f"{place.name} overflows at {format_seconds(self.now)} in phase {operation.phase or '?'}: "
            f"operation {operation.id!r} is short of {format_bytes(missing)} of {format_bytes(place.capacity_bytes)}; "
            f"held: {held}",
            tier=place.name,
            phase=operation.phase,
            shortfall_bytes=missing,
        )

    # ------------------------------------------------------------------------------------------------ what was carried

    def totals(self) -> tuple[ChannelTotal, ...]:
        """What each channel carried: summed over operations, so exact whatever the rates were."""
        arrays = self.arrays
        work_on, time_on = [0.0] * len(arrays.paths), [0.0] * len(arrays.paths)
        for path, work, start, end in zip(arrays.path, arrays.work, self.start, self.end, strict=True):
            work_on[path] += work
            time_on[path] += end - start
        amount, busy_s = [0.0] * len(arrays.channels), list(self.busy_s)
        for path, row in enumerate(arrays.paths):
            for channel, load in zip(row.channels, row.loads, strict=True):
                amount[channel] += work_on[path] * load
                if channel not in row.shared:
                    busy_s[channel] += time_on[path]  # one stream, so one operation at a time
        peak = self.observer.peak_rate if self.observer is not None else [0.0] * len(arrays.channels)
        return tuple(
            ChannelTotal(
                name=channel.name,
                amount=amount[i],
                busy_s=busy_s[i],
                saturated_s=self.fluid.full_s[i],
                peak_rate_per_s=peak[i],
            )
            for i, channel in enumerate(arrays.channels)
        )
