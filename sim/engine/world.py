"""What a process beside the kernel (tier daemon, pool manager, data loader, user code) sees and may do.

A process is a function of a World that returns a simpy generator:

    def scan(world):
        while True:
            yield world.env.timeout(0.1)
            seen = world.observe()
            if seen.occupancy_bytes["cpu0.dram"].get("weights", 0.0) > 1e9:
                yield world.transfer(Transfer(stream="tiering", size_bytes=1e9, source="cpu0.dram", target="cxl0", uses=...))

It holds the clock; what it decides should be a pure function of what it sees (sim/placement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import simpy

from sim.engine import outside
from sim.engine.kernel import Kernel
from sim.engine.ledger import ROUNDING
from sim.engine.observe import snapshot
from sim.errors import InputError, InternalError
from sim.records import Allocation, Answer, Kind, Operation, Overflow, Snapshot, Transfer


class World:
    """The hands and eyes of daemons. Times in s, bytes of one member of a tier, rates of one member of a channel."""

    def __init__(self, env: simpy.Environment, kernel: Kernel) -> None:
        self.env = env
        self.events: list[str] = []  # what was done from outside, in order
        self._kernel = kernel
        self._names: dict[str, int] = {}
        self._streams = {stream.name for stream in kernel.arrays.streams}
        self._waiting: dict[int, list[simpy.Event]] = {}

    @property
    def now(self) -> float:
        """Seconds since the start of the replay."""
        return float(self.env.now)

    def observe(self, time_s: float | None = None) -> Snapshot:
        """Utilisation of all channels and occupancy of all tiers, now."""
        kernel, num = self._kernel, len(self._kernel.arrays.channels)
        loads = kernel.observer.loads() if kernel.observer else [0.0] * num
        return snapshot(kernel.arrays, kernel.ledger, loads, kernel.fluid.bandwidth, self.now if time_s is None else time_s)

    def has_ended(self, operation: str) -> bool:
        """The operation with this id has ended."""
        return self._kernel.end[self._index(operation)] >= 0.0

    def ended(self, operation: str) -> simpy.Event:
        """An event that happens when the operation ends: the kernel interrupts its run for it."""
        return self._event(self._index(operation))

    def transfer(self, move: Transfer) -> simpy.Event:
        """Move bytes from now on; the event happens when they have arrived. Waits if `target` is full."""
        index = outside.reserve(self._kernel, self._operation(move), self.now)
        self.note(f"transfer of {move.size_bytes:g} bytes of {move.tensor_class}: {move.source or '-'} -> {move.target or '-'}")
        return self._event(index)

    def set_bandwidth(self, channel: str, bandwidth_per_s: float) -> None:
        """From now on `channel` has this bandwidth (a degraded link, a neighbour, a clock change)."""
        names = [row.name for row in self._kernel.arrays.channels]
        if channel not in names or not bandwidth_per_s > 0.0:
            raise InputError(f"cannot set the bandwidth of channel {channel!r} to {bandwidth_per_s!r}")
        outside.set_bandwidth(self._kernel, names.index(channel), bandwidth_per_s, self.now)
        self.note(f"bandwidth of {channel} set to {bandwidth_per_s:g} per s")

    def set_cap(self, operation: str, rate_cap: float) -> None:
        """From now on the operation, running or not, has this rate cap."""
        if not rate_cap > 0.0:
            raise InputError(f"cannot set the rate cap of {operation!r} to {rate_cap!r}")
        outside.set_cap(self._kernel, self._index(operation), rate_cap, self.now)
        self.note(f"rate cap of {operation} set to {rate_cap:g} per s")

    def held_bytes(self, tier: str) -> float:
        """Bytes that one member of the tier holds now."""
        return self._kernel.ledger.held[self._tier(tier)]

    def set_capacity(self, tier: str, capacity_bytes: float, operation: str = "") -> None:
        """From now on the tier has this capacity; `operation`, blocked for it, asks again if it still does not fit."""
        held = self.held_bytes(tier)
        if capacity_bytes < held * (1.0 - ROUNDING):
            raise InternalError(f"cannot shrink {tier!r} to {capacity_bytes!r} bytes, it holds {held!r}")
        kernel, index = self._kernel, self._tier(tier)

        def apply(_: float) -> None:
            kernel.ledger.capacity[index] = capacity_bytes

        kernel.change(self.now, apply)
        if operation:
            outside.retry(kernel, self._index(operation), self.now)

    def note(self, text: str) -> None:
        """Add a line to the replay's events."""
        self.events.append(f"{self.now:.9g} s: {text}")

    # ------------------------------------------------------------------------------------------------ for the clock

    def tell(self, ended: Iterable[int]) -> None:
        """Let the events of ended operations happen."""
        for index in ended:
            for event in self._waiting.pop(index, ()):
                event.succeed()

    def apply(self, index: int, tier: int, missing: float, policy: Callable[[Overflow], Answer], num_asked: int) -> None:
        """Ask `policy` about an allocation that does not fit, and do what it answers."""
        kernel = self._kernel
        operation, tiers = kernel.arrays.operations[index], kernel.arrays.tiers
        rows = kernel.arrays.allocates[index]
        overflow = Overflow(
            operation=operation.id,
            stream=operation.stream,
            phase=operation.phase,
            tier=tiers[tier].name,
            missing_bytes=missing,
            allocations=tuple(Allocation(tier=tiers[t].name, tensor_class=name, size_bytes=size) for t, name, size in rows),
            seen=self.observe(),
            num_asked=num_asked,
        )
        answer = policy(overflow)
        if answer.note or answer.kind != "wait":
            self.note(f"{answer.kind} for {operation.id}: {answer.note or f'{tiers[tier].name} is short of {missing:g} bytes'}")
        if answer.kind == "fail":
            raise kernel.ledger.misfit(index, tier, missing, kernel.now)
        if answer.kind == "spill":
            names = {row.name: i for i, row in enumerate(tiers)}
            spilled = tuple((names[row.tier], row.tensor_class, row.size_bytes) for row in answer.allocations)
            outside.spill(kernel, index, spilled, self.now)
        arrived = [self.transfer(move) for move in answer.transfers]
        if arrived:
            self.env.all_of(arrived).callbacks.append(lambda _: outside.retry(kernel, index, self.now))

    def _tier(self, name: str) -> int:
        names = [tier.name for tier in self._kernel.arrays.tiers]
        if name not in names:
            raise InputError(f"no tier is called {name!r}")
        return names.index(name)

    def _index(self, operation: str) -> int:
        if not self._names:
            self._names = {row.id: i for i, row in enumerate(self._kernel.arrays.operations)}
        if operation not in self._names:
            raise InputError(f"no operation is called {operation!r}")
        return self._names[operation]

    def _event(self, index: int) -> simpy.Event:
        event = self.env.event()
        if self._kernel.end[index] >= 0.0:
            return event.succeed()
        self._kernel.watched.add(index)
        self._kernel.is_holding[index] = True
        self._waiting.setdefault(index, []).append(event)
        return event

    def _operation(self, move: Transfer) -> Operation:
        arrays = self._kernel.arrays
        if move.stream in self._streams:
            raise InputError(f"stream {move.stream!r} belongs to the program; inject transfers on a stream of your own")
        number = len(arrays.operations)
        if move.size_bytes < 0.0:
            raise InternalError(f"a daemon moves {move.size_bytes!r} bytes")

        def row(tier: str) -> tuple[Allocation, ...]:
            return (Allocation(tier=tier, tensor_class=move.tensor_class, size_bytes=move.size_bytes),) if tier else ()

        return Operation(
            id=f"{move.stream}.{number}",
            kind=Kind.TRANSFER,
            stream=move.stream,
            sequence=number,
            name=move.name,
            work=move.size_bytes,
            uses=move.uses,
            rate_cap=move.rate_cap_bytes_per_s,
            latency_s=move.latency_s,
            weight=move.weight,
            allocates=row(move.target),
            frees=row(move.source),
            category="paging",
            size_bytes=move.size_bytes,
        )
