"""Host memory and storage: states that left the GPU, pinned buffers, copies at load, save and resume."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sim.records import TensorClass
from sim.workload.footprint.behaviour import Behaviour
from sim.workload.footprint.counts import RankParameters, matrices, sub_groups
from sim.workload.footprint.homes import Homes, Shares
from sim.workload.footprint.ledger import FROM_FIRST_STEP, FROM_INIT, MOMENTS, STEP_MOMENTS, Term, system_term
from sim.workload.footprint.residency import stage_activations
from sim.workload.footprint.states import StateBytes, frozen_bytes
from sim.workload.frameworks import profile
from sim.workload.shapes import parameters
from sim.workload.training import TOKEN_BYTES, Training

_DTYPE_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "nf4": 0.516, "gptq": 0.52, "mxfp4": 0.53}
#: largest file of a sharded checkpoint, bytes (transformers: max_shard_size 5 GB, older hub checkpoints 10 GB)
SHARD_FILE_BYTES = 10e9
#: default elements of a ZeRO-3 sub-group (DeepSpeed config-json, sub_group_size)
SUB_GROUP_ELEMENTS = 1e9

#: private memory of one loader process (interpreter and libraries, copied on write), bytes; assumed
LOADER_PROCESS_BYTES = 0.3e9


#: what a job that page-locks its buffers locks, besides states in flat partitions or updated by the GPU
LOCKED = frozenset({
    "weights", "gradients of frozen blocks", "weight swap buffers", "weights kept beside storage",
    "cached pinned partitions of weights", "16-bit copy of the partition", "state swap buffers", "gradients of the update",
    "flat gradient buffer", "activations",
})  # fmt: skip
#: what lies in /dev/shm
SHARED_BATCHES = "batches in shared memory"


def pinned_bytes(size: float, *, is_pinned: bool, is_rounded: bool) -> float:
    """Bytes that a host buffer takes: page-locked ones round up to a power of two in PyTorch's caching host allocator.

    A 8.1 GiB request takes 16 GiB (pytorch/pytorch issue 95823).
    """
    if size <= 0 or not (is_pinned and is_rounded):
        return size
    return float(2 ** math.ceil(math.log2(size)))


class HostTerms:
    """Host terms of one rank of a stage; sizes per rank unless marked per host."""

    def __init__(
        self,
        training: Training,
        rank: RankParameters,
        how: Behaviour,
        sizes: StateBytes,
        homes: Homes,
        stage: int,
        reserved_bytes: float = 0.0,
    ) -> None:
        self.training, self.rank, self.how, self.sizes, self.homes, self.stage = training, rank, how, sizes, homes, stage
        self.is_pinned = training.offload.pin_memory is not False
        rounds = training.offload.round_pinned
        self.is_rounded = how.rounds_pinned if rounds is None else rounds
        self.reserved_bytes = reserved_bytes
        self.is_flat = how.has_flat_partitions and training.parallelism.zero_stage in (1, 2)
        self.groups = self._groups()

    def __iter__(self) -> Iterator[Term]:
        how = self.how
        yield self._term("process and libraries", TensorClass.BUFFERS, "dram", how.host_rank_bytes, MOMENTS)
        yield system_term(self.reserved_bytes, MOMENTS)
        yield from self._loader()
        yield from self._load()
        yield from self._weights()
        yield from self._optimizer()
        yield from self._gradients()
        yield from self._activations()
        yield from self._checkpoints()

    def _groups(self) -> tuple[float, ...]:
        """Elements of each tensor that the rank updates at once: its sub-groups, or its whole partition."""
        training, updated = self.training, self.sizes.updated
        limit = training.offload.sub_group_elements or SUB_GROUP_ELEMENTS
        if updated <= 0 or self.is_flat:
            return (updated,)
        if training.adapter.type != "none" or training.trainable_layers is not None:
            pieces = max(1, math.ceil(updated / limit))
            return (updated / pieces,) * pieces
        groups = sub_groups(training, self.stage, limit)
        scale = updated / sum(groups)  # 1-D parameters; experts that fewer ranks share
        return tuple(size * scale for size in groups)

    def _loader(self) -> Iterator[Term]:
        """Loader processes of a rank, and the batches that wait in shared memory (workers x prefetch of them)."""
        data = self.training.data
        if data is None or not data.workers:
            return
        size = data.workers * LOADER_PROCESS_BYTES
        formula = f"{data.workers} processes"
        yield self._term("loader processes", TensorClass.BUFFERS, "dram", size, STEP_MOMENTS, formula)
        sample = data.output_bytes_per_sample or TOKEN_BYTES * self.training.sequence_length
        batches = data.workers * data.prefetch
        size, formula = batches * self.training.batch_size * sample, f"{batches} batches"
        yield self._term(SHARED_BATCHES, TensorClass.BUFFERS, "dram", size, STEP_MOMENTS, formula)

    def _load(self) -> Iterator[Term]:
        """Copies of the whole model that ranks build in host memory before the weights are where they belong."""
        training, asked = self.training, self.training.load
        ranks = asked.ranks or self.how.load
        is_quantised = training.adapter.is_quantised
        if ranks == "all" and asked.ranks is None and (training.parallelism.zero_stage == 3 or is_quantised):
            ranks = "sharded"  # partitioned at construction, or quantised file by file on the GPU: one file at a time
        adapter = training.adapter
        is_fp32 = adapter.stored == "fp32" if adapter.type != "none" else self.how.scheme == "autocast"  # unless told
        dtype = asked.dtype or (adapter.stored if is_quantised else "fp32" if is_fp32 else training.model.weight_dtype)
        count = parameters(training.model).total
        whole = count * _DTYPE_BYTES[dtype]
        file = min(count * _DTYPE_BYTES[asked.dtype or training.model.weight_dtype], SHARD_FILE_BYTES)
        if ranks == "sharded" or is_quantised:
            yield self._term("checkpoint file being read", TensorClass.BUFFERS, "dram", file, ("load",))
        if ranks == "sharded":
            return
        per = "rank" if ranks == "all" else "host"
        yield Term(
            name="copy of the model at load", tensor_class=TensorClass.WEIGHTS, tier="dram", size_bytes=whole,
            moments=("load",), per=per, formula=f"{_DTYPE_BYTES[dtype]:.3g} B x {count:.4g}",
        )  # fmt: skip

    def _weights(self) -> Iterator[Term]:
        each = 4.0 if self.how.scheme == "autocast" else self.training.element_bytes
        is_frozen = self.training.adapter.type != "none"
        size = frozen_bytes(self.training, self.rank, self.how, self.sizes) if is_frozen else each * self.sizes.kept_weights
        if self.how.has_flat_blocks and self.training.parallelism.zero_stage == 3:
            size = self._in_blocks(size)
            yield from self._placed("weights", TensorClass.WEIGHTS, size, FROM_INIT)
            if is_frozen and self.is_pinned:
                yield from self._placed("gradients of frozen blocks", TensorClass.WEIGHTS, size, FROM_INIT)
        else:
            yield from self._placed("weights", TensorClass.WEIGHTS, size, FROM_INIT, whole=True)
        if self._share(TensorClass.WEIGHTS, "nvme"):
            count, elements = self.training.offload.buffer_count or 5, self.training.offload.buffer_elements or 1e8
            yield self._term(
                "weight swap buffers", TensorClass.BUFFERS, "dram", count * self._pinned(2.0 * elements), FROM_INIT,
                formula=f"{count} buffers x 2 B x {elements:.3g} elements",
            )  # fmt: skip
            limit = self.training.offload.max_in_cpu_elements
            kept = min(self.how.nvme_kept_elements if limit is None else limit, self.sizes.kept_weights)
            size, formula = self._pinned(2.0 * kept), f"2 B x {kept:.4g} elements"
            yield self._term("weights kept beside storage", TensorClass.WEIGHTS, "dram", size, FROM_INIT, formula)
        if self.how.keeps_pinned_parameters and self.is_pinned and self._share(TensorClass.WEIGHTS, "dram"):
            # partitions are pinned one by one, then flattened: their blocks stay in the pinned allocator's cache
            shards = self.rank.num_shards if self.training.parallelism.zero_stage == 3 else 1
            pieces = sum(self._pinned(2.0 * size / shards) * count for size, count in matrices(self.training, self.stage))
            yield self._term("cached pinned partitions of weights", TensorClass.BUFFERS, "dram", pieces, FROM_INIT)

    def _in_blocks(self, size: float) -> float:
        """Bytes of a rank's weights in one page-locked buffer per layer and one for what no layer holds."""
        count, adapter = parameters(self.training.model), self.training.adapter
        each = self.how.unquantised_bytes if adapter.is_quantised else size * self.rank.num_shards / max(count.total, 1.0)
        root = min(size, each * (count.embedding + count.head) / self.rank.num_shards)
        layers = max(1, self.training.model.layers // self.training.parallelism.pipeline)
        return self._pinned(root) + layers * self._pinned((size - root) / layers)

    def _optimizer(self) -> Iterator[Term]:
        """Master weights from init, moments where the framework makes them; sub-groups are separate, unpinned tensors."""
        sizes = self.sizes
        # states that the GPU updates are page-locked, in sub-groups of equal size, so that copies can run beside the CPU
        even = min(self.training.offload.sub_group_elements or SUB_GROUP_ELEMENTS, max(sizes.updated, 1.0))
        factor = self._pinned(4.0 * even) / (4.0 * even) if self._is_mixed else 1.0
        states = factor * sizes.states * sizes.updated
        master = factor * sizes.master * sizes.updated
        if self.is_flat:
            master = self._pinned(master)
        yield from self._placed("master weights", TensorClass.MASTER_WEIGHTS, master, FROM_INIT)
        when = FROM_FIRST_STEP if self.how.has_lazy_states else FROM_INIT
        yield from self._placed("optimizer states", TensorClass.OPTIMIZER_STATES, states, when)
        if self.is_flat:
            copy = self._pinned(2.0 * sizes.updated * self._share(TensorClass.OPTIMIZER_STATES, "dram"))
            yield self._term("16-bit copy of the partition", TensorClass.WEIGHTS, "dram", copy, FROM_INIT)
        extra = self.how.host_master_extra_bytes * sizes.updated * self._share(TensorClass.OPTIMIZER_STATES, "dram")
        yield self._term("second copy of master weights", TensorClass.MASTER_WEIGHTS, "dram", extra, FROM_FIRST_STEP)
        if self._share(TensorClass.OPTIMIZER_STATES, "nvme"):
            count = self.training.offload.num_state_buffers
            largest = max(self.groups)
            size = count * self._pinned(4.0 * largest)  # the default holds weight, two moments and gradient of a sub-group
            formula = f"{count} buffers x 4 B x {largest:.3g} elements"
            yield self._term("state swap buffers", TensorClass.BUFFERS, "dram", size, FROM_INIT, formula)

    def _gradients(self) -> Iterator[Term]:
        """fp32 gradients of the CPU update (pinned, by sub-group) and the flat buffer that receives them."""
        shares = self.homes[TensorClass.GRADIENTS]
        each = 4.0 if self.sizes.master else self.sizes.gradient
        for tier, share in shares.items():
            elements = self.sizes.updated * share
            if tier == "gpu" or elements <= 0:
                continue
            pieces = len(self.groups)
            size = share * sum(self._pinned(each * group) for group in self.groups) if tier != "nvme" else each * elements
            formula = f"{each:g} B x {elements:.4g} in {pieces} tensors"
            yield self._term("gradients of the update", TensorClass.GRADIENTS, tier, size, FROM_INIT, formula)
        flat = self.how.host_gradient_bytes if self.training.precision != "fp16" else min(self.how.host_gradient_bytes, 2.0)
        if self.training.offload.gradient_dtype and flat:
            flat = _DTYPE_BYTES[self.training.offload.gradient_dtype]
        if not flat or not self.sizes.master or self._share(TensorClass.WEIGHTS, "nvme"):
            return  # without weights on the host, gradients leave through the swap buffers of their weights
        for tier, share in shares.items():
            if tier != "gpu" and share > 0 and (not self.is_flat or self.training.gradient_accumulation > 1):
                elements = self.sizes.updated * share
                memory = "dram" if tier == "nvme" else tier  # the update reads it from memory
                size, formula = self._pinned(flat * elements), f"{flat:g} B x {elements:.4g}"
                yield self._term("flat gradient buffer", TensorClass.GRADIENTS, memory, size, FROM_INIT, formula)

    def _activations(self) -> Iterator[Term]:
        sizes = stage_activations(self.training, self.homes, self.stage)
        if not sizes.num_away:
            return
        each = self._pinned(sizes.away / sizes.num_away)
        shares = self.homes[TensorClass.ACTIVATIONS]
        tiers = {name: share for name, share in shares.items() if name != "gpu"} or {"dram": 1.0}
        size = each * sizes.num_away * sizes.passes / sum(tiers.values())
        formula = f"{sizes.num_away} layers x {each:.4g} B"
        for tier, share in tiers.items():
            yield self._term("activations", TensorClass.ACTIVATIONS, tier, size * share, STEP_MOMENTS, formula)

    def _checkpoints(self) -> Iterator[Term]:
        """Copies while the training state is written, and read again at resume."""
        if not self.training.save.every:
            return
        sizes, save, is_adapter = self.sizes, self.training.save, self.training.adapter.type != "none"
        state = (sizes.master + sizes.states) * sizes.updated
        if save.asynchronous:
            held = self.homes[TensorClass.OPTIMIZER_STATES].get("gpu", 0.0)
            kept = sizes.weight * (self.rank.adapter if is_adapter else sizes.kept_weights)
            yield self._term("snapshot being written", TensorClass.BUFFERS, "dram", state * held + kept, ("save",))
        whole = parameters(self.training.model).total
        model = sizes.weight * (self.rank.adapter if is_adapter else whole)
        if self.training.parallelism.zero_stage < 3 or save.gathered == "none":
            model = min(model, SHARD_FILE_BYTES)  # written file by file
        if save.gathered != "gpu":
            yield self._once("weights being written", model)
        if save.merged and is_adapter:
            yield self._once("merged 16-bit model", 2.0 * whole)
        yield self._term("checkpoint being read", TensorClass.OPTIMIZER_STATES, "dram", state, ("resume",))

    @staticmethod
    def _once(name: str, size: float) -> Term:
        """Weights that one process of a host holds while it saves."""
        return Term(name=name, tensor_class=TensorClass.WEIGHTS, tier="dram", size_bytes=size, moments=("save",), per="host")

    def _placed(
        self, name: str, kind: TensorClass, size: float, when: tuple[str, ...], *, whole: bool = False
    ) -> Iterator[Term]:
        """A class on every tier outside the GPU that holds a share of it; `whole` = one pinned buffer per rank."""
        shares: Shares = self.homes[kind]
        for tier, share in shares.items():
            if tier == "gpu" or share <= 0:
                continue
            part = size * share
            yield self._term(name, kind, tier, self._pinned(part) if whole and tier == "dram" else part, when)

    def _share(self, kind: TensorClass, tier: str) -> float:
        return self.homes[kind].get(tier, 0.0)

    def _pinned(self, size: float) -> float:
        return pinned_bytes(size, is_pinned=self.is_pinned, is_rounded=self.is_rounded)

    def _term(self, name: str, kind: TensorClass, tier: str, size: float, when: tuple[str, ...], formula: str = "") -> Term:
        return Term(
            name=name, tensor_class=kind, tier=tier, size_bytes=size, moments=when, formula=formula,
            is_locked=self.is_pinned and tier != "nvme" and self._is_locked(name), is_shared=name == SHARED_BATCHES,
        )  # fmt: skip

    def _is_locked(self, name: str) -> bool:
        """Whether a term's buffers are page-locked, where the job locks any."""
        if name in ("master weights", "optimizer states"):
            return self._is_mixed or (self.is_flat and name == "master weights")
        return name in LOCKED and (name != "activations" or profile(self.training.framework).pins_activations)

    @property
    def _is_mixed(self) -> bool:
        """Whether the GPU updates some of the states that live on the host."""
        return bool(self.training.optimizer.gpu_fraction or self.training.optimizer.swap_through_gpu)
