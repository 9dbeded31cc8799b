"""The optimizer: on the GPU, on the CPU with copies, through NVMe, or split between CPU and GPU."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from sim.laws.cpu import IMPLEMENTATIONS
from sim.records import Kind, TensorClass
from sim.workload.footprint.counts import stage_layers
from sim.workload.footprint.states import STATE_BYTES_8BIT
from sim.workload.step.builder import StepBuilder
from sim.workload.step.gradients import Gradients
from sim.workload.step.kernels import optimizer_kernel
from sim.workload.step.lane import Lane
from sim.workload.step.save import Save
from sim.workload.step.state_swap import StateSwap
from sim.workload.step.work import Pass, elementwise

#: fp32 master weights and two moments of AdamW, which the profiles' host traffic was counted for (bytes per parameter)
_ADAMW_STATE_BYTES = 12.0
#: bytes per fp32 gradient that is divided by the loss scale in place
_UNSCALED_BYTES = 8.0
#: pieces of an update whose kernel copies tile by tile; more change the step by less than 1 %
_TILES = 8


class Update:
    """Emits the update of every lane after its gradients are ready."""

    def __init__(self, builder: StepBuilder, gradients: Gradients) -> None:
        self.builder, self.plan, self.gradients = builder, builder.plan, gradients
        self.save = Save(builder)
        #: a delayed update is of the gradients of the step before: its streams run beside this one's
        self.late = "late_" if self.plan.training.optimizer.delayed_update else ""

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
            if plan.home(TensorClass.GRADIENTS) != "gpu":
                after = [self._gradients_back(lane, after)]
            done = [self._on_gpu(lane, self.elements(lane), after)]
        else:
            done = self._on_host(lane, self.elements(lane), [] if self.late else after)
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
        """Piece by piece: states from storage if they live there, update on the CPU, copy the new weights back."""
        plan = self.plan
        num = self._num_pieces(elements)
        share = elements / num
        swap = (
            StateSwap(self.builder, lane, self.late, share, num)
            if plan.home(TensorClass.OPTIMIZER_STATES) == "storage"
            else None
        )
        done, waits, credit = [], after, 0.0
        if plan.gpu_share:
            done.append(self._on_gpu(lane, elements * plan.gpu_share, after))
        for index in range(num):
            credit += self._gpu_fraction
            if credit > 1 - 1e-9:
                credit -= 1
                done.append(self._through_gpu(lane, share, after))
                continue
            ready = swap.load(index, waits) if swap else waits
            if not self.gradients.is_offloaded:
                ready = [*ready, self._gradients_out(lane, share, waits)]
            for part, layer in self._parts(lane, index, num):
                updated = self._on_cpu(lane, share * part, ready, layer)
                ready = [updated]
            if swap:
                swap.store(updated)
            done.append(self._returned(lane, share, updated))
            waits = after if self._hides_copies else [done[-1]]
        return done

    @property
    def _gpu_fraction(self) -> float:
        optimizer = self.plan.training.optimizer
        return 1.0 if optimizer.swap_through_gpu else optimizer.gpu_fraction

    @property
    def _hides_copies(self) -> bool:
        """Pieces are updated beside the copies of their neighbours; otherwise each copy back holds the rank."""
        asked = self.plan.training.offload.overlap_update
        return self._is_fused or self.plan.profile.overlap_update if asked is None else asked

    @property
    def _is_pinned_back(self) -> bool:
        """Weights return from page-locked memory, where the GPU takes a share of the pieces too (Deep Optimizer States)."""
        return self._hides_copies or self._gpu_fraction > 0

    @property
    def _is_cast_on_gpu(self) -> bool:
        """Updated weights cross the link as fp32 because they come from page-locked memory."""
        is_back = self.plan.home(TensorClass.WEIGHTS) == "gpu"
        return is_back and self._is_pinned_back and not self._is_fused and self.plan.profile.host_cast_bytes > 0

    @property
    def _is_fused(self) -> bool:
        """The CPU kernel writes the 16-bit weights too and copies them tile by tile."""
        return self.plan.zero_stage < 3 and self.plan.profile.fused_update_bytes_per_element > 0

    def _num_pieces(self, elements: float) -> int:
        profile, offload = self.plan.profile, self.plan.training.offload
        size = offload.sub_group_elements or profile.sub_group_elements
        if self.plan.home(TensorClass.OPTIMIZER_STATES) == "storage" and offload.buffer_elements:
            size = min(size, offload.buffer_elements)
        return max(_TILES if self._is_fused else 1, math.ceil(elements / size))

    def _parts(self, lane: Lane, index: int, num: int) -> list[tuple[float, int]]:
        """Shares of a piece whose states lie together, in order, each with a layer of it (-1 where all layers are alike)."""
        if not self.plan.state_edges:
            return [(1.0, self._layer(lane, (index + 0.5) / num) if num > 1 else -1)]
        layers = stage_layers(self.plan.training, lane.stage)
        cuts = [place * num / len(layers) - index for place, layer in enumerate(layers) if layer in self.plan.state_edges]
        ends = [0.0, *(cut for cut in cuts if 0.0 < cut < 1.0), 1.0]
        return [(end - begin, self._layer(lane, (index + (begin + end) / 2) / num)) for begin, end in pairwise(ends)]

    def _layer(self, lane: Lane, place: float) -> int:
        """The layer of what lies at `place` (0..1) among a rank's parameters: its pieces go through the layers in order."""
        layers = stage_layers(self.plan.training, lane.stage)
        return layers[int(place * len(layers))]

    def _on_cpu(self, lane: Lane, elements: float, after: list[str], layer: int) -> str:
        plan, profile = self.plan, self.plan.profile
        traffic, temporary = self._update_traffic
        return self.builder.add(
            lane.name,
            f"{self.late}cpu",
            Kind.HOST_UPDATE,
            "cpu adamw",
            after=after,
            phase="update",
            num_elements=elements * (1.0 - plan.gpu_share),
            bytes_per_element=traffic * plan.host_slowdown,
            write_share=profile.update_write_share,
            num_cores=plan.threads,
            mapped_bytes=elements * (1.0 - plan.gpu_share) * temporary,
            is_spread=not plan.is_bound,
            tensor_class=TensorClass.OPTIMIZER_STATES,
            layer=layer,
        )

    def notes(self) -> tuple[str, ...]:
        """What the framework does to an update on the CPU unless it is told otherwise, and how to tell it."""
        plan, offload, asked = self.plan, self.plan.training.offload, self.plan.training.optimizer.implementation
        if plan.home(TensorClass.OPTIMIZER_STATES) == "gpu" or plan.training.optimizer.swap_through_gpu:
            return ()
        found = []
        if plan.threads and offload.cores_per_rank is None:
            found.append(
                f"the CPU updates with {plan.threads} thread per rank (OMP_NUM_THREADS, as torchrun and accelerate start "
                "several processes): offload.cores_per_rank gives it more"
            )
        if plan.profile.is_updated_by_torch and asked != "fused":
            found.append("torch's Adam passes over memory once per operation: optimizer.implementation: fused passes once")
        if plan.host_slowdown > 1.0 and offload.cores_bound is None:
            found.append(
                f"ranks are not bound to their cores: the update takes {plan.host_slowdown:.3g} times the traffic; "
                "offload.cores_bound: true binds them (deepspeed --bind_cores_to_rank)"
            )
        return tuple(found)

    @property
    def _update_traffic(self) -> tuple[float, float]:
        """Bytes that the CPU optimizer moves per parameter, and bytes of temporaries that it maps anew."""
        plan, profile = self.plan, self.plan.profile
        scale = plan.weight_bytes / 4.0 if plan.scheme == "pure" else 1.0
        # of another optimizer's states more or less, and gradients divided by the loss scale
        more = 2.0 * scale * (plan.state_bytes - _ADAMW_STATE_BYTES)
        if profile.always_unscales or plan.training.precision == "fp16":
            more += _UNSCALED_BYTES * scale
        if self._is_fused:
            return profile.fused_update_bytes_per_element + more, 0.0
        if not profile.is_updated_by_torch:
            cast = 0.0 if self._is_cast_on_gpu or plan.weight_bytes == 4.0 else profile.host_cast_bytes
            return profile.update_bytes_per_element + cast + more, 0.0
        kernel = IMPLEMENTATIONS["simd" if plan.training.optimizer.implementation == "fused" else "torch"]
        return kernel.size_bytes * scale + more, kernel.temporary_bytes * scale

    def _gradients_back(self, lane: Lane, after: list[str]) -> str:
        """Offloaded gradients for an update on the GPU."""
        plan = self.plan
        return self.builder.add(
            lane.name, "h2d", Kind.TRANSFER, "fetch gradients", after=after, source="home:gradients", target="gpu",
            phase="update", size_bytes=self.elements(lane) * plan.kept_bytes, tensor_class=TensorClass.GRADIENTS,
            is_pinned=self.gradients.is_pinned, rate_share=plan.profile.copy_share,
        )  # fmt: skip

    def _gradients_out(self, lane: Lane, elements: float, after: list[str]) -> str:
        """Gradients that stayed on the GPU to where the CPU updates with them."""
        plan = self.plan
        return self.builder.add(
            lane.name, f"{self.late}d2h", Kind.TRANSFER, "store gradients", after=after, source="gpu", target="dram",
            phase="update", size_bytes=elements * (plan.profile.late_gradient_bytes or plan.kept_bytes),
            is_pinned=self.gradients.is_pinned, rate_share=plan.profile.copy_share, tensor_class=TensorClass.GRADIENTS,
        )  # fmt: skip

    def _returned(self, lane: Lane, elements: float, updated: str) -> str:
        """The new weights back where the next step looks for them."""
        plan, profile = self.plan, self.plan.profile
        fields: dict[str, Any] = {
            "after": [updated],
            "phase": "update",
            "size_bytes": elements * (4.0 if self._is_cast_on_gpu else profile.late_gradient_bytes or plan.weight_bytes),
            "tensor_class": TensorClass.WEIGHTS,
        }
        home = plan.home(TensorClass.WEIGHTS)
        if home == "storage":
            stream = f"{self.late}storage"
            fields["size_bytes"] *= 1.0 - plan.kept_share
            return self.builder.add(lane.name, stream, Kind.IO, "write weights", source="dram", target="home:weights", **fields)
        if home != "gpu":
            return updated
        return self.builder.add(
            lane.name,
            f"{self.late}h2d",
            Kind.TRANSFER,
            "return weights",
            source="home:master_weights",
            target="gpu",
            is_pinned=self.gradients.is_pinned and (profile.pins_returned_weights or self._is_pinned_back),
            rate_share=profile.copy_share,
            **fields,
        )

    def _through_gpu(self, lane: Lane, elements: float, after: list[str]) -> str:
        """States of a sub-group to the GPU, update there, states back."""
        kind, pinned = self.plan.training.optimizer.type, self.gradients.is_pinned
        size = elements * (STATE_BYTES_8BIT if kind.endswith("8bit") else self.plan.state_bytes)
        fields = {
            "is_faulted": kind.startswith("paged"),
            "tensor_class": TensorClass.OPTIMIZER_STATES,
            "size_bytes": size,
            "is_pinned": pinned,
            "phase": "update",
            "rate_share": self.plan.profile.copy_share,
        }
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
