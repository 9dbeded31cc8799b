"""Budgets: a step time turned into hours, kilowatt-hours and money.

Hours need `workload.training.dataset`. Energy is an upper bound: every device at its rated power for the whole time
(what a supply must deliver; real draw is lower). Money needs a price overlay; tiersim ships no prices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from sim.scenario import Scenario
from sim.topology.machine import Device, Machine
from sim.workload.training import Length, Training

_HOUR_S = 3600.0
_KWH_J = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a job amounts to; a number that cannot be known is None. Power is of all nodes, devices at rated power."""

    num_steps: int | None = None
    duration_s: float | None = None
    useful_tokens_per_s: float | None = None  # tokens of the data set, without padding
    power_w: float = 0.0
    energy_j: float | None = None  # upper bound
    currency: str = ""
    purchase: float | None = None  # of the machine
    unpriced: tuple[str, ...] = ()  # parts without a price, which leave `purchase` open
    rent: float | None = None  # of the job
    electricity: float | None = None  # of the job

    def to_json(self) -> dict[str, Any]:
        """Stable names; energy also in kWh because bills are."""
        return {
            "num_steps": self.num_steps,
            "duration_s": self.duration_s,
            "useful_tokens_per_s": self.useful_tokens_per_s,
            "power_w": self.power_w or None,
            "energy_kwh": self.energy_j / _KWH_J if self.energy_j is not None else None,
            "currency": self.currency or None,
            "purchase": self.purchase,
            "unpriced": list(self.unpriced),
            "rent": self.rent,
            "electricity": self.electricity,
        }


def budget_of(scenario: Scenario, step_time_s: float, prices: Mapping[str, Any] | None = None) -> Budget:
    """The budget of a single-job scenario; `prices` is a parsed overlay (:func:`sim.study.prices.prices_from`)."""
    machine = scenario.machine
    power = power_w(machine)
    workload = scenario.jobs[0].workload
    steps = steps_of(workload) if isinstance(workload, Training) else None
    duration_s = steps * step_time_s if steps is not None else None
    energy_j = power * duration_s if duration_s is not None and power else None
    return Budget(
        num_steps=steps,
        duration_s=duration_s,
        useful_tokens_per_s=_useful_tokens(workload) / duration_s if duration_s and isinstance(workload, Training) else None,
        power_w=power,
        energy_j=energy_j,
        **_money(machine, duration_s, energy_j, prices or {}),
    )


def steps_of(training: Training) -> int | None:
    """Optimizer steps of the whole data set, or None without one. Packing fills sequences; without it each sample is one."""
    data = training.dataset
    if data is None:
        return None
    sequences = data.samples * data.epochs
    if data.packing:
        sequences = data.samples * data.epochs * mean_tokens(data.length, training.sequence_length) / training.sequence_length
    per_step = training.batch_size * training.gradient_accumulation * training.parallelism.data
    return math.ceil(sequences / per_step)


def _useful_tokens(training: Training) -> float:
    data = training.dataset
    assert data is not None
    size = training.sequence_length
    return data.samples * data.epochs * (mean_tokens(data.length, size) if data.packing else kept_tokens(data.length, size))


def mean_tokens(length: str | Length, sequence_length: int) -> float:
    """Mean tokens of a sample."""
    return length.mean if isinstance(length, Length) else float(sequence_length)


def kept_tokens(length: str | Length, sequence_length: int) -> float:
    """Mean tokens that remain of a sample when longer ones are cut at the sequence length: E[min(L, s)], L log-normal."""
    if not isinstance(length, Length):
        return float(sequence_length)
    if not length.spread:
        return min(length.mean, sequence_length)
    sigma = math.sqrt(math.log1p(length.spread**2))
    edge = (math.log(sequence_length / length.mean) + sigma**2 / 2) / sigma
    below, above = NormalDist().cdf(edge - sigma), 1.0 - NormalDist().cdf(edge)
    return length.mean * below + sequence_length * above


def power_w(machine: Machine) -> float:
    """Rated power of all devices of all nodes whose part states one; 0 if a GPU or CPU states none.

    The CPU of an APU is inside the package whose rated power the GPU states.
    """
    total = 0.0
    for device in machine.devices.values():
        rated = device.part.get("power")
        if isinstance(rated, (int, float)) and rated > 0:
            total += float(rated) * device.count
        elif device.kind in ("cpu", "gpu") and not _is_inside(device, machine):
            return 0.0
    return total * machine.num_nodes


def _is_inside(device: Device, machine: Machine) -> bool:
    """Whether a CPU shares its package with a GPU."""
    return device.kind == "cpu" and any(other.part.get("cpu") == device.part_name for other in machine.devices.values())


def _money(machine: Machine, duration_s: float | None, energy_j: float | None, prices: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of :class:`Budget` that are money; what has no price is None, never zero."""
    if not prices:
        return {}
    per_hour = prices["per_hour"].get(machine.name)
    per_kwh = prices["electricity"]
    return {
        "currency": prices["currency"],
        "purchase": _purchase(machine, prices),
        "unpriced": unpriced(machine, prices),
        "rent": per_hour * machine.num_nodes * duration_s / _HOUR_S if per_hour and duration_s is not None else None,
        "electricity": per_kwh * energy_j / _KWH_J if per_kwh and energy_j is not None else None,
    }


def unpriced(machine: Machine, prices: Mapping[str, Any]) -> tuple[str, ...]:
    """Parts of the machine that an overlay of prices lacks; of a board (switches, adapters) none need one."""
    missing = dict.fromkeys(
        device.part_name
        for device in machine.devices.values()
        if device.part_name not in prices["parts"] and device.kind not in ("switch", "nic") and not _is_inside(device, machine)
    )
    return tuple(missing)


def _purchase(machine: Machine, prices: Mapping[str, Any]) -> float | None:
    """Price of all devices and memory of all nodes; None if a device that costs something has no price."""
    if unpriced(machine, prices):
        return None
    parts: Mapping[str, tuple[float, str]] = prices["parts"]
    total = 0.0
    for device in machine.devices.values():
        price, unit = parts.get(device.part_name, (0.0, ""))
        capacity = sum(tier.capacity_bytes for tier in machine.tiers.values() if tier.device == device.name)
        total += price * (capacity / 2.0**30 if unit == "GiB" else device.count)
    for tier in machine.tiers.values():
        entry = parts.get(tier.kind)
        if entry is not None and entry[1] == "GiB":
            total += entry[0] * tier.capacity_bytes / 2.0**30
    return total * machine.num_nodes
