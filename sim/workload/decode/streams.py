"""The operations of a model's passes, in the order of each stage's streams: whatever is added, read from a drive or copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.laws.paging import PREFETCH_SHARE
from sim.records import Category, Kind, StepOperation, TensorClass
from sim.workload.frameworks.inference import InferenceProfile
from sim.workload.inference import Inference

_CATEGORY: dict[str, Category] = {
    "compute": "compute", "cpu": "compute", "h2d": "transfer", "d2h": "transfer", "collective": "collective",
    "p2p": "collective", "storage": "storage",
}  # fmt: skip


class Streams:
    """Writes operations one after the other on streams named "<stage>.<role>"; each call returns the identity of its own.

    `is_moved`: the driver of managed memory moves the weights.
    """

    def __init__(self, inference: Inference, profile: InferenceProfile, *, is_moved: bool) -> None:
        self.inference, self.profile, self.is_moved = inference, profile, is_moved
        self.is_clean = "read_mostly" in inference.managed_advice
        self.is_faulted = is_moved and not {"prefetch", "stay"} & set(inference.managed_advice)
        self.operations: list[StepOperation] = []
        self._next: dict[str, int] = {}

    def add(self, stage: str, role: str, kind: Kind, name: str, after: Iterable[str], **fields: Any) -> str:
        """One operation, after those named; `fields` are those of `StepOperation`."""
        stream = f"{stage}.{role}"
        sequence = self._next.get(stream, 0)
        self._next[stream] = sequence + 1
        identity = f"{stream}.{sequence}"
        waits = tuple(dict.fromkeys(item for item in after if item))
        self.operations.append(
            StepOperation(
                id=identity,
                kind=kind,
                stream=stream,
                sequence=sequence,
                name=name,
                after=waits,
                category=_CATEGORY[role],
                **fields,
            )
        )
        return identity

    def read(
        self, stage: str, name: str, size: float, kind: TensorClass, after: Iterable[str], layer: int, mark: Mapping[str, Any]
    ) -> str:
        """What of a class lies on a drive comes into host memory."""
        return self.add(
            stage, "storage", Kind.IO, name, after, size_bytes=size, source=f"home:{kind.value}", target="dram",
            tensor_class=kind, layer=layer, **mark,
        )  # fmt: skip

    def move(
        self, stage: str, role: str, name: str, size: float, source: str, target: str, after: Iterable[str], layer: int,
        mark: Mapping[str, Any], tensor_class: TensorClass, *, is_mapped: bool = False,
    ) -> str:  # fmt: skip
        """A copy; `is_mapped` = from a mapped file, whose pages are not locked (the weights of CPU layers)."""
        is_pinned = self.profile.is_cache_pinned if role == "d2h" else self.profile.is_pinned and not is_mapped
        is_moved = self.is_moved and tensor_class == TensorClass.WEIGHTS
        is_written_back = is_moved and "prefetch" in self.inference.managed_advice and not self.is_clean
        share = self.profile.copy_share * (PREFETCH_SHARE if is_written_back else 1.0)
        return self.add(
            stage, role, Kind.TRANSFER, name, after, size_bytes=size, source=source, target=target, layer=layer,
            tensor_class=tensor_class, rate_share=share, is_direct=self.profile.is_direct_storage,
            is_pinned=is_pinned or is_moved, is_faulted=self.is_faulted and is_moved, is_clean=self.is_clean and is_moved,
            **mark,
        )  # fmt: skip
