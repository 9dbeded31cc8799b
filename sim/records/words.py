"""The words that all records share: kinds, classes and number formats, and the strict base of every row."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

INFINITY = float("inf")
#: channels that something uses, and what one unit of its work costs on each
Uses = tuple[tuple[str, float], ...]


class Kind(StrEnum):
    """What an operation does."""

    COMPUTE = "compute"
    TRANSFER = "transfer"
    COLLECTIVE = "collective"
    HOST_UPDATE = "host_update"
    HOST_WORK = "host_work"
    IO = "io"
    ALLOCATE = "allocate"
    FREE = "free"
    MARKER = "marker"


class TensorClass(StrEnum):
    """The classes of tensors that a placement can name."""

    WEIGHTS = "weights"
    MASTER_WEIGHTS = "master_weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATES = "optimizer_states"
    ACTIVATIONS = "activations"
    KV_CACHE = "kv_cache"
    LOGITS = "logits"
    BUFFERS = "buffers"


#: keys of a step's breakdown, in the priority in which overlapping seconds are attributed
Category = Literal["compute", "collective", "transfer", "cpu_optimizer", "storage", "paging", "data", "idle"]
Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "nf4"]
KernelKind = Literal["gemm", "gemv", "attention", "elementwise", "logits", "embedding", "optimizer", "recorded", "other"]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "point_to_point"]
Group = Literal["data", "tensor", "pipeline", "context", "expert", "expert_data", "shard", "replica", "world"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all records: immutable, keyword-only, strict on input.

    Immutable rows hold no cycles, so the garbage collector need not walk them (`gc=False`): a step has half a million.
    """
