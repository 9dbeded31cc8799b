"""What a host's load from a shared device waits while the jobs of other hosts fill a port on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.experiment.shared import cpu_of_host, host_name, outstanding_bytes, tier_shares_of
from sim.laws.queueing import queueing_delay
from sim.placement.policies import CPU_TOUCHED
from sim.records import Struct
from sim.scenario import Job, Scenario
from sim.topology.machine import Machine

#: share of writes in the CPU optimizer's traffic, 12 of 28 bytes per parameter
_WRITE_SHARE = 0.43


class PoolLatency(Struct, frozen=True, kw_only=True):
    """Seconds of a dependent load from a pool: on an idle machine, and while the neighbours' threads work on it."""

    idle_s: float
    beside_s: float
    neighbours: tuple[str, ...] = ()


def pool_latencies(
    scenario: Scenario, pools: Sequence[str], spans_s: Sequence[tuple[float, float]]
) -> dict[str, dict[str, PoolLatency]]:
    """By job and pool that it uses. Neighbours are jobs of other hosts at the same time whose CPU works on states in that pool.

    A neighbour keeps its threads' lines in flight, those for the pool by the share of time that lines spend there.
    """
    spans = {job.name: span for job, span in zip(scenario.jobs, spans_s, strict=True)}
    found: dict[str, dict[str, PoolLatency]] = {}
    for job in scenario.jobs:
        used = {tier for entry in job.placement.entries for tier in tier_shares_of(scenario.machine, job, entry)}
        for pool in (name for name in pools if name in used):
            beside = [other for other in scenario.jobs if _is_neighbour(scenario.machine, job, other, spans)]
            held = [(other, size) for other in beside if (size := _in_flight(scenario.machine, other, pool)) > 0]
            row = _latency(scenario.machine, job, pool, held)
            found.setdefault(job.name, {})[pool] = row
    return found


def _is_neighbour(machine: Machine, job: Job, other: Job, spans: Mapping[str, tuple[float, float]]) -> bool:
    begin_s, end_s = (pick(spans[job.name][i], spans[other.name][i]) for i, pick in ((0, max), (1, min)))
    return host_name(machine, job) != host_name(machine, other) and begin_s < end_s


def _in_flight(machine: Machine, job: Job, pool: str) -> float:
    """Bytes that the job's update keeps in flight towards the pool."""
    cpu = cpu_of_host(machine, host_name(machine, job))
    most = 0.0
    for entry in job.placement.entries:
        shares = tier_shares_of(machine, job, entry) if entry.tensor_class in CPU_TOUCHED else {}
        waits = {tier: share * machine.latency(cpu, tier) for tier, share in shares.items()}
        if pool in waits:
            most = max(most, waits[pool] / sum(waits.values()))
    return most * outstanding_bytes(machine, job)


def _latency(machine: Machine, job: Job, pool: str, neighbours: Sequence[tuple[Job, float]]) -> PoolLatency:
    own = cpu_of_host(machine, host_name(machine, job))
    chase = machine.access(own, pool, num_cores=1)
    waiting: dict[str, list[tuple[float, float]]] = {name: [] for name, cost in chase.uses if cost > 0.0}
    for other, size in neighbours:
        route = machine.access(cpu_of_host(machine, host_name(machine, other)), pool, write_share=_WRITE_SHARE)
        for name, cost in route.uses:
            if name in waiting and cost > 0.0:
                waiting[name].append((size * cost, route.idle_latency_s))
    delays = [queueing_delay(machine.channels[name].bandwidth_per_s, rows) for name, rows in waiting.items()]
    names = tuple(other.name for other, _ in neighbours)
    return PoolLatency(idle_s=chase.idle_latency_s, beside_s=chase.idle_latency_s + max(delays, default=0.0), neighbours=names)
