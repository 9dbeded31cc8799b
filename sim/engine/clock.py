"""simpy is the clock; the kernel runs between its events.

At equal times processes beside the kernel run first and the kernel last (docs/model.md): the kernel runs every batch before
simpy's next event, so simpy sees one event of the kernel per horizon. It stops earlier when a batch holds an interrupt:
an operation that somebody waits for has ended, or an allocation does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from sim.engine.kernel import Kernel
from sim.engine.observe import sample
from sim.engine.world import World
from sim.errors import DeadlockError, InternalError
from sim.records import Answer, Overflow, Sample

#: simpy runs smaller numbers first: 0 urgent, 1 normal, and the kernel after both
LAST: Any = 2
#: times that a policy may be asked about one allocation before its answers count as a defect
MAX_ASKED = 1000

Policy = Callable[[Overflow], Answer]


def _wake(env: simpy.Environment, time_s: float) -> simpy.Event:
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, LAST, max(time_s - env.now, 0.0))
    return event


class Clock:
    """Drives one kernel through one simpy environment."""

    def __init__(self, env: simpy.Environment, kernel: Kernel, world: World, policy: Policy | None, interval_s: float) -> None:
        self.env, self.kernel, self.world, self.policy = env, kernel, world, policy
        self.interval_s = interval_s
        self.samples: list[Sample] = []
        self.num_asked: dict[int, int] = {}

    def drive(self) -> Generator[simpy.Event, Any, None]:
        """The kernel's process: advance to the next event of others, let it happen, go on until all operations have ended."""
        env, kernel = self.env, self.kernel
        kernel.begin()
        while True:
            next_sample_s = (len(self.samples) + 1) * self.interval_s if self.interval_s > 0.0 else float("inf")
            foreign_s = env.peek()
            kernel.advance(min(foreign_s, next_sample_s))
            if kernel.is_interrupted:
                yield _wake(env, kernel.now)
                self._react()
                yield _wake(env, env.now)
            elif kernel.is_done:
                return
            elif kernel.heap and kernel.heap[0][0] < min(foreign_s, next_sample_s):
                continue  # paused for nothing
            elif not kernel.heap and foreign_s == float("inf"):
                raise DeadlockError(explain_waits(kernel))
            elif next_sample_s <= foreign_s:
                self._sample(next_sample_s)
            else:
                yield _wake(env, foreign_s)

    def _react(self) -> None:
        kernel = self.kernel
        ended, kernel.ended_watched = kernel.ended_watched, []
        misfits, kernel.misfits = kernel.misfits, []
        self.world.tell(ended)
        for flow, tier, missing in misfits:
            self.num_asked[flow] = self.num_asked.get(flow, 0) + 1
            if self.num_asked[flow] > MAX_ASKED:
                raise InternalError(
                    f"the capacity policy was asked {MAX_ASKED} times about {kernel.arrays.operations[flow].id!r}"
                )
            if self.policy is None:
                raise kernel.ledger.misfit(flow, tier, missing, kernel.now)
            self.world.apply(flow, tier, missing, self.policy, self.num_asked[flow])

    def _sample(self, time_s: float) -> None:
        self.samples.append(sample(self.world.observe(time_s)))


def explain_waits(kernel: Kernel, *, num_shown: int = 8) -> str:
    """Which operations are at the head of their streams, and what each waits for."""
    operations, tiers = kernel.arrays.operations, kernel.arrays.tiers
    ended = {operation.id for i, operation in enumerate(operations) if kernel.end[i] >= 0.0}
    lines = []
    heads: set[str] = set()
    for i, operation in enumerate(operations):
        if operation.id in ended or operation.stream in heads:
            continue
        heads.add(operation.stream)
        waits = [repr(name) for name in operation.after if name not in ended]
        if i in kernel.blocked:
            tier, missing = kernel.ledger.shortfall(kernel.arrays.allocates[i])
            waits.append(f"{missing!r} bytes in {tiers[tier].name!r}")
        for channel, queue in kernel.queues.items():
            if i in queue[1:]:
                waits.append(f"server {kernel.arrays.channels[channel].name!r} held by {operations[queue[0]].id!r}")
        lines.append(f"{operation.id!r} on stream {operation.stream!r} waits for {', '.join(waits[:4]) or '?'}")
    more = f" (and {len(lines) - num_shown} more streams)" if len(lines) > num_shown else ""
    pending = len(operations) - len(ended)
    return f"nothing can run at {kernel.now!r} s and {pending} operations are pending: " + "; ".join(lines[:num_shown]) + more
