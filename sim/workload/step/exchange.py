"""Communication inside a pass: tensor, context and expert groups, and sends between pipeline stages."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sim.records import Kind
from sim.workload import shapes
from sim.workload.frameworks import HIDDEN_EXCHANGE, HIDDEN_TENSOR
from sim.workload.step import linear
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane
from sim.workload.step.plan import GEMM_DTYPE
from sim.workload.step.schedule import Turn
from sim.workload.step.work import ELEMENT_BYTES


class Exchange:
    """Emits what the ranks of a layer tell each other; a hidden share runs beside the block's kernels.

    Groups of ranks have communicators of their own: what the data-parallel ones gather and reduce runs beside it.
    """

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan

    @cached_property
    def _tensor_bytes(self) -> float:
        """Bytes per element of a tensor group's all-reduce: with sequence parallelism half of it gathers, half scatters."""
        plan = self.plan
        if not (plan.profile.gathers_quantised and plan.training.parallelism.sequence_parallel):
            return 2.0
        return 1.0 + ELEMENT_BYTES[GEMM_DTYPE[plan.training.precision]] / 2

    @cached_property
    def _expert_overlap(self) -> float:
        """Share of the expert exchanges that is hidden; what an overlap hides is the profiles' largest."""
        asked = self.plan.training.parallelism.overlap_experts
        return self.plan.profile.expert_overlap if asked is None else HIDDEN_EXCHANGE if asked else 0.0

    @cached_property
    def _tensor_overlap(self) -> float:
        """Share of the tensor group's exchanges that is hidden; what an overlap hides is the profiles' largest."""
        asked = self.plan.training.parallelism.overlap_tensor
        return self.plan.profile.tensor_overlap if asked is None else HIDDEN_TENSOR if asked else 0.0

    def layers(self, lane: Lane, block: range, phase: str, turn: Turn, num_layers: int) -> None:
        """All exchanges of a block of layers in one direction ("forward", "recompute" or "backward")."""
        plan, num_moe = self.plan, self.plan.num_moe(block)
        if plan.tensor > 1:
            calls = 2.0 * (num_layers - num_moe) + (1.0 if plan.is_expert_wide else 2.0) * num_moe
            size = plan.tokens * plan.shape.hidden * self._tensor_bytes
            self._emit(lane, block, phase, turn, "all_reduce", "tensor", size, calls, self._tensor_overlap)
        if plan.training.parallelism.context > 1:
            width = shapes.key_width(plan.shape) + shapes.value_width(plan.shape)
            size = plan.tokens * plan.training.parallelism.context * width / plan.tensor * 2.0
            calls = num_layers * (2.0 if phase == "backward" else 1.0)
            self._emit(lane, block, phase, turn, "all_gather", "context", size, calls, plan.profile.context_overlap)
        if num_moe and plan.expert > 1:
            size = linear.expert_tokens(plan) * plan.shape.hidden * 2.0
            calls = 2.0 * num_moe
            self._emit(lane, block, phase, turn, "all_to_all", "expert", size, calls, self._expert_overlap)

    def _emit(
        self, lane: Lane, block: range, phase: str, turn: Turn, kind: str, group: str, size: float, calls: float, hidden: float
    ) -> None:
        by_node = self.plan.training.parallelism.exchange_by_node
        by_node = self.plan.profile.exchanges_by_node if by_node is None else by_node
        mark: dict[str, Any] = {
            "num_copies": float(self.plan.shape.experts_per_token) if by_node and kind == "all_to_all" else 0.0,
            "node_share": self.plan.shape.group_share if by_node and kind == "all_to_all" else 1.0,
            "phase": "backward" if phase == "recompute" else phase,
            "micro_batch": turn.micro_batch,
            "layer": block.start,
            "group": group,
            "collective": kind,
            "size_bytes": size,
        }
        name = f"{group} {kind.replace('_', '-')}"
        if hidden > 0:
            share = self.plan.profile.collective_compute_share
            beside = self.builder.add(
                lane.name,
                "exchange",
                Kind.COLLECTIVE,
                name,
                after=lane.history[-2:-1],
                num_calls=calls * hidden,
                compute_share=share,
                **mark,
            )
            lane.pending.append(beside)
        if hidden < 1:
            self.builder.add(
                lane.name, "compute", Kind.COLLECTIVE, name, category="collective", num_calls=calls * (1 - hidden), **mark
            )

    def send(self, lane: Lane, turn: Turn, after: str) -> str:
        """Pass the activations (or their gradients) to the neighbouring stage; each tensor rank sends its slice."""
        plan, profile = self.plan, self.plan.profile
        towards = 1 if turn.direction == "forward" else -1
        sent = self.builder.add(
            lane.name,
            "p2p",
            Kind.COLLECTIVE,
            f"send {turn.direction}",
            after=[after],
            collective="point_to_point",
            group="pipeline",
            target=f"s{(lane.stage + towards) % plan.stages}",
            size_bytes=2.0 * plan.tokens * plan.shape.hidden / plan.tensor,
            phase=turn.direction,
            micro_batch=turn.micro_batch,
            fixed_s=profile.send_fixed_s,
        )
        if profile.is_send_blocking:
            lane.pending.append(sent)
        return sent
