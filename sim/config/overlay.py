"""Setting dotted paths in a scenario's nested mapping: what a sweep point, a baseline or a what-if changes."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import Fault, InputError

_MACHINE_KEYS = frozenset({"base", "add", "set"})


def overlaid(document: Mapping[str, object], overlay: Mapping[str, object]) -> dict[str, object]:
    """A copy of `document` with every path of `overlay` set; shallower paths first, so that deeper ones refine them.

    ``topology.<device>...`` becomes an entry of ``topology.set`` (a built-in name or path turns into ``{base, set}``).
    Only the mappings on a path are copied; the rest is shared and must not be mutated. Raises InputError if a path
    leads through something that is not a mapping.
    """
    result = dict(document)
    for path in sorted(overlay, key=lambda path: path.count(".")):
        first, _, rest = path.partition(".")
        if first == "topology" and rest and rest.partition(".")[0] not in _MACHINE_KEYS:
            machine = result.get("topology")
            patched = dict(machine) if isinstance(machine, Mapping) else {"base": machine}
            patched["set"] = {**_mapping(patched.get("set"), "topology.set"), rest: overlay[path]}
            result["topology"] = patched
        else:
            _set(result, path, overlay[path])
    return result


def _set(target: dict[str, object], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for depth, name in enumerate(parents, start=1):
        inner = dict(_mapping(target.get(name), ".".join(parents[:depth])))
        target[name] = inner
        target = inner
    target[last] = value


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(Fault(what=f"cannot set a value inside {value!r}", remedy="write it as a mapping", path=path))
    return value
