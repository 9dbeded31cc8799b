"""One host's view of a machine that several hosts share."""

from __future__ import annotations

from dataclasses import replace

from sim.errors import Fault, InputError
from sim.topology.machine import Machine


def host_view(machine: Machine, host: str) -> Machine:
    """The machine without the devices of other hosts; shared switches and pools stay, under the same channel names.

    Raises InputError when the machine has no such host.
    """
    hosts = machine.hosts()
    if host not in hosts:
        known = ", ".join(hosts)
        raise InputError(Fault(what=f"unknown host {host!r} of {machine.name}", remedy=f"use one of {known}", path="jobs.host"))
    devices = {name: device for name, device in machine.devices.items() if device.host not in hosts or device.host == host}
    tiers = {name: tier for name, tier in machine.tiers.items() if tier.device in devices}
    return replace(
        machine,
        devices=devices,
        tiers=tiers,
        media={name: item for name, item in machine.media.items() if name in tiers},
        edges=tuple(edge for edge in machine.edges if {edge.source, edge.target} <= {*devices, "network"}),
    )
