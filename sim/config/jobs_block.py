"""The jobs of a scenario: a list of them, or the one that its own workload and placement describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.config.machine import numbered
from sim.config.placement_block import placement_from
from sim.config.validation import FaultList, refuse_unknown
from sim.config.workload_block import workload_from
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import InputError
from sim.placement.plan import Placement
from sim.scenario import Job
from sim.units import parse
from sim.workload.training import Training

#: what a `workload:` is, as `check` and the schema say it
WORKLOAD_MEANING = "exactly one of training, inference, trace"
_JOB_KEYS = ("name", "host", "gpus", "workload", "placement", "start", "after", "steps")


def jobs_from(document: Document) -> tuple[Job, ...]:
    """The jobs of a scenario document; raises InputError with every fault of theirs."""
    data = document.data
    if "jobs" not in data:
        if "workload" not in data:
            raise InputError(document.fault((), "missing key 'workload'", f"add it: {WORKLOAD_MEANING}"))
        return (_job(data, document, ()),)
    faults = FaultList()
    for key in ("workload", "placement"):
        if key in data:
            faults.append(document.fault((key,), f"both 'jobs' and {key!r} are given", "move it into the jobs"))
    if not isinstance(data["jobs"], list) or not data["jobs"]:
        what = f"expected a list of jobs, got {describe(data['jobs'])}"
        faults.append(document.fault(("jobs",), what, "- {host, workload, placement, start}"))
        faults.stop()
    jobs: list[Job] = []
    for index, raw in enumerate(data["jobs"]):
        path = ("jobs", index)
        with faults.collect():
            if not isinstance(raw, Mapping):
                raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}"))
            faults += refuse_unknown(raw, _JOB_KEYS, document, path)
            if "workload" not in raw:
                raise InputError(document.fault(path, "missing key 'workload'", f"add it: {WORKLOAD_MEANING}"))
            jobs.append(_job(raw, document, path, name=str(raw.get("name", f"job{index}"))))
    names = [job.name for job in jobs]
    faults += [
        document.fault(("jobs",), f"two jobs are named {n!r}", "rename one") for n in {n for n in names if names.count(n) > 1}
    ]
    for index, job in enumerate(jobs):
        if job.after and (job.after not in names[:index]):
            what = f"no job {job.after!r} before this one"
            known = ", ".join(names[:index]) or "none"
            faults.append(document.fault(("jobs", index, "after"), what, f"jobs before it are {known}"))
    faults.stop()
    return tuple(jobs)


def _gpus(raw: object, document: Document, path: NodePath) -> tuple[str, ...]:
    """`gpu[4-7]`, `gpu0` or a list of such names."""
    listed: list[Any] = raw if isinstance(raw, list) else [raw]
    if not listed or not all(isinstance(name, str) for name in listed):
        raise InputError(document.fault(path, f"expected names of GPUs, got {describe(raw)}", "gpu[0-3], or [gpu0, gpu1]"))
    return tuple(dict.fromkeys(single for name in listed for single in (numbered(name) or [name])))


def _job(raw: Mapping[str, Any], document: Document, path: NodePath, *, name: str = "") -> Job:
    faults = FaultList()
    workload = None
    placement = Placement()
    start_s = 0.0
    with faults.collect():
        workload = workload_from(raw["workload"], document, (*path, "workload"))
    is_offloaded = isinstance(workload, Training) and workload.optimizer.offload
    with faults.collect():
        placement = placement_from(raw.get("placement"), document, (*path, "placement"), is_optimizer_offloaded=is_offloaded)
    try:
        start_s = parse(raw.get("start", 0), "time")
    except ValueError as error:
        faults.append(document.fault((*path, "start"), str(error)))
    gpus: tuple[str, ...] = ()
    with faults.collect():
        gpus = _gpus(raw["gpus"], document, (*path, "gpus")) if "gpus" in raw else ()
    steps = raw.get("steps", 1)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        what = f"expected how many steps the job runs, got {describe(steps)}"
        faults.append(document.fault((*path, "steps"), what, "a whole number from 1 up"))
    faults.stop()
    assert workload is not None
    return Job(
        workload=workload,
        placement=placement,
        host=str(raw.get("host", "")),
        gpus=gpus,
        start_s=start_s,
        after=str(raw.get("after", "")),
        steps=steps,
        name=name,
    )
