"""What a host limits besides memory: a container's share, page-locked memory, /dev/shm; both sides of each boundary."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import scenario_of
from sim.experiment import run
from sim.scenario import Scenario
from sim.study.fit import assess
from sim.units import GIB

OFFLOADED = {
    "model": "llama-3.2-1b", "sequence_length": 512, "framework": "deepspeed-hf", "optimizer": {"offload": True},
    "parallelism": {"zero_stage": 2}, "checkpointing": {"active": True},
    "data": {"workers": 4, "output_bytes_per_sample": "4 MB"},
}  # fmt: skip


def scenario(limits: dict[str, str], **training: Any) -> Scenario:
    topology = {"base": "desktop-rtx-4090", "set": limits}
    return scenario_of({"topology": topology, "workload": {"training": OFFLOADED | training}}, "case").resolve()


def needed(limit: str) -> float:
    return assess(scenario({limit: "1 TiB"})).tiers[limit].peak_bytes


@pytest.mark.parametrize("limit", ["memory_limit", "pinned_limit", "shared_limit"])
def test_a_limit_holds_exactly_what_is_needed_and_nothing_more(limit: str) -> None:
    size = needed(limit)
    assert size > 0
    assert assess(scenario({limit: f"{size:.0f} B"})).verdict == "tight"
    found = assess(scenario({limit: f"{size - 1:.0f} B"}))
    assert found.verdict == "does_not_fit"
    assert [need.tier for need in found.misfits] == [limit]


def test_a_machine_without_limits_has_none() -> None:
    assert not set(assess(scenario({})).tiers) & {"memory_limit", "pinned_limit", "shared_limit"}


def test_what_the_system_itself_holds_is_outside_a_container() -> None:
    found = assess(scenario({"memory_limit": "1 TiB"}))
    assert found.tiers["cpu0.dram"].peak_bytes - found.tiers["memory_limit"].peak_bytes == pytest.approx(3 * GIB)


def test_pageable_buffers_are_not_counted_as_page_locked() -> None:
    assert assess(scenario({"pinned_limit": "1 GiB"}, offload={"pin_memory": False})).tiers["pinned_limit"].peak_bytes == 0


def test_batches_in_shared_memory_are_workers_times_prefetch() -> None:
    assert needed("shared_limit") == pytest.approx(4 * 2 * 4e6)


def test_a_run_names_the_limit_and_fit_says_what_to_change() -> None:
    small = scenario({"shared_limit": "20 MB"})
    found = run(small)
    assert not found.fits
    assert "shared_limit needs 30.5 MiB of 19.1 MiB" in found.reason
    assert any("data.prefetch: 1" in item.change for item in assess(small).suggestions)


def test_streamed_weights_are_page_locked() -> None:
    inference = {"model": "llama-2-13b", "framework": "flexgen"}
    topology = {"base": "desktop-rtx-4090", "set": {"pinned_limit": "8 GiB"}}
    data = {"topology": topology, "workload": {"inference": inference}, "placement": {"weights": "dram"}}
    found = assess(scenario_of(data, "case").resolve())
    assert [need.tier for need in found.misfits] == ["pinned_limit"]
    assert found.tiers["pinned_limit"].by_class == {"weights": pytest.approx(2 * 13_015_864_320)}


def test_a_row_of_a_sweep_names_the_limit() -> None:
    from sim.report.tables import shortage

    point = run(scenario({"shared_limit": "20 MB"})).point()
    assert shortage(point) == "shared_limit needs 30.5 MiB of 19.1 MiB"
    assert shortage({"fits": False, "reason": "a tier that is not there"}) == ""


@pytest.mark.parametrize(
    ("topology", "ranks", "fits"),
    [("rtx-4090-8x", 2, True), ("rtx-4090-8x", 4, False), ("a100-80gb-4x", 4, True)],
)
def test_docker_s_shared_memory_joins_two_gpus_without_peer_access_but_not_four(topology: str, ranks: int, fits: bool) -> None:
    """nccl issues 342 and 1518: 64 MiB suffice for two GPUs and fail for four; with NVLink (issue 525) nothing is taken."""
    training = {"model": "gpt2", "framework": "ddp", "parallelism": {"data": ranks}}
    block = {"topology": {"base": topology, "set": {"shared_limit": "64 MiB"}}, "workload": {"training": training}}
    need = assess(scenario_of({"name": "nccl", **block}).resolve(), with_suggestions=False).tiers["shared_limit"]
    assert (need.verdict != "does_not_fit") == fits
    assert need.by_class.get("nccl_connections", 0.0) == (0.0 if topology.startswith("a100") else ranks * 2 * 9_637_888)
