"""The keys of a scenario file, and the checks of those that hold no block of the machine or of a job.

Each check adds its faults to a list, and answers with what the file says or with what stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sim.config.jobs_block import WORKLOAD_MEANING
from sim.config.validation import FaultList, refuse_unknown
from sim.config.yaml_source import Document, describe
from sim.errors import InputError
from sim.workload.inference import Inference
from sim.workload.training import Training

#: every key of a scenario file, with its meaning (JSON Schema and `check` show it)
KEYS: Mapping[str, str] = {
    "name": "name of the results folder; default the file's name",
    "question": "what the file answers; default the comment at its head",
    "topology": "built-in name, path, or {base, add, set}: the machine",
    "workload": WORKLOAD_MEANING,
    "jobs": "several workloads on several hosts, in place of workload and placement",
    "training": "short form of workload.training",
    "model": "short form of workload.training.model",
    "dataset": "short form of workload.training.dataset",
    "placement": "tensor class -> tier or shares of tiers",
    "sweep": "dotted path -> list or range of values",
    "compare": "{baseline: {dotted path: value}}",
    "search": "objective, constraints: find the best point instead of running all",
    "measured": "what reality said: a list of {metric, value, source, tolerance, at}",
    "claim": "what a document states: {id, stated, metric, value | range, assumptions}",
    "prices": "path of a price overlay",
    "options": "how to replay: {level, backend, monitor_interval_s, is_folded, verify}",
    "assumptions": "list of what had to be assumed; printed with the result",
}
#: keys of other kinds of file: what such a file is, and who reads it
_OTHERS = {
    "devices": ("a topology", "name it as a scenario's topology, or look at it with `tiersim show`"),
    "tables": ("a table of measurements", "compare with it by `tiersim validate FILE`"),
    "parts": ("a part catalogue", "give its parts in a topology's `parts:`"),
}
#: blocks that a point of a sweep may change
_SWEPT = ("topology", "workload", "placement", "jobs", "options")
_BLOCKS: Mapping[str, type] = {"training": Training, "inference": Inference}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def refuse_other_kinds(document: Document) -> None:
    """Raises InputError for a file that is no scenario, with who reads it."""
    for key, (what, remedy) in _OTHERS.items():
        if key in document.data and not set(document.data) & {"workload", "jobs", "training", "topology"}:
            raise InputError(document.fault((key,), f"this is {what}, a scenario is expected", remedy))


def name_of(document: Document, faults: FaultList) -> str:
    """The name of the results folder."""
    name = document.data.get("name", Path(document.file).stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        what = f"expected a name of letters, digits, '-', '_' and '.', got {describe(name)}"
        faults.append(document.fault(("name",), what, "it names the results folder"))
    return str(name)


def question_of(document: Document, faults: FaultList) -> str:
    """What the file answers: its `question`, or the comment at its head."""
    asked = document.data.get("question", document.comment)
    if not isinstance(asked, str):
        faults.append(document.fault(("question",), f"expected a sentence, got {describe(asked)}"))
    return str(asked).strip()


def stated_assumptions(document: Document, faults: FaultList) -> list[str]:
    """The assumptions that the file states; none where they are no sentences."""
    stated = document.data.get("assumptions", [])
    if isinstance(stated, list) and all(isinstance(item, str) for item in stated):
        return stated
    faults.append(document.fault(("assumptions",), f"expected a list of sentences, got {describe(stated)}"))
    return []


def check_study_keys(document: Document, faults: FaultList) -> None:
    """Checks the form of `sweep`, `compare`, `search` and `prices`, which studies read."""
    data = document.data
    for key, kind in {"sweep": Mapping, "compare": Mapping, "search": Mapping, "prices": str}.items():
        if key in data and not isinstance(data[key], kind):
            expected = "a path" if kind is str else "a mapping"
            faults.append(document.fault((key,), f"expected {expected}, got {describe(data[key])}", KEYS[key]))
    compared = data.get("compare")
    if isinstance(compared, Mapping):
        faults += refuse_unknown(compared, ("baseline",), document, ("compare",))
        if not isinstance(compared.get("baseline"), Mapping):
            what = f"expected {{dotted path: value}}, got {describe(compared.get('baseline'))}"
            faults.append(document.fault(("compare", "baseline"), what, "for example {placement.optimizer_states: gpu}"))
    money = data.get("prices")
    if isinstance(money, str) and not any((folder / money).is_file() for folder in (Path(document.file).parent, Path())):
        faults.append(document.fault(("prices",), f"no such file {money!r}", "paths are relative to this file"))


def refuse_aside(overlay: Mapping[str, object], document: Document) -> None:
    """Raises InputError for paths of a sweep or a baseline that lead into no block of the machine or of a job."""
    for path in overlay:
        first = path.partition(".")[0]
        if first in _SWEPT:
            continue
        workload = document.data.get("workload")
        asked = workload if isinstance(workload, Mapping) else {}
        kind = next((kind for kind, block in _BLOCKS.items() if kind in asked and first in block.__annotations__), "")
        if first in _BLOCKS:
            remedy = f"did you mean 'workload.{path}'?"
        elif kind:
            remedy = f"did you mean 'workload.{kind}.{path}'?"
        else:
            remedy = f"paths begin with {', '.join(_SWEPT[:-1])} or {_SWEPT[-1]}, a device's with topology: topology.gpu0.part"
        in_baseline = ("compare", "baseline", path)
        where = in_baseline if in_baseline in document.positions else ("sweep", path)
        raise InputError(document.fault(where, f"{path!r} is no path from the top of the file", remedy))
