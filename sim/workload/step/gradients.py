"""ZeRO and data parallelism: parameters gathered before use, gradients reduced and moved to their home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.records import Kind, TensorClass
from sim.workload.step.builder import StepBuilder
from sim.workload.step.schedule import Turn

if TYPE_CHECKING:
    from sim.workload.step.passes import Lane


class Gradients:
    """Emits all-gathers, reduce-scatters and gradient copies of every lane, and remembers what the update waits for."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder, self.plan = builder, builder.plan
        self.ready: dict[str, dict[str, str]] = {}  # lane -> stream -> last id: gradients are at home after these
        self._bucket: dict[str, float] = {}
        offload, profile = self.plan.training.offload, self.plan.profile
        self.is_overlapped = profile.overlap_gradient_copy if offload.overlap_gradients is None else offload.overlap_gradients
        self.is_pinned = offload.pin_memory is not False
        self.bucket_elements = offload.bucket_elements or profile.bucket_elements
        self.is_offloaded = self.plan.home(TensorClass.GRADIENTS) != "gpu"

    def gather(self, lane: Lane, block: range, turn: Turn, phase: str) -> str | None:
        """Fetch the parameters of a block: from their home if offloaded, then from the other shards."""
        return self._gather(lane, self.plan.layer_parameters * len(block) / self.plan.tensor, turn, phase, block.start)

    def gather_head(self, lane: Lane, turn: Turn) -> str | None:
        """Fetch the output projection for the forward pass; it stays for the backward pass that follows."""
        return self._gather(lane, self.plan.head_parameters / self.plan.tensor, turn, "forward", -1)

    def _gather(self, lane: Lane, parameters: float, turn: Turn, phase: str, layer: int) -> str | None:
        plan = self.plan
        is_sharded = plan.zero_stage == 3 and plan.shards > 1
        is_away = plan.home(TensorClass.WEIGHTS) != "gpu"
        if not parameters or not (is_sharded or is_away):
            return None
        # a rate limiter keeps `prefetch_layers` blocks ahead of the one that computes
        window = lane.history[-plan.profile.prefetch_layers - 1 :][:1]
        mark = {"phase": phase, "micro_batch": turn.micro_batch, "layer": layer, "tensor_class": TensorClass.WEIGHTS}
        size, fetched = parameters * plan.weight_bytes, None
        if is_away:
            shard = size / plan.shards if is_sharded else size
            fetched = self.builder.add(
                lane.name,
                "h2d",
                Kind.TRANSFER,
                "fetch weights",
                after=window,
                source="home:weights",
                target="gpu",
                size_bytes=shard,
                is_pinned=self.is_pinned,
                **mark,
            )
        if not is_sharded:
            return fetched
        return self.builder.add(
            lane.name,
            "collective",
            Kind.COLLECTIVE,
            "all-gather weights",
            after=[*window, fetched],
            collective="all_gather",
            group="shard",
            size_bytes=size,
            compute_share=plan.profile.collective_compute_share,
            **mark,
        )

    def produced(self, lane: Lane, turn: Turn, done: str, parameters: float, layer: int, *, is_last: bool) -> None:
        """Gradients of `parameters` exist after `done`: reduce them when a bucket is full, then move them home."""
        plan = self.plan
        is_each = plan.zero_stage >= 2 and plan.shards > 1
        if not (is_last or is_each or self.is_offloaded):
            return
        bucket = self._bucket.get(lane.name, 0.0) + parameters
        is_flushed = layer in (-1, 0) or bucket >= self.bucket_elements or plan.zero_stage == 3
        self._bucket[lane.name] = 0.0 if is_flushed else bucket
        if not is_flushed:
            return
        mark = {"phase": "backward", "micro_batch": turn.micro_batch, "layer": layer}
        reduced: str | None = done
        if is_last or is_each:
            reduced = self._reduce(lane, done, bucket, mark)
        if self.is_offloaded:
            self._move(lane, reduced, bucket, turn, mark)
        elif reduced != done and reduced:
            self._is_ready(lane, reduced)

    def _reduce(self, lane: Lane, done: str, elements: float, mark: dict[str, object]) -> str:
        plan, profile, last = self.plan, self.plan.profile, done
        fields = {"compute_share": profile.collective_compute_share, "tensor_class": TensorClass.GRADIENTS} | mark
        size = elements * profile.reduce_dtype_bytes
        if plan.zero_stage == 0 and plan.shards > 1:
            return self._collective(lane, "all-reduce gradients", "all_reduce", "data", size, [last], fields)
        if plan.shards > 1:
            last = self._collective(lane, "reduce-scatter gradients", "reduce_scatter", "shard", size, [last], fields)
        if plan.replicas > 1:
            size /= plan.shards
            last = self._collective(lane, "all-reduce gradients", "all_reduce", "replica", size, [last], fields)
        return last

    def _collective(
        self, lane: Lane, name: str, kind: str, group: str, size: float, after: list[str], fields: dict[str, object]
    ) -> str:
        return self.builder.add(
            lane.name, "collective", Kind.COLLECTIVE, name, after=after, collective=kind, group=group, size_bytes=size, **fields
        )

    def _move(self, lane: Lane, reduced: str | None, elements: float, turn: Turn, mark: dict[str, object]) -> None:
        """Copy this rank's gradients to the host; a blocking copy also waits for the host to store them."""
        plan, profile = self.plan, self.plan.profile
        share = elements / plan.shards if plan.zero_stage >= 2 else elements
        fields = {"tensor_class": TensorClass.GRADIENTS, "is_pinned": self.is_pinned} | mark
        after = [reduced]
        if turn.micro_batch > 0:  # accumulated on the GPU: the partial sums come back first
            after = [
                self.builder.add(
                    lane.name,
                    "h2d",
                    Kind.TRANSFER,
                    "fetch partial gradients",
                    after=after,
                    source="home:gradients",
                    target="gpu",
                    size_bytes=share * plan.weight_bytes,
                    **fields,
                )
            ]
        copied = self.builder.add(
            lane.name,
            "d2h",
            Kind.TRANSFER,
            "store gradients",
            after=after,
            source="gpu",
            target="home:gradients",
            size_bytes=share * plan.weight_bytes,
            **fields,
        )
        is_last = turn.micro_batch == plan.training.gradient_accumulation - 1
        if not self.is_overlapped and is_last:
            stored = self.builder.add(
                lane.name,
                "cpu",
                Kind.HOST_UPDATE,
                "cast gradients",
                after=[copied],
                num_elements=share,
                bytes_per_element=profile.host_gradient_bytes_per_element,
                write_share=0.5,
                fixed_s=share * profile.host_gradient_s_per_element,
                **mark,
            )
            lane.pending.append(stored)
            copied = stored
        self._is_ready(lane, copied)

    def _is_ready(self, lane: Lane, identity: str) -> None:
        """Remember the last operation of each stream; the earlier ones end before it."""
        self.ready.setdefault(lane.name, {})[identity.rsplit(".", 1)[0]] = identity
