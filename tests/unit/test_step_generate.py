"""What the generator writes: amounts by hand, order, and refusals."""

from collections import Counter

import pytest

from sim.errors import InputError
from sim.records import Kind, TensorClass
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Checkpointing, Offload, Optimizer, Parallelism, Training

SMALL = ModelShape(name="small", layers=4, hidden=64, heads=4, ffn=256, vocabulary=1000, mlp="gelu")
LAYER = 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64  # attention, MLP, two RMS norms
HOST = dict.fromkeys((TensorClass.OPTIMIZER_STATES, TensorClass.MASTER_WEIGHTS, TensorClass.GRADIENTS), "host")


def _training(**fields):
    return Training(**{"model": SMALL, "sequence_length": 128, "batch_size": 2, "framework": "megatron"} | fields)


def _bytes(step, name):
    return sum(op.size_bytes * op.num_calls for op in step.operations if op.name == name)


def _flops(step, kinds=("gemm",)):
    return sum(k.flops * k.count for op in step.operations for k in op.kernels if k.kind in kinds)


def test_gemm_flops_are_six_per_weight_and_token():
    step = generate(_training(), {})
    weights = 4 * (4 * 64 * 64 + 2 * 64 * 256)
    assert _flops(step) == pytest.approx(6 * weights * 256)
    assert _flops(step, ("logits",)) == pytest.approx(6 * 64 * 1000 * 256)


def test_full_recompute_adds_one_forward():
    plain, again = generate(_training(), {}), generate(_training(checkpointing=Checkpointing(active=True)), {})
    assert _flops(again) == pytest.approx(_flops(plain) * 4 / 3)
    assert again.model_flops == plain.model_flops


def test_zero_3_gathers_twice_and_reduces_once_per_micro_batch():
    step = generate(_training(framework="fsdp", gradient_accumulation=3, parallelism=Parallelism(data=4, zero_stage=3)), {})
    body = 4 * LAYER * 2.0
    head = (64 + 64 * 1000) * 2.0
    assert _bytes(step, "all-gather weights") == pytest.approx(3 * (2 * body + head + 64 * 1000 * 2.0))
    assert _bytes(step, "reduce-scatter gradients") == pytest.approx(3 * (body + head + 64 * 1000 * 2.0))


PARAMETERS = 4 * LAYER + 64 * 1000 * 2 + 64
ZERO_3 = Parallelism(zero_stage=3)


def test_offloaded_update_moves_fp32_gradients_out_and_16_bit_weights_back():
    step = generate(_training(framework="deepspeed-zero"), HOST)
    assert _bytes(step, "store gradients") == pytest.approx(4 * PARAMETERS)
    assert _bytes(step, "return weights") == pytest.approx(2 * PARAMETERS)
    updated = sum(op.num_elements for op in step.operations if op.name == "cpu adamw")
    assert updated == pytest.approx(PARAMETERS)


def test_blocking_gradients_of_zero_3_move_16_bits_and_are_cast_on_the_host():
    step = generate(_training(framework="deepspeed-zero", parallelism=ZERO_3, offload=Offload(overlap_gradients=False)), HOST)
    assert _bytes(step, "store gradients") == pytest.approx(2 * PARAMETERS)
    casts = [op for op in step.operations if op.name == "cast gradients"]
    assert sum(op.num_elements for op in casts) == pytest.approx(PARAMETERS)
    assert sum(op.mapped_bytes for op in casts) == pytest.approx(2 * PARAMETERS / 0.61)  # unbound threads
    assert not any(op.is_pinned for op in step.operations if op.name == "store gradients")


def test_blocking_gradient_copy_holds_the_next_layer():
    for stage, awaited in ((2, "store gradients"), (3, "cast gradients")):
        offload, split = Offload(bucket_elements=1), Parallelism(zero_stage=stage)
        step = generate(_training(framework="deepspeed-zero", offload=offload, parallelism=split), HOST)
        by_id = {op.id: op for op in step.operations}
        second = next(op for op in step.operations if op.name == "backward 2")
        assert any(by_id[wait].name == awaited for wait in second.after)


def test_overlapped_gradient_copy_holds_the_next_gradients_but_not_their_recomputation():
    offload = Offload(overlap_gradients=True)
    checkpointing = Checkpointing(active=True)
    step = generate(
        _training(framework="deepspeed-zero", offload=offload, parallelism=ZERO_3, checkpointing=checkpointing), HOST
    )
    by_id = {op.id: op for op in step.operations}
    recompute, backward = (next(op for op in step.operations if op.name == name) for name in ("recompute 2", "backward 2"))
    assert "store gradients" in {by_id[wait].name for wait in backward.after}
    assert "store gradients" not in {by_id[wait].name for wait in recompute.after}


def test_next_weights_are_gathered_before_the_gradients_of_a_layer_are_reduced():
    step = generate(_training(framework="fsdp", parallelism=Parallelism(data=4, zero_stage=3)), {})
    backward = [op for op in step.operations if op.stream == "rank.collective" and op.phase == "backward" and op.layer >= 0]
    asked = [(op.name, op.layer) for op in backward]
    for layer in (1, 2, 3):
        assert asked.index(("all-gather weights", layer - 1)) < asked.index(("reduce-scatter gradients", layer))


@pytest.mark.parametrize(("buffers", "num_ahead"), [(None, 1), (4, 1), (7, 1), (8, 2), (12, 3)])
def test_swap_buffers_decide_how_many_pieces_are_read_ahead(buffers, num_ahead):
    offload = Offload(buffer_count=buffers, sub_group_elements=10_000)
    homes = {TensorClass.OPTIMIZER_STATES: "storage", TensorClass.GRADIENTS: "storage"}
    step = generate(_training(framework="deepspeed-zero", parallelism=ZERO_3, offload=offload), homes)
    names = [op.name for op in step.operations if op.stream.endswith(".storage") and op.name.endswith("states")]
    assert names.index("write states") == num_ahead
    written = sum(op.size_bytes for op in step.operations if op.name == "write states")
    assert written == pytest.approx(12 * PARAMETERS)
    assert _bytes(step, "read states") == pytest.approx(16 * PARAMETERS)  # weights, two moments, fp32 gradients
    assert _bytes(step, "write gradients") == pytest.approx(4 * PARAMETERS)


def test_full_swap_buffers_hold_the_backward_pass_until_they_are_written():
    """One buffer holds a layer: with one, each layer waits for the one before it; with many, none does."""
    homes = {TensorClass.OPTIMIZER_STATES: "storage", TensorClass.GRADIENTS: "storage"}

    def waits(buffers):
        offload = Offload(state_buffer_count=buffers, sub_group_elements=LAYER - 1000)
        step = generate(_training(framework="deepspeed-zero", parallelism=ZERO_3, offload=offload), homes)
        by_id = {op.id: op for op in step.operations}
        computed = [op for op in step.operations if op.stream == "rank.compute" and op.phase == "backward"]
        return sum(any(by_id[wait].name == "write gradients" for wait in op.after) for op in computed)

    assert waits(1) > waits(2) > 0
    assert waits(1000) == 0


def test_gradients_that_leave_are_reduced_before_the_next_layer_is_computed_again():
    step = generate(
        _training(
            framework="deepspeed-zero",
            parallelism=Parallelism(data=4, zero_stage=3),
            checkpointing=Checkpointing(active=True),
            offload=Offload(overlap_gradients=True),
        ),
        HOST,
    )
    by_id = {op.id: op for op in step.operations}
    recompute = next(op for op in step.operations if op.name == "recompute 2")
    assert "reduce-scatter gradients" in {by_id[wait].name for wait in recompute.after}


def test_smaller_swap_buffers_cut_the_update_into_more_pieces():
    homes = {TensorClass.OPTIMIZER_STATES: "storage"}

    def pieces(elements):
        offload = Offload(buffer_elements=elements)
        step = generate(_training(framework="deepspeed-zero", parallelism=ZERO_3, offload=offload), homes)
        return sum(op.name == "read states" for op in step.operations)

    assert (pieces(None), pieces(100_000)) == (1, -(-PARAMETERS // 100_000))


def test_pipeline_stages_are_rank_classes_that_send_to_each_other():
    step = generate(_training(gradient_accumulation=4, parallelism=Parallelism(pipeline=2, data=3)), {})
    assert [(c.name, c.num_ranks, c.first_rank) for c in step.rank_classes] == [("s0", 3, 0), ("s1", 3, 3)]
    sends = Counter(op.stream for op in step.operations if op.collective == "point_to_point")
    assert sends == {"s0.p2p": 4, "s1.p2p": 4}


def test_a_stage_may_hold_the_embedding_or_the_output_projection_alone():
    """Six chunks for four layers: the first and the last have none, and still send and receive."""
    step = generate(_training(gradient_accumulation=3, parallelism=Parallelism(pipeline=3, interleave=2)), {})
    names = Counter(op.name for op in step.operations if op.kind == Kind.COMPUTE and op.layer >= 0)
    assert {name for name in names if name.startswith("backward")} == {f"backward {layer}" for layer in range(4)}
    assert set(names.values()) == {3}
    assert sum(op.collective == "point_to_point" for op in step.operations) == 3 * 2 * 5
    by_id = {op.id: op for op in step.operations}
    for op in step.operations:
        if op.name in ("loss", "embedding.backward"):  # of a chunk without layers: they wait for what it receives
            assert "point_to_point" in {by_id[wait].collective for wait in op.after}


def test_ids_are_unique_and_waits_exist_and_streams_are_numbered():
    step = generate(_training(gradient_accumulation=4, parallelism=Parallelism(pipeline=2, interleave=2, data=2, tensor=2)), {})
    ids = [op.id for op in step.operations]
    assert len(set(ids)) == len(ids)
    assert {wait for op in step.operations for wait in op.after} <= set(ids)
    for stream in {op.stream for op in step.operations}:
        numbers = [op.sequence for op in step.operations if op.stream == stream]
        assert numbers == list(range(len(numbers)))


def test_no_stream_is_named_for_work_that_is_not_there():
    kinds = {op.kind for op in generate(_training(), {}).operations}
    assert kinds == {Kind.COMPUTE}


def test_refuses_plans_that_cannot_run():
    with pytest.raises(InputError, match=r"does not divide the 4 attention heads; use a divisor") as caught:
        generate(_training(parallelism=Parallelism(tensor=3, pipeline=8)), {})
    assert len(caught.value.faults) == 2
    with pytest.raises(InputError, match=r"reduce_once: gradients .* set optimizer.offload: false"):
        generate(_training(parallelism=Parallelism(data=2, reduce_once=True), optimizer=Optimizer(offload=True)), {})
    with pytest.raises(InputError, match="unknown framework 'horovod'"):
        generate(_training(framework="horovod"), {})


MIXTURE = ModelShape(
    name="mixture", layers=2, hidden=64, heads=4, ffn=256, vocabulary=1000, experts=8, experts_per_token=2, expert_ffn=128
)


def _held_s(step, phase):
    return sum(op.fixed_s for op in step.operations if op.kind == Kind.COMPUTE and op.phase == phase)


def test_hooks_of_zero_3_count_the_modules_of_experts_and_vanish_in_compiled_steps():
    def held(**fields):
        return _held_s(generate(_training(**{"framework": "deepspeed-hf", "parallelism": ZERO_3} | fields), {}), "forward")

    assert held() == pytest.approx(4 * 2.2e-3)
    assert held(model=MIXTURE) == pytest.approx(2 * 2.2e-3 * (8 + 5 * 8) / 13)
    assert held(compile=True) == 0
    assert held(parallelism=Parallelism(zero_stage=2)) == 0


def test_deepspeed_gathers_experts_one_by_one_and_fsdp_by_layer():
    def calls(framework):
        step = generate(_training(model=MIXTURE, framework=framework, parallelism=Parallelism(data=4, zero_stage=3)), {})
        gathers = [op for op in step.operations if op.name == "all-gather weights" and op.group == "expert_data"]
        assert sum(op.size_bytes * op.num_calls for op in gathers) == pytest.approx(2 * 2 * 8 * 3 * 64 * 128 * 2.0)
        return {op.num_calls for op in gathers}

    assert calls("deepspeed-hf") == {8}
    assert calls("fsdp") == {1}


def test_selective_recomputation_is_the_core_or_half_of_the_gemms():
    def flops(framework, kind):
        job = {"framework": framework, "checkpointing": Checkpointing(active=True, mode="selective")}
        step = generate(_training(**job), {})
        again = [op for op in step.operations if op.name.startswith("recompute")]
        return sum(k.flops * k.count for op in again for k in op.kernels if k.kind == kind)

    forward = 2.0 * 256 * (LAYER - 2 * 64) * 4
    assert flops("megatron", "attention") > 0
    assert flops("megatron", "gemm") == 0
    assert flops("torchtitan", "attention") == 0
    assert flops("torchtitan", "gemm") == pytest.approx(forward / 2)
