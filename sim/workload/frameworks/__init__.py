"""Framework profiles: what a training framework does and costs, declared once per framework, never per run.

A profile holds switches (blocking or overlapped gradient copies, prefetch, bucket sizes) and a few measured constants
(hook time, dispatch time, elementwise traffic). A scenario may set the switches through `Training.offload` and the
like; it never sets a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from sim.errors import Fault, InputError
from sim.held_out import as_unseen
from sim.workload.frameworks.training import PROFILES
from sim.workload.frameworks.training_profile import GRAPH_LAUNCH_S, HIDDEN_EXCHANGE, HIDDEN_TENSOR, Graphs, Profile

__all__ = [
    "DEFAULTS",
    "GRAPH_LAUNCH_S",
    "HIDDEN_EXCHANGE",
    "HIDDEN_TENSOR",
    "PROFILES",
    "Graphs",
    "Profile",
    "profile",
    "remedy",
]

#: what a framework does unless it is told otherwise, where that is an input of the job: name -> block -> key -> value
DEFAULTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {"unsloth": {"checkpointing": {"offload": True}}}

#: what people call the profiles
_ALSO_CALLED = {
    "deepspeed": "deepspeed-zero", "zero": "deepspeed-zero", "huggingface": "hf-trainer", "hf": "hf-trainer",
    "transformers": "hf-trainer", "trl": "hf-trainer", "peft": "hf-trainer", "axolotl": "hf-trainer",
    "llamafactory": "llama-factory", "torch": "pytorch", "lightning": "pytorch",
    "ms-swift": "hf-trainer", "swift": "hf-trainer", "fastchat": "hf-trainer", "open-instruct": "hf-trainer",
    "xtuner": "deepspeed-hf", "lmflow": "deepspeed-hf", "openrlhf": "deepspeed-hf", "zero2": "deepspeed-zero",
    "zero3": "deepspeed-zero", "colossalai": "deepspeed-zero", "gpt-neox": "deepspeed-megatron", "neox": "deepspeed-megatron",
    "pytorch-lightning": "pytorch", "fabric": "pytorch", "lit-gpt": "litgpt", "nanogpt": "ddp",
    "fsdp2": "fsdp", "verl": "fsdp", "fairseq": "fsdp", "llama-recipes": "fsdp", "llama-cookbook": "fsdp", "olmo-core": "fsdp",
    "composer": "llm-foundry", "mosaic": "llm-foundry",
    "automodel": "nemo-automodel", "megatron-lm": "megatron", "mcore": "megatron-core", "slime": "megatron",
}  # fmt: skip


#: ways to train that no profile describes, and what to write for the nearest that one does
_NOT_MODELLED = dict.fromkeys(
    ("dp", "dataparallel", "data-parallel"),
    "nn.DataParallel, one process that copies the model to every GPU in each step, is not modelled and slower than one process "
    "per GPU: write ddp",
)


def remedy(name: str) -> str:
    """What to write instead of an unknown framework name."""
    if name.lower() in _NOT_MODELLED:
        return _NOT_MODELLED[name.lower()]
    meant = _ALSO_CALLED.get(name.lower()) or next(iter(get_close_matches(name, PROFILES, n=1)), "")
    return f"did you mean {meant!r}?" if meant else f"use one of {', '.join(sorted(PROFILES))}"


def profile(name: str) -> Profile:
    """The profile of that name, with a plain framework's values for what is held out; InputError with a suggestion."""
    if name in PROFILES:
        return as_unseen(PROFILES[name])
    raise InputError(Fault(what=f"unknown framework {name!r}", remedy=remedy(name), path="workload.training.framework"))
