"""The short form of a scenario (`training:` at the top, as training configurations have it) and what it leaves open."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from sim.config.overlay import overlaid
from sim.config.workload_block import KINDS, short_form
from sim.config.yaml_source import Document
from sim.errors import Fault
from sim.topology.machine import Machine

#: value of `parallelism.data` that means every GPU
ALL = "all"
#: what the short form stands on when it says nothing else: the box and the model of the article it comes from
_SHORT_TOPOLOGY, _SHORT_MODEL = "epyc-9554p-2x4090", "llama-2-13b"


def written_out(document: Document, faults: list[Fault]) -> tuple[Document, tuple[str, ...]]:
    """The document with its short form written out as `workload`, and what that had to assume."""
    document = _jobs_written_out(document)
    data = dict(document.data)
    assumptions: list[str] = []
    workload = short_form(data)
    if workload is not None:
        faults += [
            document.fault((key,), f"both {key!r} and the short form 'training' are given", "keep one")
            for key in ("workload", "jobs")
            if key in data
        ]
        data.pop("training")
        if isinstance(workload["training"], dict):
            training = workload["training"]
            if "model" not in training:
                training["model"] = _SHORT_MODEL
                assumptions.append(f"no model is given: {_SHORT_MODEL}")
            if "topology" not in data:
                data["topology"] = _SHORT_TOPOLOGY
                assumptions.append(f"no topology is given: {_SHORT_TOPOLOGY}")
            if "parallelism" not in training:
                training["parallelism"], assumption = _short_parallelism(training, data.get("placement"))
                assumptions.append(assumption)
        data.setdefault("workload", workload)
    elif "model" in data:
        faults.append(document.fault(("model",), "belongs to the short form", "write it as workload.training.model"))
    data.pop("model", None)
    dataset = data.pop("dataset", None)
    block = data.get("workload")
    if dataset is not None and isinstance(block, Mapping) and isinstance(block.get("training"), Mapping):
        data["workload"] = {"training": {**block["training"], "dataset": dataset}}
    positions = dict(document.positions)
    for path, position in document.positions.items():
        if path[:1] == ("training",):
            positions[("workload", *path)] = position
        elif path[:1] in (("model",), ("dataset",)):
            positions[("workload", "training", *path)] = position
    return dataclasses.replace(document, data=data, positions=positions), tuple(assumptions)


def _jobs_written_out(document: Document) -> Document:
    """Jobs that say `training:` (or another kind of work) themselves have it as their workload."""
    jobs = document.data.get("jobs")
    if not isinstance(jobs, list):
        return document
    positions = dict(document.positions)
    written = []
    for index, job in enumerate(jobs):
        kinds = [key for key in KINDS if isinstance(job, Mapping) and key in job and "workload" not in job]
        written.append({key: value for key, value in job.items() if key not in kinds} if kinds else job)
        if kinds:
            written[-1]["workload"] = {key: job[key] for key in kinds}
        for path, position in document.positions.items():
            if path[:2] == ("jobs", index) and path[2:3] and path[2] in kinds:
                positions[("jobs", index, "workload", *path[2:])] = position
    return dataclasses.replace(document, data=document.data | {"jobs": written}, positions=positions)


def _short_parallelism(training: Mapping[str, Any], placement: object) -> tuple[dict[str, Any], str]:
    """How the short form splits the work: over all GPUs, and as the frameworks shard when states leave the GPU."""
    optimizer = training.get("optimizer")
    is_offloaded = isinstance(optimizer, Mapping) and optimizer.get("offload") is True
    stage = 3 if isinstance(placement, Mapping) and "weights" in placement else 2 if is_offloaded else 0
    text = "no parallelism is given: data-parallel over all GPUs"
    return {"data": ALL, "zero_stage": stage}, text + (f", ZeRO stage {stage}" if stage else "")


def on_all_gpus(document: Document, machine: Machine | None) -> Document:
    """The document with `parallelism.data: all` turned into a number: as many ranks as the machine has GPUs for.

    Without a machine (its block has faults) it is one, so that nobody reads of a number that he did not write.
    """
    try:
        split = document.data["workload"]["training"]["parallelism"]
        if split["data"] != ALL:
            return document
        others = math.prod(int(split.get(key, 1)) for key in ("tensor", "pipeline", "context"))
    except (KeyError, TypeError, ValueError):
        return document
    num_gpus = len(machine.gpus()) * machine.num_nodes if machine is not None else 1
    number = max(1, num_gpus // max(1, others))
    return dataclasses.replace(document, data=overlaid(document.data, {"workload.training.parallelism.data": number}))
