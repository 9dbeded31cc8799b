"""What one job sees of a machine: its host's part where several hosts share it, and its own GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from sim.errors import Fault, InputError
from sim.records import Tier
from sim.topology.machine import Device, Machine


def host_view(machine: Machine, host: str) -> Machine:
    """The machine without the devices of other hosts; shared switches and pools stay, under the same channel names.

    A pool that is divided among hosts has the capacity that this one can come to hold: its grant, or with dynamic
    capacity all that the others were not granted. Raises InputError when the machine has no such host.
    """
    hosts = machine.hosts()
    if host not in hosts:
        known = ", ".join(hosts)
        raise InputError(Fault(what=f"unknown host {host!r} of {machine.name}", remedy=f"use one of {known}", path="jobs.host"))
    devices = {name: device for name, device in machine.devices.items() if device.host not in hosts or device.host == host}
    tiers = {name: _part_of(machine, tier, host) for name, tier in machine.tiers.items() if tier.device in devices}
    return _with_devices(machine, devices, tiers)


def job_view(machine: Machine, host: str = "", gpus: Sequence[str] = ()) -> Machine:
    """What a job on a host sees: all that the host reaches (the first, if none is named), of its GPUs only those named.

    As with CUDA_VISIBLE_DEVICES, the other GPUs, their memory and their links are out of its sight; sockets, switches and what
    hangs on them it shares with other jobs. Raises InputError for an unknown host.
    """
    hosts = machine.hosts()
    view = host_view(machine, host or hosts[0]) if host or len(hosts) > 1 else machine
    if not gpus:
        return view
    devices = {name: device for name, device in view.devices.items() if device.kind != "gpu" or name in gpus}
    tiers = {name: tier for name, tier in view.tiers.items() if tier.device in devices}
    return _with_devices(view, devices, tiers)


def _with_devices(machine: Machine, devices: Mapping[str, Device], tiers: Mapping[str, Tier]) -> Machine:
    """The machine with these devices and tiers, and what lies between them."""
    return replace(
        machine,
        devices=devices,
        tiers=tiers,
        media={name: item for name, item in machine.media.items() if name in tiers},
        edges=tuple(edge for edge in machine.edges if {edge.source, edge.target} <= {*devices, "network"}),
    )


def _part_of(machine: Machine, tier: Tier, host: str) -> Tier:
    device = machine.devices[tier.device]
    if not device.is_divided:
        return tier
    own = device.grants.get(host, 0.0)
    if device.part.get("dynamic_capacity"):
        own = tier.capacity_bytes - sum(size for name, size in device.grants.items() if name != host)
    return with_fields(tier, capacity_bytes=own)
