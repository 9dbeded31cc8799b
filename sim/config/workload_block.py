"""The `workload:` block (training, inference or a trace) and its short form, the common `training:` block."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config.locate import locate
from sim.config.validation import FaultList, refuse_unknown, validate
from sim.config.yaml_source import Document, NodePath, describe
from sim.errors import Fault, InputError
from sim.scenario import Trace
from sim.workload.frameworks import DEFAULTS
from sim.workload.inference import Inference
from sim.workload.shape import ModelShape
from sim.workload.training import Training

KINDS = ("training", "inference", "trace")
_MAX_CONFIG_BYTES = 2**20
#: formats in which a publisher quantised the weights itself: they are served as they are
_PUBLISHED_QUANTISED = ("fp8", "mxfp4")


def workload_from(raw: object, document: Document, path: NodePath) -> Training | Inference | Trace:
    """The workload that stands at `path`: exactly one of `training`, `inference`, `trace`.

    Raises InputError with every fault.
    """
    if not isinstance(raw, Mapping):
        raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}", f"with one of {', '.join(KINDS)}"))
    faults = FaultList(refuse_unknown(raw, KINDS, document, path))
    given = [kind for kind in KINDS if kind in raw]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        faults.append(document.fault(path, f"expected one of {', '.join(KINDS)}, got {found}", "write exactly one"))
    faults.stop()
    (kind,) = given
    here = (*path, kind)
    if kind == "trace":
        return _trace(raw[kind], document, here)
    job: Training | Inference = _model_job(Training if kind == "training" else Inference, raw[kind], document, here)
    return job


def short_form(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `workload` that a top-level `training:` block (and `model:` beside it) stands for; None if there is none."""
    if "training" not in data:
        return None
    training = dict(data["training"]) if isinstance(data["training"], Mapping) else data["training"]
    if "model" in data and isinstance(training, dict):
        training.setdefault("model", data["model"])
    return {"training": training}


def _trace(raw: object, document: Document, path: NodePath) -> Trace:
    """`trace: FILE`, or `trace: {file: FILE or FILES, step, rules, source_part, ranks, element_bytes}`."""
    block = dict(raw) if isinstance(raw, Mapping) else {"file": raw}
    named = [block.get("file")] if isinstance(block.get("file"), str) else block.get("file")
    if not isinstance(named, list) or not named or not all(isinstance(name, str) for name in named):
        what = f"expected the path of a trace file, got {describe(block.get('file'))}"
        raise InputError(document.fault(path, what, "trace: FILE, or trace: {file: FILE, step: 2}"))
    faults = FaultList()
    if "stamp" in block:
        faults.append(document.fault((*path, "stamp"), "unknown key 'stamp'"))
    files = [locate(name, "traces", relative_to=Path(document.file).parent) for name in named]
    missing = [file for file in files if not file.is_file()]
    faults += [
        document.fault(path, f"no such trace file: {str(file)!r}", "paths are relative to this file") for file in missing
    ]
    with faults.collect():
        trace = validate(Trace, block | {"file": [str(file) for file in files]}, document, path)
    faults.stop()
    stamps = tuple(f"{file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    found: Trace = dataclasses.replace(trace, stamp=stamps)
    return found


def _model_job(cls: type[Any], raw: object, document: Document, path: NodePath) -> Any:
    if not isinstance(raw, Mapping):
        names = ", ".join(field.name for field in dataclasses.fields(cls))
        raise InputError(document.fault(path, f"expected a mapping, got {describe(raw)}", f"known keys: {names}"))
    faults = FaultList()
    block = dict(raw)
    with faults.collect():
        if "model" in block:
            block["model"] = _shape(block["model"], document, (*path, "model"))
            if cls is Inference and block["model"].get("weight_dtype") in _PUBLISHED_QUANTISED:
                block.setdefault("weights", block["model"]["weight_dtype"])
    for key, defaults in DEFAULTS.get(str(block.get("framework")), {}).items():
        if isinstance(block.get(key), Mapping) and block[key].get("active"):
            block[key] = {**defaults, **block[key]}
    with faults.collect():
        if faults:  # the model is wrong: check the rest with a stand-in, so that all faults are reported at once
            block["model"] = dict.fromkeys(("layers", "hidden", "heads", "ffn", "vocabulary"), 1)
        job = validate(cls, block, document, path)
    if "loss_chunks" in block and "loss" not in block:
        what = "has no effect on the full loss"
        faults.append(document.fault((*path, "loss_chunks"), what, "write loss: chunked beside it"))
    faults.stop()
    return job


def _shape(raw: object, document: Document, path: NodePath) -> dict[str, Any]:
    """The model as plain data that the validator accepts."""
    if isinstance(raw, str):
        return _plain(_named_shape(raw, document, path))
    if isinstance(raw, Mapping):
        if "base" not in raw:
            return dict(raw)
        base = _plain(_named_shape(str(raw["base"]), document, (*path, "base")))
        return base | {"name": f"{base['name']} (changed)"} | {key: value for key, value in raw.items() if key != "base"}
    raise InputError(document.fault(path, f"expected a model, got {describe(raw)}", "a built-in name such as llama-2-13b"))


def _plain(shape: ModelShape) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(shape).items() if value is not None}


def _named_shape(name: str, document: Document, path: NodePath) -> ModelShape:
    from sim.workload.shapes import builtin, from_huggingface

    try:
        if name.endswith(".json"):
            file = locate(name, "models", relative_to=Path(document.file).parent)
            return from_huggingface(_read_json(file), name=Path(name).stem)
        return builtin(name)
    except InputError as error:
        raise InputError([document.fault(path, _said(fault), fault.remedy) for fault in error.faults]) from None


def _said(fault: Fault) -> str:
    """What a fault of another file says, with its place there."""
    where = ": ".join(part for part in (fault.file, fault.path) if part and part != "model")
    return f"{where}: {fault.what}" if where else fault.what


def _read_json(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise InputError(Fault(what="is too large for a config.json", file=str(file)))
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(Fault(what=f"cannot be read: {(error.strerror or str(error)).lower()}", file=str(file))) from None
    except (ValueError, RecursionError) as error:
        raise InputError(Fault(what=f"is not JSON: {error}", file=str(file))) from None
    if not isinstance(data, dict):
        raise InputError(Fault(what="is not a Hugging Face config.json: no object at the top", file=str(file)))
    return data
