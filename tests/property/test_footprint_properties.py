"""Footprints of random plans: monotone where memory must be, sharding divides, classes add up, the replay agrees."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.records import TensorClass
from sim.workload.footprint import MOMENTS, footprint, with_occupancy
from sim.workload.footprint.behaviour import behaviour
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Checkpointing, Optimizer, Parallelism, Training

SHAPES = st.builds(
    ModelShape,
    layers=st.integers(3, 6),
    hidden=st.sampled_from([64, 128]),
    heads=st.sampled_from([4, 8]),
    kv_heads=st.sampled_from([None, 4]),
    ffn=st.sampled_from([128, 344]),
    vocabulary=st.sampled_from([1000, 32000]),
    mlp=st.sampled_from(["gelu", "swiglu"]),
    tied_embeddings=st.booleans(),
)
TRAININGS = st.builds(
    Training,
    model=SHAPES,
    sequence_length=st.sampled_from([64, 256]),
    batch_size=st.integers(1, 4),
    gradient_accumulation=st.integers(1, 3),
    precision=st.sampled_from(["fp32", "bf16"]),
    framework=st.sampled_from(["auto", "deepspeed-zero", "fsdp", "megatron", "torchtune"]),
    attention=st.sampled_from(["flash", "eager"]),
    checkpointing=st.builds(Checkpointing, active=st.booleans(), interval=st.integers(1, 3), offload=st.booleans()),
    optimizer=st.builds(Optimizer, offload=st.booleans()),
    parallelism=st.builds(Parallelism, data=st.sampled_from([1, 2, 4]), zero_stage=st.integers(0, 3)),
)


@settings(deadline=None, max_examples=60)
@given(TRAININGS)
def test_classes_and_terms_add_up_to_the_peak(training: Training) -> None:
    found = footprint(training)
    for tier in found.tiers():
        peak = found.peak(tier)
        assert sum(peak.by_class.values()) == pytest.approx(peak.size_bytes, rel=1e-12)
        assert peak.moment in MOMENTS
        assert max(found.phases(tier).values()) == pytest.approx(found.allocated_peak(tier).size_bytes, rel=1e-12)
    assert all(term.size_bytes > 0 for term in found.terms)


@settings(deadline=None, max_examples=60)
@given(TRAININGS)
def test_memory_grows_with_batch_sequence_and_depth(training: Training) -> None:
    def gpu(job: Training) -> float:
        return footprint(job).peak("gpu").size_bytes

    base = gpu(training)
    deeper = dataclasses.replace(training.model, layers=training.model.layers + 1)
    assert gpu(dataclasses.replace(training, batch_size=training.batch_size + 1)) >= base
    assert gpu(dataclasses.replace(training, sequence_length=training.sequence_length + 64)) >= base
    assert gpu(dataclasses.replace(training, model=deeper)) >= base


@settings(deadline=None, max_examples=60)
@given(TRAININGS, st.integers(0, 2))
def test_a_higher_zero_stage_never_keeps_more_states(training: Training, stage: int) -> None:
    def states(level: int) -> float:
        split = dataclasses.replace(training.parallelism, zero_stage=level)
        sizes = footprint(dataclasses.replace(training, parallelism=split)).at("gpu", "update")
        return sum(sizes.get(kind.value, 0.0) for kind in (TensorClass.MASTER_WEIGHTS, TensorClass.OPTIMIZER_STATES))

    assert states(stage + 1) <= states(stage) * (1 + 1e-12)


@settings(deadline=None, max_examples=40)
@given(TRAININGS)
def test_offload_moves_states_and_never_adds_any_to_the_gpu(training: Training) -> None:
    stays = dataclasses.replace(training, optimizer=Optimizer())
    moves = dataclasses.replace(training, optimizer=Optimizer(offload=True), framework=training.framework)
    kinds = (TensorClass.MASTER_WEIGHTS.value, TensorClass.OPTIMIZER_STATES.value)
    before, after = footprint(stays), footprint(moves)
    left, had = ({kind: item.at("gpu", "update").get(kind, 0.0) for kind in kinds} for item in (after, before))
    assert left[TensorClass.OPTIMIZER_STATES] == 0.0
    mirrored = had[TensorClass.MASTER_WEIGHTS] if behaviour(moves).mirrors_states else 0.0
    assert left[TensorClass.MASTER_WEIGHTS] == pytest.approx(mirrored)
    host = sum(after.at("dram", "update").get(kind, 0.0) for kind in kinds)
    if training.framework != "auto":  # auto follows the plan: another framework would be assumed
        assert host >= sum(before.at("gpu", "update").get(kind, 0.0) for kind in kinds)


@settings(deadline=None, max_examples=40)
@given(TRAININGS)
def test_occupancy_frees_what_it_allocates_and_never_goes_below_zero(training: Training) -> None:
    step = with_occupancy(generate(training, {}), training, {})
    held: dict[tuple[str, str], float] = {}
    compute = [op for op in step.operations if op.stream.endswith((".compute", ".cpu"))]
    for operation in compute:
        for row in operation.allocates:
            key = (row.tier, row.tensor_class)
            held[key] = held.get(key, 0.0) + row.size_bytes
        for row in operation.frees:
            key = (row.tier, row.tensor_class)
            held[key] = held.get(key, 0.0) - row.size_bytes
            assert held[key] >= -1e-3
    assert all(abs(size) <= 1e-3 for size in held.values())
