"""Switches of the step that a user or a framework sets: graphs, overlap of experts, masks, rings, adapters' passes."""

import pytest

from sim.config import scenario_of
from sim.laws.collectives import nodes_reached
from sim.laws.kernels import RING, RING_SHARE, attention_rate
from sim.program.collectives import collective
from sim.records import TensorClass
from sim.workload import frameworks
from sim.workload.frameworks import GRAPH_LAUNCH_S, HIDDEN_EXCHANGE, HIDDEN_TENSOR
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Adapter, Offload, Optimizer, Parallelism, Training

H, LAYERS, S, B = 64, 2, 128, 2
TOKENS = B * S
SHAPE = {"layers": LAYERS, "hidden": H, "heads": 4, "ffn": 256, "vocabulary": 1000, "mlp": "gelu", "tied_embeddings": False}
DENSE = ModelShape(name="dense", **SHAPE)
MIXTURE = ModelShape(name="mixture", **SHAPE, experts=8, experts_per_token=2, expert_ffn=128)
WIDE = Parallelism(data=4, expert=4)


def _step(model=DENSE, **fields):
    job = {"model": model, "sequence_length": S, "batch_size": B, "framework": "megatron"}
    return generate(Training(**job | fields), {})


def _first(step, name):
    return next(op for op in step.operations if op.name.startswith(name))


def _kernels(step, name):
    return [kernel for op in step.operations for kernel in op.kernels if kernel.name == name]


def _bytes(step, name):
    return sum((kernel.read_bytes + kernel.write_bytes) * kernel.count for kernel in _kernels(step, name))


# ------------------------------------------------------------------------------------------------------ graphs, exchange


def test_graphs_of_the_dense_part_leave_the_experts_to_the_cpu():
    each = frameworks.profile("megatron").dispatch_s_per_kernel
    times = {
        graphs: _first(_step(MIXTURE, parallelism=WIDE, cuda_graphs=graphs), "forward 0").dispatch_s
        for graphs in ("none", "dense", "whole")
    }
    launches = times["none"] / each
    assert times["whole"] == pytest.approx(launches * GRAPH_LAUNCH_S)
    experts = 40 + 6 * MIXTURE.experts / 4
    assert times["dense"] == pytest.approx((launches - experts) * GRAPH_LAUNCH_S + experts * each)


def test_graphs_of_a_dense_model_hold_all_of_a_layer():
    dense, whole = (_first(_step(cuda_graphs=graphs), "forward 0").dispatch_s for graphs in ("dense", "whole"))
    assert dense == whole


@pytest.mark.parametrize(("asked", "hidden"), [(None, 0.0), (False, 0.0), (True, HIDDEN_EXCHANGE)])
def test_overlapped_experts_hide_a_share_of_their_exchange(asked, hidden):
    step = _step(MIXTURE, parallelism=Parallelism(data=4, expert=4, overlap_experts=asked))
    calls = {True: 0.0, False: 0.0}
    for op in step.operations:
        if op.name == "expert all-to-all":
            calls[op.stream.endswith(".exchange")] += op.num_calls
    assert calls[True] / (calls[True] + calls[False]) == pytest.approx(hidden)


@pytest.mark.parametrize(
    ("framework", "asked", "hidden"),
    [("nemo", None, HIDDEN_TENSOR), ("nemo", False, 0.0), ("fsdp", None, 0.0), ("fsdp", True, HIDDEN_TENSOR)],
)
def test_tensor_exchanges_hide_what_the_framework_or_the_user_overlaps(framework, asked, hidden):
    step = _step(parallelism=Parallelism(tensor=2, overlap_tensor=asked), framework=framework)
    calls = {True: 0.0, False: 0.0}
    for op in step.operations:
        if op.group == "tensor":
            calls[op.stream.endswith(".exchange")] += op.num_calls
    assert calls[True] / (calls[True] + calls[False]) == pytest.approx(hidden)


def _reductions(**split):
    step = _step(parallelism=Parallelism(data=4, zero_stage=3, **split), gradient_accumulation=3, framework="fsdp")
    return {op.micro_batch for op in step.operations if op.name == "reduce-scatter gradients"}


def test_sharded_gradients_are_reduced_in_each_micro_batch_or_once():
    assert _reductions() == {0, 1, 2}
    assert _reductions(reduce_once=True) == {2}


def test_torchtitan_reduces_in_fp32():
    sizes = {
        name: sum(
            op.size_bytes
            for op in _step(parallelism=Parallelism(data=4, zero_stage=3), framework=name).operations
            if op.name == "reduce-scatter gradients"
        )
        for name in ("fsdp", "torchtitan")
    }
    assert sizes["torchtitan"] == 2 * sizes["fsdp"]


def test_copies_of_a_token_reach_a_node_once():
    assert nodes_reached(8, 1) == pytest.approx(1)
    assert nodes_reached(2, 2) == pytest.approx(1.5)  # half of the pairs share a node
    assert nodes_reached(8, 1e6) == pytest.approx(8)
    assert nodes_reached(8, 1e6, 0.5) == pytest.approx(4)  # DeepSeek-V3 keeps to four of eight
    assert nodes_reached(1, 8) == nodes_reached(2, 8, 0.1) == 1  # never less than one


def test_an_exchange_by_node_moves_less_over_the_network_and_hands_each_rank_a_token_once():
    machine = scenario_of({"topology": "dgx-h100", "workload": {"training": {"model": "gpt2"}}}).resolve().machine
    members = [(node, f"gpu{index}") for node in range(2) for index in range(8)]
    plain = collective(machine, "all_to_all", 1e8, members, 0)
    once = collective(machine, "all_to_all", 1e8, members, 0, copies=(2.0, 1.0))
    found = dict(once.uses)
    for name, cost in plain.uses:
        if "nic" in name:  # 1.5 nodes for 2 copies
            assert found[name] == pytest.approx(0.75 * cost), name
        elif "nvswitch" in name:  # 1.94 of 16 ranks for 2 copies; those from the other node are handed on as well
            assert found[name] == pytest.approx(16 * (1 - (15 / 16) ** 2) * cost), name
    assert once.rate_cap > plain.rate_cap


def test_a_rank_with_several_experts_of_a_token_gets_it_once():
    machine = scenario_of({"topology": "dgx-h100", "workload": {"training": {"model": "gpt2"}}}).resolve().machine
    members = [(0, f"gpu{index}") for index in range(8)]
    plain = collective(machine, "all_to_all", 1e9, members, 0)
    once = collective(machine, "all_to_all", 1e9, members, 0, copies=(8.0, 1.0))
    assert once.rate_cap / plain.rate_cap == pytest.approx(8 / (8 * (1 - (7 / 8) ** 8)))


@pytest.mark.parametrize(
    ("framework", "asked", "copies"),
    [("megatron", None, 0.0), ("megatron", True, 2.0), ("nemo-automodel", None, 2.0), ("nemo-automodel", False, 0.0)],
)
def test_frameworks_exchange_by_node_or_by_expert(framework, asked, copies):
    step = _step(MIXTURE, framework=framework, parallelism=Parallelism(data=4, expert=4, exchange_by_node=asked))
    assert {op.num_copies for op in step.operations if op.name == "expert all-to-all"} == {copies}


# ------------------------------------------------------------------------------------------------------------- attention


def test_encoders_attend_to_all_and_decoders_to_what_precedes():
    encoder = ModelShape(name="encoder", **SHAPE, causal=False)
    (seen,) = {kernel.flops for kernel in _kernels(_step(encoder), "attention")}
    (before,) = {kernel.flops for kernel in _kernels(_step(), "attention")}
    assert seen == 2 * before
    assert _step(encoder).model_flops > _step().model_flops


def test_a_job_may_say_otherwise_than_its_model():
    (asked,) = {kernel.flops for kernel in _kernels(_step(causal=False), "attention")}
    (before,) = {kernel.flops for kernel in _kernels(_step(causal=True), "attention")}
    assert asked == 2 * before


def test_blocks_of_a_ring_run_slower_than_one_kernel_in_pytorch_only():
    part = {"compute": {"bf16": 300e12}, "attention_efficiency": {"flash2": 0.5}}
    assert attention_rate(part, "flash2" + RING, S) == pytest.approx(RING_SHARE.value * attention_rate(part, "flash2", S))
    ring = Parallelism(context=2)
    assert {k.variant for k in _kernels(_step(framework="torchtitan", parallelism=ring), "attention")} == {"flash2" + RING}
    assert {k.variant for k in _kernels(_step(framework="torchtitan"), "attention")} == {"flash2"}
    assert not any(k.variant.endswith(RING) for k in _kernels(_step(parallelism=ring), "attention"))


# --------------------------------------------------------------------------------------------------- passes over memory


def test_adapters_pass_over_inputs_and_outputs_unless_fused():
    adapter = Adapter(type="lora", rank=8, targets=("q", "o"))
    eager = _step(framework="pytorch", adapter=adapter)
    per_layer = TOKENS * 2 * (5 * H + 14 * H)  # q and o are H x H
    assert _bytes(eager, "adapters") == pytest.approx(LAYERS * per_layer)
    assert 0 < _bytes(_step(framework="pytorch", adapter=adapter, compile=True), "adapters") < LAYERS * per_layer / 2
    assert _bytes(_step(adapter=adapter), "adapters") == 0.0
    assert _bytes(_step(framework="pytorch"), "adapters") == 0.0


def test_biased_experts_pass_over_their_tokens_unless_fused():
    biased = ModelShape(name="biased", **SHAPE, experts=8, experts_per_token=2, expert_ffn=128, mlp_bias=True)
    more = _bytes(_step(biased), "elementwise") - _bytes(_step(MIXTURE), "elementwise")
    assert more == pytest.approx(1.3 * LAYERS * 2 * TOKENS * (21 * H + 12 * 128))  # Megatron's traffic
    fused = {"framework": "megatron-bridge-26.06"}
    assert _bytes(_step(biased, **fused), "elementwise") == pytest.approx(_bytes(_step(MIXTURE, **fused), "elementwise"))


@pytest.mark.parametrize(("overlapped", "waits"), [(False, True), (True, False)])
def test_a_framework_that_waits_for_a_copy_asks_for_no_weights(overlapped, waits):
    offload = Offload(overlap_gradients=overlapped)
    job = {"model": DENSE, "sequence_length": S, "batch_size": B, "framework": "deepspeed-zero", "offload": offload}
    step = generate(
        Training(**job, parallelism=Parallelism(data=4, zero_stage=3)),
        {TensorClass.OPTIMIZER_STATES: "host", TensorClass.GRADIENTS: "host"},
    )
    names = {op.id: op.name for op in step.operations}
    gathers = [op for op in step.operations if op.name == "all-gather weights" and op.phase == "backward"]
    assert any(names[one] == "cast gradients" for op in gathers for one in op.after) is waits


def test_hidden_exchanges_do_not_queue_behind_gathered_weights():
    """Tensor and data-parallel groups have communicators, and streams, of their own."""
    step = _step(framework="megatron-core", parallelism=Parallelism(data=2, tensor=2, sequence_parallel=True, zero_stage=1))
    roles = {op.stream.rsplit(".", 1)[1] for op in step.operations if op.group == "tensor" and op.category == "collective"}
    assert roles == {"compute", "exchange"}
    assert {op.stream.rsplit(".", 1)[1] for op in step.operations if op.group == "shard"} == {"collective"}


def test_each_copy_back_holds_the_update_unless_copies_are_beside_it():
    """Whatever share the GPU updates: the next piece of the CPU waits for the weights of the one before."""

    def waits(share=0.0, overlap=None):
        training = Training(
            model=DENSE,
            sequence_length=S,
            framework="deepspeed-zero",
            parallelism=Parallelism(zero_stage=3),
            optimizer=Optimizer(gpu_fraction=share),
            offload=Offload(sub_group_elements=60_000, overlap_update=overlap),
        )
        step = generate(training, {TensorClass.OPTIMIZER_STATES: "host", TensorClass.GRADIENTS: "host"})
        returned = {op.id for op in step.operations if op.name == "return weights"}
        updates = [bool(returned & set(op.after)) for op in step.operations if op.name == "cpu adamw"]
        return len(updates), sum(updates)

    pieces, waiting = waits()
    assert (pieces, waiting) == (4, 3)
    assert waits(share=0.25) == (3, 2)  # the last goes through the GPU
    assert waits(overlap=True) == (4, 0)
    assert waits(share=0.25, overlap=True) == (3, 0)
