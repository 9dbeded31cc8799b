"""Forward and backward of one micro-batch through one model chunk of one stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from sim.workload.step import kernels
from sim.workload.step.builder import StepBuilder
from sim.workload.step.checkpoints import Checkpoints
from sim.workload.step.exchange import Exchange
from sim.workload.step.gradients import Gradients
from sim.workload.step.lane import Lane
from sim.workload.step.loader import Loader
from sim.workload.step.plan import Plan
from sim.workload.step.schedule import Turn
from sim.workload.step.work import Pass

#: modules with hooks in a dense layer (4 attention, 3 feed-forward, 2 norms, 4 containers), in a layer of experts besides
#: them, and in each expert (3 maps, activation, container)
_DENSE_MODULES, _SHARED_MODULES, _EXPERT_MODULES = 13, 8, 5


class Passes:
    """Emits chunk passes. One instance per step; lanes hold the state of each stage."""

    def __init__(self, builder: StepBuilder, gradients: Gradients, layers_per_block: int) -> None:
        self.builder, self.gradients, self.layers_per_block = builder, gradients, layers_per_block
        self.plan: Plan = builder.plan
        self.exchange = Exchange(builder)
        self.checkpoints = Checkpoints(builder)
        self.loader = Loader(builder)
        self._known: dict[tuple[str, int, int], Pass] = {}

    @cached_property
    def num_recomputed(self) -> int:
        """Layers of each stage that are checkpointed."""
        checkpointing = self.plan.training.checkpointing
        if not checkpointing.active:
            return 0
        return self.plan.shape.layers if checkpointing.layers is None else checkpointing.layers

    def blocks(self, layers: range) -> list[range]:
        """The chunk's layers in groups of `layers_per_block`."""
        step = self.layers_per_block
        return [range(start, min(start + step, layers.stop)) for start in range(layers.start, layers.stop, step)]

    def _work(self, what: Callable[..., Pass], block: range) -> Pass:
        """Kernels of all layers of a block; equal blocks share one object."""
        num_moe = self.plan.num_moe(block)
        key = (what.__name__, len(block) - num_moe, num_moe)
        if key not in self._known:
            work = Pass()
            if key[1]:
                work += what(self.plan, is_moe=False).times(key[1])
            if num_moe:
                work += what(self.plan, is_moe=True).times(num_moe)
            self._known[key] = work
        return self._known[key]

    def forward(self, lane: Lane, turn: Turn, received: str | None) -> str | None:
        """Emit the pass and return the id of its send, if another stage waits for it."""
        plan = self.plan
        mark: dict[str, Any] = {"phase": "forward", "micro_batch": turn.micro_batch}
        waits = [received, *lane.drain()]
        layers = plan.chunk_layers(lane.stage, turn.chunk)
        if self._is_first(lane, turn):
            gathered = self.gradients.gather(lane, plan.embedding_parameters, 0.0, turn, "forward", -1)
            waits += [gathered, self.loader.batch(lane, turn.micro_batch)]
            lane.last = self.builder.compute(lane.name, "embedding", kernels.embedding(plan), after=waits, **mark)
            waits = []
        for block in self.blocks(layers):
            gathered = self.gradients.gather_block(lane, block, turn, "forward")
            done = self.builder.compute(
                lane.name,
                _label("forward", block),
                self._work(kernels.layer_forward, block),
                after=[*waits, gathered, *lane.drain()],
                layer=block.start,
                fixed_s=self._hook(block, plan.profile.hook_forward_s),
                **mark,
            )
            lane.computed(done)
            waits = []
            self.exchange.layers(lane, block, "forward", turn, len(block))
            self.checkpoints.save(lane, block, turn, done)
        if self._is_last(lane, turn):
            gathered = self.gradients.gather(lane, plan.head_parameters, 0.0, turn, "forward", -1)
            self.builder.compute(lane.name, "loss", kernels.head_forward(plan), after=[*waits, gathered, *lane.drain()], **mark)
            return None
        return self.exchange.send(lane, turn, lane.last)

    def backward(self, lane: Lane, turn: Turn, received: str | None, *, is_last: bool) -> str | None:
        """Emit the pass with its gradient traffic and return the id of its send, if another stage waits for it."""
        plan = self.plan
        mark: dict[str, Any] = {"phase": "backward", "micro_batch": turn.micro_batch}
        waits = [received, *lane.drain()]
        layers = plan.chunk_layers(lane.stage, turn.chunk)
        if self._is_last(lane, turn):
            done = self.builder.compute(lane.name, "loss.backward", kernels.head_backward(plan), after=waits, **mark)
            lane.last = done
            if not plan.is_frozen and plan.training.trainable_layers is None:
                self.gradients.produced(lane, turn, done, plan.head_parameters, 0.0, -1, is_last=is_last)
            waits = []
        blocks = self.blocks(layers)[::-1]
        waits.append(self.gradients.gather_block(lane, blocks[0], turn, "backward") if blocks else None)
        for index, block in enumerate(blocks):
            following = blocks[index + 1] if index + 1 < len(blocks) else None
            waits = [self._backward_block(lane, turn, block, following, layers, waits, is_last=is_last)]
        if self._is_first(lane, turn):
            if not plan.is_frozen and plan.training.trainable_layers is None:
                done = self.builder.compute(lane.name, "embedding.backward", kernels.embedding(plan), after=waits, **mark)
                self.gradients.produced(lane, turn, done, plan.embedding_parameters, 0.0, -1, is_last=is_last)
            return None
        return self.exchange.send(lane, turn, lane.last)

    def _backward_block(
        self,
        lane: Lane,
        turn: Turn,
        block: range,
        following: range | None,
        layers: range,
        waits: list[str | None],
        *,
        is_last: bool,
    ) -> str | None:
        """Emit a block's backward; return the gather of the next block's weights, asked for before these gradients move."""
        plan = self.plan
        mark: dict[str, Any] = {"phase": "backward", "micro_batch": turn.micro_batch, "layer": block.start}
        waits = [*waits, self.checkpoints.load(lane, block, turn), *lane.drain()]
        again = self._recomputed(block, layers)
        if again:
            work = self._work(kernels.recompute, again)
            self.builder.compute(lane.name, _label("recompute", again), work, after=waits, **mark)
            waits = []
            if plan.training.checkpointing.mode == "full":
                self.exchange.layers(lane, again, "recompute", turn, len(again))
        done = self.builder.compute(
            lane.name,
            _label("backward", block),
            self._work(kernels.layer_backward, block),
            after=[*waits, *lane.drain(), *lane.release()],
            fixed_s=self._hook(block, plan.profile.hook_backward_s),
            **mark,
        )
        lane.computed(done)
        self.exchange.layers(lane, block, "backward", turn, len(block))
        ahead = self.gradients.gather_block(lane, following, turn, "backward") if following is not None else None
        dense, routed = plan.trained_block(block)
        if dense or routed:
            self.gradients.produced(lane, turn, done, dense, routed, block.start, is_last=is_last)
        return ahead

    def _is_first(self, lane: Lane, turn: Turn) -> bool:
        return lane.stage == 0 and turn.chunk == 0

    def _is_last(self, lane: Lane, turn: Turn) -> bool:
        return lane.stage == self.plan.stages - 1 and turn.chunk == self.plan.training.parallelism.interleave - 1

    def _hook(self, block: range, each_s: float) -> float:
        """Host time of ZeRO 3's hooks on a block's modules; a compiler puts them into the graph."""
        plan = self.plan
        if plan.zero_stage < 3 or plan.training.compile:
            return 0.0
        num_moe = plan.num_moe(block)
        experts = (_SHARED_MODULES + _EXPERT_MODULES * plan.shape.experts / plan.expert) / _DENSE_MODULES
        return each_s * (len(block) - num_moe + num_moe * experts)

    def _recomputed(self, block: range, layers: range) -> range:
        """Layers of the block that are checkpointed: the first `checkpointing.layers` of each stage."""
        first = layers.start if self.plan.training.parallelism.interleave == 1 else block.start
        return range(block.start, max(block.start, min(block.stop, first + self.num_recomputed)))


def _label(what: str, block: range) -> str:
    return f"{what} {block.start}" if len(block) == 1 else f"{what} {block.start}-{block.stop - 1}"
