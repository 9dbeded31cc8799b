"""Inference steps: sizes, order of streams, what moves where."""

import pytest

from sim.errors import InputError
from sim.records import Kind, TensorClass
from sim.workload.decode import generate
from sim.workload.decode.generate import sampled_tokens
from sim.workload.decode.sizes import Sizes
from sim.workload.footprint.inference import inference_footprint
from sim.workload.inference import Inference
from sim.workload.shapes import builtin, parameters

LLAMA = builtin("llama-2-7b")


def test_weights_of_a_pass_are_the_model():
    sizes = Sizes(Inference(model=LLAMA))
    total = parameters(LLAMA)
    assert LLAMA.layers * sizes.layer_bytes + sizes.head_bytes == pytest.approx(2.0 * (total.total - total.embedding))


def test_kv_cache_of_llama_2_7b_is_half_a_mebibyte_per_token():
    sizes = Sizes(Inference(model=LLAMA))
    assert LLAMA.layers * sizes.kv_bytes_per_token == 512 * 1024


@pytest.mark.parametrize(("tokens", "share"), [(1.0, 2 / 8), (1e9, 1.0)])
def test_a_mixture_reads_its_routed_experts(tokens, share):
    sizes = Sizes(Inference(model=builtin("mixtral-8x7b")))
    count = sizes.count
    routed = count.expert * count.experts * count.moe_layers / count.layers
    assert sizes.read_share(tokens) == pytest.approx(1 - routed * (1 - share))


def test_sampled_tokens_cover_both_ends():
    assert sampled_tokens(1) == ()
    assert sampled_tokens(2) == (1,)
    assert sampled_tokens(3) == (1, 2)
    assert sampled_tokens(4) == (1, 2, 3)
    assert sampled_tokens(129) == (1, 2, 65, 128)


def test_resident_weights_move_nothing():
    step = generate(Inference(model=LLAMA), {})
    assert {operation.kind for operation in step.operations} == {Kind.COMPUTE}


def test_streamed_weights_are_fetched_once_per_pass_one_layer_ahead():
    step = generate(Inference(model=LLAMA, output_length=2), {TensorClass.WEIGHTS: "host"})
    fetches = [operation for operation in step.operations if operation.name == "fetch weights"]
    assert len(fetches) == 2 * LLAMA.layers
    assert fetches[0].after == ()
    assert fetches[1].after == ()  # beside the compute of layer 0
    assert fetches[2].after == ("rank.compute.0",)


def test_cpu_layers_stay_on_the_cpu_in_decode_and_are_copied_for_a_long_prompt():
    step = generate(Inference(model=LLAMA, gpu_layers=20, prompt_length=512), {})
    decode = [operation for operation in step.operations if operation.phase == "decode" and operation.stream.endswith(".cpu")]
    assert {operation.layer for operation in decode} == {-1, *range(12)}  # -1: the head
    prefill = [operation for operation in step.operations if operation.phase == "prefill"]
    assert sum(operation.name == "fetch weights" for operation in prefill) == 12
    on_cpu = [operation for operation in prefill if operation.stream.endswith(".cpu")]
    on_cpu = [operation for operation in on_cpu if operation.name != "logits"]
    assert {(operation.kind, operation.name) for operation in on_cpu} == {(Kind.HOST_WORK, "attention")}
    assert [operation.layer for operation in on_cpu] == list(range(12))  # where the layer's cache lies
    on_gpu = [op for op in prefill if op.kind == Kind.COMPUTE]
    attended = [op.layer for op in on_gpu for kernel in op.kernels if kernel.kind == "attention"]
    assert attended == list(range(12, LLAMA.layers))


def test_kv_elsewhere_is_fetched_and_stored():
    step = generate(Inference(model=LLAMA, output_length=2), {TensorClass.KV_CACHE: "host"})
    decode = [operation for operation in step.operations if operation.phase == "decode"]
    fetched = sum(operation.size_bytes for operation in decode if operation.name == "fetch KV")
    stored = sum(operation.size_bytes for operation in decode if operation.name == "store KV")
    assert fetched == pytest.approx(512 * 512 * 1024)
    assert stored == pytest.approx(512 * 1024)


@pytest.mark.parametrize(("reused", "is_refused"), [(511, False), (512, True)])
def test_reuse_must_leave_a_token(reused, is_refused):
    inference = Inference(model=LLAMA, prompt_length=512, reused_tokens=reused)
    if is_refused:
        with pytest.raises(InputError, match="leaves nothing of a prompt of 512 tokens"):
            generate(inference, {})
    else:
        assert generate(inference, {}).num_tokens == 128


@pytest.mark.parametrize(("layers", "is_refused"), [(32, False), (33, True)])
def test_gpu_layers_are_at_most_the_model(layers, is_refused):
    inference = Inference(model=LLAMA, gpu_layers=layers)
    if is_refused:
        with pytest.raises(InputError, match="gpu_layers 33 of a model with 32 layers"):
            generate(inference, {})
    else:
        generate(inference, {})


def test_stages_hand_over_their_hidden_states():
    step = generate(Inference(model=LLAMA, pipeline_parallel=2, output_length=1), {})
    sends = [operation for operation in step.operations if operation.collective == "point_to_point"]
    assert [operation.size_bytes for operation in sends] == [2.0 * 512 * LLAMA.hidden]
    assert [rank.name for rank in step.rank_classes] == ["s0", "s1"]


def test_attention_on_the_cpu_leaves_the_cache_where_it_is():
    step = generate(Inference(model=LLAMA, output_length=2, framework="flexgen"), {TensorClass.KV_CACHE: "host"})
    decode = [operation for operation in step.operations if operation.phase == "decode"]
    assert not any(operation.name == "fetch KV" for operation in decode)
    attention = [operation for operation in decode if operation.name == "attention"]
    # the fp16 cache read, written as fp32, copied to be contiguous and read again: nine bytes per byte
    assert sum(op.num_elements * op.bytes_per_element for op in attention) == pytest.approx(9 * 513 * 512 * 1024)


def test_attention_on_the_cpu_reads_a_cache_on_a_drive_first():
    step = generate(Inference(model=LLAMA, output_length=2, framework="flexgen"), {TensorClass.KV_CACHE: "storage"})
    reads = [operation for operation in step.operations if operation.name == "read KV"]
    assert {(operation.kind, operation.source, operation.target) for operation in reads} == {(Kind.IO, "home:kv_cache", "dram")}
    assert sum(operation.size_bytes for operation in reads) == pytest.approx(512 * 512 * 1024)
    attention = [operation for operation in step.operations if operation.name == "attention"]
    assert [read.id in operation.after for read, operation in zip(reads, attention, strict=True)] == [True] * LLAMA.layers


@pytest.mark.parametrize(("kv_cache", "is_on_cpu"), [("fp16", True), ("int4", False)])
def test_a_compressed_cache_is_attended_on_the_gpu(kv_cache, is_on_cpu):
    inference = Inference(model=LLAMA, output_length=2, framework="flexgen", kv_cache=kv_cache)
    step = generate(inference, {TensorClass.KV_CACHE: "host"})
    assert any(operation.name == "attention" for operation in step.operations) == is_on_cpu
    kernels = [kernel for op in step.operations if op.phase == "decode" for kernel in op.kernels]
    unpacked = sum(kernel.read_bytes for kernel in kernels if kernel.name == "dequantise")
    elements = 513 * 512 * 1024 / 2  # of an fp16 cache
    assert unpacked == pytest.approx(0.0 if is_on_cpu else 17 * elements)


@pytest.mark.parametrize(("framework", "weights", "dtype"), [("auto", "mxfp4", "fp4"), ("llama.cpp", "mxfp4", "fp16")])
def test_ggml_multiplies_no_number_format_of_the_gpu_directly(framework, weights, dtype):
    step = generate(Inference(model=builtin("gpt-oss-20b"), framework=framework, weights=weights, output_length=1), {})
    assert {kernel.dtype for op in step.operations for kernel in op.kernels if kernel.kind == "gemm"} == {dtype}


@pytest.mark.parametrize(("prompt", "passes"), [(512, 1), (513, 2)])
def test_llama_cpp_reads_the_weights_once_per_512_tokens_of_a_prompt(prompt, passes):
    step = generate(Inference(model=LLAMA, framework="llama.cpp", prompt_length=prompt, output_length=1), {})
    gemms = [kernel for op in step.operations for kernel in op.kernels if kernel.kind == "gemm"]
    weights = parameters(LLAMA)
    read = sum(kernel.read_bytes * kernel.count for kernel in gemms)
    assert read == pytest.approx(passes * 2.0 * (weights.total - weights.embedding - weights.head - weights.final_norm))
    once = generate(Inference(model=LLAMA, prompt_length=prompt, output_length=1), {})
    flops = sum(kernel.flops * kernel.count for op in once.operations for kernel in op.kernels if kernel.kind == "gemm")
    assert sum(kernel.flops * kernel.count for kernel in gemms) == pytest.approx(flops)


def test_chunks_of_a_prompt_overlap_between_stages():
    inference = Inference(model=LLAMA, framework="llama.cpp", prompt_length=1024, output_length=1, pipeline_parallel=2)
    sends = [op for op in generate(inference, {}).operations if op.collective == "point_to_point"]
    assert [op.size_bytes for op in sends] == [2.0 * 512 * LLAMA.hidden] * 2
    first = [op for op in generate(inference, {}).operations if op.id == f"s0.compute.{LLAMA.layers // 2}"]
    assert first[0].after == ()  # the second chunk starts when the first stage is free, not when the first chunk is done


@pytest.mark.parametrize(("ranks", "join_s"), [(1, 0.0), (2, 0.28e-3), (6, 0.84e-3)])
def test_the_host_joins_rows_that_llama_cpp_splits(ranks, join_s):
    step = generate(Inference(model=LLAMA, framework="llama.cpp", tensor_parallel=ranks, output_length=2), {})
    decode = [op for op in step.operations if op.phase == "decode" and op.layer >= 0]
    assert [op.fixed_s for op in decode] == pytest.approx([join_s] * LLAMA.layers)
    assert not any(op.kind == Kind.COLLECTIVE for op in decode)


@pytest.mark.parametrize(("is_prefetched", "waits"), [(None, False), (True, False), (False, True)])
def test_prefetch_can_be_switched_off(is_prefetched, waits):
    inference = Inference(model=LLAMA, output_length=1, is_prefetched=is_prefetched)
    fetches = [op for op in generate(inference, {TensorClass.WEIGHTS: "host"}).operations if op.name == "fetch weights"]
    assert (fetches[1].after == ("rank.compute.0",)) == waits


def test_unknown_frameworks_are_refused_with_a_suggestion():
    with pytest.raises(InputError, match=r"unknown framework 'flexgn'; did you mean 'flexgen'\?"):
        generate(Inference(model=LLAMA, framework="flexgn"), {})


@pytest.mark.parametrize(("gpu_layers", "firsts"), [(None, [0, 16]), (20, [0, 22]), (2, [0, 31])])
def test_stages_share_the_layers_that_are_on_gpus(gpu_layers, firsts):
    inference = Inference(model=LLAMA, framework="llama.cpp", pipeline_parallel=2, gpu_layers=gpu_layers, output_length=2)
    decode = [op for op in generate(inference, {}).operations if op.phase == "decode" and op.layer >= 0]
    starts = {stage: min(op.layer for op in decode if op.stream.startswith(f"{stage}.")) for stage in ("s0", "s1")}
    assert [starts["s0"], starts["s1"]] == firsts
    assert {op.stream for op in decode if op.stream.endswith(".cpu")} <= {"s0.cpu"}


@pytest.mark.parametrize(("reused", "kept_bytes"), [(0, 0.0), (100, 100 * 512 * 1024)])
def test_kept_kv_takes_room_where_it_is_kept(reused, kept_bytes):
    inference = Inference(model=LLAMA, reused_tokens=reused, reuse_tier="nvme" if reused else "")
    found = inference_footprint(inference, {})
    assert sum(term.size_bytes for term in found.terms if term.tier == "nvme") == pytest.approx(kept_bytes)


@pytest.mark.parametrize(("tokens", "num_passes"), [(512, 1), (256, 2), (2, 256)])
def test_each_pass_of_a_prompt_reads_the_cache_behind_it_again(tokens, num_passes):
    inference = Inference(
        model=LLAMA, framework="llama.cpp-2025", prompt_length=2560, reused_tokens=2048, prefill_tokens=tokens
    )
    kernels = [kernel for op in generate(inference, {}).operations for kernel in op.kernels if kernel.name == "attention"]
    cached = (2048 + 256) * 512 * 1024
    assert sum(kernel.read_bytes for kernel in kernels) == pytest.approx(num_passes * cached)
    assert {kernel.variant for kernel in kernels} == {"flash2"}


@pytest.mark.parametrize(
    ("model", "more", "num_kernels"),
    [("mixtral-8x7b", {}, 8), ("gpt-oss-20b", {}, 10), ("llama-2-7b", {}, 0), ("mixtral-8x7b", {"cpu_moe_layers": 32}, 8)],
)
def test_a_mixtures_router_launches_kernels_of_its_own(model, more, num_kernels):
    inference = Inference(model=builtin(model), framework="llama.cpp", prompt_length=8, output_length=2, **more)
    layer = next(op for op in generate(inference, {}).operations if op.phase == "decode" and op.kernels)
    assert sum(kernel.count for kernel in layer.kernels if kernel.name == "routing") == num_kernels
