"""The `topology:` block of a scenario: a machine by name or path, a machine patched in place, or one written inline.

    topology: epyc-9554p-2x4090
    topology:
      base: dgx-a100
      add: {cxl0: {part: ..., to: cpu0}}
      set: {gpu1.link.lanes: 8, nvme0: null}
      parts: {...}
      sources: {...}
    topology: {devices: {...}, links: {...}}

`set` writes one value each: a mapping is laid over what is there key by key, null removes. A machine written inline takes
`add` and `set` too, so that a sweep can change it.
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.config.locate import locate
from sim.config.machine import expanded, load_machine, machine_from, numbered
from sim.config.parts import load_parts, part_names
from sim.config.validation import FaultList, suggestion
from sim.config.yaml_source import Document, NodePath, describe, dotted, read_yaml
from sim.config.yaml_text import near_file
from sim.errors import Fault, InputError
from sim.held_out import held_out
from sim.kept import Kept
from sim.topology.machine import Machine
from sim.topology.parts import TIER_KINDS

#: what a machine says as a whole, and a scenario may set
_HEADING = ("nodes", "reserved", "memory_limit", "pinned_limit", "shared_limit", "shared_gpu_memory", "title")
#: kinds of memory after which results name a device's tier
TIER_NAMES = frozenset(TIER_KINDS.values())
_PATCH_KEYS = ("base", "add", "set", "parts", "sources")
_LINK_KEYS = ("between", "mesh", "pairs")
#: machines of the last points of sweeps: points differ in a few of their inputs, mostly not in their machine
_MACHINES: Kept[Machine] = Kept(64, lambda _: 1)
_SHORT_LINK = re.compile(r"(?P<part>[\w.-]+)-x(?P<lanes>[0-9]+)")


def machine_from_block(raw: object, document: Document, path: NodePath) -> Machine:
    """The machine of the block that stands at `path` of a scenario; the very same one for the same block of a sweep's points.

    Raises InputError (or MachineError) with every fault; faults of what the scenario adds or sets point at the scenario.
    """
    key = (document.file, path, repr(raw), _version(raw, document), held_out())
    return _MACHINES.get(key, lambda: _machine(raw, document, path))


def _version(raw: object, document: Document) -> tuple[object, ...]:
    """What tells whether the file of a named machine is still the one that was read."""
    name = raw.get("base") if isinstance(raw, Mapping) else raw
    if not isinstance(name, str):
        return ()
    with suppress(InputError, OSError):
        file = locate(name, "topologies", relative_to=Path(document.file).parent)
        status = file.stat()
        return (file, status.st_mtime_ns, status.st_size)
    return ()


def _machine(raw: object, document: Document, path: NodePath) -> Machine:
    if raw is None:
        raise InputError(
            document.fault(path, "missing key 'topology'", "add it: a built-in name, see `tiersim list topologies`")
        )
    if isinstance(raw, str):
        file = _located(raw, document, path)
        return load_machine(str(file))
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected a name or a mapping, got {describe(raw)}"))
    if "base" not in raw and "devices" in raw:
        written = {key: value for key, value in raw.items() if key not in ("add", "set")}
        inline = _inline(written, document, path)
        changes = {key: raw[key] for key in ("add", "set") if key in raw}
        if not changes:
            return machine_from(inline, name=Path(document.file).stem)
        _check_tables(changes, document, path).stop()
        return _Patch(expanded(inline), document, path).apply(changes)
    faults = FaultList(_misplaced(raw, document, path))
    if not isinstance(raw.get("base"), str):
        faults.append(document.fault(path, "missing key 'base'", "name the machine that is changed, or write 'devices'"))
    faults.extend(_check_tables(raw, document, path))
    faults.stop()
    base = expanded(read_yaml(_located(raw["base"], document, (*path, "base"))))
    patch = _Patch(base, document, path)
    machine = patch.apply(raw)
    title = machine.title if "title" in raw.get("set", {}) else f"{machine.title}, changed"
    return dataclasses.replace(machine, name=f"{Path(base.file).stem} (changed)", title=title)


def _misplaced(raw: Mapping[str, Any], document: Document, path: NodePath) -> Iterator[Fault]:
    """Keys of a changed machine that belong under `set`, and unknown ones."""
    for key in raw:
        if key in _HEADING:
            yield document.fault((*path, key), f"{key!r} does not stand beside 'base'", f"write set: {{{key}: ...}}")
        elif key not in _PATCH_KEYS:
            remedy = suggestion(key, _PATCH_KEYS)
            known = remedy.startswith("known")
            more = "; a field of a device is changed by set: {gpu0.power_cap: 250 W}" if known else ""
            yield document.fault((*path, key), f"unknown key {key!r}", remedy + more)


def _check_tables(raw: Mapping[str, Any], document: Document, path: NodePath) -> FaultList:
    """Faults of tables that are no mappings."""
    return FaultList(
        document.fault((*path, key), f"expected a mapping, got {describe(raw[key])}")
        for key in ("add", "set", "parts", "sources")
        if not isinstance(raw.get(key, {}), Mapping)
    )


def _located(name: str, document: Document, path: NodePath) -> Path:
    try:
        file = locate(name, "topologies", relative_to=Path(document.file).parent)
    except InputError as error:
        raise InputError([document.fault(path, fault.what, fault.remedy) for fault in error.faults]) from None
    if file.is_dir():
        raise InputError(document.fault(path, f"{name!r} is a folder", "name a file in it"))
    if not file.exists():
        remedy = near_file(file) or "paths are relative to this file"
        raise InputError(document.fault(path, f"no such topology file: {name!r}", remedy))
    return file


def _inline(raw: Mapping[str, Any], document: Document, path: NodePath) -> Document:
    """The block as a document of its own, so that its nodes keep their lines."""
    depth = len(path)
    positions = {key[depth:]: value for key, value in document.positions.items() if key[:depth] == path}
    return Document(file=document.file, data=dict(raw), positions=positions)


class _Patch:
    """Changes a topology document and remembers which node comes from the scenario."""

    def __init__(self, base: Document, scenario: Document, path: NodePath) -> None:
        self.base, self.scenario, self.path = base, scenario, path
        self.data: dict[str, Any] = copy.deepcopy(base.data)
        self.origin: dict[NodePath, NodePath] = {}  # node of the machine -> where the scenario wrote it
        self.faults = FaultList()

    def apply(self, raw: Mapping[str, Any]) -> Machine:
        for table in ("parts", "sources"):
            for name, entry in raw.get(table, {}).items():
                self._put((table, name), entry, (*self.path, table, name))
        for name, entry in raw.get("add", {}).items():
            is_link = isinstance(entry, Mapping) and any(key in entry for key in _LINK_KEYS)
            self._put(("links" if is_link else "devices", name), entry, (*self.path, "add", name))
        for target, value in raw.get("set", {}).items():
            for single in self._meant(target):
                self._set(single, value, (*self.path, "set", target))
        try:
            machine = machine_from(dataclasses.replace(self.base, data=self.data), name=Path(self.base.file).stem)
        except InputError as error:
            found = [self._placed(fault) for fault in error.faults]
            raise type(error)([*self.faults, *self._blamed(found)]) from None
        self.faults.stop()
        return machine

    def _put(self, target: tuple[str, str], value: Any, source: NodePath) -> None:
        table, name = target
        entries = self.data.setdefault(table, {})
        if name in entries:
            what = f"{name!r} is already in {self.base.file}"
            self.faults.append(self.scenario.fault(source, what, f"change it with set: {{{name}.<key>: value}}"))
            return
        entries[name] = copy.deepcopy(value)
        self.origin[target] = source

    def _meant(self, target: str) -> list[str]:
        """The targets of a `set` key: `gpu*` and `gpu[0-7]` mean every device or link of such a name."""
        pattern, dot, rest = target.partition(".")
        names = [*self.data.get("devices", {}), *self.data.get("links", {})]
        range_ = numbered(pattern)
        found = [name for name in names if name in range_] if range_ else fnmatch.filter(names, pattern)
        return [name + dot + rest for name in found] if found and pattern not in names else [target]

    def _set(self, target: str, value: Any, source: NodePath) -> None:
        name, *keys = target.removeprefix("parts.").split(".")
        table = next((kind for kind in ("devices", "links", "parts") if name in self.data.get(kind, {})), None)
        if table is None and not keys and name in _HEADING:
            self.data[name] = value
            self.origin[(name,)] = source
            return
        if table is None:
            known = [*self.data.get("devices", {}), *self.data.get("links", {}), *_HEADING]
            what = f"unknown device or link {name!r}"
            self.faults.append(self.scenario.fault(source, what, suggestion(name, known)))
            return
        if not keys and value is None:
            del self.data[table][name]
            return
        keys = _of_memory(self.data[table][name], keys)
        if keys[:1] == ["memory"] and (remedy := self._soldered(name, keys[1:])):
            what = f"{name} has no memory modules, its memory is part of it"
            self.faults.append(self.scenario.fault(source, what, remedy))
            return
        node = self.data[table]
        for key in (name, *keys)[:-1]:
            node = _opened(node, key)
        last = (name, *keys)[-1]
        if isinstance(value, Mapping):
            _lay(_opened(node, last), value)
        else:
            node[last] = copy.deepcopy(value)
        self.origin[(table, name, *keys)] = source

    def _soldered(self, name: str, keys: list[str]) -> str:
        """How to change the memory of a device that has no DIMM slots; empty for a socket."""
        entry = self.data["devices"].get(name)
        part = entry.get("part") if isinstance(entry, Mapping) else None
        own = self.data.get("parts", {}).get(part)
        kind = own.get("kind") if isinstance(own, Mapping) else None
        if kind is None and part in part_names():
            kind = load_parts([str(part)]).parts[str(part)].kind
        if kind is None or kind == "cpu":
            return ""
        if keys[:1] in ([], ["capacity"]):
            return f"write {name}.capacity"
        derived = f"write topology.parts: {{mine: {{base: {part}, memory.{'.'.join(keys)}: ...}}}} and set {name}.part: mine"
        return derived if kind == "gpu" and part in part_names() else "define the part in topology.parts"

    def _placed(self, fault: Fault) -> Fault:
        """The fault at its place in the scenario if it is about something that the scenario wrote, or about what holds that."""
        above: NodePath = ()
        for target, source in self.origin.items():
            written = dotted(target)
            inner = fault.path.removeprefix(written)
            if inner != fault.path and inner[:1] in ("", ".", "["):
                path = dotted(source) + inner
                return dataclasses.replace(fault, file=self.scenario.file, line=self.scenario.line(source), path=path)
            if fault.path and written.startswith(f"{fault.path}."):
                above = source
        if not above:
            return fault
        return dataclasses.replace(fault, file=self.scenario.file, line=self.scenario.line(above), path=dotted(above))

    def _blamed(self, faults: list[Fault]) -> list[Fault]:
        """Faults that show elsewhere in a machine that had none before it was changed: they point at the changes."""
        left = [fault for fault in faults if fault.file != self.scenario.file]
        if not left or not self.origin:
            return faults
        try:
            machine_from(self.base)
        except InputError:
            return faults
        return [self._changed(fault) if fault in left else fault for fault in faults]

    def _changed(self, fault: Fault) -> Fault:
        """A fault of the machine as changed, at the line where the scenario changes it."""
        what = f"{Path(self.base.file).stem} as changed here: {dataclasses.replace(fault, file='', line=0, remedy='')}"
        return self.scenario.fault(self.path, what, fault.remedy)


def _of_memory(entry: object, keys: list[str]) -> list[str]:
    """`cpu0.dram.capacity`, as results name the tier, is `cpu0.memory.capacity`; `gpu0.hbm.capacity` is `gpu0.capacity`."""
    has_dimms = isinstance(entry, Mapping) and "memory" in entry
    if not keys or not (keys[0] in TIER_NAMES or (keys[0] == "memory" and keys[1:] == ["capacity"] and not has_dimms)):
        return keys
    rest = keys[1:] or ["capacity"]
    return ["memory", *rest] if has_dimms else rest


def _lay(target: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Write `changes` into nested mappings key by key; null removes a key."""
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _lay(_opened(target, key), value)
        else:
            target[key] = copy.deepcopy(value)


def _opened(node: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping below `key`, made if absent; the short form 'pcie5-x8' is written out."""
    inner = node.get(key)
    if isinstance(inner, str) and (match := _SHORT_LINK.fullmatch(inner)):
        inner = {"part": match["part"], "lanes": int(match["lanes"])}
    opened: dict[str, Any] = dict(inner) if isinstance(inner, Mapping) else {}
    node[key] = opened
    return opened
