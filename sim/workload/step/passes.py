"""Forward and backward of one micro-batch through one model chunk of one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sim.records import Kind, TensorClass
from sim.workload.step import kernels
from sim.workload.step.builder import StepBuilder
from sim.workload.step.gradients import Gradients
from sim.workload.step.plan import Plan
from sim.workload.step.schedule import Turn


@dataclass
class Lane:
    """What one pipeline stage has written so far: the ids that later operations wait for."""

    stage: int
    name: str
    history: list[str] = field(default_factory=list)  # compute of each layer block, in order
    saved: dict[tuple[int, int], list[str]] = field(default_factory=dict)  # (micro-batch, chunk) -> offloaded checkpoints
    pending: list[str] = field(default_factory=list)  # what the next compute must wait for


class Passes:
    """Emits chunk passes. One instance per step; lanes hold the state of each stage."""

    def __init__(self, builder: StepBuilder, gradients: Gradients, layers_per_block: int) -> None:
        self.builder, self.gradients, self.layers_per_block = builder, gradients, layers_per_block
        self.plan: Plan = builder.plan

    @cached_property
    def _forward(self) -> kernels.Pass:
        return kernels.layer_forward(self.plan)

    @cached_property
    def _backward(self) -> kernels.Pass:
        return kernels.layer_backward(self.plan)

    @cached_property
    def _recompute(self) -> kernels.Pass:
        return kernels.recompute(self.plan)

    @cached_property
    def num_recomputed(self) -> int:
        """Layers of a stage that are checkpointed."""
        checkpointing = self.plan.training.checkpointing
        if not checkpointing.active:
            return 0
        return self.plan.shape.layers if checkpointing.layers is None else checkpointing.layers

    def blocks(self, layers: range) -> list[range]:
        """The chunk's layers in groups of `layers_per_block`."""
        step = self.layers_per_block
        return [range(start, min(start + step, layers.stop)) for start in range(layers.start, layers.stop, step)]

    def forward(self, lane: Lane, turn: Turn, received: str | None) -> str | None:
        """Emit the pass and return the id of its send, if another stage waits for it."""
        plan = self.plan
        mark: dict[str, Any] = {"phase": "forward", "micro_batch": turn.micro_batch}
        waits = [received, *self._drain(lane)]
        layers = plan.chunk_layers(lane.stage, turn.chunk)
        if layers.start == 0:
            self.builder.compute(lane.name, "embedding", kernels.embedding_forward(plan), after=waits, **mark)
            waits = []
        for block in self.blocks(layers):
            gathered = self.gradients.gather(lane, block, turn, "forward")
            work = self._forward.times(len(block))
            fixed = plan.profile.hook_forward_s * len(block) if plan.zero_stage == 3 else 0.0
            done = self.builder.compute(
                lane.name,
                _label("forward", block),
                work,
                after=[*waits, gathered, *self._drain(lane)],
                layer=block.start,
                fixed_s=fixed,
                **mark,
            )
            lane.history.append(done)
            waits = []
            self._tensor_collectives(lane, block, "forward", turn, len(block))
            self._save_checkpoint(lane, block, turn, done)
        if layers.stop == plan.shape.layers:
            gathered = self.gradients.gather_head(lane, turn)
            done = self.builder.compute(lane.name, "loss", kernels.head_forward(plan), after=[gathered], **mark)
            return None
        return self._send(lane, turn, lane.history[-1])

    def backward(self, lane: Lane, turn: Turn, received: str | None, *, is_last: bool) -> str | None:
        """Emit the pass with its gradient traffic and return the id of its send, if another stage waits for it."""
        plan = self.plan
        mark: dict[str, Any] = {"phase": "backward", "micro_batch": turn.micro_batch}
        waits = [received, *self._drain(lane)]
        layers = plan.chunk_layers(lane.stage, turn.chunk)
        if layers.stop == plan.shape.layers:
            done = self.builder.compute(lane.name, "loss.backward", kernels.head_backward(plan), after=waits, **mark)
            self.gradients.produced(lane, turn, done, plan.head_parameters / plan.tensor, -1, is_last=is_last)
            waits = []
        for block in reversed(self.blocks(layers)):
            gathered = self.gradients.gather(lane, block, turn, "backward")
            waits = [*waits, gathered, self._load_checkpoint(lane, block, turn), *self._drain(lane)]
            again = self._recomputed(block, layers)
            if again:
                self.builder.compute(
                    lane.name, _label("recompute", block), self._recompute.times(again), after=waits, layer=block.start, **mark
                )
                waits = []
                if plan.training.checkpointing.mode == "full":
                    self._tensor_collectives(lane, block, "backward", turn, again)
            fixed = plan.profile.hook_backward_s * len(block) if plan.zero_stage == 3 else 0.0
            done = self.builder.compute(
                lane.name,
                _label("backward", block),
                self._backward.times(len(block)),
                after=[*waits, *self._drain(lane)],
                layer=block.start,
                fixed_s=fixed,
                **mark,
            )
            lane.history.append(done)
            waits = []
            self._tensor_collectives(lane, block, "backward", turn, len(block))
            parameters = plan.layer_parameters * len(block) / plan.tensor
            self.gradients.produced(lane, turn, done, parameters, block.start, is_last=is_last)
        if layers.start == 0:
            parameters = plan.embedding_parameters / plan.tensor
            done = self.builder.compute(lane.name, "embedding.backward", kernels.embedding_forward(plan), **mark)
            self.gradients.produced(lane, turn, done, parameters, -1, is_last=is_last)
            return None
        return self._send(lane, turn, lane.history[-1])

    def _recomputed(self, block: range, layers: range) -> int:
        """How many of the block's layers are checkpointed: the first `checkpointing.layers` of each stage."""
        first = layers.start if self.plan.training.parallelism.interleave == 1 else block.start
        return max(0, min(block.stop, first + self.num_recomputed) - block.start)

    def _tensor_collectives(self, lane: Lane, block: range, phase: str, turn: Turn, num_layers: int) -> None:
        """Two all-reduces of T x h per layer and direction; the hidden share runs beside the block's kernels."""
        plan = self.plan
        if plan.tensor == 1:
            return
        size = plan.tokens * plan.shape.hidden * 2.0
        calls, hidden = 2.0 * num_layers, plan.profile.tensor_overlap
        mark: dict[str, Any] = {"phase": phase, "micro_batch": turn.micro_batch, "layer": block.start, "group": "tensor"}
        if hidden > 0:
            before = lane.history[-2:-1] if len(lane.history) > 1 else []
            lane.pending.append(
                self.builder.add(
                    lane.name,
                    "collective",
                    Kind.COLLECTIVE,
                    "tensor all-reduce",
                    after=before,
                    collective="all_reduce",
                    size_bytes=size,
                    num_calls=calls * hidden,
                    compute_share=plan.profile.collective_compute_share,
                    **mark,
                )
            )
        if hidden < 1:
            self.builder.add(
                lane.name,
                "compute",
                Kind.COLLECTIVE,
                "tensor all-reduce",
                category="collective",
                collective="all_reduce",
                size_bytes=size,
                num_calls=calls * (1 - hidden),
                **mark,
            )

    def _send(self, lane: Lane, turn: Turn, after: str) -> str:
        """Pass the activations (or their gradients) to the neighbouring stage; each tensor rank sends its slice."""
        plan = self.plan
        return self.builder.add(
            lane.name,
            "p2p",
            Kind.COLLECTIVE,
            f"send {turn.direction}",
            after=[after],
            collective="point_to_point",
            group="pipeline",
            target=f"s{(lane.stage + (1 if turn.direction == 'forward' else -1)) % plan.stages}",
            size_bytes=2.0 * plan.tokens * plan.shape.hidden / plan.tensor,
            phase=turn.direction,
            micro_batch=turn.micro_batch,
        )

    def _checkpoint_bytes(self, block: range) -> float:
        """Bytes of the checkpoints of a block: T h once every `interval` layers."""
        plan = self.plan
        split = plan.tensor if plan.training.parallelism.sequence_parallel else 1
        interval = plan.training.checkpointing.interval
        num = sum(1 for layer in block if layer % interval == 0)
        return 2.0 * plan.tokens * plan.shape.hidden * num / split

    def _is_saved(self) -> bool:
        checkpointing = self.plan.training.checkpointing
        return checkpointing.active and checkpointing.offload

    def _save_checkpoint(self, lane: Lane, block: range, turn: Turn, done: str) -> None:
        if not self._is_saved() or not self._checkpoint_bytes(block):
            return
        saved = self.builder.add(
            lane.name,
            "d2h",
            Kind.TRANSFER,
            _label("save checkpoint", block),
            after=[done],
            source="gpu",
            target="dram",
            size_bytes=self._checkpoint_bytes(block),
            tensor_class=TensorClass.ACTIVATIONS,
            phase="forward",
            micro_batch=turn.micro_batch,
            layer=block.start,
            is_pinned=self.plan.training.offload.pin_memory is not False,
        )
        lane.saved.setdefault((turn.micro_batch, turn.chunk), []).append(saved)
        if not self.plan.profile.overlap_activation_copy:
            lane.pending.append(saved)

    def _load_checkpoint(self, lane: Lane, block: range, turn: Turn) -> str | None:
        if not self._is_saved() or not self._checkpoint_bytes(block):
            return None
        saved = lane.saved[turn.micro_batch, turn.chunk].pop()
        prefetch = 2 if self.plan.profile.overlap_activation_copy else 1
        return self.builder.add(
            lane.name,
            "h2d",
            Kind.TRANSFER,
            _label("load checkpoint", block),
            after=[saved, *lane.history[-prefetch:][:1]],
            source="dram",
            target="gpu",
            size_bytes=self._checkpoint_bytes(block),
            tensor_class=TensorClass.ACTIVATIONS,
            phase="backward",
            micro_batch=turn.micro_batch,
            layer=block.start,
            is_pinned=self.plan.training.offload.pin_memory is not False,
        )

    @staticmethod
    def _drain(lane: Lane) -> Sequence[str]:
        waits, lane.pending = lane.pending, []
        return waits


def _label(what: str, block: range) -> str:
    return f"{what} {block.start}" if len(block) == 1 else f"{what} {block.start}-{block.stop - 1}"
