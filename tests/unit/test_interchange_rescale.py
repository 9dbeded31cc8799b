"""Recorded kernels on another part: identity on their own, the law or the class's rate on others."""

import dataclasses
from typing import Any

import msgspec
import pytest

from sim.config import load_machine
from sim.config.parts import load_parts
from sim.errors import InputError
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
    with pytest.raises(InputError, match=r"recorded on Quadro, which is not in the part catalogue; name it: --source-part"):
        on("dgx-h100", SMALL, "Quadro", None)


def test_generated_steps_pass_untouched() -> None:
    step = recorded(msgspec.structs.replace(SMALL, recorded_s=0.0), source="")
    assert rescaled(step, load_machine("dgx-h100"), None) is step
