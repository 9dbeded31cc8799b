"""What a footprint is: terms (bytes of one thing in one tier, at some moments of a job) and the peaks that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.records import TensorClass

#: moments of a job at which memory is counted, in order; each belongs to the phase of that name, except
#: `backward_end` (the first layer's backward, all gradients produced), which is the end of `backward`
MOMENTS = ("load", "init", "first_step", "forward", "loss", "backward", "backward_end", "update", "save", "resume")
STEP_MOMENTS = ("first_step", "forward", "loss", "backward", "backward_end", "update")
#: moments of an inference job
INFERENCE_MOMENTS = ("load", "prefill", "decode")
#: from the construction of the optimizer on
FROM_INIT = MOMENTS[1:]
#: once the first update has happened
FROM_FIRST_STEP = MOMENTS[2:]


def phase_of(moment: str) -> str:
    """Phase that a moment belongs to."""
    return "backward" if moment == "backward_end" else moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes of one thing, on one rank (`per="rank"`) or once per host (`per="host"`).

    `tier` is a role of the rank ("gpu", "dram", "nvme") or a tier name of the machine. `formula` shows the arithmetic.
    `is_locked` and `is_shared` mark what a system limits apart from memory: page-locked buffers, files of /dev/shm.
    """

    name: str
    tensor_class: TensorClass
    tier: str
    size_bytes: float
    moments: tuple[str, ...]
    formula: str = ""
    per: str = "rank"
    is_locked: bool = False  # page-locked
    is_shared: bool = False  # in /dev/shm


#: what the host's system holds, which is no job's
_SYSTEM = "system and services"


def system_term(size_bytes: float, moments: tuple[str, ...]) -> Term:
    """Host memory that the system and its services hold all the time."""
    return Term(
        name=_SYSTEM, tensor_class=TensorClass.BUFFERS, tier="dram", size_bytes=size_bytes, moments=moments, per="host"
    )  # fmt: skip


def is_of_system(term: Term) -> bool:
    """Whether the term is the system's own, outside of what a job is charged for."""
    return term.name == _SYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The largest occupancy of one tier: when, of what, and its largest parts."""

    size_bytes: float
    moment: str
    by_class: Mapping[str, float]
    largest: tuple[Term, ...] = ()

    @property
    def phase(self) -> str:
        """Phase of the peak."""
        return phase_of(self.moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """All terms of one job; sizes in bytes.

    GPU terms are those of the rank that needs most. Host terms (`dram` and slower) are per rank or per host as marked;
    :meth:`host_peak` adds the ranks of one host. `context_bytes` (driver context, libraries) and `fragmentation` (share
    of allocated bytes that the caching allocator holds on top) are what a GPU shows beyond the allocated bytes.
    """

    terms: tuple[Term, ...]
    ranks_per_host: int
    stage: int = 0  # pipeline stage of the GPU terms
    context_bytes: float = 0.0
    fragmentation: float = 0.0
    moments: tuple[str, ...] = MOMENTS
    notes: tuple[str, ...] = field(default=())

    def tiers(self) -> tuple[str, ...]:
        """Tiers with any bytes, the GPU's own first."""
        names = dict.fromkeys(term.tier for term in self.terms if term.size_bytes > 0)
        return tuple(sorted(names, key=lambda name: (name != "gpu", name)))

    def at(self, tier: str, moment: str) -> dict[str, float]:
        """Allocated bytes by tensor class in a tier at a moment, per rank (gpu) or per host (any other tier)."""
        return by_class(self._parts(tier, moment), lambda term: self._multiplicity(term))

    def allocated_peak(self, tier: str = "gpu", moments: Sequence[str] = ()) -> Peak:
        """Largest allocated bytes of a tier over the moments (default all): what a framework reports as its maximum."""
        best = Peak(size_bytes=0.0, moment=self.moments[0], by_class={})
        for moment in moments or self.moments:
            parts = list(self._parts(tier, moment))
            sizes = by_class(parts, lambda term: self._multiplicity(term))
            total = sum(sizes.values())
            if total > best.size_bytes:
                largest = sorted(parts, key=lambda term: -term.size_bytes * self._multiplicity(term))[:8]
                best = Peak(size_bytes=total, moment=moment, by_class=sizes, largest=tuple(largest))
        return best

    def peak(self, tier: str = "gpu", moments: Sequence[str] = ()) -> Peak:
        """Largest bytes that the tier must hold: on a GPU, allocated + fragmentation + context."""
        best = self.allocated_peak(tier, moments)
        if tier != "gpu":
            return best
        extra = best.size_bytes * self.fragmentation + self.context_bytes
        sizes = dict(best.by_class)
        sizes[TensorClass.BUFFERS.value] = sizes.get(TensorClass.BUFFERS.value, 0.0) + extra
        return Peak(size_bytes=best.size_bytes + extra, moment=best.moment, by_class=sizes, largest=best.largest)

    def peak_of(self, holds: Callable[[Term], bool], moments: Sequence[str] = ()) -> Peak:
        """Largest bytes of the terms that meet a condition, whatever their tier, over the ranks of one host."""
        best = Peak(size_bytes=0.0, moment=self.moments[0], by_class={})
        for moment in moments or self.moments:
            parts = [term for term in self.terms if moment in term.moments and holds(term)]
            sizes = by_class(parts, self._multiplicity)
            if (total := sum(sizes.values())) > best.size_bytes:
                largest = sorted(parts, key=lambda term: -term.size_bytes * self._multiplicity(term))[:8]
                best = Peak(size_bytes=total, moment=moment, by_class=sizes, largest=tuple(largest))
        return best

    def phases(self, tier: str) -> dict[str, float]:
        """Allocated bytes of a tier by phase (the larger moment where a phase has two)."""
        found: dict[str, float] = {}
        for moment in self.moments:
            size = sum(self.at(tier, moment).values())
            if size > 0:
                found[phase_of(moment)] = max(size, found.get(phase_of(moment), 0.0))
        return found

    def _parts(self, tier: str, moment: str) -> Iterable[Term]:
        return (term for term in self.terms if term.tier == tier and moment in term.moments and term.size_bytes > 0)

    def _multiplicity(self, term: Term) -> int:
        return 1 if term.tier == "gpu" or term.per == "host" else self.ranks_per_host


def by_class(terms: Iterable[Term], multiplicity: object = None) -> dict[str, float]:
    """Sum of sizes by tensor class; `multiplicity` is a function of the term (default 1)."""
    sizes: dict[str, float] = {}
    for term in terms:
        times = multiplicity(term) if callable(multiplicity) else 1
        name = term.tensor_class.value
        sizes[name] = sizes.get(name, 0.0) + term.size_bytes * times
    return sizes
