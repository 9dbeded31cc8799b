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
from sim.engine.bound import BoundFluid
from sim.engine.flows import CAPPED, FLOW, IDLE, LEVEL, START
from sim.engine.fluid import Fluid
from sim.engine.ledger import Ledger
from sim.engine.observe import Observer
from sim.laws.sharing import TIE

CHANGE = 3  # kind of event: something from outside the kernel


class Kernel:
    """State of one replay. `advance` runs batches up to a horizon or to an interrupt.

    Interrupts: a watched operation ended (`ended_watched`), an allocation does not fit (`misfits`).
    """

    def __init__(self, arrays: Arrays, *, is_full: bool = False, is_enforced: bool = True, is_observed: bool = False) -> None:
        num = len(arrays.work)
        self.arrays = arrays
        self.heap: list[tuple[float, int]] = []  # (time, index << 2 | kind)
        self.fluid = BoundFluid(arrays, self.heap) if arrays.windows else Fluid(arrays, self.heap)
        self.ledger = Ledger(arrays, is_logged=is_full)
        self.observer = Observer(arrays, self.fluid, is_logged=is_full) if is_full or is_observed else None
        self.is_enforced = is_enforced
        self.now = 0.0
        self.num_batches = 0
        self.num_operations = self.num_left = num  # of the program; daemons may add others
        self.is_paused = False  # leave `advance`: somebody outside has to react
        self.successors, self.waits = arrays.dependents()
        self.ready, self.start, self.end = [-1.0] * num, [-1.0] * num, [-1.0] * num
        self.blocked: list[int] = []  # admissions that wait for bytes
        self.queues: dict[int, list[int]] = {}  # exclusive server -> operations in order of arrival, the first is served
        self.granted: set[int] = set()
        self.vacated: set[int] = set()  # servers whose head may have changed
        #: has something to do at its end besides releasing its successors
        self.is_holding = [False] * num
        for flow in (*arrays.frees, *arrays.servers):
            self.is_holding[flow] = True
        self.is_gated = [False] * num  # has to be admitted before it starts
        for flow in (*arrays.allocates, *arrays.servers):
            self.is_gated[flow] = True
        self.changes: list[Callable[[float], None]] = []
        self.watched: set[int] = set()
        self.ended_watched: list[int] = []
        self.misfits: list[tuple[int, int, float]] = []  # (operation, tier, missing bytes)
        self.rate_caps: dict[int, float] = {}  # set from outside
        self.moves: dict[int, tuple[int, int, str, float]] = {}  # of a daemon: (from tier, to tier, class, bytes)
        self.ask_again: set[int] = set()  # blocked, and the policy wants to be asked anew

    @property
    def is_done(self) -> bool:
        """All operations of the program have ended."""
        return not self.num_left

    @property
    def is_interrupted(self) -> bool:
        """Something outside has to react before the next batch."""
        return bool(self.ended_watched or self.misfits)

    def begin(self) -> None:
        """Make ready, at time zero, whatever waits for nothing."""
        for flow in range(self.num_operations):
            if not self.waits[flow]:
                self.ready[flow] = 0.0
                heappush(self.heap, (0.0, flow << 2 | START))

    def change(self, time_s: float, apply: Callable[[float], None]) -> None:
        """Apply an outside change in the batch at `time_s` (not before the last batch)."""
        heappush(self.heap, (max(time_s, self.now), len(self.changes) << 2 | CHANGE))
        self.changes.append(apply)

    def advance(self, horizon_s: float) -> None:
        """Run every batch before `horizon_s` (equal times belong to whoever waits there), or up to an interrupt.

        One long function on purpose: most batches hold one event, and a call and its look-ups cost as much as the batch.
        """
        arrays, fluid, heap, waits, observer = self.arrays, self.fluid, self.heap, self.waits, self.observer
        ready, start, end, work, latency_s = self.ready, self.start, self.end, arrays.work, arrays.latency_s
        successors, is_gated, is_holding = self.successors, self.is_gated, self.is_holding
        limit, finish, due_s, cap, couplings = fluid.limit, fluid.finish, fluid.due_s, fluid.cap, fluid.couplings
        ended: list[int] = []
        started: list[int] = []
        queued: list[int] = []
        while heap:
            now, code = heappop(heap)
            if now >= horizon_s:
                heappush(heap, (now, code))
                return
            index, kind = code >> 2, code & 3
            until = now + TIE * now
            if kind == FLOW:
                if finish[index] != now or limit[index] != CAPPED:
                    continue  # the event of a rate that is no more
                finish[index] = -1.0  # a second entry of the same flow is stale from now on
                ended.append(index)
            elif kind == START:
                started.append(index)
            elif kind == LEVEL:
                if due_s[index] != now:
                    continue
                fluid.collect(index, until, ended)
            else:
                self.changes[index](now)
            if heap and heap[0][0] <= until:
                self._collect(now, until, ended, started)
            self.now = now
            self.num_batches += 1
            if len(ended) > 1:
                ended.sort()
            for flow in ended:
                if couplings[flow]:
                    fluid.leave(flow, now)
                else:
                    limit[flow] = IDLE
                if observer is not None:
                    del observer.active[flow]
            while True:
                if ended:
                    if len(ended) > 1:
                        ended.sort()
                    self.num_left -= len(ended)
                    for flow in ended:
                        end[flow] = now
                        if is_holding[flow]:
                            self._return(flow, now)
                        for successor in successors[flow]:
                            left = waits[successor] - 1
                            waits[successor] = left
                            if not left:
                                ready[successor] = now
                                started.append(successor)
                    ended = []
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
                    if start[flow] < 0.0:
                        if is_gated[flow]:
                            is_gated[flow] = False
                            queued.append(flow)
                            continue
                        begin = now + latency_s[flow]
                        if begin > now:
                            start[flow] = begin
                            if couplings[flow] or observer is not None or work[flow] <= 0.0:
                                heappush(heap, (begin, flow << 2 | START))
                            else:
                                # nothing can slow it, so its end is known
                                limit[flow] = CAPPED
                                finish[flow] = begin = begin + work[flow] / cap[flow]
                                heappush(heap, (begin, flow << 2))
                            continue
                    start[flow] = now
                    if work[flow] <= 0.0:
                        ended.append(flow)
                        continue
                    if couplings[flow]:
                        fluid.join(flow, work[flow], now)
                    else:
                        limit[flow] = CAPPED
                        finish[flow] = begin = now + work[flow] / cap[flow]
                        heappush(heap, (begin, flow << 2))
                    if observer is not None:
                        observer.active[flow] = None
                started = []
            if fluid.is_touched:
                fluid.settle(now)
            if observer is not None:
                observer.observe(now)
            if self.is_paused:
                self.is_paused = False
                return

    def _collect(self, now: float, until_s: float, ended: list[int], started: list[int]) -> None:
        """The other events of the batch at `now`: all up to `until_s`."""
        heap, fluid = self.heap, self.fluid
        limit, finish, due_s = fluid.limit, fluid.finish, fluid.due_s
        while heap and heap[0][0] <= until_s:
            event_s, code = heappop(heap)
            index, kind = code >> 2, code & 3
            if kind == FLOW:
                if finish[index] == event_s and limit[index] == CAPPED:
                    finish[index] = -1.0
                    ended.append(index)
            elif kind == START:
                started.append(index)
            elif kind == LEVEL:
                if due_s[index] == event_s:
                    fluid.collect(index, until_s, ended)
            else:
                self.changes[index](now)

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
                    if flow not in waiting or flow in self.ask_again:
                        self.ask_again.discard(flow)
                        self.misfits.append((flow, tier, missing))
                        self.is_paused = True
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
        """Give back what an ended operation held; tell who waits for its end."""
        if flow in self.watched:
            self.ended_watched.append(flow)
            self.is_paused = True
        if flow >= self.num_operations:
            self.num_left += 1  # a daemon's own operation: the program does not wait for it
            if flow in self.moves:
                self.ledger.note_elsewhere(*self.moves[flow])
        if not self.num_left:
            self.is_paused = True
        if flow in self.arrays.frees:
            self.ledger.free(self.arrays.frees[flow], flow, now)
        for channel in self.arrays.servers.get(flow, ()):
            self.queues[channel].remove(flow)
            self.vacated.add(channel)
