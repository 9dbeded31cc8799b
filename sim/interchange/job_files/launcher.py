"""The training command of a launch script as one mapping of options, and how many processes it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sim.errors import Fault, InputError, of_source
from sim.interchange.job_files.block import Block, LineOf
from sim.interchange.job_files.shell_script import read_script
from sim.interchange.job_files.shell_words import UNKNOWN
from sim.interchange.source import written

#: options that only a training command of Megatron has
_MARKS = ("num-layers", "hidden-size", "num-attention-heads", "micro-batch-size", "tensor-model-parallel-size", "seq-length")
#: options without a value: what follows one is a variable of more options
_SWITCHES = frozenset((
    "bf16", "fp16", "swiglu", "sequence-parallel", "use-distributed-optimizer", "disable-bias-linear", "use-flash-attn",
    "untie-embeddings-and-output-weights", "group-query-attention", "recompute-activations", "checkpoint-activations",
    "overlap-grad-reduce", "overlap-param-gather", "use-mcore-models", "moe-grouped-gemm", "qk-layernorm", "add-qkv-bias",
    "multi-latent-attention", "no-pipeline-parallel", "deepspeed", "deepspeed-activation-checkpointing", "cpu-optimizer",
    "optimizer-cpu-offload", "use-rotary-position-embeddings", "no-position-embedding", "use-megatron-fsdp",
    "use-torch-fsdp2", "no-load-optim", "no-load-rng", "no-save-optim", "mock-data", "tp-comm-overlap", "log-throughput",
))  # fmt: skip
_QUIET = ("echo", "printf", "cat", "export", "sed", "grep", "tee")
_PER_NODE = ("nproc-per-node", "nproc_per_node", "num_gpus", "num-gpus", "gpus-per-node", "ntasks-per-node")
_NODES = ("nnodes", "num_nodes", "num-nodes", "nodes", "N")
_ALL = ("ntasks", "np", "n")
_SBATCH = re.compile(r"(?m)^#SBATCH\s+(-N|--nodes|--gpus-per-node|--ntasks-per-node|--gres)[= ]\s*(\S+)")
_ARGUMENT_LOG = re.compile(r"(?m)^(?:\[?[\w.-]+\]?[:|]\s*)?\s+([a-z]\w*) \.{3,} (.*?)\s*$")


@dataclass(slots=True)
class Launch:
    """`options` of the training program, the program's name, and its ranks: 0 where the script does not say."""

    options: Block
    program: str
    gpus: int
    nodes: int
    documents: Mapping[str, str]
    undecided: list[str]


def read_launch(path: Path, given: Mapping[str, str]) -> Launch:
    """The training command of a shell script, of a plain command line, or of the arguments that a log lists.

    `given`: variables of the shell that the script takes from outside. Raises InputError for a file without such a command.
    """
    text = written(path)
    if (listed := dict(_ARGUMENT_LOG.findall(text))) and "num_layers" in listed:
        return _of_log(listed, path, text)
    try:
        script = read_script(text, dict(given), path.parent)
    except InputError as error:
        raise of_source(error, str(path)) from None
    best = max((c for c in script.commands if c[0] not in _QUIET), key=_num_marks, default=[])
    if not _num_marks(best):
        what = "has no command that trains a model: none has --num-layers, --hidden-size or --micro-batch-size"
        if taken := re.search(r"(?m)^\s*(?:\.|source)\s+(\S+)", text):
            what += f", and {taken[1][:60]}, which it takes in, is not beside it"
        remedy = "give the script that starts Megatron's pretrain_gpt.py, or the command itself"
        raise InputError(Fault(what=what, remedy=remedy, file=str(path)))
    place = next((i for i, word in enumerate(best) if word.endswith(".py")), len(best))
    head, program = best[:place], best[place] if place < len(best) else ""
    block = Block(_options(best[place + 1 :] if program else best), str(path), _line_in(text))
    gpus, nodes = _ranks(head, text)
    return Launch(block, Path(program).name, gpus, nodes, script.documents, script.undecided)


def _num_marks(words: list[str]) -> int:
    names = {word.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    return sum(mark in names for mark in _MARKS)


def _options(words: list[str]) -> dict[str, object]:
    """`--name value`, `--name=value` and `--name` as a mapping; the last of a name counts, as argparse has it."""
    found: dict[str, object] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, has_value, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = value if has_value else True
        elif name:
            before = found[name]
            if word.startswith(UNKNOWN) and (before is not True or name in _SWITCHES):
                continue  # a variable of further options that nobody set
            found[name] = word if before is True else f"{before} {word}"
    return found


def _line_in(text: str) -> LineOf:
    def line_of(keys: tuple[str, ...]) -> int:
        pattern = re.escape(keys[-1]).replace(r"\-", "[-_]")
        found = re.search(rf"--{pattern}(?![\w-])|(?m:^\s+{pattern} \.\.\.)", text)
        return text.count("\n", 0, found.start()) + 1 if found else 0

    return line_of


def _ranks(head: list[str], text: str) -> tuple[int, int]:
    """(GPUs, nodes) that launcher and batch system name; 0 where they do not, or only a run would tell."""
    named: dict[str, str] = {}
    for index, word in enumerate(head):
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            named.setdefault(name, value if has_value else head[index + 1] if index + 1 < len(head) else "")
    for option, value in _SBATCH.findall(text):
        named.setdefault(option.lstrip("-"), value)
    if gres := re.search(r"gpu(?::[\w.-]+)?:(\d+)", named.get("gres", "")):
        named.setdefault("gpus-per-node", gres[1])
    per_node, nodes, everyone = (_first(named, keys) for keys in (_PER_NODE, _NODES, _ALL))
    if per_node and nodes:
        return per_node * nodes, nodes
    return (everyone or (per_node if per_node and "nnodes" not in named else 0), nodes)


def _first(named: Mapping[str, str], keys: tuple[str, ...]) -> int:
    values = [named[key] for key in keys if key in named and UNKNOWN not in named[key]]
    return next((int(value) for value in values if value.isdigit() and 0 < int(value) < 10**6), 0)


def _of_log(listed: Mapping[str, str], path: Path, text: str) -> Launch:
    """What a run printed of its arguments: true ones as switches, false and empty ones left out."""
    found: dict[str, object] = {}
    for name, value in listed.items():
        if value not in ("None", "False", "[]", ""):
            found[name.replace("_", "-")] = True if value == "True" else value.strip("'\"")
    if listed.get("add_bias_linear") == "False":
        found["disable-bias-linear"] = True
    gpus = listed.get("world_size", "")
    block = Block(found, str(path), _line_in(text))
    return Launch(block, "", int(gpus) if gpus.isdigit() else 0, 0, {}, [])
