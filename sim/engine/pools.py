"""The pool manager: a process beside the kernel that grants a device's capacity to hosts and takes it back.

Requests are served one after the other, in order of arrival, as a fabric manager's mailbox does. What is missing is taken
from extents that no host was granted, then from extents that a host was granted and does not use: giving one back takes the
host's kernel its time. If both are too little, the request and all behind it wait until somebody frees memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from sim.engine.world import World
from sim.errors import InternalError
from sim.records import Answer, Overflow, Pool
from sim.units import format_bytes

#: share of an extent that rounding may leave over
_ROUNDING = 1e-9


class PoolManager:
    """Grants of one pool. `answer` takes requests (a capacity policy), `serve` is the process."""

    def __init__(self, pool: Pool, freeing: Sequence[str]) -> None:
        """`freeing` are the operations of the program that free memory of the pool."""
        self.pool, self.freeing = pool, freeing
        self.granted = dict(pool.granted_bytes)
        self.requests: list[tuple[str, str, float]] = []  # (operation, tier, bytes that it allocates there)
        self._bell: simpy.Event | None = None

    def answer(self, seen: Overflow) -> Answer:
        """Let an allocation in the pool wait for its grant."""
        size = sum(item.size_bytes for item in seen.allocations if item.tier == seen.tier)
        self.requests.append((seen.operation, seen.tier, size))
        self._ring()
        return Answer(kind="wait", note=f"{seen.tier} asks for {format_bytes(seen.missing_bytes)}")

    def serve(self, world: World) -> Generator[Any, Any, None]:
        """Serve requests until the replay ends."""
        for operation in self.freeing:
            world.ended(operation).callbacks.append(lambda _: self._ring())
        while True:
            if not self.requests:
                yield self._wait(world)
                continue
            yield world.env.timeout(self.pool.grant_latency_s)
            yield from self._serve(world, *self.requests[0])
            self.requests.pop(0)

    def _serve(self, world: World, operation: str, tier: str, size: float) -> Generator[Any, Any, None]:
        while True:
            wanted = self._extents(world.held_bytes(tier) + size - self.granted[tier])
            spare = self.pool.capacity_bytes - sum(self.granted.values())
            if wanted <= spare + _ROUNDING * self.pool.extent_bytes:
                self._grant(world, tier, wanted, operation)
                return
            lender = self._lender(world, tier)
            if not lender:
                yield self._wait(world)
                continue
            given = min(self._slack(world, lender), self._extents(wanted - spare))
            self._grant(world, lender, -given)
            self.granted[lender] += given  # still the host's until its pages are offline
            yield world.env.timeout(given / self.pool.release_bytes_per_s)
            self.granted[lender] -= given

    def granted_in_words(self) -> str:
        """Who was granted how much."""
        return ", ".join(f"{format_bytes(size)} of {tier}" for tier, size in self.granted.items())

    def _grant(self, world: World, tier: str, size: float, operation: str = "") -> None:
        self.granted[tier] += size
        world.note(f"{self.pool.name} {'grants' if size >= 0 else 'takes back'} {format_bytes(abs(size))}: {tier}")
        world.set_capacity(tier, self.granted[tier], operation)

    def _lender(self, world: World, asker: str) -> str:
        """The host with most capacity that it does not use; empty if none has a whole extent."""
        others = [(self._slack(world, tier), tier) for tier in sorted(self.granted) if tier != asker]
        slack, tier = max(others, default=(0.0, ""), key=lambda item: item[0])
        return tier if slack > 0.0 else ""

    def _slack(self, world: World, tier: str) -> float:
        extent = self.pool.extent_bytes
        return max(0.0, math.floor((self.granted[tier] - world.held_bytes(tier)) / extent + _ROUNDING) * extent)

    def _extents(self, size: float) -> float:
        extent = self.pool.extent_bytes
        return max(0.0, math.ceil(size / extent - _ROUNDING) * extent)

    def _wait(self, world: World) -> simpy.Event:
        self._bell = world.env.event()
        return self._bell

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.triggered:
            self._bell.succeed()


def answering(managers: Sequence[PoolManager]) -> Callable[[Overflow], Answer]:
    """The capacity policy of a machine with these pools: each answers for its own tiers."""
    by_tier = {tier: manager for manager in managers for tier in manager.granted}

    def answer(seen: Overflow) -> Answer:
        if seen.tier not in by_tier:
            raise InternalError(f"tier {seen.tier!r} is enforced and belongs to no pool")
        return by_tier[seen.tier].answer(seen)

    return answer
