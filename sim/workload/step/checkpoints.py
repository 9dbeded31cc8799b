"""Activations that wait for their backward pass in host memory: checkpoints, or whole layers (`offload_to_cpu`)."""

from __future__ import annotations

from functools import cached_property

from sim.records import Kind, TensorClass
from sim.workload.footprint.activations import layer_activations
from sim.workload.footprint.residency import activation_layers
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane
from sim.workload.step.schedule import Turn


class Checkpoints:
    """Emits copies out after a block's forward and copies back before its backward."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan
        self._away: dict[tuple[str, int, int], list[str]] = {}  # (lane, micro-batch, chunk) -> copies out, in order
        self.is_pinned = self.plan.training.offload.pin_memory is not False and self.plan.profile.pins_activations
        self.target = "home:activations" if self.plan.home(TensorClass.ACTIVATIONS) != "gpu" else "dram"

    @cached_property
    def _moved(self) -> range:
        return activation_layers(self.plan.training)

    def size_bytes(self, block: range) -> float:
        """Bytes of a block that leave the GPU, per rank and micro-batch."""
        training, total = self.plan.training, 0.0
        checkpointing = training.checkpointing
        is_away = self.plan.home(TensorClass.ACTIVATIONS) != "gpu"
        is_full = checkpointing.active and checkpointing.mode == "full"
        for layer in block:
            sizes = layer_activations(training, self.plan.is_moe(layer))
            if is_full and (checkpointing.layers is None or layer < checkpointing.layers):
                if (checkpointing.offload or is_away or layer in self._moved) and layer % checkpointing.interval == 0:
                    total += sizes.checkpoint
            elif layer in self._moved or (is_away and not checkpointing.offload):
                total += sizes.saved - (sizes.core if checkpointing.active else 0.0)
        return total

    def save(self, lane: Lane, block: range, turn: Turn, done: str) -> None:
        """Copy out what the block leaves for its backward; a blocking framework waits for it."""
        size = self.size_bytes(block)
        if not size:
            return
        saved = self._copy(lane, "d2h", "save activations", "gpu", self.target, size, [done], "forward", turn, block)
        self._away.setdefault((lane.name, turn.micro_batch, turn.chunk), []).append(saved)
        if not self.plan.profile.overlap_activation_copy:
            lane.pending.append(saved)

    def load(self, lane: Lane, block: range, turn: Turn) -> str | None:
        """Copy back before the block's backward, one block ahead where the framework prefetches."""
        size = self.size_bytes(block)
        if not size:
            return None
        saved = self._away[lane.name, turn.micro_batch, turn.chunk].pop()
        ahead = 2 if self.plan.profile.overlap_activation_copy else 1
        after = [saved, *lane.history[-ahead:][:1]]
        return self._copy(lane, "h2d", "load activations", self.target, "gpu", size, after, "backward", turn, block)

    def _copy(
        self,
        lane: Lane,
        role: str,
        name: str,
        source: str,
        target: str,
        size: float,
        after: list[str],
        phase: str,
        turn: Turn,
        block: range,
    ) -> str:
        return self.builder.add(
            lane.name,
            role,
            Kind.TRANSFER,
            f"{name} {block.start}",
            after=after,
            source=source,
            target=target,
            size_bytes=size,
            tensor_class=TensorClass.ACTIVATIONS,
            phase=phase,
            micro_batch=turn.micro_batch,
            layer=block.start,
            is_pinned=self.is_pinned,
        )
