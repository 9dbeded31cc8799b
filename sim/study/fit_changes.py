"""What would make it fit: the mildest changes of the plan that suffice, each verified by planning again."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from typing import Any

from sim.errors import InputError
from sim.placement.capacity import TierNeed, capacity_plan
from sim.placement.host_limits import limit_needs
from sim.placement.plan import Entry, Placement
from sim.records import TensorClass
from sim.study.fit_families import Change, Workload, families_of
from sim.topology.machine import Machine
from sim.units import GIB, format_bytes

#: capacities that are sold, GiB: of GPUs, and of host memory or expanders
_GPU_SIZES = (16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 192, 288)
_MAX_SUGGESTIONS = 8
#: shares of one memory for CPU and GPU that are tried for the GPU; the system needs some for itself
_GPU_SHARES = (0.8, 0.85, 0.9, 0.95)
#: changes of a family that are tried one by one; longer ones are sizes, ordered by what they need
_SHORT = 12
#: left out of the text of a change: where its path begins
_PREFIXES = ("workload.training.", "workload.inference.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change and what the planned peak of the tier that had overflowed becomes with it."""

    change: str
    settings: Mapping[str, Any]
    tier: str
    peak_bytes: float
    capacity_bytes: float

    def point(self) -> dict[str, Any]:
        """As `--json` shows it."""
        return {
            "change": self.change, "set": dict(self.settings), "tier": self.tier, "peak_bytes": self.peak_bytes,
            "capacity_bytes": self.capacity_bytes,
        }  # fmt: skip


def suggestions(workload: Workload, placement: Placement, machine: Machine) -> tuple[Suggestion, ...]:
    """The smallest change of each kind that makes the job fit; the mildest pairs of changes when no single one does."""
    before = capacity_plan(workload, placement, machine) | limit_needs(workload, placement, machine)
    tight = max(before.values(), key=lambda need: need.peak_bytes / need.capacity_bytes)
    families = [family for family in (list(each) for each in families_of(workload, placement, machine, before)) if family]

    def fits(*changes: Change) -> bool:
        return _plan(changes, workload, placement, machine) is not None

    found: list[tuple[Change, ...]] = [(change,) for family in families if (change := _mildest(family, fits))]
    if not found:
        found = list(islice(_pairs(families, fits), _MAX_SUGGESTIONS // 2))
    kept: list[Suggestion] = []
    for changes in found[: _MAX_SUGGESTIONS - 1]:
        item = _verified(changes, workload, placement, machine, tight)
        if item is not None and not any(milder.settings.items() <= item.settings.items() for milder in kept):
            kept.append(item)
    return (*kept, *_wider_share(workload, placement, machine), *_larger_tiers(before, machine))


def _mildest(family: Sequence[Change], fits: Callable[[Change], bool]) -> Change | None:
    """The first change of a family that suffices; long families (sizes, which memory follows) are bisected."""
    if len(family) <= _SHORT:
        return next((change for change in family if fits(change)), None)
    if not fits(family[-1]):
        return None
    return family[bisect_left(family, True, key=fits)]


def _pairs(families: Sequence[Sequence[Change]], fits: Callable[..., bool]) -> Iterator[tuple[Change, ...]]:
    """Pairs from two families that suffice, each change as mild as the other allows.

    The last change of a short family need not be its strongest (a tier may be too small for what another holds): all are
    tried.
    """
    for one, other in combinations(families, 2):
        for beside in reversed(other) if len(other) <= _SHORT else other[-1:]:
            first = _mildest(one, partial(fits, beside))
            if first is not None:
                yield (first, _mildest(other, partial(fits, first)) or beside)
                break


def _plan(changes: Sequence[Change], workload: Workload, placement: Placement, machine: Machine) -> dict[str, TierNeed] | None:
    """The plan with the changes, if it fits; None if it does not, or if no framework can run it."""
    for change in changes:
        for path, value in change.settings.items():
            workload, placement = applied(workload, placement, path, value)
    try:
        needs = capacity_plan(workload, placement, machine) | limit_needs(workload, placement, machine)
    except InputError:
        return None
    return needs if all(need.verdict != "does_not_fit" for need in needs.values()) else None


def _verified(
    changes: Sequence[Change], workload: Workload, placement: Placement, machine: Machine, tight: TierNeed
) -> Suggestion | None:
    needs = _plan(changes, workload, placement, machine)
    if needs is None:
        return None
    settings: dict[str, Any] = {}
    for change in changes:
        settings |= change.settings
    need = needs.get(tight.tier, max(needs.values(), key=lambda item: item.peak_bytes / item.capacity_bytes))
    notes = [change.note for change in changes if change.note]
    text = ", ".join(f"{_short(path)}: {_shown(value)}" for path, value in settings.items())
    return Suggestion(
        change=f"{text} ({'; '.join(notes)})" if notes else text,
        settings=settings,
        tier=need.tier,
        peak_bytes=need.peak_bytes,
        capacity_bytes=need.capacity_bytes,
    )


def _short(path: str) -> str:
    return next((path.removeprefix(prefix) for prefix in _PREFIXES if path.startswith(prefix)), path)


def _shown(value: Any) -> str:
    """As a scenario file writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {share:.0%}" for name, share in value.items()) + "}"
    return "all" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def applied(workload: Workload, placement: Placement, path: str, value: Any) -> tuple[Workload, Placement]:
    """The job with the input at a dotted path set; placement paths name a tensor class and take one tier."""
    names = path.split(".")
    if names[0] == "placement":
        kind = TensorClass(names[1])
        shares = dict(value) if isinstance(value, Mapping) else {str(value): 1.0}
        entries = tuple(entry for entry in placement.entries if entry.tensor_class != kind)
        return workload, Placement(entries=(*entries, Entry(tensor_class=kind, shares=shares)))
    return _replaced(workload, names[2:], value), placement


def _replaced(node: Any, names: Sequence[str], value: Any) -> Any:
    if not names:
        return value
    return dataclasses.replace(node, **{names[0]: _replaced(getattr(node, names[0]), names[1:], value)})


def _wider_share(workload: Workload, placement: Placement, machine: Machine) -> Iterator[Suggestion]:
    """The smallest share of one memory for CPU and GPU that the system must let the GPU allocate, where it lets it less."""
    for name, device in machine.devices.items():
        if device.kind != "gpu" or device.gpu_share == 1.0:
            continue
        for share in (share for share in _GPU_SHARES if share > device.gpu_share):
            wider = dataclasses.replace(
                machine, devices={**machine.devices, name: dataclasses.replace(device, gpu_share=share)}
            )
            needs = capacity_plan(workload, placement, wider) | limit_needs(workload, placement, wider)
            if all(need.verdict != "does_not_fit" for need in needs.values()):
                need = needs[machine.memory_tier(name)]
                yield Suggestion(
                    change=f"{name}.gpu_share: {share:.0%} (the system gives it {device.gpu_share:.3g} of it by default: "
                    "iogpu.wired_limit_mb on Macs, ttm.pages_limit on Linux)",
                    settings={f"topology.{name}.gpu_share": f"{share:.0%}"},
                    tier=need.tier,
                    peak_bytes=need.peak_bytes,
                    capacity_bytes=need.capacity_bytes,
                )
                return


def _larger_tiers(before: Mapping[str, TierNeed], machine: Machine) -> Iterator[Suggestion]:
    """For the tiers that overflow, the smallest capacities that are sold and hold their peaks: all of them together."""
    short = [need for need in before.values() if need.verdict == "does_not_fit"]
    sizes = {need.tier: _sold(need, machine) for need in short}
    if not short or not all(sizes.values()):
        return
    worst = max(short, key=lambda need: need.peak_bytes / need.capacity_bytes)
    yield Suggestion(
        change=", ".join(f"{name}: {format_bytes(size)}" for name, size in sizes.items()),
        settings={f"capacity of {name}": f"{size / GIB:g} GiB" for name, size in sizes.items()},
        tier=worst.tier,
        peak_bytes=worst.peak_bytes,
        capacity_bytes=sizes[worst.tier],
    )


def _sold(need: TierNeed, machine: Machine) -> float:
    """The smallest capacity on sale that holds a peak; 0 if there is none.

    Of a memory of which the GPU may allocate a share only, its part of the peak fits into that share.
    """
    tier = machine.tiers.get(need.tier)
    share = machine.devices[tier.device].gpu_share if tier is not None else 1.0
    of_host = need.capacity_bytes - share * tier.capacity_bytes if tier is not None and share < 1.0 else 0.0
    peak = max(need.peak_bytes, (need.peak_bytes - of_host) / share) if of_host > 0 else need.peak_bytes
    is_gpu = need.capacity_bytes < 300 * GIB and need.tier.startswith("gpu")
    least = -4 if need.tier == "shared_limit" else 3
    host = sorted(2.0**power * step for power in range(least, 20) for step in (1.0, 1.5))
    sizes = [size * GIB for size in (_GPU_SIZES if is_gpu else host)]
    return next((size for size in sizes if size >= peak), 0.0)
