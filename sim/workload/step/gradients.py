"""ZeRO and data parallelism: parameters gathered before use, gradients reduced and moved to their home."""

from __future__ import annotations

from typing import Any

from sim.records import Kind, TensorClass
from sim.workload.step.builder import StepBuilder
from sim.workload.step.lane import Lane
from sim.workload.step.schedule import Turn
from sim.workload.step.swap_buffers import SWAPPED_GRADIENT_BYTES, SwapBuffers


class Gradients:
    """Emits all-gathers, reduce-scatters and gradient copies of every lane, and remembers what the update waits for."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan
        self.ready: dict[str, dict[str, str]] = {}  # lane -> stream -> last id: gradients are at home after these
        self._bucket: dict[str, tuple[float, float]] = {}
        self._swap_buffers: dict[str, SwapBuffers] = {}
        offload, profile = self.plan.training.offload, self.plan.profile
        self.is_overlapped = profile.overlap_gradient_copy if offload.overlap_gradients is None else offload.overlap_gradients
        self.is_inline = profile.inline_gradient_copy and self.plan.zero_stage < 3
        self.is_pinned = offload.pin_memory is not False
        self.bucket_elements = offload.bucket_elements or profile.bucket_elements
        states = self.plan.home(TensorClass.OPTIMIZER_STATES)
        is_away = self.plan.home(TensorClass.GRADIENTS) != "gpu" and not (states != "gpu" and profile.late_gradient_bytes)
        #: gradients leave in the backward pass; those that stay on the GPU too are copied there only where nobody waits for it
        self.is_cast = states != "gpu"  # the host's update wants fp32
        by_host = states != "gpu" and not self.plan.training.optimizer.swap_through_gpu
        self.is_offloaded = is_away or (by_host and self.is_overlapped)
        self.is_held = self.is_offloaded and profile.holds_gradient_copy and self.plan.zero_stage == 3
        self.is_reduced_beside = profile.overlap_gradient_reduce and not self.is_held
        #: where the CPU update finds them
        self.target = "dram" if states == "storage" or not is_away else "home:gradients"

    # ------------------------------------------------------------------------------------------------------ parameters

    def gather_block(self, lane: Lane, block: range, turn: Turn, phase: str) -> str | None:
        """Fetch the parameters of a block before its pass."""
        plan = self.plan
        return self.gather(lane, plan.block_parameters(block), plan.block_routed(block), turn, phase, block.start)

    def gather(self, lane: Lane, dense: float, routed: float, turn: Turn, phase: str, layer: int) -> str | None:
        """Fetch parameters: from their home if offloaded, then from the other shards.

        `dense` are held by all data-parallel ranks, `routed` by those with the same experts. None if all is there.
        """
        plan, profile = self.plan, self.plan.profile
        is_first = turn.micro_batch == 0 and phase == "forward"
        is_each = plan.zero_stage == 3 or (plan.zero_stage == 2 and profile.stage2_gathers_each and phase == "forward")
        is_late = (
            plan.zero_stage in (1, 2) and profile.overlap_parameter_gather and is_first and not profile.stage2_gathers_each
        )
        is_away = plan.home(TensorClass.WEIGHTS) != "gpu"
        if not is_away and not is_each and not is_late:
            return None
        # a rate limiter keeps `prefetch_layers` blocks ahead of the one that computes; who waits for a copy asks for nothing
        ahead = 0 if routed and profile.gathers_experts else profile.prefetch_layers
        window = [] if is_late else [*lane.history[-ahead - 1 :][:1], *lane.blocked_by]
        mark = {"phase": phase, "micro_batch": turn.micro_batch, "layer": layer}
        fetched: str | None = None
        if is_away:
            fetched = self._fetched(lane, self._away_bytes(dense, routed), window, mark)
        if not (is_each or is_late):
            return fetched
        return self._gathered(lane, dense, routed, [*window, fetched], mark) or fetched

    def _fetched(self, lane: Lane, size: float, after: list[str], mark: dict[str, Any]) -> str:
        """Weights from their home; of those on storage, some are still in host memory."""
        fields: dict[str, Any] = {"target": "gpu", "is_pinned": self.is_pinned, "tensor_class": TensorClass.WEIGHTS, **mark}
        kept = self.plan.kept_share if self.plan.home(TensorClass.WEIGHTS) == "storage" else 0.0
        last = ""
        for source, share in (("dram", kept), ("home:weights", 1.0 - kept)):
            if share:
                fields["size_bytes"] = size * share
                last = self.builder.add(lane.name, "h2d", Kind.TRANSFER, "fetch weights", after=after, source=source, **fields)
        return last

    def _away_bytes(self, dense: float, routed: float) -> float:
        """Bytes of weights that this rank fetches from their home: its shard, quantised if frozen so."""
        plan, shards = self.plan, self.plan.shards if self.plan.zero_stage == 3 else 1
        each = plan.kept_bytes if plan.kept_bytes > plan.weight_bytes else self.builder.stored_weight_bytes
        return (dense / shards + routed / min(shards, plan.expert_replicas)) * each

    def _gathered(self, lane: Lane, dense: float, routed: float, after: list[str | None], mark: dict[str, Any]) -> str | None:
        plan, last = self.plan, None
        for amount, group, ranks in ((dense, "shard", plan.shards), (routed, "expert_data", plan.expert_replicas)):
            if amount and ranks > 1:
                is_by_expert = group == "expert_data" and plan.profile.gathers_experts
                num = plan.shape.experts / plan.expert if is_by_expert else 1.0
                last = self.builder.add(
                    lane.name,
                    "collective",
                    Kind.COLLECTIVE,
                    "all-gather weights",
                    after=after,
                    collective="all_gather",
                    group=group,
                    size_bytes=amount / num * self.builder.stored_weight_bytes,
                    num_calls=num,
                    compute_share=plan.profile.collective_compute_share,
                    tensor_class=TensorClass.WEIGHTS,
                    **mark,
                )
        return last

    def gather_updated(self, lane: Lane, after: list[str]) -> list[str]:
        """ZeRO 1 and 2: after the update every rank fetches the weights that others updated (unless the next step does)."""
        plan, profile = self.plan, self.plan.profile
        if plan.zero_stage not in (1, 2) or profile.overlap_parameter_gather or profile.stage2_gathers_each:
            return after
        ranked = plan.rank_parameters(lane.stage)
        done = self._gathered(lane, ranked.trained_dense + ranked.adapter, ranked.trained_routed, [*after], {"phase": "update"})
        return [done] if done else after

    # ------------------------------------------------------------------------------------------------------- gradients

    def produced(self, lane: Lane, turn: Turn, done: str, dense: float, routed: float, layer: int, *, is_last: bool) -> None:
        """Gradients exist after `done`: reduce them when a bucket is full, then move them home."""
        plan = self.plan
        is_once = plan.training.parallelism.reduce_once and not self.is_offloaded
        is_each = plan.zero_stage >= 2 and plan.shards > 1 and not is_once
        if not (is_last or is_each or self.is_offloaded):
            return
        before = self._bucket.get(lane.name, (0.0, 0.0))
        bucket = (before[0] + dense, before[1] + routed)
        is_flushed = layer in (-1, 0) or sum(bucket) >= self.bucket_elements or plan.zero_stage == 3
        self._bucket[lane.name] = (0.0, 0.0) if is_flushed else bucket
        if not is_flushed:
            return
        mark = {"phase": "backward", "micro_batch": turn.micro_batch, "layer": layer}
        reduced = done
        if is_last or is_each:
            reduced = self._reduce(lane, done, bucket, mark)
        if self.is_offloaded:
            self._move(lane, reduced, self._own(*bucket), turn, mark)
        elif reduced != done:
            self._is_ready(lane, reduced)

    def _own(self, dense: float, routed: float) -> float:
        """Gradients that this rank keeps after the reduction."""
        plan = self.plan
        if plan.zero_stage < 2:
            return dense + routed
        return dense / plan.shards + routed / min(plan.shards, plan.expert_replicas)

    def _reduce(self, lane: Lane, done: str, bucket: tuple[float, float], mark: dict[str, Any]) -> str:
        """Reduce over the ranks with the same parameters: all-reduce, or reduce-scatter (and across replicas)."""
        plan, profile = self.plan, self.plan.profile
        after = done if self.is_reduced_beside else lane.last
        last = done
        kind = "all_reduce" if plan.zero_stage == 0 else "reduce_scatter"
        fields = {"compute_share": profile.collective_compute_share, "tensor_class": TensorClass.GRADIENTS} | mark
        parts = ((bucket[0], "shard", plan.shards), (bucket[1], "expert_data", plan.expert_replicas))
        for amount, group, ranks in parts:
            if not amount:
                continue
            size = amount * profile.reduce_dtype_bytes
            if ranks > 1:
                last = self._collective(lane, kind, group, size, [after], fields)
            if group == "shard" and plan.replicas > 1:
                last = self._collective(lane, "all_reduce", "replica", size / ranks, [last], fields)
        if last != done and not self.is_reduced_beside:
            lane.pending.append(last)
        return last

    def _collective(self, lane: Lane, kind: str, group: str, size: float, after: list[str], fields: dict[str, Any]) -> str:
        name = f"{kind.replace('_', '-')} gradients"
        return self.builder.add(
            lane.name, "collective", Kind.COLLECTIVE, name, after=after, collective=kind, group=group, size_bytes=size, **fields
        )

    def _move(self, lane: Lane, reduced: str, share: float, turn: Turn, mark: dict[str, Any]) -> None:
        """Copy this rank's gradients to the host, added to those of earlier micro-batches."""
        plan, profile = self.plan, self.plan.profile
        is_last = turn.micro_batch == plan.num_micro_batches - 1
        fields = {"tensor_class": TensorClass.GRADIENTS, "is_pinned": self.is_pinned, "rate_share": profile.copy_share} | mark
        size = share * plan.kept_bytes
        after = [reduced]
        if turn.micro_batch > 0:  # accumulated on the GPU: the partial sums come back first
            name = "fetch partial gradients"
            fetched = self.builder.add(
                lane.name, "h2d", Kind.TRANSFER, name, after=after, source=self.target, target="gpu", size_bytes=size, **fields
            )
            after = [fetched]
        is_blocking = is_last and not (self.is_overlapped or self.is_inline)
        if is_last and not is_blocking and profile.flushed_gradient_bytes:
            size = share * profile.flushed_gradient_bytes
        if is_blocking:  # through a pageable copy in the GPU's format
            fields["is_pinned"] = False
        copied = self.builder.add(
            lane.name, "d2h", Kind.TRANSFER, "store gradients", after=after, source="gpu", target=self.target, size_bytes=size,
            **fields,
        )  # fmt: skip
        if is_blocking and self.is_cast:
            copied = self._cast(lane, share, copied, mark)
        if is_blocking:
            lane.blocked_by = [copied]
        if is_blocking or (self.is_inline and not self.is_overlapped):
            lane.pending.append(copied)
        elif is_last and self.is_held and self.is_overlapped:
            lane.held.append(copied)
        self._is_ready(lane, copied)
        if is_last and self.plan.home(TensorClass.OPTIMIZER_STATES) == "storage":
            self._is_ready(lane, self._swapped_out(lane, share, copied, mark))

    def _swapped_out(self, lane: Lane, share: float, copied: str, mark: dict[str, Any]) -> str:
        """Gradients join the states on storage until the update reads both.

        They are written from swap buffers beside the backward pass; when these are full it waits until all are empty
        (async_swapper.py). What is left is written while the update waits for its first states: it counts there.
        """
        plan = self.plan
        written = self.builder.add(
            lane.name, "storage", Kind.IO, "write gradients", after=[copied], source="dram", target="home:optimizer_states",
            size_bytes=share * SWAPPED_GRADIENT_BYTES, tensor_class=TensorClass.GRADIENTS, **{**mark, "phase": "update"},
        )  # fmt: skip
        if lane.name not in self._swap_buffers:
            self._swap_buffers[lane.name] = SwapBuffers(plan.training, lane.stage, plan.profile.sub_group_elements)
        if self._swap_buffers[lane.name].takes(share):
            lane.pending.append(written)
        return written

    def _cast(self, lane: Lane, share: float, copied: str, mark: dict[str, Any]) -> str:
        """What the host does with a blocking copy: casts it from fresh memory into its own partition.

        PyTorch converts on the host where a copy blocks: an empty tensor of the GPU's type receives it (Copy.cu).
        """
        plan, profile = self.plan, self.plan.profile
        return self.builder.add(
            lane.name,
            "cpu",
            Kind.HOST_UPDATE,
            "cast gradients",
            after=[copied],
            num_elements=share * (1.0 - plan.gpu_share),
            bytes_per_element=profile.host_gradient_bytes_per_element * plan.host_slowdown,
            write_share=0.4,
            is_spread=not plan.is_bound,
            mapped_bytes=share * plan.weight_bytes * plan.host_slowdown,
            **mark,
        )

    def _is_ready(self, lane: Lane, identity: str) -> None:
        """Remember the last operation of each stream; the earlier ones end before it."""
        self.ready.setdefault(lane.name, {})[identity.rsplit(".", 1)[0]] = identity
