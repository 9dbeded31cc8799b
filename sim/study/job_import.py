"""A training job in another tool's configuration -> a scenario file, checked before it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.config import load_machine, read_yaml, scenario_of
from sim.errors import Fault, InputError, of_source
from sim.interchange.job_files import (
    Block,
    JobSettings,
    Known,
    is_accelerate,
    is_torchtune,
    read_accelerate,
    read_deepspeed,
    read_json,
    read_toml,
    read_torchtitan,
    read_torchtune,
    read_trainer,
)
from sim.interchange.job_files.settings import nested
from sim.study.calibration import as_yaml, write_whole
from sim.workload.shapes import builtin, from_huggingface

#: taken where neither the file nor the command names one, and listed as assumed
DEFAULT_MODEL = "llama-2-7b"
DEFAULT_TOPOLOGY = "dgx-a100"
DEFAULT_LENGTH = 2048
#: a key of YAML at the beginning of a line, behind comments and empty lines
_KEY = re.compile(rb"(?:\s*#[^\n]*\n|\s+)*(?:---\s*\n)?[A-Za-z_][\w.-]*:(?:\s|$)")
#: the heading of a table of TOML, behind comments and empty lines
_TABLE = re.compile(rb"(?:\s*#[^\n]*\n|\s+)*\[[\w.]+\]\s*(?:#[^\n]*)?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says besides the file; "" and 0 = nothing."""

    model: str = ""
    topology: str = ""
    gpus: int = 0
    batch_size: int = 0
    gradient_accumulation: int = 0
    sequence_length: int = 0
    name: str = ""


@dataclass(slots=True, kw_only=True)
class ImportedJob:
    """The scenario as plain data, and what the reading decided, for the listing."""

    document: dict[str, Any]
    settings: JobSettings
    source: str = ""
    assumed: list[str] = field(default_factory=list)


def import_deepspeed(path: Path, asked: Asked) -> ImportedJob:
    """Scenario of a ds_config.json on a machine. Raises InputError with every fault of the file or of what it asks for."""
    refuse_another_kind(path, "deepspeed")
    root = json_block(path)
    assumed: list[str] = []
    model = asked.model or _assume(assumed, "model", DEFAULT_MODEL)
    return composed(read_deepspeed(root, _known(asked, model, JobSettings())), asked, model, assumed, path)


def import_huggingface(path: Path, asked: Asked) -> ImportedJob:
    """Scenario of an accelerate YAML, TrainingArguments (JSON or YAML; with the DeepSpeed file that they name), torchtune's
    YAML or torchtitan's TOML.

    Raises InputError like `import_deepspeed`.
    """
    refuse_another_kind(path, "huggingface")
    root = json_block(path) if _is_json(path) else _toml_block(path) if _is_toml(path) else _yaml_block(path)
    deepspeed: Mapping[str, Any] | str | None = None
    if _is_toml(path):
        machine = len(load_machine(asked.topology or DEFAULT_TOPOLOGY).gpus())
        settings = read_torchtitan(root, Known(gpus=asked.gpus, gpus_at_most=machine))
    elif is_torchtune(root):
        settings = read_torchtune(root)
    else:
        settings, deepspeed = read_accelerate(root) if is_accelerate(root) else read_trainer(root)
    assumed: list[str] = []
    model = asked.model or builtin_name(settings.model, path) or _assume(assumed, "model", DEFAULT_MODEL)
    if deepspeed:
        settings.add(_of_deepspeed(deepspeed, settings, asked, model, path))
    return composed(settings, asked, model, assumed, path)


def write_job(job: ImportedJob, path: Path) -> None:
    """Write the scenario after it was resolved: what cannot run is never written. Raises InputError."""
    try:
        scenario_of(job.document, file=str(path)).resolve()
    except InputError as error:
        raise of_source(error, job.source or str(path)) from None
    text = "# Written by `tiersim import`.\n" + as_yaml(job.document)
    write_whole(path, text)


def json_block(path: Path) -> Block:
    """A JSON configuration as a block. Raises InputError where it is no JSON object."""
    data, line_of = read_json(path)
    return Block(data, str(path), line_of)


def _toml_block(path: Path) -> Block:
    data, line_of = read_toml(path)
    return Block(data, str(path), line_of)


def _is_toml(path: Path) -> bool:
    """Whether it is TOML: by its name, or by a table's heading before any other content."""
    return path.suffix == ".toml" or bool(_TABLE.match(_beginning(path)))


def _yaml_block(path: Path) -> Block:
    document = read_yaml(path)
    return Block(document.data, str(path), lambda keys: document.line(keys))


def _has_keys(start: bytes) -> bool:
    return bool(_TABLE.match(start) or _KEY.match(start))


def refuse_another_kind(path: Path, own: str) -> None:
    """Raise InputError for a file that another of the commands reads, by how it begins; `own` is this command's name."""
    start = _beginning(path).removeprefix(b"\xef\xbb\xbf")
    kind = ""
    if start.startswith(b"#!") or b"--num-layers" in start:
        kind = "megatron"
    elif path.suffix in (".yaml", ".yml", ".toml") if own == "megatron" else own == "deepspeed" and _has_keys(start):
        kind = "huggingface"  # a log of a run, which Megatron's command reads, may begin as YAML does
    elif own == "megatron" and start.lstrip()[:1] == b"{":
        kind = "deepspeed" if b'"zero_optimization"' in start else "huggingface"
    if kind and kind != own:
        what = {"megatron": "is a launch script", "deepspeed": "is JSON"}.get(
            kind, "is no " + ("script" if own == "megatron" else "JSON")
        )
        raise InputError(Fault(what=what, file=str(path), remedy=f"it looks like a file for `tiersim import {kind}`"))


def _is_json(path: Path) -> bool:
    return _beginning(path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(512)
    except OSError as error:
        raise InputError(Fault(what=f"cannot be read: {(error.strerror or '').lower()}", file=str(path))) from None


def _of_deepspeed(given: Mapping[str, Any] | str, settings: JobSettings, asked: Asked, model: str, path: Path) -> JobSettings:
    """DeepSpeed's part of Trainer or accelerate arguments; "auto" takes the values that stand beside it."""
    at = ("deepspeed",)
    block = json_block(_beside(path, given)) if isinstance(given, str) else Block(given, str(path), lambda _: 0, at)
    return read_deepspeed(block, _known(asked, model, settings))


def _beside(path: Path, name: str) -> Path:
    """A file that another names: beside it, or from a folder above, as tools start in the root of their repository.

    Raises InputError where it is in none of them.
    """
    for folder in (path.parent, *path.resolve().parents[1:5]):
        if (folder / name).is_file():
            return folder / name
    if (path.parent / Path(name).name).is_file():
        return path.parent / Path(name).name
    raise InputError(Fault(what=f"names {name!r}, which is not there", file=str(path), remedy="copy that file beside this one"))


def _known(asked: Asked, model: str, settings: JobSettings) -> Known:
    """What stands beside the DeepSpeed configuration: the command line first, then the arguments that name it."""
    training = settings.training
    gpus = len(load_machine(asked.topology or DEFAULT_TOPOLOGY).gpus()) * (settings.nodes or 1)
    return Known(
        gpus=asked.gpus or settings.gpus,
        gpus_at_most=gpus,
        hidden=_hidden(model),
        batch_size=asked.batch_size or int(training.get("batch_size", 0)),
        gradient_accumulation=asked.gradient_accumulation or int(training.get("gradient_accumulation", 0)),
        precision=str(training.get("precision", "")),
    )


def _hidden(model: str) -> int:
    if model.endswith(".json"):
        data, line_of = read_json(Path(model))
        try:
            return from_huggingface(data, name=Path(model).stem).hidden
        except InputError as error:
            faults = [replace(fault, file=model, line=line_of((fault.path,))) for fault in error.faults]
            raise InputError(faults) from None
    return builtin(model).hidden


def builtin_name(model: str, path: Path) -> str:
    """Built-in name of a hub name such as meta-llama/Llama-2-7b-chat-hf; "" where the file names no model."""
    if not model:
        return ""
    if (config := path.parent / model / "config.json").is_file():
        return str(config)
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub(r"^meta-", "", name)
    tails = ("", r"(-hf|-chat|-instruct|-base|-it|-v\d[\d.]*|-\d{4})+$")
    for candidate in dict.fromkeys(re.sub(tail, "", name) if tail else name for tail in tails):
        try:
            return builtin(candidate).name
        except InputError:
            continue
    raise InputError(
        Fault(
            what=f"model {model!r} is not built in", file=str(path), remedy="name one with --model: a built-in or config.json"
        )
    )


def _found(name: str) -> str:
    """A file by its whole path, so that the scenario may be written anywhere; built-in names as they are."""
    return str(Path(name).resolve()) if Path(name).suffix in (".json", ".yaml", ".yml") else name


def _assume(assumed: list[str], what: str, value: str) -> str:
    assumed.append(f"{what}: {value} (the file does not name one; --{what})")
    return value


def composed(settings: JobSettings, asked: Asked, model: str, assumed: list[str], path: Path) -> ImportedJob:
    """The scenario of settings on a machine; what nobody tells is assumed and listed.

    Raises InputError where the GPUs are no multiple of what the parallelism needs.
    """
    topology = asked.topology or _assume(assumed, "topology", DEFAULT_TOPOLOGY)
    training: dict[str, Any] = {"model": _found(model) if model else dict(settings.shape), **settings.training}
    if asked.sequence_length:
        training["sequence_length"] = asked.sequence_length
    elif "sequence_length" not in training:
        assumed.append(f"sequence_length: {DEFAULT_LENGTH} (the file does not say; --sequence-length)")
        training["sequence_length"] = DEFAULT_LENGTH
    training |= {key: value for key in ("batch_size", "gradient_accumulation") if (value := getattr(asked, key))}
    if "batch_size" not in training:
        assumed.append("micro-batch: 1 (the file does not say; --batch-size)")
    if not any(key.startswith("checkpointing") for key in training):
        assumed.append("no activation checkpointing (the file does not say; set checkpointing.active if the script does)")
    nodes = settings.nodes or 1
    gpus = asked.gpus or settings.gpus
    others = 1
    for kind in ("tensor", "pipeline", "context"):
        others *= int(training.get(f"parallelism.{kind}", 1))
    if not gpus:
        gpus = len(load_machine(topology).gpus()) * nodes
        assumed.append(f"GPUs: {gpus}, all of {topology} (the file does not say; --gpus)")
    elif not asked.gpus:
        settings.resolved.append(f"GPUs: {gpus}, as the file asks or its batch allows")
    if gpus % others:
        what = f"{gpus} GPUs are no multiple of tensor x pipeline x context = {others}"
        raise InputError(Fault(what=what, file=str(path), remedy="name the number of GPUs with --gpus"))
    training["parallelism.data"] = gpus // others
    document: dict[str, Any] = {
        "name": asked.name or re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "imported",
        "topology": {"base": _found(topology), "set": {"nodes": nodes}} if nodes > 1 else _found(topology),
        "workload": {"training": nested(training)},
    }
    if settings.placement:
        document["placement"] = dict(settings.placement)
    return ImportedJob(document=document, settings=settings, source=str(path), assumed=assumed)
