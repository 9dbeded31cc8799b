"""Who holds how many bytes of which tensor class in which tier, now and at the peak."""

from __future__ import annotations

from sim.engine.arrays import Arrays
from sim.errors import InvariantError, MisfitError
from sim.records import Occupancy, TierPeak
from sim.units import format_bytes, format_seconds

Rows = tuple[tuple[int, str, float], ...]

#: bytes by which rounding of shares may miss a capacity, relative to the capacity
ROUNDING = 1e-12


class Ledger:
    """Occupancy of one member of each tier. Frees of a batch are applied before its allocations."""

    def __init__(self, arrays: Arrays, *, is_logged: bool) -> None:
        num = len(arrays.tiers)
        self.arrays = arrays
        self.capacity = [tier.capacity_bytes for tier in arrays.tiers]
        self.classes: list[dict[str, float]] = [{} for _ in range(num)]
        self.held = [0.0] * num
        self.peak, self.peak_time, self.peak_who = [0.0] * num, [0.0] * num, [-1] * num
        self.peak_classes: list[dict[str, float]] = [{} for _ in range(num)]
        #: (tier, class) -> [(where, bytes)]: bytes that the program believes in the tier and a policy has put elsewhere
        self.elsewhere: dict[tuple[int, str], list[tuple[int, float]]] = {}
        self.is_logged = is_logged
        self.history: list[Occupancy] = []
        self.allocate(tuple(arrays.resident), -1, 0.0)

    def shortfall(self, rows: Rows) -> tuple[int, float]:
        """(tier, missing bytes) of the first tier that `rows` would overflow; (-1, 0.0) if they fit."""
        wanted: dict[int, float] = {}
        for tier, _, size in rows:
            wanted[tier] = wanted.get(tier, 0.0) + size
        for tier, size in wanted.items():
            missing = self.held[tier] + size - self.capacity[tier]
            if missing > ROUNDING * self.capacity[tier]:
                return tier, missing
        return -1, 0.0

    def allocate(self, rows: Rows, who: int, time_s: float) -> None:
        """Add `rows`; `who` is the operation (-1: before the first)."""
        for tier, tensor_class, size in rows:
            classes = self.classes[tier]
            classes[tensor_class] = classes.get(tensor_class, 0.0) + size
            self.held[tier] += size
            if self.is_logged:
                self._log(tier, tensor_class, time_s)
        for tier, _, _ in rows:
            if self.held[tier] > self.peak[tier]:
                self.peak[tier] = self.held[tier]
                self.peak_time[tier] = time_s
                self.peak_who[tier] = who
                self.peak_classes[tier] = dict(self.classes[tier])

    def free(self, rows: Rows, who: int, time_s: float) -> None:
        """Take `rows` out; what a policy has put elsewhere leaves last. More than is held is a defect of the program."""
        for tier, tensor_class, size in rows:
            classes = self.classes[tier]
            left = classes.get(tensor_class, 0.0) - size
            if left < 0.0:
                missing = self._free_elsewhere(tier, tensor_class, -left, time_s)
                if missing > 1e-9 * max(size, 1.0):
                    operation = self.arrays.operations[who].id if who >= 0 else "a policy"
                    raise InvariantError(
                        f"{operation!r} frees {size!r} bytes of {tensor_class} in {self.arrays.tiers[tier].name!r}, "
                        f"{size - missing!r} are there"
                    )
                left = 0.0
            classes[tensor_class] = left
            self.held[tier] = sum(classes.values())  # not a running difference: an empty tier holds exactly zero
            if self.is_logged:
                self._log(tier, tensor_class, time_s)

    def misfit(self, flow: int, tier: int, missing: float, time_s: float) -> MisfitError:
        """The error for an allocation that does not fit: tier, phase, operation, shortfall, what is held."""
        operation, place = self.arrays.operations[flow], self.arrays.tiers[tier]
        largest = sorted(self.classes[tier].items(), key=lambda item: (-item[1], item[0]))[:4]
        held = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest if size > 0.0) or "nothing"
        return MisfitError(
            f"{place.name} overflows at {format_seconds(time_s)} in phase {operation.phase or '?'}: "
            f"operation {operation.id!r} is short of {format_bytes(missing)} of {format_bytes(place.capacity_bytes)}; "
            f"held: {held}",
            tier=place.name,
            phase=operation.phase,
            shortfall_bytes=missing,
        )

    def _free_elsewhere(self, tier: int, tensor_class: str, size: float, time_s: float) -> float:
        places = self.elsewhere.get((tier, tensor_class), [])
        while places and size > 0.0:
            where, there = places.pop()
            part = min(size, there)
            self.free(((where, tensor_class, part),), -1, time_s)
            size -= part
            if there > part:
                places.append((where, there - part))
        return size

    def note_elsewhere(self, tier: int, where: int, tensor_class: str, size: float) -> None:
        """A policy has put bytes of `tier` into `where`, or brought bytes of `where` back."""
        homeward = self.elsewhere.get((where, tensor_class), [])
        while homeward and size > 0.0 and homeward[-1][0] == tier:
            _, there = homeward.pop()
            if there > size:
                homeward.append((tier, there - size))
            size -= min(there, size)
        if size > 0.0:
            self.elsewhere.setdefault((tier, tensor_class), []).append((where, size))

    def _log(self, tier: int, tensor_class: str, time_s: float) -> None:
        name = self.arrays.tiers[tier].name
        size = self.classes[tier][tensor_class]
        self.history.append(Occupancy(time_s=time_s, tier=name, tensor_class=tensor_class, size_bytes=size))

    def peaks(self) -> tuple[TierPeak, ...]:
        """One row per tier, in canonical order."""
        return tuple(
            TierPeak(
                name=tier.name,
                peak_bytes=self.peak[i],
                time_s=self.peak_time[i],
                operation=self.arrays.operations[self.peak_who[i]].id if self.peak_who[i] >= 0 else "",
                by_class={name: size for name, size in self.peak_classes[i].items() if size > 0.0},
            )
            for i, tier in enumerate(self.arrays.tiers)
        )
