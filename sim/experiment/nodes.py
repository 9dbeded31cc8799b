"""Weights that a CPU computes on, over the NUMA nodes of its host: spread by plan, or because one node cannot hold them."""

from __future__ import annotations

import dataclasses

from sim.placement.capacity import plan_footprint
from sim.placement.plan import Entry
from sim.records import TensorClass
from sim.scenario import Job
from sim.topology.machine import Machine
from sim.workload.inference import Inference


def over_nodes(job: Job, machine: Machine) -> Job:
    """The job with such weights placed on the DRAM of each node by name, so that remote pages cross the socket link.

    With `all_sockets` every node has an equal part; otherwise the node of the rank is filled first, as Linux does.
    """
    inference = job.workload
    if not isinstance(inference, Inference) or not inference.splits_weights or inference.tensor_parallel > 1:
        return job
    entries = [entry for entry in job.placement.entries if entry.tensor_class == TensorClass.WEIGHTS]
    if any(set(entry.shares) != {"dram"} or entry.layers is not None for entry in entries):
        return job
    home = machine.host_of(machine.seats()[0])
    sockets = [name for name, device in machine.devices.items() if device.kind == "cpu" and name != home]
    near = [name for name in sockets if machine.devices[name].host == machine.devices[home].host]
    nodes = dict.fromkeys(machine.resolve("dram", name) for name in (home, *near))
    shares = _shares(job, machine, inference, tuple(nodes))
    if len(shares) < 2:
        return job
    others = tuple(entry for entry in job.placement.entries if entry.tensor_class != TensorClass.WEIGHTS)
    moved = Entry(tensor_class=TensorClass.WEIGHTS, shares=shares)
    return dataclasses.replace(job, placement=dataclasses.replace(job.placement, entries=(*others, moved)))


def _shares(job: Job, machine: Machine, inference: Inference, nodes: tuple[str, ...]) -> dict[str, float]:
    if inference.all_sockets:
        return dict.fromkeys(nodes, 1.0 / len(nodes))
    seat = machine.seats()[0]
    found = plan_footprint(inference, job.placement, machine)
    roles = {
        role for role in found.tiers() if (machine.memory_tier(seat) if role == "gpu" else machine.resolve(role, seat)) in nodes
    }
    whole = found.peak_of(lambda term: term.tier in roles and term.tensor_class == TensorClass.WEIGHTS).size_bytes
    others = found.peak_of(lambda term: term.tier in roles and term.tensor_class != TensorClass.WEIGHTS).size_bytes
    rooms = {name: machine.tiers[name].capacity_bytes - (others if name == nodes[0] else 0.0) for name in nodes}
    if whole <= rooms[nodes[0]] or whole > sum(rooms.values()):  # one node holds all, or all of them do not
        return {}
    first = max(0.0, rooms[nodes[0]])
    rest = sum(rooms[name] for name in nodes[1:])
    return {nodes[0]: first / whole} | {name: (1.0 - first / whole) * rooms[name] / rest for name in nodes[1:]}
