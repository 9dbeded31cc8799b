"""Topology files to machines: base, add and set; the parts that are named; the machine that follows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config.locate import locate
from sim.config.parts import Catalogue, Source, load_parts, part_names, read_part
from sim.config.validation import refuse_unknown, suggestion, validate
from sim.config.yaml_source import Document, NodePath, describe, read_yaml
from sim.errors import Fault, InputError
from sim.topology.build import build
from sim.topology.description import DeviceEntry, Heading, LinkEntry, Topology
from sim.topology.machine import Machine
from sim.topology.parts import Part

_RANGE = re.compile(r"(?P<stem>[A-Za-z][\w-]*)\[(?P<first>[0-9]+)-(?P<last>[0-9]+)\]")
_MOST_DEVICES = 4096
_SHORT_LINK = re.compile(r"(?P<part>[\w.-]+)-x(?P<lanes>[0-9]+)")


def load_machine(name_or_path: str) -> Machine:
    """The machine of a built-in topology or of a topology file.

    Raises InputError with every fault of the file, MachineError when the machine that it describes cannot exist.
    """
    path = locate(name_or_path, "topologies")
    document = read_yaml(path)
    if "workload" in document.data or "jobs" in document.data:
        what = "this is a scenario, a topology is expected"
        raise InputError(document.fault((), what, "name its machine, or a topology file (`devices:`)"))
    return machine_from(document, name=Path(path).stem)


def machine_from(document: Document, *, name: str = "") -> Machine:
    """The machine of a topology document that is already read (and patched)."""
    document = expanded(document)
    topology = read_topology(document, name=name)
    catalogue = _parts_of(topology, document)
    _inline, keys = _inline_parts(document, [])
    cited = catalogue.sources | {part: {path: str(source) for path, source in table.items()} for part, table in keys.items()}
    try:
        return build(topology, catalogue.parts, cited, file=document.file)
    except InputError as error:
        faults = [dataclasses.replace(fault, line=fault.line or _line(document, fault.path)) for fault in error.faults]
        raise type(error)(faults) from None


def expanded(document: Document) -> Document:
    """The document with every range key written out: `gpu[0-7]` is eight devices, and its `to: switch[0-3]` deals them
    out in blocks (two to each switch). Each device keeps the line of the range."""
    devices = document.data.get("devices")
    if not isinstance(devices, dict) or not any(_RANGE.fullmatch(name) for name in devices):
        return document
    written: dict[str, Any] = {}
    positions = dict(document.positions)
    for name, entry in devices.items():
        names = _range(name, document, ("devices", name)) or [name]
        below = {key[2:]: value for key, value in positions.items() if key[:2] == ("devices", name)}
        for index, single in enumerate(names):
            if single in written:
                raise InputError(document.fault(("devices", name), f"device {single!r} is named twice"))
            written[single] = _dealt(entry, index, len(names), document, ("devices", name, "to"))
            positions |= {("devices", single, *rest): value for rest, value in below.items()}
    return dataclasses.replace(document, data={**document.data, "devices": written}, positions=positions)


def _range(name: str, document: Document, path: NodePath) -> list[str]:
    match, names = _RANGE.fullmatch(name), numbered(name)
    if match and not names:
        what = f"the range {name!r} names {int(match['last']) - int(match['first']) + 1} devices"
        raise InputError(document.fault(path, what, f"from the lower to the higher, at most {_MOST_DEVICES}"))
    return names


def numbered(name: str) -> list[str]:
    """The names that a range such as `gpu[0-7]` means; none for any other name and for an impossible range."""
    match = _RANGE.fullmatch(name)
    first, last = (int(match["first"]), int(match["last"])) if match else (0, -1)
    return [f"{match['stem']}{i}" for i in range(first, last + 1)] if match and last < first + _MOST_DEVICES else []


def _dealt(entry: object, index: int, num: int, document: Document, path: NodePath) -> object:
    if not isinstance(entry, dict) or not isinstance(entry.get("to"), str):
        return entry
    targets = _range(entry["to"], document, path)
    return {**entry, "to": targets[index * len(targets) // num]} if targets else entry


def read_topology(document: Document, *, name: str = "") -> Topology:
    """The description in a topology document; raises InputError with every fault of form."""
    data: dict[str, Any] = dict(document.data)
    known = (*(item.name for item in dataclasses.fields(Topology)), "sources")
    faults = refuse_unknown(data, known, document, ())
    if "devices" not in data:
        faults.append(document.fault(("devices",), "missing key 'devices'", "add it: devices by name"))
    inline, _keys = _inline_parts(document, faults)
    devices = _entries(DeviceEntry, data.get("devices", {}), document, "devices", faults)
    links = _entries(LinkEntry, data.get("links", {}), document, "links", faults)
    heading = Heading()
    try:
        names = {item.name for item in dataclasses.fields(Heading)}
        heading = validate(Heading, {key: value for key, value in data.items() if key in names}, document)
    except InputError as error:
        faults.extend(error.faults)
    if faults:
        raise InputError(faults)
    fields = {item.name: getattr(heading, item.name) for item in dataclasses.fields(Heading)}
    return Topology(**fields | {"name": heading.name or name}, parts=inline, devices=devices, links=links)


def _inline_parts(document: Document, faults: list[Fault]) -> tuple[dict[str, Part], dict[str, dict[str, Source]]]:
    """Parts that the file itself defines, and the source of each of their numbers (keys of its `sources` table)."""
    table: dict[str, Source] = {}
    inline: dict[str, Part] = {}
    keys: dict[str, dict[str, Source]] = {}
    for key, raw in _table(document.data.get("sources", {}), document, ("sources",), faults).items():
        try:
            table[key] = validate(Source, raw, document, ("sources", key))
        except InputError as error:
            faults.extend(error.faults)
    for key, raw in _table(document.data.get("parts", {}), document, ("parts",), faults).items():
        try:
            inline[key], keys[key] = read_part(raw, document, ("parts", key), table)
        except InputError as error:
            faults.extend(error.faults)
    return inline, keys


def _table(raw: object, document: Document, path: NodePath, faults: list[Fault]) -> Mapping[str, Any]:
    if isinstance(raw, dict):
        return raw
    faults.append(document.fault(path, f"expected a mapping, got {describe(raw)}"))
    return {}


def _entries(kind: type[Any], raw: object, document: Document, key: str, faults: list[Fault]) -> dict[str, Any]:
    entries = {}
    for name, entry in _table(raw, document, (key,), faults).items():
        try:
            entries[name] = validate(kind, _long_form(entry, document, (key, name)), document, (key, name))
        except InputError as error:
            faults.extend(error.faults)
    return entries


def _long_form(entry: object, document: Document, path: NodePath) -> object:
    """'pcie5-x8' -> {part: pcie5, lanes: 8}; a single `to` -> a list of one."""
    if not isinstance(entry, dict):
        return entry
    entry = dict(entry)
    if isinstance(short := entry.get("link"), str):
        match = _SHORT_LINK.fullmatch(short)
        if not match:
            what = f"expected a link such as 'pcie5-x8', got {short!r}"
            raise InputError(document.fault((*path, "link"), what, "or write {part: pcie5, lanes: 8}"))
        entry["link"] = {"part": match["part"], "lanes": int(match["lanes"])}
    if isinstance(entry.get("to"), str):
        entry["to"] = [entry["to"]]
    return entry


def _line(document: Document, dotted: str) -> int:
    return document.line(tuple(dotted.split("."))) if dotted else 0


def _parts_of(topology: Topology, document: Document) -> Catalogue:
    """The parts that the topology names; an unknown one is reported where it is named, and all of them at once."""
    named: list[tuple[NodePath, str]] = []
    for name, entry in topology.devices.items():
        named.append((("devices", name, "part"), entry.part))
        if entry.memory:
            named.append((("devices", name, "memory", "part"), entry.memory.part))
        if entry.link and entry.link.part:
            named.append((("devices", name, "link", "part"), entry.link.part))
    named += [(("links", name, "part"), entry.part) for name, entry in topology.links.items()]
    known = {*part_names(), *topology.parts}
    unknown = [(path, part) for path, part in named if part not in known]
    if unknown:
        remedies = {part: suggestion(part, known) if part else "" for _path, part in unknown}
        raise InputError([document.fault(path, f"unknown part {part!r}", _short(remedies[part])) for path, part in unknown])
    return load_parts([part for _path, part in named], inline=topology.parts)


def _short(remedy: str) -> str:
    return remedy if remedy.startswith("did you mean") else "see `tiersim list parts`"
