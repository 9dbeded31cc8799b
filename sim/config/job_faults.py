"""Faults that only show when jobs meet a machine: hosts, tiers, grants, ranks and layers that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from sim.config.validation import FaultList
from sim.config.yaml_source import Document, NodePath
from sim.errors import Fault, InputError
from sim.placement.plan import Entry
from sim.scenario import Job
from sim.topology import walk
from sim.topology.machine import Machine
from sim.topology.view import job_view
from sim.workload import frameworks
from sim.workload.consistency import faults_of
from sim.workload.inference import Inference
from sim.workload.training import Training


def job_faults(machine: Machine, jobs: tuple[Job, ...], document: Document) -> list[Fault]:
    """Every fault of the jobs on this machine, with its place in the scenario."""
    if not machine.gpus() and not all(isinstance(job.workload, Inference) for job in jobs):
        remedy = "add one: topology: {base, add: {gpu0: {part: ..., to: cpu0}}}"
        return [document.fault(("topology",), f"machine {machine.name} has no GPU to run on", remedy)]
    faults = FaultList()
    for index, job in enumerate(jobs):
        path: NodePath = ("jobs", index) if "jobs" in document.data else ()
        view = machine
        if path:
            if job.host and job.host not in machine.hosts():
                remedy = f"hosts are {', '.join(machine.hosts())}"
                faults.append(document.fault((*path, "host"), f"no host {job.host!r} in machine {machine.name}", remedy))
                continue
            whole = job_view(machine, job.host)
            unknown = [name for name in job.gpus if name not in whole.gpus()]
            if unknown:
                remedy = f"its GPUs are {', '.join(whole.gpus()) or 'none'}"
                faults.append(document.fault((*path, "gpus"), f"no GPU {', '.join(unknown)} on its host", remedy))
                continue
            view = job_view(machine, job.host, job.gpus)
            if not view.gpus() and not isinstance(job.workload, Inference):
                what = f"host {job.host or machine.hosts()[0]!r} has no GPU to run on"
                faults.append(document.fault((*path, "host"), what, "run the job on another host, or add a GPU to this one"))
                continue
        for entry in job.placement.entries:
            faults += _entry_faults(view, job, entry, document, (*path, "placement", entry.tensor_class.value))
        if isinstance(job.workload, Training):
            for key, tier in _named_tiers(job.workload):
                here = (*path, "workload", "training", *key)
                faults += _tier_faults(view, tier, document, here)[1]
            faults += _training_faults(job, len(view.gpus()) * machine.num_nodes, document, path)
        elif isinstance(job.workload, Inference):
            from sim.config.inference_faults import inference_faults

            faults += inference_faults(job, view, document, path)
    return list(dict.fromkeys(faults))


def _entry_faults(view: Machine, job: Job, entry: Entry, document: Document, here: NodePath) -> list[Fault]:
    """Tiers of one placement entry that are not there, out of reach, not granted, or not coherent."""
    faults: list[Fault] = []
    homes: list[str] = []  # hosts of the tiers; a pool's is empty
    listed = entry.options.get("tiers", ())
    for tier in listed if isinstance(listed, (list, tuple)) else ():
        faults += _tier_faults(view, str(tier), document, (*here, "options", "tiers"))[1]
    for tier in entry.shares:
        name, found = _tier_faults(view, tier, document, (*here, tier))
        faults += found
        if not name:
            continue
        device = view.devices[view.tiers[name].device]
        if device.is_divided and view.tiers[name].capacity_bytes <= 0:
            what = f"{name} grants nothing to {job.host or view.hosts()[0]}"
            faults.append(
                document.fault((*here, tier), what, f"grant it a part: topology: {{set: {{{device.name}.grants: ...}}}}")
            )
        if entry.shared and not device.host and not device.part.get("back_invalidate"):
            what = f"{name} keeps hosts coherent only with back-invalidate, {device.part_name} has none"
            faults.append(document.fault((*here, "shared"), what, "share nothing there, or use a CXL 3 pool device"))
        homes.append(device.host)
    if entry.shared and homes and all(homes):
        what = "what is shared lies in memory of one host only"
        faults.append(document.fault((*here, "shared"), what, "place part of it on a pool that several hosts reach"))
    return faults


def _tier_faults(view: Machine, tier: str, document: Document, here: NodePath) -> tuple[str, list[Fault]]:
    """Name of the tier as the first GPU of the machine sees it (its first socket without one), or why there is none."""
    gpu = view.seats()[0]
    try:
        name = view.resolve(tier, gpu)
    except InputError as error:
        return "", [document.fault(here, fault.what, fault.remedy) for fault in error.faults]
    is_own = view.devices[view.media[name].device].host == view.devices[gpu].host  # what hangs on a host, it reaches
    if not is_own and walk.path(view, gpu, view.media[name].device) is None:
        what = f"no way from {gpu} to {name} in machine {view.name}"
        return "", [document.fault(here, what, "join them by a link, or name a tier of the job's own host")]
    return name, []


def _named_tiers(training: Training) -> Iterator[tuple[NodePath, str]]:
    """Tiers that the training block itself names, each with its keys."""
    if training.data is not None and training.data.bytes_per_sample > 0:
        yield ("data", "storage"), training.data.storage
    if training.save.every > 0:
        yield ("save", "to"), training.save.to


def _training_faults(job: Job, num_gpus: int, document: Document, path: NodePath) -> list[Fault]:
    training = job.workload
    assert isinstance(training, Training)
    faults: list[Fault] = []
    here = (*path, "workload", "training")
    if training.framework not in frameworks.PROFILES:
        what = f"unknown framework {training.framework!r}"
        faults.append(document.fault((*here, "framework"), what, frameworks.remedy(training.framework)))
    split = training.parallelism
    world = split.data * split.tensor * split.pipeline * split.context
    if world > num_gpus:
        what = f"data x tensor x pipeline x context = {world} ranks, but the machine has {num_gpus} GPUs"
        faults.append(document.fault((*here, "parallelism"), what, "lower one, or take a larger machine"))
    faults += [document.fault((*path, *fault.path.split(".")), fault.what, fault.remedy) for fault in faults_of(training)]
    for entry in job.placement.entries:
        if entry.layers is not None and entry.layers[1] >= training.model.layers:
            what = f"layers {entry.layers[0]}-{entry.layers[1]}: the model has layers 0-{training.model.layers - 1}"
            faults.append(document.fault((*path, "placement", entry.tensor_class.value), what))
    return faults
