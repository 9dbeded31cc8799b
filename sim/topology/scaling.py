"""A machine with one resource scaled, past the lint: for sensitivities, not for machines that someone could buy.

Equal devices and the links between them scale together: half a pair of GPUs made faster is another question (patch the
topology for that one).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sim.laws.cpu_matrix import clock_hz, socket_rate
from sim.records import Channel
from sim.topology.machine import Device, Machine

Quantity = Literal["bandwidth", "latency", "capacity", "compute", "cores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One resource: `value` in SI (bytes/s, s, bytes, FLOP/s, cores) of one member; `owner` names it for people."""

    owner: str  # "gpu*.gddr", "cpu0<->gpu*.pcie"
    quantity: Quantity
    value: float
    devices: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``gpu*.gddr bandwidth``."""
        return f"{self.owner} {self.quantity}"


def knobs(machine: Machine) -> tuple[Knob, ...]:
    """Every resource of the machine, each channel, tier and device in exactly one group of equals per quantity."""
    groups = _device_groups(machine)
    label = {device: name for name, members in groups.items() for device in members}
    found: list[Knob] = []
    for name, members in groups.items():
        first = machine.devices[members[0]]
        if peak := _peak(first):
            found.append(Knob(owner=name, quantity="compute", value=peak, devices=members))
        elif first.kind == "cpu" and not machine.gpus():  # its clock: sockets that compute by themselves
            found.append(Knob(owner=name, quantity="compute", value=socket_rate(first.part, ()), devices=members))
        if start := _number(first.part.get("copy_latency")):
            found.append(Knob(owner=f"{name} copy engine", quantity="latency", value=start, devices=members))
        cores = machine.channels.get(f"{first.name}.cores")
        if cores is not None:
            channels = tuple(f"{member}.cores" for member in members)
            found.append(Knob(owner=name, quantity="cores", value=cores.bandwidth_per_s, devices=members, channels=channels))
    found += _tier_knobs(machine, label)
    found += _link_knobs(machine, label)
    return tuple(found)


def scaled(machine: Machine, knob: Knob, factor: float) -> Machine:
    """The machine with the knob's resource `factor` times as large (a latency: as long). Pure."""
    if knob.quantity == "capacity":
        tiers = {
            name: msgspec.structs.replace(tier, capacity_bytes=tier.capacity_bytes * factor) if name in knob.tiers else tier
            for name, tier in machine.tiers.items()
        }
        return dataclasses.replace(machine, tiers=tiers)
    channels = {
        name: _scaled_channel(channel, knob.quantity, factor) if name in knob.channels else channel
        for name, channel in machine.channels.items()
    }
    devices = {
        name: dataclasses.replace(device, part=_scaled_part(device.part, knob, factor)) if name in knob.devices else device
        for name, device in machine.devices.items()
    }
    changed = dataclasses.replace(machine, channels=channels, devices=devices)
    return _with_scaled_latencies(changed, knob, factor) if knob.quantity == "latency" else changed


def _scaled_channel(channel: Channel, quantity: Quantity, factor: float) -> Channel:
    if quantity != "latency":
        return msgspec.structs.replace(channel, bandwidth_per_s=channel.bandwidth_per_s * factor)
    if channel.latency is None:
        return channel
    law = msgspec.structs.replace(channel.latency, idle_latency_s=channel.latency.idle_latency_s * factor)
    return msgspec.structs.replace(channel, latency=law)


def _scaled_part(part: Mapping[str, object], knob: Knob, factor: float) -> dict[str, object]:
    """The datasheet numbers that kernels read straight from the part."""
    changed = dict(part)
    if knob.quantity == "compute":
        changed["compute"] = {name: rate * factor for name, rate in _table(part.get("compute")).items()}
        if part.get("kind") == "cpu" and not changed["compute"]:
            changed["clock"] = clock_hz(part) * factor
    elif knob.quantity == "cores":
        changed["cores"] = max(1, round(_number(part.get("cores")) * factor))
    elif knob.quantity == "latency":
        changed["copy_latency"] = _number(part.get("copy_latency")) * factor
    elif knob.quantity == "bandwidth" and isinstance(part.get("memory"), Mapping):
        memory = _table(part["memory"])
        changed["memory"] = {**memory, "bandwidth": memory["bandwidth"] * factor}
    return changed


def _with_scaled_latencies(machine: Machine, knob: Knob, factor: float) -> Machine:
    """Latencies that stand on wires and media instead of a channel."""
    own = set(knob.channels)
    edges = tuple(
        dataclasses.replace(edge, message_latency_s=edge.message_latency_s * factor) if own & set(edge.channels) else edge
        for edge in machine.edges
    )
    media = {
        name: dataclasses.replace(item, access_latency_s=item.access_latency_s * factor) if name in knob.tiers else item
        for name, item in machine.media.items()
    }
    return dataclasses.replace(machine, edges=edges, media=media)


def _device_groups(machine: Machine) -> dict[str, tuple[str, ...]]:
    """Label -> devices of one kind and part. One device keeps its name, several share the start of theirs."""
    members: dict[tuple[str, str], list[str]] = {}
    for name, device in machine.devices.items():
        members.setdefault((device.kind, device.part_name), []).append(name)
    groups: dict[str, tuple[str, ...]] = {}
    for names in members.values():
        label = names[0] if len(names) == 1 else f"{_common_start(names)}*"
        groups[label if label not in groups and label != "*" else "+".join(names)] = tuple(names)
    return groups


def _common_start(names: Sequence[str]) -> str:
    """``gpu`` of gpu0 and gpu1; digits at its end belong to the numbers."""
    length = next((i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), min(map(len, names)))
    return names[0][:length].rstrip("0123456789")


def _tier_knobs(machine: Machine, label: Mapping[str, str]) -> list[Knob]:
    groups: dict[str, list[str]] = {}
    for name, tier in machine.tiers.items():
        device = machine.media[name].device
        suffix = name.removeprefix(device)
        groups.setdefault(f"{label.get(device, device)}{suffix}|{tier.kind}", []).append(name)
    found: list[Knob] = []
    for key, names in groups.items():
        owner = key.split("|")[0]
        media = [machine.media[name] for name in names]
        channels = tuple(item.channel for item in media)
        port = machine.channels[channels[0]]
        # a GPU's kernels read the bandwidth of its memory from the part
        owners = tuple(item.device for item in media if machine.devices[item.device].kind == "gpu")
        found.append(Knob(owner=owner, quantity="bandwidth", value=port.bandwidth_per_s, devices=owners, channels=channels))
        latency = port.latency.idle_latency_s if port.latency else media[0].access_latency_s
        if latency:
            found.append(Knob(owner=owner, quantity="latency", value=latency, tiers=tuple(names), channels=channels))
        capacity = machine.tiers[names[0]].capacity_bytes
        found.append(Knob(owner=owner, quantity="capacity", value=capacity, tiers=tuple(names)))
    return found


def _link_knobs(machine: Machine, label: Mapping[str, str]) -> list[Knob]:
    groups: dict[str, dict[str, None]] = {}
    used = {item.channel for item in machine.media.values()}
    for edge in machine.edges:
        ends = sorted({_end(edge.source, label), _end(edge.target, label)})
        group = groups.setdefault(f"{'<->'.join(ends)}.{edge.link}", {})
        group.update(dict.fromkeys(name for name in edge.channels if name not in used))
    grouped = {name for group in groups.values() for name in group}
    for name, channel in machine.channels.items():
        if name not in grouped and name not in used and channel.unit == "bytes":
            groups[name] = {name: None}
    found: list[Knob] = []
    for owner, names in groups.items():
        channels = tuple(names)
        if not channels:
            continue
        first = machine.channels[channels[0]]
        found.append(Knob(owner=owner, quantity="bandwidth", value=first.bandwidth_per_s, channels=channels))
        if first.latency is not None and first.latency.idle_latency_s > 0:
            found.append(Knob(owner=owner, quantity="latency", value=first.latency.idle_latency_s, channels=channels))
    return found


def _end(device: str, label: Mapping[str, str]) -> str:
    base, dot, inner = device.partition(".io")
    return f"{label.get(base, base)}{dot}{inner}"


def _peak(device: Device) -> float:
    compute = _table(device.part.get("compute"))
    return max(
        (compute.get("bf16") or compute.get("fp16") or 0.0, *(() if compute.get("bf16") else compute.values())), default=0.0
    )


def _table(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
