"""The closed-form plan and the peak of a replay come from the same terms and must agree."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import scenario_of
from sim.engine import replay
from sim.experiment.preparing import prepare
from sim.placement.capacity import plan_footprint
from sim.workload.footprint.ledger import STEP_MOMENTS
from sim.workload.training import Training

MODEL = {"layers": 6, "hidden": 512, "heads": 8, "ffn": 1408, "vocabulary": 8000}
BASE: dict[str, Any] = {"model": MODEL, "sequence_length": 512, "batch_size": 2}


def peaks(training: dict[str, Any], topology: Any = "dgx-a100", **blocks: Any) -> dict[str, tuple[float, float, str]]:
    """Tier -> (closed form, replayed, operation of the replayed peak), bytes of one GPU or one host without the system."""
    point = scenario_of({"topology": topology, "workload": {"training": training}} | blocks, "case").resolve()
    _, program = prepare(point)
    seen = {tier.name.split("[")[0]: tier for tier in replay(program, capacity="observe").tiers}
    workload = point.job.workload
    assert isinstance(workload, Training)
    plan = plan_footprint(workload, point.job.placement, point.machine)
    found = {}
    members = {tier.name: tier.multiplicity for tier in program.tiers}
    for role in plan.tiers():
        shared = sum(
            term.size_bytes for term in plan.terms if term.per == "host" and term.tier == role and "update" in term.moments
        )
        closed = plan.allocated_peak(role, STEP_MOMENTS).size_bytes - shared
        names = {point.machine.resolve(role, gpu) for gpu in point.machine.gpus()}
        tiers = [item for label, item in seen.items() if label in names]
        tier = max(tiers, key=lambda item: item.peak_bytes)
        size = tier.peak_bytes if role == "gpu" else sum(item.peak_bytes * members[item.name] for item in tiers)
        operation = next((item.name for item in program.operations if item.id == tier.operation), "")
        found[role] = (closed, size, operation)
    return found


PLANS: list[dict[str, Any]] = [
    {},
    {"gradient_accumulation": 3},
    {"framework": "pytorch", "precision": "fp32"},
    {"framework": "torchtune", "loss": "chunked", "compile": True},
    {"checkpointing": {"active": True}},
    {"checkpointing": {"active": True, "interval": 2}},
    {"checkpointing": {"active": True, "layers": 4}},
    {"attention": "eager", "checkpointing": {"active": True, "mode": "selective"}},
    {"checkpointing": {"active": True, "offload": True}},
    {"offload": {"activation_layers": "0-2"}},
    {"framework": "deepspeed-zero", "parallelism": {"data": 4, "zero_stage": 2}},
    {"framework": "deepspeed-zero", "optimizer": {"offload": True}, "parallelism": {"data": 4, "zero_stage": 3}},
    {"framework": "fsdp", "parallelism": {"data": 8, "zero_stage": 3}},
    {"framework": "megatron", "parallelism": {"tensor": 2, "sequence_parallel": True, "data": 2, "zero_stage": 1}},
    {"adapter": {"type": "qlora", "base": "nf4", "rank": 8, "targets": ["all"]}},
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_plan_and_replay_agree(plan: dict[str, Any]) -> None:
    for role, (closed, seen, operation) in peaks(BASE | plan).items():
        assert seen == pytest.approx(closed, rel=0.02), (role, operation)


MOE = MODEL | {"experts": 8, "experts_per_token": 2, "expert_ffn": 512}
ZERO_3: dict[str, Any] = {"framework": "deepspeed-zero", "parallelism": {"data": 2, "zero_stage": 3}}
SPLITS: list[dict[str, Any]] = [
    {"parallelism": {"tensor": 4, "data": 2}},
    {"framework": "megatron", "parallelism": {"context": 2, "data": 2}},
    {"framework": "torchtitan", "parallelism": {"context": 4, "data": 2, "zero_stage": 3}},
    {"framework": "megatron", "model": MOE, "parallelism": {"data": 4, "expert": 4, "zero_stage": 1}},
    {"framework": "megatron", "model": MOE, "parallelism": {"data": 4, "tensor": 2, "expert": 4, "zero_stage": 1}},
    {"framework": "deepspeed-zero", "model": MOE, "parallelism": {"data": 4, "zero_stage": 3}},
    {"framework": "fsdp", "parallelism": {"data": 8, "zero_stage": 3, "shard_group": 4}},
]
TRAINED: list[dict[str, Any]] = [
    {"adapter": {"type": "lora"}},
    {"adapter": {"type": "lora"}, "framework": "fsdp", "parallelism": {"data": 4, "zero_stage": 3}},
    {"trainable_layers": 2},
    {"optimizer": {"type": "adamw_8bit"}},
    {"optimizer": {"type": "adafactor"}},
    {"optimizer": {"type": "sgd"}},
    {"framework": "megatron", "optimizer": {"precision": "bf16"}, "parallelism": {"data": 2, "zero_stage": 1}},
    {"framework": "megatron", "precision": "fp8", "attention": "eager", "dropout": True},
    {"data": {"workers": 4, "seconds_per_sample": "1 ms"}},
]
OFFLOADS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (ZERO_3, {"optimizer_states": "dram", "weights": "dram"}),
    (ZERO_3, {"optimizer_states": "nvme"}),
    (ZERO_3, {"optimizer_states": "nvme", "weights": "nvme"}),
    (ZERO_3 | {"gradient_accumulation": 2}, {"optimizer_states": "dram"}),
    (ZERO_3 | {"optimizer": {"swap_through_gpu": True}}, {"optimizer_states": "dram"}),
    (ZERO_3 | {"optimizer": {"gpu_fraction": 0.3}}, {"optimizer_states": "dram"}),
    (ZERO_3 | {"parallelism": {"data": 1, "zero_stage": 3}}, {"optimizer_states": {"dram": "60%", "cxl0": "40%"}}),
    (ZERO_3 | {"parallelism": {"data": 1, "zero_stage": 3}}, {"optimizer_states": "dram", "activations": "cxl0"}),
    ({"framework": "fsdp", "parallelism": {"data": 4, "zero_stage": 3}}, {"weights": "dram"}),
    ({"framework": "megatron", "parallelism": {"data": 2, "tensor": 2, "zero_stage": 1}}, {"optimizer_states": "dram"}),
    ({"framework": "torchao"}, {"optimizer_states": "dram"}),
]


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("framework", ["pytorch", "deepspeed-zero", "fsdp", "hf-trainer", "torchtitan"])
def test_plan_and_replay_agree_in_every_zero_stage(framework: str, stage: int) -> None:
    for role, (closed, seen, operation) in peaks(
        BASE | {"framework": framework, "parallelism": {"data": 4, "zero_stage": stage}}
    ).items():
        assert seen == pytest.approx(closed, rel=0.02), (role, operation)


@pytest.mark.parametrize("plan", [*SPLITS, *TRAINED], ids=str)
def test_plan_and_replay_agree_however_it_is_split_and_trained(plan: dict[str, Any]) -> None:
    for role, (closed, seen, operation) in peaks(BASE | plan).items():
        assert seen == pytest.approx(closed, rel=0.02), (role, operation)


@pytest.mark.parametrize(("plan", "placement"), OFFLOADS, ids=str)
def test_plan_and_replay_agree_wherever_it_is_placed(plan: dict[str, Any], placement: dict[str, Any]) -> None:
    topology = "rtx-5090-cxl" if "cxl0" in str(placement) else "dgx-a100"
    found = peaks(BASE | plan, topology, placement=placement)
    assert len(found) > 1
    for role, (closed, seen, operation) in found.items():
        assert seen == pytest.approx(closed, rel=0.02), (role, operation)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(2, 1, 8), (3, 1, 6), (3, 1, 2), (2, 3, 8), (3, 2, 6)])
def test_pipelines_hold_the_micro_batches_in_flight(stages: int, chunks: int, micro_batches: int) -> None:
    plan = {
        "framework": "megatron",
        "gradient_accumulation": micro_batches,
        "parallelism": {"pipeline": stages, "interleave": chunks},
    }
    closed, seen, _ = peaks(BASE | plan)["gpu"]
    assert seen == pytest.approx(closed, rel=0.02 if chunks == 1 else 0.06)


def test_peak_names_its_operation() -> None:
    big_vocabulary = BASE | {
        "model": MODEL | {"vocabulary": 200_000},
        "framework": "pytorch",
        "optimizer": {"implementation": "fused"},
    }
    assert peaks(big_vocabulary)["gpu"][2] == "loss"
    deep = BASE | {"framework": "deepspeed-zero", "checkpointing": {"active": True}, "optimizer": {"offload": True}}
    assert peaks(deep | {"model": MODEL | {"vocabulary": 100}})["gpu"][2] == "recompute 5"


def test_every_allocation_of_a_step_is_freed_but_the_resident_ones() -> None:
    point = scenario_of({"topology": "dgx-a100", "workload": {"training": BASE}}, "case").resolve()
    step, _ = prepare(point)
    allocated = sum(row.size_bytes for operation in step.operations for row in operation.allocates)
    freed = sum(row.size_bytes for operation in step.operations for row in operation.frees)
    assert allocated == pytest.approx(freed, rel=1e-12)
    assert allocated > 0
    assert step.resident
