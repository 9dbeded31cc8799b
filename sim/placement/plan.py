"""Placement: where each tensor class lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.laws.skew import PAGE_BYTES
from sim.records import TensorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where one tensor class (or a range of its layers) lives.

    `shares` maps tier role or name to a fraction; they sum to 1. `policy` says how the shares are laid out:
    interleave (every access uses all tiers at once, page by page), by_layer (whole layers on one tier), or the name
    of a dynamic policy, with its `options`. `shared` is the part of the class's bytes in a pool that jobs of other hosts
    use too (those whose entry for the class and tier says so). `skew` says how unevenly the class's items of `granule_bytes`
    are accessed (sim.laws.skew), `hint` which of them the fastest tiers hold; from both follow `accesses`, the share of the
    accesses that each tier answers (empty: as the bytes).
    """

    tensor_class: TensorClass
    shares: Mapping[str, float]
    policy: str = "interleave"
    layers: tuple[int, int] | None = None  # inclusive range
    options: Mapping[str, object] = field(default_factory=dict)
    shared: float = 0.0
    skew: float = 0.0
    granule_bytes: float = PAGE_BYTES
    hint: str = "none"
    accesses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """All entries; a class without one lives in the rank's own device memory ("gpu").

    `overflow` is the answer to a host tier that is too small: "fail"; "swap" to the nearest NVMe under the page replacement
    `replacement` ("lru" or "refault", see sim.laws.paging); or "spill" the coldest classes to the nearest memory with room.
    """

    entries: tuple[Entry, ...] = ()
    overflow: str = "fail"
    replacement: str = "lru"

    def shares(self, tensor_class: TensorClass, layer: int = -1) -> Mapping[str, float]:
        """Shares of the class in `layer` (-1 = the entry that covers all layers); later entries win."""
        for entry in reversed(self.entries):
            if entry.tensor_class == tensor_class and (
                entry.layers is None or (layer >= 0 and entry.layers[0] <= layer <= entry.layers[1])
            ):
                return entry.shares
        return {"gpu": 1.0}

    def where(self) -> tuple[object, ...]:
        """All that decides `shares` and `accesses`."""
        return tuple(
            [
                (entry.tensor_class, tuple(entry.shares.items()), entry.layers, tuple(entry.accesses.items()))
                for entry in self.entries
            ]
        )

    def accesses(self, tensor_class: TensorClass, layer: int = -1) -> Mapping[str, float]:
        """Share of the accesses to the class in `layer` that each tier answers; that of its bytes where all are alike."""
        for entry in self.entries:
            if entry.tensor_class == tensor_class and entry.accesses:
                return entry.accesses
        return self.shares(tensor_class, layer)
