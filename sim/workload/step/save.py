"""Checkpoints of the training state: every step carries its share of the bytes that are written every n steps."""

from __future__ import annotations

from sim.records import Kind, TensorClass
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane

#: fp32 master weights and both moments of AdamW (bytes per parameter); the 16- or 32-bit weights come on top
STATE_BYTES = 12.0


class Save:
    """Emits the write of a lane: after the update, or beside the step from a copy in host memory."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan

    def emit(self, lane: Lane, elements: float, after: list[str]) -> None:
        """`elements` are those that the rank updates; replicas write a state once between them."""
        plan, save = self.plan, self.plan.training.save
        if not save.every:
            return
        copies = plan.everyone if plan.zero_stage == 0 else plan.replicas
        size = elements / copies * (STATE_BYTES + plan.weight_bytes) / save.every
        fields = {"phase": "save", "size_bytes": size, "category": "storage"}
        is_on_gpu = plan.home(TensorClass.OPTIMIZER_STATES) == "gpu"
        home = "gpu" if is_on_gpu else "dram"
        if save.asynchronous:
            if is_on_gpu:  # the step goes on when the state is in host memory
                self.builder.add(
                    lane.name, "d2h", Kind.TRANSFER, "snapshot state", after=after, source="gpu", target="dram", **fields
                )
            after, home = [], "dram"
        self.builder.add(lane.name, "saver", Kind.IO, "write checkpoint", after=after, source=home, target=save.to, **fields)
