"""Host terms: storage buffers, the dtype of gradients, quantised bases, loader processes. Numbers from logs or by hand."""

import dataclasses

import pytest

from sim.records import TensorClass
from sim.units import GIB
from sim.workload.footprint import footprint
from sim.workload.footprint.counts import sub_groups
from sim.workload.shape import ModelShape
from sim.workload.shapes import builtin, parameters
from sim.workload.training import Adapter, Checkpointing, DataPipeline, Offload, Parallelism, Training

#: the 40B and 70B of MLP-Offload (SC25), as their logs print them
SHAPE_40B = ModelShape(layers=128, hidden=5120, heads=40, kv_heads=4, ffn=20480, vocabulary=50304, fused_matrices=True)
SHAPE_70B = ModelShape(layers=80, hidden=8192, heads=64, kv_heads=4, ffn=28672, vocabulary=50304, fused_matrices=True)


def staged(shape: ModelShape, buffers: int) -> Training:
    return Training(
        model=shape,
        framework="deepspeed-zero",
        checkpointing=Checkpointing(active=True),
        parallelism=Parallelism(data=4, zero_stage=3),
        offload=Offload(sub_group_elements=100_000_000, state_buffer_count=buffers, gradient_dtype="bf16"),
    )


def term(training: Training, name: str, **homes: str) -> float:
    placed = {TensorClass(kind): {tier: 1.0} for kind, tier in homes.items()}
    return sum(item.size_bytes for item in footprint(training, placed).terms if item.name == name)


@pytest.mark.parametrize(("shape", "largest", "count"), [(SHAPE_40B, 152_047_616, 97), (SHAPE_70B, 211_816_448, 82)])
def test_sub_groups_are_those_that_deepspeed_logged(shape, largest, count):
    groups = sub_groups(staged(shape, 4), 0, 1e8)
    assert max(groups) == pytest.approx(largest, rel=0.03)
    assert len(groups) == pytest.approx(count, abs=2)


@pytest.mark.parametrize(
    ("shape", "buffers", "logged_gib"), [(SHAPE_40B, 64, 276.2 - 14.7 - 5.5), (SHAPE_70B, 50, 219.0 - 19.0)]
)
def test_state_swap_buffers_take_what_the_log_shows(shape, buffers, logged_gib):
    # memory used after the buffers were made, less before; four ranks of a node
    held = 4 * term(staged(shape, buffers), "state swap buffers", optimizer_states="nvme")
    assert held / GIB == pytest.approx(logged_gib, rel=0.01)


@pytest.mark.parametrize(("dtype", "size_gib"), [("bf16", 32), ("fp32", 64), (None, 64)])
def test_the_gradient_buffer_has_the_dtype_asked_for(dtype, size_gib):
    # 12.04e9 elements of a rank: 22.4 GiB in 16 bits, 44.9 in 32, each in the next power of two
    job = staged(SHAPE_40B, 64)
    job = dataclasses.replace(job, offload=dataclasses.replace(job.offload, gradient_dtype=dtype))
    assert term(job, "flat gradient buffer", optimizer_states="nvme") == size_gib * GIB


def test_states_have_their_own_buffer_count():
    job = staged(SHAPE_40B, 8)
    both = dataclasses.replace(job, offload=dataclasses.replace(job.offload, state_buffer_count=None, buffer_count=8))
    one, other = (term(item, "state swap buffers", optimizer_states="nvme") for item in (job, both))
    assert one == other > 0


def test_a_quantised_base_is_quantised_on_the_host_too():
    job = Training(
        model=builtin("llama-2-70b"),
        framework="fsdp",
        adapter=Adapter(type="qlora", base="nf4", targets=("all",)),
        offload=Offload(round_pinned=False),
        parallelism=Parallelism(data=1, zero_stage=3),
    )
    here, there = term(job, "frozen base weights"), term(job, "weights", weights="dram")
    assert there == pytest.approx(here)
    assert there / GIB == pytest.approx(33.2, rel=0.03)  # 68.5e9 x 0.516 B + 0.5e9 x 2 B: "35 GB" (QLoRA, section 1)


def test_loader_processes_and_their_batches_count_where_they_are_asked_for():
    job = Training(model=builtin("llama-2-7b"), batch_size=4, sequence_length=2048)
    with_data = dataclasses.replace(job, data=DataPipeline(workers=8, prefetch=2))
    assert term(job, "loader processes") == 0
    assert term(with_data, "loader processes") == 8 * 0.3e9
    assert term(with_data, "batches in shared memory") == 16 * 4 * 2048 * 16
    none = dataclasses.replace(job, data=DataPipeline(workers=0))
    assert term(none, "loader processes") == 0


@pytest.mark.parametrize(("pin", "is_kept"), [(True, True), (None, True), (False, False)])
def test_only_page_locked_partitions_stay_in_the_allocators_cache(pin, is_kept):
    job = Training(
        model=builtin("llama-2-7b"),
        framework="deepspeed-zero",
        offload=Offload(pin_memory=pin),
        parallelism=Parallelism(data=2, zero_stage=3),
    )
    held = term(job, "cached pinned partitions of weights", weights="dram", optimizer_states="dram")
    assert (held > 0) == is_kept


@pytest.mark.parametrize(("framework", "copy_gb", "file_gb"), [("hf-trainer", 0.0, 10.0), ("fsdp", 35.6, 10.0)])
def test_a_quantised_base_is_never_whole_in_16_bits_on_the_host(framework, copy_gb, file_gb):
    """bitsandbytes quantises file by file: on the GPU, or on the host of the rank that loads for the others (FSDP)."""
    job = Training(model=builtin("llama-2-70b"), framework=framework, adapter=Adapter(type="qlora", base="nf4"))
    assert term(job, "copy of the model at load") / 1e9 == pytest.approx(copy_gb, rel=0.01)
    assert term(job, "checkpoint file being read") / 1e9 == pytest.approx(file_gb, rel=0.01)
    plain = dataclasses.replace(job, adapter=Adapter(type="lora"))
    assert term(plain, "copy of the model at load") / 1e9 == pytest.approx(138, rel=0.01)


@pytest.mark.parametrize(("framework", "each"), [("hf-trainer", 4.0), ("fsdp", 4.0), ("torchtune", 2.0), ("pytorch", 2.0)])
def test_what_trains_in_fp32_is_loaded_in_fp32(framework, each):
    """160 GB for each process that loads Falcon 40B for FSDP (transformers pull request 25107)."""
    job = Training(model=builtin("falcon-40b"), framework=framework)
    assert term(job, "copy of the model at load") / 41.3e9 == pytest.approx(each, rel=0.01)


@pytest.mark.parametrize(("limit", "elements"), [(None, 1e9), (0, 0), (10**8, 1e8), (10**12, None)])
def test_some_weights_stay_in_host_memory_beside_storage(limit, elements):
    """DeepSpeed keeps `max_in_cpu` elements, by default 1e9 (offload_config.py)."""
    job = Training(
        model=builtin("llama-2-7b"),
        framework="deepspeed-zero",
        offload=Offload(max_in_cpu_elements=limit, round_pinned=False),
        parallelism=Parallelism(data=2, zero_stage=3),
    )
    expected = 2 * (parameters(builtin("llama-2-7b")).total / 2 if elements is None else elements)
    assert term(job, "weights kept beside storage", weights="nvme") == pytest.approx(expected, rel=1e-3)
    assert term(job, "weights kept beside storage", weights="dram", optimizer_states="dram") == 0


@pytest.mark.parametrize(("framework", "copies"), [("fsdp", 2), ("torchtitan", 1)])
def test_fsdp_page_locks_a_gradient_for_every_offloaded_block_frozen_or_not(framework: str, copies: int) -> None:
    """torch/distributed/fsdp/_flat_param.py, init_flat_param_attributes; FSDP2 (torchtitan) makes gradients as they come."""
    plan = Training(
        model=builtin("llama-2-7b"),
        framework=framework,
        adapter=Adapter(type="lora"),
        parallelism=Parallelism(data=2, zero_stage=3),
    )
    terms = footprint(plan, {TensorClass.WEIGHTS: {"dram": 1.0}}).terms
    held = [
        term.size_bytes
        for term in terms
        if term.tier == "dram" and term.tensor_class == TensorClass.WEIGHTS and "init" in term.moments
    ]
    assert len(held) == copies
    layer, shared = 2 * 202_383_360 / 2, 2 * 2 * 32_000 * 4_096 / 2  # bytes of a rank's half: a layer, embedding and head
    blocks = 2**28 * 32 + 2**28 if framework == "fsdp" else 2**33
    assert layer < 2**28 >= shared
    assert held[0] == pytest.approx(blocks)
