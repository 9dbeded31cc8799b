"""Setting dotted paths in a scenario's nested mapping: what a sweep point, a baseline or a what-if changes."""

from __future__ import annotations

from collections.abc import Mapping

from sim.errors import Fault, InputError

_MACHINE_KEYS = frozenset({"base", "add", "set"})


def overlaid(document: Mapping[str, object], overlay: Mapping[str, object]) -> dict[str, object]:
    """A copy of `document` with every path of `overlay` set; shallower paths first, so that deeper ones refine them.

    ``topology.<device>...`` becomes an entry of ``topology.set`` (a built-in name or path turns into ``{base, set}``).
    ``jobs.<name>...`` sets a value of the job of that name, ``jobs.*...`` of every job.
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
        elif first == "jobs" and rest:
            result["jobs"] = _jobs(result.get("jobs"), rest, overlay[path])
        else:
            _set(result, path, overlay[path])
    return result


def _jobs(jobs: object, path: str, value: object) -> list[object]:
    """The list of jobs with the value set in those that `path` begins with."""
    name, _, rest = path.partition(".")
    listed = jobs if isinstance(jobs, list) else []
    names = [str(job.get("name", f"job{index}")) if isinstance(job, Mapping) else "" for index, job in enumerate(listed)]
    if (name not in names and name != "*") or not rest:
        what = f"no job is named {name!r}" if rest else "names no key of the job"
        raise InputError(Fault(what=what, remedy=f"jobs are {', '.join(names) or 'none'}; '*' means all", path=f"jobs.{path}"))
    changed = []
    for job, own in zip(listed, names, strict=True):
        if name in ("*", own) and isinstance(job, Mapping):
            job = dict(job)
            _set(job, rest, value)
        changed.append(job)
    return changed


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
