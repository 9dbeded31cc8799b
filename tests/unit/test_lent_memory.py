"""GPU memory that a Windows driver continues in host memory: where it begins and ends, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import scenario_of
from sim.experiment import Result, run
from sim.laws.kernels import TILE, zero_copy_bytes
from sim.records import Kernel
from sim.study.fit import assess
from sim.units import GIB

TRAINING = {
    "model": "llama-3.2-1b", "framework": "hf-trainer", "sequence_length": 512, "batch_size": 4,
    "adapter": {"type": "lora"},
}  # fmt: skip


def _scenario(capacity_bytes: float, lent_bytes: float = 0.0, **changes: Any) -> Any:
    settings: dict[str, Any] = {"gpu0.capacity": f"{capacity_bytes:.0f} B"}
    if lent_bytes:
        settings["shared_gpu_memory"] = f"{lent_bytes:.0f} B"
    topology = {"base": "desktop-rtx-3090", "set": settings}
    return scenario_of({"name": "lent", "topology": topology, "workload": {"training": TRAINING | changes}}).resolve()


def _need() -> float:
    return assess(_scenario(64 * GIB), with_suggestions=False).tiers["gpu0.gddr"].peak_bytes


def _run(capacity_bytes: float, lent_bytes: float = 0.0) -> Result:
    return run(_scenario(capacity_bytes, lent_bytes))


def test_a_full_gpu_spills_nothing_and_one_byte_too_many_does() -> None:
    need = int(_need()) + 1
    plain, full, spilled = _run(need), _run(need, GIB), _run(need - 2, GIB)
    assert full.summary.step_time_s == plain.summary.step_time_s
    assert not [note for note in full.assumptions if "shared GPU memory" in note]
    assert [note for note in spilled.assumptions if "shared GPU memory" in note]
    assert spilled.fits


def test_what_is_lent_is_a_limit_too() -> None:
    need = int(_need()) + 1
    assert assess(_scenario(need - GIB, GIB), with_suggestions=False).verdict == "tight"
    short = assess(_scenario(need - GIB - 2, GIB), with_suggestions=False)
    assert [item.tier for item in short.misfits] == ["gpu0.gddr"]
    assert not _run(need - GIB).fits


def test_the_host_holds_what_spilled() -> None:
    need = int(_need()) + 1
    fit = assess(_scenario(need - GIB, 2 * GIB), with_suggestions=False)
    assert fit.tiers["cpu0.dram"].by_class["spilled_gpu_memory"] == pytest.approx(GIB, rel=1e-6)


def test_more_spilled_is_slower_and_the_penalty_says_how_much() -> None:
    need = _need()
    results = [_run(need - size, 8 * GIB) for size in (0.5 * GIB, GIB, 2 * GIB)]
    seconds = [result.summary.step_time_s for result in results]
    assert seconds[0] < seconds[1] < seconds[2]
    assert all("does not fit" in result.penalty_base for result in results)
    assert results[0].offload_penalty > 1.0
    assert results[2].offload_penalty > 2.0
    assert results[-1].summary.bound_by == "cpu0->gpu0.pcie"


def test_blocks_of_a_product_fetch_their_rows_and_columns_themselves() -> None:
    def moved(m: int, n: int, k: int) -> float:
        return sum(
            zero_copy_bytes(Kernel(kind="gemm", m=m, n=n, k=k, read_bytes=2.0 * (m * k + k * n), write_bytes=2.0 * m * n))
        )

    assert moved(TILE, TILE, 64) == 2 * (2 * TILE * 64 + TILE * TILE)  # one block: each operand once
    assert moved(2 * TILE, TILE, 64) == 2 * (2 * TILE * 64 + 2 * TILE * 64 + 2 * TILE * TILE)  # two share the columns
    assert zero_copy_bytes(Kernel(kind="elementwise", read_bytes=8.0, write_bytes=4.0)) == (8.0, 4.0)
