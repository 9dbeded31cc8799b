"""What a save needs: sharded weights that come together on the host or on every GPU, adapters merged into a whole model."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import scenario_of
from sim.study.fit import Fit, assess
from sim.workload.shapes import builtin, parameters

NUM = parameters(builtin("llama-2-13b")).total


def planned(save: dict[str, Any], topology: Any = "dgx-a100", **training: Any) -> Fit:
    job = {
        "model": "llama-2-13b", "framework": "fsdp", "parallelism": {"data": 8, "zero_stage": 3},
        "checkpointing": {"active": True}, "save": {"every": 100} | save,
    }  # fmt: skip
    return assess(scenario_of({"topology": topology, "workload": {"training": job | training}}, "case").resolve())


def at_save(found: Fit, tier: str) -> float:
    return found.phases["save"][tier]


def test_a_full_state_dict_on_every_gpu_is_the_whole_fp32_model() -> None:
    found = planned({"gathered": "gpu"})
    more = at_save(found, "gpu0.hbm") - at_save(planned({"gathered": "host"}), "gpu0.hbm")
    assert more == pytest.approx(4 * NUM * (1 + found.footprint.fragmentation))


def test_offloaded_to_the_first_rank_it_is_in_host_memory_once() -> None:
    sharded, gathered = planned({"gathered": "none"}), planned({"gathered": "host"})
    hosts = [sum(at_save(found, f"cpu{i}.dram") for i in range(2)) for found in (sharded, gathered)]
    assert hosts[1] - hosts[0] == pytest.approx(4 * NUM - 10e9)  # a shard is written file by file


def test_a_40_gb_gpu_trains_and_fails_at_the_save() -> None:
    found = planned({"gathered": "gpu"}, topology="dgx-a100-40gb")
    (need,) = found.misfits
    assert (need.tier, need.phase) == ("gpu0.hbm", "save")
    assert found.suggestions[0].change == "save.gathered: host"


def test_adapters_are_small_and_a_merged_model_is_whole() -> None:
    adapter = {"framework": "hf-trainer", "parallelism": {}, "adapter": {"type": "qlora"}}
    plain, merged = planned({}, **adapter), planned({"merged": True}, **adapter)
    assert at_save(merged, "cpu0.dram") - at_save(plain, "cpu0.dram") == pytest.approx(2 * NUM)
    assert at_save(plain, "cpu0.dram") - plain.phases["init"]["cpu0.dram"] < 200e6


def test_a_quantised_base_keeps_the_rest_in_fp32_under_peft_and_in_16_bits_under_unsloth() -> None:
    job: dict[str, Any] = {"parallelism": {}, "adapter": {"type": "qlora"}}
    sizes = [
        next(
            term.size_bytes for term in planned({}, framework=name, **job).footprint.terms if term.name == "frozen base weights"
        )
        for name in ("hf-trainer", "unsloth")
    ]
    shape = builtin("llama-2-13b")
    assert sizes[0] - sizes[1] == pytest.approx(2.0 * (2 * shape.vocabulary + 2 * shape.layers + 1) * shape.hidden)


def test_unsloth_sends_checkpoints_to_the_host_unless_told() -> None:
    job: dict[str, Any] = {"parallelism": {}, "framework": "unsloth", "adapter": {"type": "qlora"}}
    kept = planned({}, **job, checkpointing={"active": True, "offload": False})
    assert planned({}, **job).tiers["gpu0.hbm"].peak_bytes < kept.tiers["gpu0.hbm"].peak_bytes
    away = planned({}, **job, checkpointing={"active": True, "offload": True})
    assert planned({}, **job).tiers["gpu0.hbm"].peak_bytes == away.tiers["gpu0.hbm"].peak_bytes
