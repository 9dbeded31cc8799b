"""What a configuration file asks for, in the words of a scenario, and what was done with each of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the caller knows besides the file; 0 or "" = not known.

    `gpus`: GPUs of the job; `gpus_at_most`: GPUs of the machine, of which the job takes as many as its batch divides by
    where `gpus` is not known; `hidden`: width of the model, for the sizes that follow from it; `batch_size`,
    `gradient_accumulation`, `precision`: what stands in for "auto"; `vocabulary`: tokens of the tokenizer that the file names.
    """

    gpus: int = 0
    gpus_at_most: int = 0
    hidden: int = 0
    batch_size: int = 0
    gradient_accumulation: int = 0
    precision: str = ""
    vocabulary: int = 0


@dataclass(slots=True, kw_only=True)
class JobSettings:
    """Inputs of a scenario that a file sets, and what became of the rest.

    `training`: dotted path inside `workload.training` -> value; `shape`: an inline shape, where the file describes its model
    by dimensions and not by name; `placement`: tensor class -> tier; `gpus`, `nodes`: 0
    where the file does not say. `resolved`: values that "auto", a default of the tool or an old key stood for;
    `unused`: keys that are known and change nothing here; `unknown`: keys that the tool does not have either.
    """

    training: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    gpus: int = 0
    nodes: int = 0
    resolved: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, other: JobSettings) -> None:
        """Take over what another file sets (it wins)."""
        self.training |= other.training
        self.placement |= other.placement
        self.model = other.model or self.model
        self.shape |= other.shape
        self.gpus, self.nodes = other.gpus or self.gpus, other.nodes or self.nodes
        self.resolved += other.resolved
        self.unused += other.unused
        self.unknown += other.unknown


def ranks_that_divide(total: int, each: int, at_most: int) -> int:
    """Most data-parallel ranks, each with `each` sequences of a global batch, that it divides by; 1 when none does."""
    return next((ranks for ranks in range(at_most, 0, -1) if total % (each * ranks) == 0), 1)


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Dotted paths as nested mappings."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, leaf = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree
