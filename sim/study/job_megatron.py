"""A launch script of Megatron -> a scenario file, checked before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sim.config import load_machine
from sim.errors import Fault, InputError
from sim.interchange.job_files import Block, Known, parse_json, read_deepspeed, read_launch, read_megatron
from sim.study.job_import import DEFAULT_TOPOLOGY, Asked, ImportedJob, builtin_name, composed, json_block, refuse_another_kind
from sim.workload.shapes import builtin


def import_megatron(path: Path, asked: Asked, given: Mapping[str, str] | None = None) -> ImportedJob:
    """Scenario of a script that starts Megatron's pretrain_gpt.py, of its command line, or of the arguments that a run printed.

    `given`: shell variables that the script takes from outside. Raises InputError like `import_deepspeed`.
    """
    refuse_another_kind(path, "megatron")
    launch = read_launch(path, given or {})
    machine = len(load_machine(asked.topology or DEFAULT_TOPOLOGY).gpus()) * (launch.nodes or 1)
    vocabulary = _vocabulary(launch.options.data.get("tokenizer-model"), path)
    settings = read_megatron(launch, Known(gpus=asked.gpus, gpus_at_most=machine, vocabulary=vocabulary))
    config = launch.options.data.get("deepspeed-config")
    if isinstance(config, str):
        training = settings.training
        known = Known(gpus=settings.gpus, gpus_at_most=machine, hidden=int(settings.shape["hidden"]),
                      batch_size=training["batch_size"], precision=training["precision"])  # fmt: skip
        text = launch.documents.get(config)
        if text is None and not (path.parent / config).is_file():
            settings.resolved.append("deepspeed-config: the file is not there; what the command says of ZeRO counts")
            return composed(settings, asked, asked.model, [], path)
        block = json_block(path.parent / config) if text is None else _text_block(text, str(path), config)
        extra = read_deepspeed(block, known)
        for key in ("framework", "batch_size", "gradient_accumulation", "precision", "optimizer.type"):
            extra.training.pop(key, None)
        extra.gpus, extra.resolved = 0, [f"deepspeed-config: {line}" for line in extra.resolved]
        settings.add(extra)
    return composed(settings, asked, asked.model, [], path)


def defined(pairs: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE pairs of a command line. Raises InputError for anything else."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_]\w*|\d+", name):
            raise InputError(Fault(what=f"--define {pair[:60]!r} is no NAME=VALUE", remedy="write --define MODEL_SIZE=7B"))
        found[name] = value
    return found


def _vocabulary(tokenizer: object, path: Path) -> int:
    """Tokens of the built-in model that a tokenizer is named after; 0 where it is none."""
    try:
        name = builtin_name(tokenizer, path) if isinstance(tokenizer, str) else ""
    except InputError:
        return 0
    return builtin(name).vocabulary if name and not name.endswith(".json") else 0


def _text_block(text: str, file: str, name: str) -> Block:
    """A configuration that a script writes before it starts the job. Raises InputError where it is no JSON object."""
    data, line_of = parse_json(text, f"{file}: {name}")
    return Block(data, f"{file}: {name}", line_of)
