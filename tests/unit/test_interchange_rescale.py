"""Recorded kernels on another part: identity on their own, the law or the class's rate on others."""

import dataclasses
from typing import Any

import msgspec
import pytest

from sim.config import load_machine
from sim.config.parts import load_parts
from sim.errors import InputError
from sim.interchange.kernel_class import dtype_of, kind_of, variant_of
from sim.laws.kernels import gemm_rate, memory_rate
from sim.program.rescale import ratio, rescaled
from sim.records import Kernel, Kind, RankClass, Step, StepOperation


def part(name: str) -> dict[str, Any]:
    return dataclasses.asdict(load_parts([name]).parts[name])


A100, H100 = part("a100-80gb-sxm"), part("h100-sxm")
SMALL = Kernel(kind="elementwise", recorded_s=1.5e-6)


def recorded(kernel: Kernel, source: str = "a100-80gb-sxm") -> Step:
    op = StepOperation(id="rank0.compute.0", kind=Kind.COMPUTE, stream="rank0.compute", sequence=0, kernels=(kernel,))
    return Step(name="s", operations=(op,), rank_classes=(RankClass(name="rank0", num_ranks=1),), source_part=source)


def on(machine: str, kernel: Kernel, source: str = "a100-80gb-sxm", catalogue: dict[str, Any] | None = A100) -> Kernel:
    return rescaled(recorded(kernel, source), load_machine(machine), catalogue).operations[0].kernels[0]


@pytest.mark.parametrize("catalogue", [A100, None])
def test_on_its_own_part_a_kernel_takes_what_was_recorded(catalogue: dict[str, Any] | None) -> None:
    kernel = Kernel(kind="gemm", recorded_s=3e-4, flops=1e9, read_bytes=1e6)
    assert on("dgx-a100", kernel, catalogue=catalogue) == kernel


def test_classes_scale_by_the_rate_that_binds_them() -> None:
    gemm = Kernel(kind="gemm", recorded_s=1e-3, dtype="bf16")
    assert ratio(gemm, A100, H100) == pytest.approx(gemm_rate(A100, "bf16") / gemm_rate(H100, "bf16"))
    other = Kernel(kind="elementwise", recorded_s=1e-3)
    assert ratio(other, A100, H100) == pytest.approx(memory_rate(A100) / memory_rate(H100))
    # 2 us of a kernel are its start and drain, which no part shortens
    expected = 2e-6 + (1e-3 - 2e-6) * memory_rate(A100) / memory_rate(H100)
    assert on("dgx-h100", other).recorded_s == pytest.approx(expected)
    assert on("dgx-h100", SMALL).recorded_s == SMALL.recorded_s


def test_known_flops_and_bytes_use_the_kernel_law_of_both_parts() -> None:
    flops, size = 4e12, 1e9
    kernel = Kernel(kind="gemm", recorded_s=2e-2, flops=flops, read_bytes=size)

    def law(p: dict[str, Any]) -> float:
        return float(p["launch_latency"] + flops / gemm_rate(p, "bf16") + size / memory_rate(p))

    assert ratio(kernel, A100, H100) == pytest.approx(law(H100) / law(A100))
    assert ratio(kernel, A100, A100) == 1


def test_there_and_back_is_the_identity() -> None:
    for kernel in (
        Kernel(kind="gemm", recorded_s=1e-3),
        Kernel(kind="attention", recorded_s=1e-3),
        Kernel(kind="other", recorded_s=1),
    ):
        assert ratio(kernel, A100, H100) * ratio(kernel, H100, A100) == pytest.approx(1)


def test_traffic_that_the_memory_cannot_carry_is_cut() -> None:
    kernel = Kernel(kind="elementwise", recorded_s=1e-3, read_bytes=3e9, write_bytes=1e9)  # 4 TB/s: a cache served it
    cut = on("dgx-a100", kernel)
    assert cut.recorded_s == 1e-3
    assert 0.5 * 2039e9 < (cut.read_bytes + cut.write_bytes) / 1e-3 <= 2039e9
    assert cut.read_bytes == pytest.approx(3 * cut.write_bytes)
    fits = Kernel(kind="elementwise", recorded_s=1e-3, read_bytes=5e8)
    assert on("dgx-a100", fits) == fits


def test_an_unknown_source_part_is_refused_unless_the_machine_has_it() -> None:
    with pytest.raises(
        InputError, match=r"recorded on Quadro, which is not in the part catalogue; name it with source_part: PART"
    ):
        on("dgx-h100", SMALL, "Quadro", None)


def test_generated_steps_pass_untouched() -> None:
    step = recorded(msgspec.structs.replace(SMALL, recorded_s=0.0), source="")
    assert rescaled(step, load_machine("dgx-h100"), None) is step


@pytest.mark.parametrize(
    ("name", "kind", "variant"),
    [
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "attention", "flash2"),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<>", "attention", "flash2"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<...>>", "attention", "cudnn"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention", "cudnn"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention)", "attention", "flash1"),
        ("void gemv2T_kernel_val<int, float>", "gemv", ""), ("void mul_mat_vec_q<(ggml_type)2, 1>", "gemv", "ggml"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "gemm", ""), ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNT", "gemm", ""),
        ("triton_tem_fused_addmm_3", "gemm", ""), ("triton_tem_fused_flex_attention_0", "attention", ""),
        ("triton_poi_fused__scaled_dot_product_flash_attention_addmm_view_7", "elementwise", ""),
        ("triton_red_fused__to_copy_bmm_mean_2", "elementwise", ""), ("fused_moe_kernel", "gemm", ""),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<traits>", "elementwise", ""),
        ("void vllm::paged_attention_v2_kernel<__half>", "elementwise", ""), ("_rms_norm_forward_kernel", "elementwise", ""),
    ],
)  # fmt: skip
def test_a_kernels_name_tells_its_kind_and_whose_it_is(name: str, kind: str, variant: str) -> None:
    assert (kind_of(name), variant_of(name)) == (kind, variant)


def test_the_same_generation_of_attention_runs_on_the_other_part() -> None:
    def gain(variant: str) -> float:
        return 1.0 / ratio(Kernel(kind="attention", recorded_s=1e-3, variant=variant), A100, H100)

    shares = [gpu["attention_efficiency"] for gpu in (A100, H100)]
    assert gain("flash2") == pytest.approx(gain("") * shares[0].get("default") / shares[0]["flash2"])
    assert gain("flash2") < 2.5 < gain("cudnn")  # Hopper gives the second generation no more than its peak


def test_matrix_vector_products_scale_by_the_share_of_the_memory_that_they_reach() -> None:
    kernel = Kernel(kind="gemv", recorded_s=1e-3, flops=1e12, read_bytes=1e9)  # its FLOPs do not bind it
    gddr = part("rtx-4090")
    plain = ratio(kernel, A100, gddr)
    assert plain == pytest.approx(memory_rate(A100) / memory_rate(gddr))
    assert ratio(msgspec.structs.replace(kernel, variant="ggml"), A100, gddr) < plain


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("nvjet_tst_256x256_64x4_2x1_v_bz_TNN", "bf16"), ("nvjet_sm100_tst_64x32_64x16_2cta_TNT", "bf16"),
        ("nvjet_hsh_128x256_64x4_TNT", "fp16"), ("nvjet_sm90_qqtst_128x128_TNT", "fp8"), ("nvjet_sss_64x64_TNT", "tf32"),
        ("ampere_fp16_s16816gemm_fp16_128x64", "fp16"), ("cutlass_80_tensorop_bf16_s16816gemm", "bf16"),
    ],
)  # fmt: skip
def test_a_products_name_tells_its_numbers(name: str, dtype: str) -> None:
    assert dtype_of(name) == dtype
