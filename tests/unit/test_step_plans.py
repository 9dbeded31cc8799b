"""Plans by definition: adapters, context and expert parallelism, hybrid sharding. Amounts by hand, both sides of limits."""

import pytest

from sim.errors import InputError
from sim.records import TensorClass
from sim.workload.footprint.counts import quantised_bytes
from sim.workload.shape import ModelShape
from sim.workload.step import generate
from sim.workload.training import Adapter, Checkpointing, Parallelism, Training

H, FFN, V, LAYERS, S, B = 64, 256, 1000, 4, 128, 2
DENSE = ModelShape(name="dense", layers=LAYERS, hidden=H, heads=4, ffn=FFN, vocabulary=V, mlp="gelu", tied_embeddings=False)
MIXTURE = ModelShape(
    name="mixture", layers=LAYERS, hidden=H, heads=4, ffn=FFN, vocabulary=V, experts=8, experts_per_token=2, expert_ffn=128
)
MAPS = 4 * H * H + 2 * H * FFN  # weights of one dense layer's matrices
TOKENS = B * S


def _step(**fields):
    job = {"model": DENSE, "sequence_length": S, "batch_size": B, "framework": "pytorch"}
    return generate(Training(**job | fields), {})


def _flops(step, phase, kind="gemm"):
    ops = (op for op in step.operations if op.phase == phase)
    return sum(k.flops * k.count for op in ops for k in op.kernels if k.kind == kind)


def _moved(step, name, group=None):
    ops = (op for op in step.operations if op.name == name and group in (None, op.group))
    return sum(op.size_bytes * op.num_calls for op in ops)


def _resident(step, tensor_class):
    return sum(item.size_bytes for item in step.resident if item.tensor_class == tensor_class)


# ------------------------------------------------------------------------------------------------------------ adapters


def test_lora_trains_the_adapters_alone():
    rank = 8
    step = _step(adapter=Adapter(type="lora", rank=rank, targets=("all",)), parallelism=Parallelism(data=2))
    full = _step(parallelism=Parallelism(data=2))
    adapter = LAYERS * rank * (4 * (H + H) + (H + FFN) + (FFN + H))  # q k v o up down
    assert _moved(step, "all-reduce gradients") == pytest.approx(2 * adapter)
    assert _resident(step, TensorClass.OPTIMIZER_STATES) == pytest.approx(8 * adapter)
    assert _resident(step, TensorClass.WEIGHTS) == pytest.approx(_resident(full, TensorClass.WEIGHTS) + 2 * adapter)


def test_lora_skips_the_weight_gradients_of_the_base():
    rank = 8
    step = _step(adapter=Adapter(type="lora", rank=rank, targets=("q", "v")))
    extra = LAYERS * 2 * (H + H) * rank
    assert _flops(step, "forward") == pytest.approx(2 * TOKENS * (LAYERS * MAPS + extra))
    assert _flops(step, "backward") == pytest.approx(2 * TOKENS * (LAYERS * MAPS + 2 * extra))
    assert step.model_flops < _step().model_flops


def test_qlora_dequantises_the_base_before_each_use_and_keeps_it_quantised():
    adapter = Adapter(type="qlora", base="nf4", rank=8, targets=("all",))
    job = Training(model=DENSE, sequence_length=S, batch_size=B, framework="pytorch", adapter=adapter)
    step, lora = generate(job, {}), _step(adapter=Adapter(type="lora", rank=8, targets=("all",)))
    written = sum(
        (k.read_bytes + k.write_bytes) * k.count
        for op in step.operations
        for k in op.kernels
        if k.name.startswith("dequantise")
    )
    assert written == pytest.approx(2 * LAYERS * MAPS * (quantised_bytes(job) + 2.0))
    assert _flops(step, "forward") == _flops(lora, "forward")
    assert _resident(step, TensorClass.WEIGHTS) < 0.5 * _resident(lora, TensorClass.WEIGHTS)


def test_qlora_gathers_quantised_weights():
    adapter, split = Adapter(type="qlora", base="nf4", rank=8, targets=("all",)), Parallelism(data=4, zero_stage=3)
    quantised = _moved(_step(adapter=adapter, parallelism=split, framework="fsdp"), "all-gather weights")
    whole = _moved(_step(adapter=Adapter(type="lora", rank=8), parallelism=split, framework="fsdp"), "all-gather weights")
    assert 0.2 < quantised / whole < 0.35


# --------------------------------------------------------------------------------------------------- context parallelism


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_context_ranks_share_tokens_and_attention_and_gather_keys_and_values(ranks):
    step, whole = _step(parallelism=Parallelism(context=ranks)), _step()
    for phase in ("forward", "backward"):
        assert _flops(step, phase) == pytest.approx(_flops(whole, phase) / ranks)
        assert _flops(step, phase, "attention") == pytest.approx(_flops(whole, phase, "attention") / ranks)
    passes = 3 if ranks > 1 else 0  # one forward, two backward
    assert _moved(step, "context all-gather") == pytest.approx(passes * LAYERS * TOKENS * 2 * H * 2.0)
    assert step.num_tokens == whole.num_tokens
    assert step.model_flops == whole.model_flops


def test_context_ranks_reduce_gradients_like_data_ranks():
    context = _step(parallelism=Parallelism(context=4, zero_stage=2))
    data = _step(parallelism=Parallelism(data=4, zero_stage=2))
    assert _moved(context, "reduce-scatter gradients") == _moved(data, "reduce-scatter gradients") > 0
    assert _resident(context, TensorClass.OPTIMIZER_STATES) == _resident(data, TensorClass.OPTIMIZER_STATES)


# ---------------------------------------------------------------------------------------------------- expert parallelism

ROUTED = LAYERS * 8 * 3 * H * 128  # gated experts


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_expert_ranks_share_the_experts_and_exchange_their_tokens(ranks):
    step = _step(model=MIXTURE, parallelism=Parallelism(data=8, expert=ranks))
    alone = _step(model=MIXTURE, parallelism=Parallelism(data=8))
    saved = 2 * ROUTED * (1 - 1 / ranks)
    assert _resident(step, TensorClass.WEIGHTS) == pytest.approx(_resident(alone, TensorClass.WEIGHTS) - saved)
    assert _flops(step, "forward") == pytest.approx(_flops(alone, "forward"))  # a balanced router
    copies = TOKENS * 2
    exchanged = 4 * LAYERS * copies * H * 2.0 if ranks > 1 else 0.0  # to the experts and back, forward and backward
    assert _moved(step, "expert all-to-all") == pytest.approx(exchanged)
    reduced = _moved(step, "all-reduce gradients", "expert_data")
    assert reduced == pytest.approx(2 * ROUTED / ranks if ranks < 8 else 0.0)


def test_expert_group_divides_ranks_and_experts():
    _step(model=MIXTURE, parallelism=Parallelism(data=8, expert=8))
    for split in (Parallelism(data=6, expert=4), Parallelism(data=16, expert=16)):
        with pytest.raises(InputError, match="expert"):
            _step(model=MIXTURE, parallelism=split)


def test_experts_wider_than_the_data_ranks_are_whole_on_their_rank_and_others_are_split_over_the_tensor_ranks():
    narrow = _step(model=MIXTURE, framework="megatron-core", parallelism=Parallelism(data=4, tensor=2, expert=4))
    wide = _step(model=MIXTURE, framework="megatron-core", parallelism=Parallelism(data=4, tensor=2, expert=8))
    dense = _resident(wide, TensorClass.WEIGHTS) - 2 * ROUTED / 8
    assert _resident(narrow, TensorClass.WEIGHTS) == pytest.approx(dense + 2 * ROUTED / (4 * 2))
    shapes = {
        name: next(k for op in step.operations for k in op.kernels if k.name == "expert_out")
        for name, step in (("narrow", narrow), ("wide", wide))
    }
    assert (shapes["narrow"].k, shapes["wide"].k) == (64, 128)
    assert shapes["narrow"].flops * shapes["narrow"].count == pytest.approx(shapes["wide"].flops * shapes["wide"].count)


# ------------------------------------------------------------------------------------------------------- hybrid sharding


@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_hybrid_sharding_reduces_within_and_across_the_groups(shards):
    split = Parallelism(data=8, zero_stage=3, shard_group=shards)
    step = _step(framework="fsdp", parallelism=split)
    parameters = LAYERS * (MAPS + 2 * H) + 2 * V * H + H
    assert _resident(step, TensorClass.OPTIMIZER_STATES) == pytest.approx(8 * parameters / shards)
    scattered = _moved(step, "reduce-scatter gradients", "shard")
    across = _moved(step, "all-reduce gradients", "replica")
    assert scattered == pytest.approx(2 * parameters if shards > 1 else 0.0)
    assert across == pytest.approx(2 * parameters / shards if shards < 8 else 0.0)
    assert (_moved(step, "all-gather weights") > 0) == (shards > 1)


def test_shard_group_divides_the_data_ranks():
    with pytest.raises(InputError, match="shard_group"):
        _step(parallelism=Parallelism(data=8, zero_stage=3, shard_group=3))


# ------------------------------------------------------------------------------------------------------- recomputation


@pytest.mark.parametrize("layers", [0, 1, 3, 4])
def test_recomputation_covers_the_layers_that_are_checkpointed(layers):
    step = _step(checkpointing=Checkpointing(active=True, layers=layers))
    again = _flops(step, "backward") - _flops(_step(), "backward")
    assert again == pytest.approx(layers * 2 * TOKENS * MAPS)


def test_selective_recomputation_runs_the_attention_core_again():
    step, whole = _step(checkpointing=Checkpointing(active=True, mode="selective")), _step()
    assert _flops(step, "backward") == _flops(whole, "backward")
    again = _flops(step, "backward", "attention") - _flops(whole, "backward", "attention")
    assert again == pytest.approx(_flops(whole, "forward", "attention"))
