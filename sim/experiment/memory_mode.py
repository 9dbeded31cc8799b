"""Persistent memory in memory mode: how much of it the jobs use decides how often its DRAM answers."""

from __future__ import annotations

import dataclasses

from sim.placement.capacity import capacity_plan
from sim.scenario import Scenario
from sim.topology.graph import Behind
from sim.topology.machine import Machine
from sim.topology.view import job_view
from sim.units import format_bytes
from sim.workload.inference import Inference
from sim.workload.training import Training


def with_working_sets(scenario: Scenario) -> Scenario:
    """The scenario on a machine whose caches of persistent memory hold what its jobs keep there; else as it is.

    The working set of a tier is the peak of the memory plan: host memory that a step does not touch counts as touched.
    """
    cached = [name for name, media in scenario.machine.media.items() if media.behind is not None]
    if not cached:
        return scenario
    used = dict.fromkeys(cached, 0.0)
    for job in scenario.jobs:
        if isinstance(job.workload, (Training, Inference)):
            view = job_view(scenario.machine, job.host, job.gpus)
            for name, need in capacity_plan(job.workload, job.placement, view).items():
                if name in used:
                    used[name] += min(need.peak_bytes, scenario.machine.tiers[name].capacity_bytes)
    return dataclasses.replace(scenario, machine=_filled(scenario.machine, used))


def _filled(machine: Machine, used: dict[str, float]) -> Machine:
    media = {name: item.filled(used[name]) if name in used else item for name, item in machine.media.items()}
    notes = tuple(_note(name, size, behind) for name, size in used.items() if (behind := media[name].behind) is not None)
    return dataclasses.replace(machine, media=media, assumptions=(*machine.assumptions, *notes))


def _note(name: str, size: float, behind: Behind) -> str:
    pages = "scattered" if behind.is_scattered else "contiguous"
    return (
        f"{name}: {format_bytes(behind.cache_bytes)} of DRAM as a cache, {format_bytes(size)} of pages in use ({pages}): "
        f"{100 * (1 - behind.miss_share):.0f} % of the lines hit"
    )
