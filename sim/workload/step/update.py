"""The optimizer: on the GPU, on the CPU with copies, through NVMe, or split between CPU and GPU."""

from __future__ import annotations

import math

from sim.records import Kind, TensorClass
from sim.workload.step.builder import StepBuilder
from sim.workload.step.gradients import Gradients
from sim.workload.step.kernels import optimizer_kernel
from sim.workload.step.lane import Lane
from sim.workload.step.save import Save
from sim.workload.step.work import Pass, elementwise

#: fp32 master weights and two moments of AdamW, bytes per parameter
_STATE_BYTES = 12.0


class Update:
    """Emits the update of every lane after its gradients are ready."""

    def __init__(self, builder: StepBuilder, gradients: Gradients) -> None:
        self.builder, self.plan, self.gradients = builder, builder.plan, gradients
        self.save = Save(builder)
        #: a delayed update is of the gradients of the step before: its streams run beside this one's
        self._late = "late_" if self.plan.training.optimizer.delayed_update else ""

    def elements(self, lane: Lane) -> float:
        """Parameters that one rank of the lane updates."""
        plan, ranked = self.plan, self.plan.rank_parameters(lane.stage)
        if plan.zero_stage == 0:
            return ranked.trained
        dense = (ranked.trained_dense + ranked.adapter) / plan.shards
        return dense + ranked.trained_routed / min(plan.shards, plan.expert_replicas)

    def emit(self, lane: Lane) -> None:
        """Write the update; weights are back on the GPU (and gathered, for ZeRO 1 and 2) when the step ends."""
        plan = self.plan
        after = [*self.gradients.ready.get(lane.name, {}).values(), lane.last]
        if plan.home(TensorClass.OPTIMIZER_STATES) == "gpu":
            done = [self._on_gpu(lane, self.elements(lane), after)]
        else:
            done = self._on_host(lane, self.elements(lane), [] if self._late else after)
        done = self.gradients.gather_updated(lane, done)
        self.save.emit(lane, self.elements(lane), done)
        profile = plan.profile
        fixed = profile.step_fixed_s + profile.micro_batch_fixed_s * plan.training.gradient_accumulation
        if fixed:
            self.builder.add(
                lane.name, "compute", Kind.COMPUTE, "framework", after=done, phase="other", category="idle", fixed_s=fixed
            )

    def _on_gpu(self, lane: Lane, elements: float, after: list[str]) -> str:
        work = Pass((optimizer_kernel(elements, self.plan.profile.gpu_update_bytes_per_element),), 30)
        if self.plan.training.precision == "fp16":  # loss scaling: gradients are unscaled and searched for overflows
            work += Pass((elementwise(2 * self.plan.weight_bytes * elements, "unscale", 0.5),), 2)
        return self.builder.compute(lane.name, "adamw", work, after=after, phase="update")

    def _on_host(self, lane: Lane, elements: float, after: list[str]) -> list[str]:
        """Sub-group by sub-group: update on the CPU, copy the new weights back."""
        plan, profile, offload = self.plan, self.plan.profile, self.plan.training.offload
        size = offload.sub_group_elements or profile.sub_group_elements
        num = max(1, math.ceil(elements / size))
        is_overlapped = profile.overlap_update if offload.overlap_update is None else offload.overlap_update
        gpu_fraction = 1.0 if plan.training.optimizer.swap_through_gpu else plan.training.optimizer.gpu_fraction
        weights_home = plan.home(TensorClass.WEIGHTS)
        done, waits, credit = [], after, 0.0
        for _ in range(num):
            share = elements / num
            credit += gpu_fraction
            if credit > 1 - 1e-9:
                credit -= 1
                done.append(self._through_gpu(lane, share, after))
                continue
            ready = self._load_states(lane, share, waits)
            updated = self.builder.add(
                lane.name,
                f"{self._late}cpu",
                Kind.HOST_UPDATE,
                "cpu adamw",
                after=ready,
                phase="update",
                num_elements=share,
                bytes_per_element=profile.update_bytes_per_element * plan.host_slowdown,
                write_share=profile.update_write_share,
                num_cores=offload.cores_per_rank or 0,
                tensor_class=TensorClass.OPTIMIZER_STATES,
            )
            self._store_states(lane, share, updated)
            copied = updated
            if weights_home == "gpu":
                copied = self.builder.add(
                    lane.name,
                    f"{self._late}h2d",
                    Kind.TRANSFER,
                    "return weights",
                    after=[updated],
                    source="home:master_weights",
                    target="gpu",
                    phase="update",
                    size_bytes=share * plan.weight_bytes,
                    tensor_class=TensorClass.WEIGHTS,
                    is_pinned=self.gradients.is_pinned,
                )
            done.append(copied)
            waits = after if is_overlapped else [copied]
        return done

    def _through_gpu(self, lane: Lane, elements: float, after: list[str]) -> str:
        """States of a sub-group to the GPU, update there, states back."""
        size, pinned = elements * _STATE_BYTES, self.gradients.is_pinned
        fields = {"tensor_class": TensorClass.OPTIMIZER_STATES, "size_bytes": size, "is_pinned": pinned, "phase": "update"}
        fetched = self.builder.add(
            lane.name, "h2d", Kind.TRANSFER, "fetch states", after=after, source="home:optimizer_states", target="gpu", **fields
        )
        updated = self._on_gpu(lane, elements, [fetched])
        return self.builder.add(
            lane.name,
            "d2h",
            Kind.TRANSFER,
            "store states",
            after=[updated],
            source="gpu",
            target="home:optimizer_states",
            **fields,
        )

    def _load_states(self, lane: Lane, elements: float, after: list[str]) -> list[str]:
        if self.plan.home(TensorClass.OPTIMIZER_STATES) != "storage":
            return after
        return [self._swap(lane, "read states", "home:optimizer_states", "dram", elements, after)]

    def _store_states(self, lane: Lane, elements: float, updated: str) -> None:
        if self.plan.home(TensorClass.OPTIMIZER_STATES) == "storage":
            self._swap(lane, "write states", "dram", "home:optimizer_states", elements, [updated])

    def _swap(self, lane: Lane, name: str, source: str, target: str, elements: float, after: list[str]) -> str:
        return self.builder.add(
            lane.name,
            f"{self._late}storage",
            Kind.IO,
            name,
            after=after,
            source=source,
            target=target,
            phase="update",
            size_bytes=elements * _STATE_BYTES,
            tensor_class=TensorClass.OPTIMIZER_STATES,
        )
